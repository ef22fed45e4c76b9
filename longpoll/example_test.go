package longpoll_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
)

// get calls a handler as a server does, and returns the answer.
func get(h http.HandlerFunc, target string) string {
	w := httptest.NewRecorder()
	h(w, httptest.NewRequest(http.MethodGet, target, nil))
	return fmt.Sprintf("%d %q", w.Code, w.Body)
}

// A client that has seen 3 entries waits for the fourth.
func ExampleWait() {
	polls, err := purgatory.New[string](purgatory.Options{})
	if err != nil {
		panic(err)
	}
	defer polls.Shutdown(context.Background())
	var entries atomic.Int64
	entries.Store(3)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if longpoll.Wait(w, r, polls, func() bool { return entries.Load() > 3 }, "news") {
			fmt.Fprint(w, "entry ", entries.Load())
		}
	}
	fmt.Println(get(handler, "/feeds/news?wait=1ms"))

	go func() {
		entries.Add(1)                 // first the change,
		polls.CheckAndComplete("news") // then the call
	}()
	fmt.Println(get(handler, "/feeds/news?wait=30s"))

	polls.Close() // as http.Server.RegisterOnShutdown calls it
	entries.Store(3)
	fmt.Println(get(handler, "/feeds/news"))
	// Output:
	// 204 ""
	// 200 "entry 4"
	// 503 "the server is shutting down\n"
}

// The same with a Threshold, which visits only the polls that can be answered.
func ExampleWaitGoals() {
	var entries atomic.Int64
	polls, err := purgatory.NewThreshold(func(string) int64 { return entries.Load() }, purgatory.Options{})
	if err != nil {
		panic(err)
	}
	defer polls.Shutdown(context.Background())
	handler := func(w http.ResponseWriter, r *http.Request) {
		next := purgatory.Goal[string, int64]{Key: "news", Number: 1}
		if longpoll.WaitGoals(w, r, polls, purgatory.All, next) {
			fmt.Fprint(w, "entry ", entries.Load())
		}
	}
	go func() { polls.Advance("news", entries.Add(1)) }()
	fmt.Println(get(handler, "/feeds/news"))
	// Output: 200 "entry 1"
}

// Polls bounds the pending polls of each client, and counts them.
func ExamplePolls() {
	polls, err := longpoll.New(longpoll.Options{
		MaxWait:      2 * time.Minute,
		Client:       func(r *http.Request) string { return r.Header.Get("Account") },
		MaxPerClient: 1,
	})
	if err != nil {
		panic(err)
	}
	var second string
	handler := func(w http.ResponseWriter, r *http.Request) {
		ready := polls.Serve(w, r, func(context.Context, time.Duration) error {
			// An Await of a purgatory. While this poll waits, its client sends another one.
			second = get(func(w http.ResponseWriter, r *http.Request) {
				polls.Serve(w, r, func(context.Context, time.Duration) error { return nil })
			}, "/")
			return nil
		})
		if ready {
			fmt.Fprint(w, "ready")
		}
	}
	fmt.Println(get(handler, "/"))
	fmt.Println(second)
	s := polls.Stats()
	fmt.Println(s.Pending, "pending,", s.Ready, "ready,", s.Limited, "limited")
	// Output:
	// 200 "ready"
	// 429 "too many polls of one client wait here\n"
	// 0 pending, 1 ready, 1 limited
}

package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/webhook"
)

var secret = []byte("a secret from the configuration")

// A timer's call is made when the timer is due; the receiver verifies its signature.
func Example() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || webhook.Verify(secret, r.Header, body, time.Now(), 5*time.Minute) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Println(r.Method, r.URL.Path, string(body), r.Header.Get("Limbo-Timer"), "attempt", r.Header.Get("Limbo-Attempt"))
	}))
	defer receiver.Close()

	engine, err := memstore.New(memstore.Options{}) // programs use pebblestore or redisstore
	if err != nil {
		panic(err)
	}
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		panic(err)
	}
	defer timers.Close()
	body, err := webhook.Encode(webhook.Call{URL: receiver.URL + "/remind", Body: []byte(`{"order":7}`)})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if _, err := timers.Schedule(ctx, durable.Timer{Key: "order-7", Body: body}); err != nil {
		panic(err)
	}

	h, err := webhook.New(webhook.Options{
		Secret: secret,
		Allow:  []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, // for the test
	})
	if err != nil {
		panic(err)
	}
	defer h.Close()
	worker, err := timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		defer stop() // a program runs until it is told to stop
		return h.Handle(ctx, f)
	}, durable.WorkerOptions{Concurrency: 64})
	if err != nil {
		panic(err)
	}
	fmt.Println(worker.Run(ctx))
	stats := h.Stats()
	fmt.Println(stats.Calls, "call,", stats.Done, "done")
	// Output:
	// POST /remind {"order":7} order-7 attempt 1
	// <nil>
	// 1 call, 1 done
}

// Encode refuses a call that could not be made.
func ExampleEncode() {
	_, err := webhook.Encode(webhook.Call{URL: "ftp://example.com/remind"})
	var wrong *webhook.FieldError
	if errors.As(err, &wrong) {
		fmt.Println(wrong.Field, wrong.Value)
	}
	// Output: url "ftp://example.com/remind"
}

// Calls go only to public addresses, unless others are allowed.
func ExampleAddressError() {
	h, err := webhook.New(webhook.Options{})
	if err != nil {
		panic(err)
	}
	defer h.Close()
	body, err := webhook.Encode(webhook.Call{URL: "http://10.1.2.3/admin"})
	if err != nil {
		panic(err)
	}
	err = h.Handle(context.Background(), durable.Fired{Key: "order-7", Attempt: 1, Body: body})
	var refused *webhook.AddressError
	if errors.As(err, &refused) {
		fmt.Println("refused:", refused.Addr)
	}
	// Output: refused: 10.1.2.3
}

// A reply that is not 2xx is an error with its status and the start of its body.
func ExampleStatusError() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such order", http.StatusNotFound)
	}))
	defer receiver.Close()
	h, err := webhook.New(webhook.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}})
	if err != nil {
		panic(err)
	}
	defer h.Close()
	body, err := webhook.Encode(webhook.Call{Method: http.MethodPut, URL: receiver.URL + "/orders/7"})
	if err != nil {
		panic(err)
	}
	err = h.Handle(context.Background(), durable.Fired{Key: "order-7", Attempt: 1, Body: body})
	var status *webhook.StatusError
	if errors.As(err, &status) {
		fmt.Printf("%d %q\n", status.Status, status.Reply)
	}
	// Output: 404 "no such order"
}

// A receiver in another language computes the same value.
func ExampleSign() {
	at := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	body := []byte(`{"order":7}`)
	header := http.Header{}
	header.Set(webhook.HeaderID, "0123456789abcdef0123456789abcdef")
	header.Set(webhook.HeaderSignature, webhook.Sign(secret, at, header.Get(webhook.HeaderID), body))

	fmt.Println(webhook.Verify(secret, header, body, at.Add(time.Minute), 5*time.Minute))
	fmt.Println(webhook.Verify(secret, header, body, at.Add(time.Hour), 5*time.Minute))
	fmt.Println(webhook.Verify(secret, header, []byte(`{"order":8}`), at, 5*time.Minute))
	// Output:
	// <nil>
	// webhook: invalid signature: it is 1h0m0s old, must be at most 5m0s
	// webhook: invalid signature
}

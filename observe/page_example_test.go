package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// newFetches returns a registry with a purgatory that holds fetches of two topics.
func newFetches() (*observe.Registry, *purgatory.Purgatory[string]) {
	fetches, err := purgatory.New[string](purgatory.Options{})
	if err != nil {
		panic(err)
	}
	r := observe.New()
	if _, err := r.Add("fetches", observe.Purgatory(fetches, strings.ToUpper)); err != nil {
		panic(err)
	}
	for _, topics := range [][]string{{"orders"}, {"orders", "payments"}} {
		if _, err := fetches.TryCompleteElseWatch(context.Background(), fetch{}, time.Hour, topics...); err != nil {
			panic(err)
		}
	}
	return r, fetches
}

// Snapshot reads the metrics without Prometheus.
func ExampleRegistry_Snapshot() {
	wheel, err := timingwheel.New(func(int) {}, timingwheel.Options{})
	if err != nil {
		panic(err)
	}
	defer wheel.Shutdown(context.Background(), timingwheel.Discard)
	_, _ = wheel.Schedule(1, time.Hour)
	_, _ = wheel.Schedule(2, time.Hour)

	r := observe.New()
	if _, err := r.Add("timeouts", observe.Wheel(wheel)); err != nil {
		panic(err)
	}
	for _, source := range r.Snapshot().Sources {
		fmt.Println(source.Kind, source.Name, source.Metrics["timers"])
		if late, ok := source.Metrics["late_seconds"].(observe.Durations); ok {
			fmt.Println(late.Count, "have run")
		}
		for _, ring := range source.Levels {
			fmt.Println(ring.Pending, "on a level of", len(ring.Buckets), "buckets")
		}
	}
	// Output:
	// wheel timeouts 2
	// 0 have run
	// 0 on a level of 128 buckets
	// 2 on a level of 128 buckets
}

// The handler serves the page and its data, at any path of your own server.
func ExampleNewHandler() {
	r, fetches := newFetches()
	defer fetches.Shutdown(context.Background())
	h := observe.NewHandler(r)
	mux := http.NewServeMux()
	mux.Handle("/limbo/", http.StripPrefix("/limbo", h))
	server := httptest.NewServer(mux)
	defer server.Close()
	defer h.Close() // ends the streams

	var lists observe.Lists
	read(server.URL+"/limbo/lists.json?kind=purgatory&name=fetches", &lists)
	for _, hot := range lists.Keys {
		fmt.Println(hot.Key, hot.Watching)
	}
	operations := 0
	for _, group := range lists.Oldest {
		operations += group.Count
	}
	fmt.Println(operations, "operations in", len(lists.Oldest), "groups")

	var found observe.Found
	read(server.URL+"/limbo/search.json?kind=purgatory&name=fetches&key=PAY", &found)
	for _, waiting := range found.Found {
		fmt.Println(waiting.Keys, waiting.Age < 3600)
	}
	// Output:
	// ORDERS 2
	// PAYMENTS 1
	// 2 operations in 2 groups
	// [ORDERS PAYMENTS] true
}

func read(url string, v any) {
	reply, err := http.Get(url)
	if err != nil {
		panic(err)
	}
	defer reply.Body.Close()
	if err := json.NewDecoder(reply.Body).Decode(v); err != nil {
		panic(err)
	}
}

// A process without a server of its own serves the page and the metrics on loopback.
func ExampleNewServer() {
	r, fetches := newFetches()
	defer fetches.Shutdown(context.Background())
	server := httptest.NewUnstartedServer(nil) // its listener is on loopback
	server.Config = observe.NewServer(r)
	server.Start()
	defer server.Close()

	reply, err := http.Get(server.URL + "/metrics")
	if err != nil {
		panic(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "limbo_purgatory_operations{") {
			fmt.Print(line)
		}
	}
	// Output: limbo_purgatory_operations{name="fetches"} 2
}

// A metric of a source of your own is a gauge, a counter or a histogram.
func ExampleType() {
	r := observe.New()
	if _, err := r.Add("reminders", observe.Custom("mail", func() []observe.Metric {
		return []observe.Metric{
			{Name: "queued", Help: "Mails that wait", Type: observe.Gauge, Value: 3},
			{Name: "sent_total", Help: "Mails sent", Type: observe.Counter, Value: 12},
		}
	})); err != nil {
		panic(err)
	}
	for _, source := range r.Snapshot().Sources {
		fmt.Println(source.Kind, source.Main, source.Metrics["queued"], source.Metrics["sent_total"])
	}
	// Output: mail queued 3 12
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/api"
)

// startTimerd serves timerd's API on loopback for the examples, with timers in memory.
func startTimerd() (url string, engine store.Store, stop func()) {
	engine, err := memstore.New(memstore.Options{})
	if err != nil {
		panic(err)
	}
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		panic(err)
	}
	handler, err := api.New(api.Options{Timers: timers})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(handler)
	return server.URL, engine, func() { server.Close(); timers.Close() }
}

// Schedule a callback, read its timer and cancel it.
func Example() {
	url, _, stop := startTimerd() // such as http://127.0.0.1:7717
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	receipt, err := c.Schedule(ctx, client.Timer{
		Key: "order-7/unpaid", Topic: "orders", After: time.Hour,
		Callback: client.Callback{URL: "https://example.com/remind"},
		Body:     []byte(`{"order":7}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.Result)

	info, err := c.Get(ctx, "order-7/unpaid")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(info.State, info.Callback.URL, string(info.Body))

	receipt, err = c.Cancel(ctx, "order-7/unpaid")
	fmt.Println(receipt.Result, err)
	_, err = c.Get(ctx, "order-7/unpaid")
	fmt.Println(errors.Is(err, client.ErrNotFound))
	// Output:
	// created
	// waiting https://example.com/remind {"order":7}
	// cancelled <nil>
	// true
}

// List the dead letters, and requeue those whose receiver was down.
func ExampleClient_List() {
	url, engine, stop := startTimerd()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if _, err := c.Schedule(ctx, client.Timer{Key: "order-7", Callback: client.Callback{URL: "https://example.com/remind"}}); err != nil {
		fmt.Println(err)
		return
	}
	deadLetter(ctx, engine, "order-7", "503 Service Unavailable")

	for letter, err := range c.List(ctx, client.Query{State: client.Dead}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(letter.Key, letter.LastError)
		receipt, err := c.Requeue(ctx, letter.Key)
		fmt.Println(receipt.Result, err)
	}
	// Output:
	// order-7 503 Service Unavailable
	// requeued <nil>
}

// List the workers that share timerd's store.
func ExampleClient_Workers() {
	url, engine, stop := startTimerd()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if _, err := engine.Heartbeat(ctx, store.Heartbeat{Worker: "host-4711-8f2e1c07", TTL: time.Minute}); err != nil { // as a worker does
		fmt.Println(err)
		return
	}
	workers, err := c.Workers(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, w := range workers {
		fmt.Println(w.Name, w.Live)
	}
	// Output:
	// host-4711-8f2e1c07 true
}

// deadLetter makes a timer a dead letter, as a worker does after the last failed attempt.
func deadLetter(ctx context.Context, engine store.Store, key, reason string) {
	shard := store.ShardOf(key, engine.Shards())
	c, _, err := engine.Claim(ctx, shard, store.Claim{
		Worker: "w", Token: store.NewToken("w"), Max: 1, MaxBytes: 1 << 20, Lease: time.Minute, MaxAttempts: 5,
	})
	if err != nil {
		panic(err)
	}
	if _, _, err := engine.End(ctx, shard, []store.Outcome{{Holder: c.Leases[0].Holder, Kind: store.DeadLetter, Error: reason}}); err != nil {
		panic(err)
	}
}

// Preview the planned times of a schedule, and put it.
func ExampleClient_PutSchedule() {
	url, _, stop := startTimerd()
	defer stop()
	c, err := client.New(url, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	nightly := client.Schedule{
		Key: "nightly", Cron: "30 2 * * 1-5", Zone: "Europe/Berlin",
		Callback: client.Callback{URL: "https://example.com/report"},
	}
	preview, err := c.PreviewSchedule(ctx, nightly, time.Date(2030, 3, 29, 0, 0, 0, 0, time.UTC), 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, at := range preview.Next {
		fmt.Println(at.Format(time.RFC3339))
	}
	receipt, err := c.PutSchedule(ctx, nightly)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.Result, len(receipt.Next))
	// Output:
	// 2030-03-29T02:30:00+01:00
	// 2030-04-01T02:30:00+02:00
	// 2030-04-02T02:30:00+02:00
	// created 10
}

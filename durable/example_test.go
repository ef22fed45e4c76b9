package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
)

// newTimers returns timers in memory, for the examples; a program uses the engine of pebblestore
// or redisstore.
func newTimers() *durable.Timers {
	engine, err := memstore.New(memstore.Options{})
	if err != nil {
		panic(err)
	}
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		panic(err)
	}
	return timers
}

// Schedule a timer, and run a worker that handles it.
func Example() {
	timers := newTimers()
	defer timers.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	receipt, err := timers.Schedule(ctx, durable.Timer{
		Key: "order-7/unpaid", Topic: "orders", Body: []byte(`{"order":7}`),
		After: 50 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(receipt.Kind)

	worker, err := timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		fmt.Println(f.Topic, f.Key, string(f.Body), "attempt", f.Attempt)
		stop() // a program runs until it is told to stop
		return nil
	}, durable.WorkerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(worker.Run(ctx)) // it writes the outcomes before it returns
	_, err = timers.Get(context.Background(), "order-7/unpaid")
	fmt.Println(errors.Is(err, durable.ErrNotFound))
	// Output:
	// created
	// orders order-7/unpaid {"order":7} attempt 1
	// <nil>
	// true
}

// A handler that schedules its own key recurs. The next timer is the successor of the running one:
// it waits for the end of the run, and never overlaps with it.
func Example_recurring() {
	timers := newTimers()
	defer timers.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	beats := 0
	worker, err := timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
		beats++
		fmt.Println(f.Key, beats)
		if beats == 3 {
			stop()
			return nil
		}
		// From the due time, not from now, so that it does not drift.
		_, err := timers.Schedule(ctx, durable.Timer{Key: f.Key, At: f.Due.Add(20 * time.Millisecond)})
		return err
	}, durable.WorkerOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// IfAbsent, so that a restarted program does not replace an existing timer.
	_, _ = timers.Schedule(ctx, durable.Timer{Key: "report", IfAbsent: true})
	fmt.Println(worker.Run(ctx))
	// Output:
	// report 1
	// report 2
	// report 3
	// <nil>
}

// Cancel returns the result for the timer.
func ExampleTimers_Cancel() {
	timers := newTimers()
	defer timers.Close()
	ctx := context.Background()

	_, _ = timers.Schedule(ctx, durable.Timer{Key: "reminder", After: time.Hour})
	for range 2 {
		switch result, err := timers.Cancel(ctx, "reminder"); {
		case err != nil:
			fmt.Println(err)
		case result == durable.Cancelled:
			fmt.Println("it will not run")
		case result == durable.Running:
			fmt.Println("it runs, and its ctx has ended")
		case result == durable.NotFound:
			fmt.Println("it has run, or never was")
		}
	}
	// Output:
	// it will not run
	// it has run, or never was
}

// Bulk changes all timers that match a filter, and reports its progress.
func ExampleTimers_Bulk() {
	timers := newTimers()
	defer timers.Close()
	ctx := context.Background()

	for i := range 3 {
		_, _ = timers.Schedule(ctx, durable.Timer{Key: fmt.Sprint("order/", i), After: time.Hour})
	}
	_, _ = timers.Schedule(ctx, durable.Timer{Key: "reminder", After: time.Hour})

	orders := durable.Filter{Prefix: "order/"}
	n, err := timers.Count(ctx, durable.Query{Filter: orders})
	fmt.Println(n, "orders wait", err)
	cancel := durable.Bulk{Action: durable.BulkCancel, Filter: orders}
	for p, err := range timers.Bulk(ctx, cancel) {
		if err != nil {
			fmt.Println(err) // to resume later: durable.Bulk{Resume: p.Resume}
			return
		}
		if p.Resume == "" {
			fmt.Println(p.Changed, "cancelled,", p.Missed, "missed")
		}
	}
	for info := range timers.List(ctx, durable.Query{}) {
		fmt.Println(info.Key, info.State)
	}
	// Output:
	// 3 orders wait <nil>
	// 3 cancelled, 0 missed
	// reminder waiting
}

// A handler's error determines the outcome.
func ExampleRetryAfter() {
	busy := errors.New("the bank is closed")
	err := durable.RetryAfter(8*time.Hour, busy)
	fmt.Println(err, errors.Is(err, busy))
	// Output: the bank is closed true
}

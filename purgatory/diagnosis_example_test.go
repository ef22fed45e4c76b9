package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// An operation whose check panics ends as Failed.
func ExampleCheckError() {
	p := start(purgatory.Options{OnPanic: func(purgatory.Panic) {}}) // the default logs it
	defer p.Shutdown(context.Background())

	err := p.Await(context.Background(), time.Minute, func() bool { panic("no such partition") }, "orders-9")
	var failed *purgatory.CheckError
	fmt.Println(errors.As(err, &failed), errors.Is(err, purgatory.ErrFailed))
	fmt.Println(failed.Value)
	// Output:
	// true true
	// no such partition
}

// Hotspots are the keys with the most watchers.
func ExamplePurgatory_Hotspots() {
	p := start(purgatory.Options{})
	defer p.Shutdown(context.Background())

	ended := make(chan purgatory.Outcome, 4)
	for _, keys := range [][]string{{"orders-0"}, {"orders-0"}, {"orders-0", "orders-1"}, {"orders-2"}} {
		_, _ = p.TryCompleteElseWatch(context.Background(), &waiter{done: ended}, time.Minute, keys...)
	}
	for _, h := range p.Hotspots(1) {
		fmt.Println(h.Key, h.Watching, h.Oldest < time.Minute)
	}
	// Output: orders-0 3 true
}

// Oldest lists the goals that have waited longest.
func ExampleThreshold_Oldest() {
	lag := watermarks{"orders-0": new(atomic.Int64)}
	t, err := purgatory.NewThreshold(lag.of, purgatory.Options{})
	if err != nil {
		panic(err)
	}
	defer t.Shutdown(context.Background())

	ended := make(chan purgatory.Outcome, 1)
	_, _ = t.TryCompleteElseWatch(context.Background(), &waiter{done: ended}, time.Minute, purgatory.All,
		purgatory.Goal[string, int64]{Key: "orders-0", Number: 20})
	for _, w := range t.Oldest(10) {
		fmt.Println(w.Key, w.Number, w.Pending.Waiting())
	}
	fmt.Println(t.Advance("orders-0", 20), <-ended)
	// Output:
	// orders-0 20 true
	// 1 completed
}

package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/memstore"
)

// A test can move the engine's clock itself, as here, or run in a bubble of testing/synctest.
func ExampleNew() {
	now := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	engine, err := memstore.New(memstore.Options{Shards: 1, Now: func() time.Time { return now }})
	if err != nil {
		panic(err)
	}
	timers, err := durable.New(engine, durable.Options{})
	if err != nil {
		panic(err)
	}
	defer timers.Close()
	ctx := context.Background()
	if _, err := timers.Schedule(ctx, durable.Timer{Key: "order/17", After: time.Hour}); err != nil {
		panic(err)
	}
	for range 2 {
		s, err := timers.Stats(ctx)
		fmt.Println(s.Now.Format(time.TimeOnly), s.Waiting, "waiting,", s.Overdue, "of them due", err)
		now = now.Add(time.Hour)
	}
	// Output:
	// 09:00:00 1 waiting, 0 of them due <nil>
	// 10:00:00 1 waiting, 1 of them due <nil>
}

package pebblestore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
)

// BenchmarkWorkerLifecycles runs timers from Schedule to the end of an empty handler: due at once, in
// batches of 100, by two producers.
func BenchmarkWorkerLifecycles(b *testing.B) {
	for _, concurrency := range []int{64, 1000} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			engine, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer engine.Close()
			timers, err := durable.New(engine, durable.Options{})
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			ended := make(chan struct{}, 1<<20)
			w, err := timers.NewWorker(func(context.Context, durable.Fired) error { ended <- struct{}{}; return nil },
				durable.WorkerOptions{Concurrency: concurrency})
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			const batch = 100
			var next atomic.Int64
			n := 0
			begin := time.Now()
			for b.Loop() {
				if n%batch == 0 {
					go func() {
						all := make([]durable.Timer, batch)
						for i := range all {
							all[i] = durable.Timer{Key: fmt.Sprintf("timer-%010d", next.Add(1)), Body: make([]byte, 32)}
						}
						_, _ = timers.ScheduleMany(ctx, all)
					}()
				}
				n++
				if n > 20*batch { // limits how many are in progress
					<-ended
				}
			}
			for range min(n, 20*batch) {
				<-ended
			}
			b.ReportMetric(float64(n)/time.Since(begin).Seconds(), "lifecycles/s")
			stop()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

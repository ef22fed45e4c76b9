package durable

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkLives runs timers from Schedule to the end of an empty handler, on the
// embedded engine: due at once, in batches of 100 by two producers.
func BenchmarkLives(b *testing.B) {
	for _, concurrency := range []int{64, 1000} {
		b.Run(fmt.Sprintf("engine=pebble/concurrency=%d", concurrency), func(b *testing.B) {
			timers, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer timers.Close()
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			ended := make(chan struct{}, 1<<20)
			w, err := timers.NewWorker(func(context.Context, Fired) error { ended <- struct{}{}; return nil },
				WorkerOptions{Concurrency: concurrency})
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
						all := make([]Timer, batch)
						for i := range all {
							all[i] = Timer{Key: fmt.Sprintf("timer-%010d", next.Add(1)), Body: make([]byte, 32)}
						}
						_, _ = timers.ScheduleMany(ctx, all)
					}()
				}
				n++
				if n > 20*batch { // so many are under way
					<-ended
				}
			}
			for range min(n, 20*batch) {
				<-ended
			}
			b.ReportMetric(float64(n)/time.Since(begin).Seconds(), "lives/s")
			stop()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

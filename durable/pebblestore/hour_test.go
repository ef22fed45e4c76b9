package pebblestore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
)

// D2, D3: a worker runs timers that are due at any time within an hour: each once, none early. Its
// memory does not grow with the number of completed runs.
func TestHour(t *testing.T) {
	total := 3_000
	if os.Getenv("LIMBO_LONG") != "" {
		total = 1_000_000
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{Shards: 4, CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
		require.NoError(t, err)
		timers, err := durable.New(s, durable.Options{})
		require.NoError(t, err)

		var ran, early, again atomic.Int64
		seen := make([]atomic.Bool, total)
		w, err := timers.NewWorker(func(_ context.Context, f durable.Fired) error {
			if time.Now().Before(f.Due) {
				early.Add(1)
			}
			var i int
			if _, err := fmt.Sscanf(f.Key, "timer-%d", &i); err != nil || seen[i].Swap(true) {
				again.Add(1)
			}
			ran.Add(1)
			return nil
		}, durable.WorkerOptions{Concurrency: 1_000})
		require.NoError(t, err)
		begin := time.Now()
		rnd := rand.New(rand.NewPCG(1, 2))
		batch := make([]durable.Timer, 0, 1_000)
		for i := range total {
			due := begin.Add(time.Duration(60+rnd.IntN(3_540)) * time.Second) // whole seconds share fsyncs
			batch = append(batch, durable.Timer{Key: fmt.Sprintf("timer-%010d", i), At: due, Body: make([]byte, 32)})
			if len(batch) == cap(batch) || i == total-1 {
				_, err := timers.ScheduleMany(context.Background(), batch)
				require.NoError(t, err)
				batch = batch[:0]
			}
		}

		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		var first, most uint64
		for minute := 10; minute <= 60; minute += 10 {
			time.Sleep(time.Until(begin.Add(time.Duration(minute) * time.Minute)))
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			t.Logf("minute %d: %d ran, live heap %d KiB", minute, ran.Load(), m.HeapAlloc>>10)
			if first == 0 {
				first = m.HeapAlloc
			}
			most = max(most, m.HeapAlloc)
		}
		time.Sleep(time.Minute)
		stop()
		require.NoError(t, <-done)
		require.EqualValues(t, total, ran.Load())
		require.Zero(t, early.Load(), "D2: timers ran early")
		require.Zero(t, again.Load(), "timers ran again, in an hour without a fault")
		require.Less(t, most, first+2<<20, "memory grows")
		st, err := timers.Stats(context.Background())
		require.NoError(t, err)
		require.Zero(t, st.Waiting+st.Leased+st.Dead)
		require.NoError(t, timers.Shutdown(context.Background()))
		require.NoError(t, s.Close())
	})
}

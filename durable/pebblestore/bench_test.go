package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// The benchmarks write to a folder on disk, with an fsync for each commit: 16 shards, keys of 16
// bytes, bodies of 32, calls with 100 timers split by shard, two producers.
const (
	benchShards    = 16
	benchBatch     = 100
	benchProducers = 2
)

func openBench(b *testing.B, pending int) *Store {
	s, err := Open(b.TempDir(), Options{Shards: benchShards, Logger: quiet})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	next := new(atomic.Int64)
	next.Store(1 << 40)
	produce(b, s, next, pending, func() store.Millis {
		return store.Millis(time.Now().Add(time.Hour + time.Duration(rand.Int64N(int64(time.Hour)))).UnixMilli())
	}, func(int) {})
	return s
}

// produce schedules n timers. After each call it passes the number of new timers to begun.
func produce(b *testing.B, s *Store, next *atomic.Int64, n int, due func() store.Millis, begun func(int)) {
	var producers sync.WaitGroup
	left := new(atomic.Int64)
	left.Store(int64(n))
	for range benchProducers {
		producers.Go(func() {
			body := make([]byte, 32)
			for {
				size := min(benchBatch, left.Add(-benchBatch)+benchBatch)
				if size <= 0 {
					return
				}
				byShard := make([][]store.Entry, benchShards)
				for range size {
					key := fmt.Sprintf("timer-%010d", next.Add(1)%10_000_000_000)
					n := store.ShardOf(key, benchShards)
					byShard[n] = append(byShard[n], store.Entry{Key: key, ID: store.NewID(), Topic: topics[rand.IntN(len(topics))], Body: body, At: due()})
				}
				begun(int(size))
				var calls sync.WaitGroup
				for n, entries := range byShard {
					if len(entries) > 0 {
						calls.Go(func() {
							if _, _, err := s.Schedule(b.Context(), n, entries); err != nil {
								b.Error(err)
							}
						})
					}
				}
				calls.Wait()
			}
		})
	}
	producers.Wait()
}

var topics = []string{"mail", "order", "retry", "call", "expire", "remind"}

func BenchmarkSchedule(b *testing.B) {
	for _, pending := range []int{0, 500_000} {
		b.Run(fmt.Sprintf("waiting=%d", pending), func(b *testing.B) {
			s := openBench(b, pending)
			b.ReportAllocs()
			b.ResetTimer()
			at := store.Millis(time.Now().Add(time.Hour).UnixMilli())
			produce(b, s, new(atomic.Int64), b.N, func() store.Millis { return at + store.Millis(rand.IntN(3_600_000)) }, func(int) {})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "timers/s")
		})
	}
}

// BenchmarkLifecycles schedules, claims and acknowledges; at most 20,000 timers are between the
// first step and the last.
func BenchmarkLifecycles(b *testing.B) {
	for _, pending := range []int{0, 500_000} {
		b.Run(fmt.Sprintf("waiting=%d", pending), func(b *testing.B) {
			s := openBench(b, pending)
			b.ReportAllocs()
			b.ResetTimer()
			runLifecycles(b, s)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lifecycles/s")
		})
	}
}

func runLifecycles(b *testing.B, s *Store) {
	ctx, cancel := context.WithCancel(b.Context())
	slots := make(chan struct{}, 20_000)
	done := make(chan struct{})
	var ended atomic.Int64
	wake := make([]chan struct{}, benchShards)
	var workers sync.WaitGroup
	for n := range wake {
		wake[n] = make(chan struct{}, 1)
		workers.Go(func() {
			for {
				count, err := runShard(b.Context(), s, n)
				if err != nil {
					b.Error(err)
					return
				}
				for range count {
					<-slots
				}
				if count > 0 && ended.Add(int64(count)) == int64(b.N) {
					close(done)
				}
				if count > 0 {
					continue
				}
				select {
				case <-wake[n]:
				case <-done:
					return
				}
			}
		})
	}
	workers.Go(func() {
		_ = s.Subscribe(ctx, func(e store.Event) {
			for n := range wake {
				if e.Kind == store.Gap || n == e.Shard {
					select {
					case wake[n] <- struct{}{}:
					default:
					}
				}
			}
		})
	})
	produce(b, s, new(atomic.Int64), b.N, func() store.Millis { return store.Millis(time.Now().UnixMilli()) }, func(n int) {
		for range n {
			slots <- struct{}{}
		}
	})
	<-done
	cancel()
	workers.Wait()
}

// runShard claims the due timers of a shard and acknowledges them.
func runShard(ctx context.Context, s *Store, n int) (int, error) {
	claimed, _, err := s.Claim(ctx, n, store.Claim{
		Worker: "w", Token: store.NewToken("w"), Max: 500, MaxBytes: store.MaxClaim, Lease: time.Minute, MaxAttempts: 3,
	})
	if err != nil || len(claimed.Leases) == 0 {
		return 0, err
	}
	ends := make([]store.Outcome, len(claimed.Leases))
	for i, l := range claimed.Leases {
		ends[i] = store.Outcome{Holder: l.Holder, Kind: store.Done}
	}
	_, _, err = s.End(ctx, n, ends)
	return len(ends), err
}

// BenchmarkOpen opens a folder with a million waiting timers. Opening reads those that are still in
// the log.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(dir, Options{Shards: benchShards, Logger: quiet})
	require.NoError(b, err)
	produce(b, s, new(atomic.Int64), 1_000_000, func() store.Millis { return store.MaxMillis - store.Millis(rand.IntN(1000)) }, func(int) {})
	require.NoError(b, s.Close())
	for b.Loop() {
		s, err := Open(dir, Options{Logger: quiet})
		require.NoError(b, err)
		require.NoError(b, s.Close())
	}
}

// BenchmarkSync measures the disk: one small write and an fsync.
func BenchmarkSync(b *testing.B) {
	s, err := Open(b.TempDir(), Options{Shards: 1, Logger: quiet})
	require.NoError(b, err)
	e := store.Entry{Key: "key", Body: binary.BigEndian.AppendUint64(nil, 1), At: store.MaxMillis}
	for b.Loop() {
		_, _, err := s.Schedule(b.Context(), 0, []store.Entry{e})
		require.NoError(b, err)
	}
	require.NoError(b, s.Close())
}

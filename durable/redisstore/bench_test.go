package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	benchShards = 16
	benchBatch  = 100
)

func benchStore(b *testing.B) (*server, *Store) {
	srv := startServer(b, "--appendfsync", "everysec")
	s, err := Open(b.Context(), srv.client(b), Options{Shards: benchShards})
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close() })
	return srv, s
}

// benchTopics has one for each lane.
var benchTopics = [store.Lanes]string{topicOf(0), topicOf(1), topicOf(2), topicOf(3)}

// benchEntries returns timers with keys of 16 bytes and bodies of 32.
func benchEntries(from int, due store.Millis) []store.Entry {
	entries := make([]store.Entry, benchBatch)
	for i := range entries {
		entries[i] = store.Entry{
			Key: fmt.Sprintf("order-%010d", from+i), ID: store.NewID(),
			Topic: benchTopics[i%store.Lanes], Body: make([]byte, 32), At: due,
		}
	}
	return entries
}

// producers calls do with the numbers of batches, from two goroutines, for b.N timers.
func producers(b *testing.B, do func(batch int)) {
	batches := (b.N + benchBatch - 1) / benchBatch
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 2 {
		wg.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= batches {
					return
				}
				do(n)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(batches*benchBatch)/b.Elapsed().Seconds(), "timers/s")
}

func BenchmarkSchedule(b *testing.B) {
	_, s := benchStore(b)
	far := store.Millis(time.Now().Add(time.Hour).UnixMilli())
	producers(b, func(n int) {
		_, _, err := s.Schedule(context.Background(), n%benchShards, benchEntries(n*benchBatch, far+store.Millis(n%1000)))
		require.NoError(b, err)
	})
}

// BenchmarkLifecycles schedules, claims and acknowledges.
func BenchmarkLifecycles(b *testing.B) {
	_, s := benchStore(b)
	ctx := context.Background()
	producers(b, func(n int) {
		_, _, err := s.Schedule(ctx, n%benchShards, benchEntries(n*benchBatch, 1))
		require.NoError(b, err)
		c := newClaim(benchBatch)
		c.Worker = fmt.Sprint("w", n%2)
		claimed, _, err := s.Claim(ctx, n%benchShards, c)
		require.NoError(b, err)
		if len(claimed.Leases) == 0 {
			return
		}
		ends := make([]store.Outcome, len(claimed.Leases))
		for i, l := range claimed.Leases {
			ends[i] = store.Outcome{Holder: l.Holder, Kind: store.Done}
		}
		_, _, err = s.End(ctx, n%benchShards, ends)
		require.NoError(b, err)
	})
}

// BenchmarkMemory reports bytes per waiting timer, just after all tables have grown.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		srv, s := benchStore(b)
		raw := srv.client(b)
		before := memory(b, raw)
		const each = 1<<14 + 400
		for shard := range benchShards {
			for i := 0; i < each; i += benchBatch {
				_, _, err := s.Schedule(b.Context(), shard, benchEntries(shard*each*2+i, 1<<41))
				require.NoError(b, err)
			}
		}
		last := memory(b, raw)
		require.Eventually(b, func() bool { // tables are rehashed in the background
			before := last
			last = memory(b, raw)
			return last >= before
		}, time.Minute, time.Second)
		timers := 0
		for shard := range benchShards {
			st, err := s.Stats(b.Context(), shard)
			require.NoError(b, err)
			timers += st.Waiting
		}
		b.ReportMetric(float64(last-before)/float64(timers), "B/timer")
	}
}

func memory(b *testing.B, c *redis.Client) (n int64) {
	for line := range strings.Lines(c.Info(b.Context(), "memory").Val()) {
		_, _ = fmt.Sscanf(line, "used_memory:%d", &n)
	}
	return n
}

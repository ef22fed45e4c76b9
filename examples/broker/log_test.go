package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// verify checks what must hold of a log between any two calls.
func (l *log) verify(t require.TestingT) {
	next, position, kept := l.start, int64(-1), int64(0)
	for i, b := range l.batches {
		require.Equal(t, next, b.base, "batch %d starts where the one before ended", i)
		require.GreaterOrEqual(t, b.last, b.base)
		if position >= 0 {
			require.Equal(t, position, b.position)
		}
		next, position = b.last+1, b.position+int64(len(b.raw))
		kept += int64(len(b.raw)) + batchOverhead
	}
	require.Equal(t, l.next, next)
	require.Equal(t, l.kept, kept)
	if position >= 0 {
		require.Equal(t, l.written, position)
	}
}

// naive is the log as a list of records, each with its batch's bytes.
type naive struct{ batches []naiveBatch }

type naiveBatch struct {
	base, last, ts int64
	size           int
}

func TestLogAgainstNaive(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var l log
		var n naive
		next := int64(0)
		for range 200 {
			switch rng.IntN(4) {
			case 0, 1:
				size, count, ts := batchHeader+rng.IntN(100), 1+rng.Int32N(5), rng.Int64N(50)
				require.Equal(t, next, l.append(make([]byte, size), count, ts))
				n.batches = append(n.batches, naiveBatch{next, next + int64(count) - 1, ts, size})
				next += int64(count)
			case 2:
				limit := rng.Int64N(5000)
				kept := l.kept
				freed := l.trim(limit)
				require.Equal(t, kept-freed, l.kept)
				sum := int64(0)
				for _, b := range n.batches {
					sum += int64(b.size) + batchOverhead
				}
				for len(n.batches) > 1 && sum > limit {
					sum -= int64(n.batches[0].size) + batchOverhead
					n.batches = n.batches[1:]
				}
			case 3:
				offset, limit, one := rng.Int64N(next+2), rng.IntN(600), rng.IntN(2) == 0
				start := next
				if len(n.batches) > 0 {
					start = n.batches[0].base
				}
				require.Equal(t, start <= offset && offset <= next, l.inRange(offset))
				if !l.inRange(offset) {
					continue
				}
				readable, size, count, full := 0, 0, 0, false
				for _, b := range n.batches {
					if b.last < offset {
						continue
					}
					readable += b.size
					if full = full || size+b.size > limit && (count > 0 || !one); !full {
						size += b.size
						count++
					}
				}
				require.Equal(t, int64(readable), l.readable(offset))
				got, gotSize := l.read(offset, limit, one)
				require.Len(t, got, count)
				require.Equal(t, size, gotSize)
			}
			ts := rng.Int64N(60)
			got, ok := l.byTime(ts)
			wantBase, found := int64(0), false
			newest := int64(-1)
			for _, b := range n.batches {
				if !found && b.ts >= ts {
					wantBase, found = b.base, true
				}
				newest = max(newest, b.ts)
			}
			require.Equal(t, found, ok)
			require.Equal(t, wantBase, got.base)
			if b, ok := l.newest(); ok {
				require.Equal(t, newest, b.maxTimestamp)
			}
			l.verify(t)
		}
	}
}

// All logs together stay below their limit, and what was just written stays.
func TestLogSumIsBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxLogSum = 50_000 })
	topics := []*topic{makeTopic(t, s, "a", 3), makeTopic(t, s, "b", 3)}
	c := dial(t, s)
	rng := rand.New(rand.NewPCG(7, 7))
	for range 500 {
		topic, p := topics[rng.IntN(2)], rng.Int32N(3)
		got := c.produce(topic, p, batchOf([]string{string(make([]byte, rng.IntN(1000)))}))
		require.Zero(t, got.ErrorCode)
		// The answer comes before the eviction; the next request after it.
		c.call(listRequest(5, topic, p, latestOffset))
		require.LessOrEqual(t, s.topics.kept.Load(), int64(50_000))
	}
	sum := int64(0)
	for _, topic := range topics {
		for _, p := range topic.partitions {
			p.log.verify(t)
			require.NotEmpty(t, p.log.batches)
			sum += p.log.kept
		}
	}
	require.Equal(t, sum, s.topics.kept.Load())
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	last := -1
	for ns := uint64(0); ns < 1<<40; ns += 1 + ns/50 {
		b := bucketOf(ns)
		require.GreaterOrEqual(t, b, last)
		require.LessOrEqual(t, ns, bucketTop(b))
		if b > 0 {
			require.Greater(t, ns, bucketTop(b-1))
		}
		last = b
	}
	require.Less(t, bucketOf(1<<63), 64*8)
	var h histogram
	for i := range time.Duration(1000) {
		h.add(i + 1)
	}
	s := h.snapshot()
	require.InEpsilon(t, 500, quantile(&s, 0.5).Nanoseconds(), 0.125)
	require.InEpsilon(t, 990, quantile(&s, 0.99).Nanoseconds(), 0.125)
	require.Zero(t, quantile(new([64 * 8]uint64), 0.5))
}

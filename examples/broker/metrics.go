package main

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// metrics counts what the table and the tests want to know. All fields are
// written by whoever does the thing, and only ever grow.
type metrics struct {
	connections atomic.Uint64
	requests    atomic.Uint64 // decoded and handled
	answers     atomic.Uint64 // written
	refused     atomic.Uint64 // connections closed for what they sent
	panics      atomic.Uint64 // bugs: recovered in a handler, a writer or an operation

	batches [8]atomic.Uint64 // appended, by codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)
	records atomic.Uint64    // appended

	woken    atomic.Uint64 // parked fetches that an append completed
	overload atomic.Uint64 // requests answered at once because a purgatory was full
	wake     histogram     // from the rise of the high watermark to the write of the fetch answer it completed

	operations    [operationKinds]operations
	lostCommitted atomic.Int64 // records cut off a log below its high watermark: there must be none
}

// answered records that replies have been written.
func (m *metrics) answered(sent []*reply) {
	m.answers.Add(uint64(len(sent)))
	now := time.Now()
	for _, r := range sent {
		if !r.appended.IsZero() {
			m.wake.add(now.Sub(r.appended))
		}
	}
}

// histogram counts durations in buckets that grow by an eighth, from a
// nanosecond up: adding is one atomic increment.
type histogram struct {
	buckets [64 * 8]atomic.Uint64
}

func (h *histogram) add(d time.Duration) { h.buckets[bucketOf(uint64(max(d, 0)))].Add(1) }

func bucketOf(ns uint64) int {
	if ns < 8 {
		return int(ns)
	}
	octave := bits.Len64(ns) - 1 // >= 3
	return (octave-2)*8 + int(ns>>(octave-3)&7)
}

// bucketTop is the largest value of a bucket.
func bucketTop(b int) uint64 {
	if b < 8 {
		return uint64(b)
	}
	octave := b/8 + 2
	return (uint64(b%8)+9)<<(octave-3) - 1
}

// snapshot copies the counts; quantiles of a second are those of a difference.
func (h *histogram) snapshot() (s [64 * 8]uint64) {
	for i := range h.buckets {
		s[i] = h.buckets[i].Load()
	}
	return s
}

// quantile is the upper end of the bucket that holds the q-th of the counts.
func quantile(counts *[64 * 8]uint64, q float64) time.Duration {
	var total uint64
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(total)+0.5))
	for b, n := range counts {
		if rank <= n {
			return time.Duration(bucketTop(b))
		}
		rank -= n
	}
	return 0
}

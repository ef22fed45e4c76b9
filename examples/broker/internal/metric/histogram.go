package metric

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts durations in buckets that grow by an eighth, from a
// nanosecond up: adding is one atomic increment.
type Histogram struct {
	buckets [64 * 8]atomic.Uint64
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) { h.buckets[bucketOf(uint64(max(d, 0)))].Add(1) }

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

// Counts returns the counts as they are now.
func (h *Histogram) Counts() (c Counts) {
	for i := range h.buckets {
		c[i] = h.buckets[i].Load()
	}
	return c
}

// Counts are a histogram's at one moment; those of a time are a difference of two.
type Counts [64 * 8]uint64

// Add adds other counts.
func (c *Counts) Add(other Counts) {
	for i := range c {
		c[i] += other[i]
	}
}

// Subtract takes earlier counts off.
func (c *Counts) Subtract(other Counts) {
	for i := range c {
		c[i] -= other[i]
	}
}

// Quantile returns an upper bound on the q-quantile, at most an eighth above it; 0 if
// nothing was counted.
func (c *Counts) Quantile(q float64) time.Duration {
	var total uint64
	for _, n := range c {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank := max(1, uint64(q*float64(total)+0.5))
	for b, n := range c {
		if rank <= n {
			return time.Duration(bucketTop(b))
		}
		rank -= n
	}
	return 0
}

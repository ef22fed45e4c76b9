// Package histogram counts durations: how long operations waited, and how late timers were. It
// is part of the Stats of the other packages, and package observe publishes its histograms.
package histogram

import (
	"math"
	"math/bits"
	"time"
)

// Durations counts durations in classes that double: Counts[i] counts durations of at most
// Bound(i) and more than Bound(i-1). The last class counts all longer ones. The bounds are
// powers of two of a second, as in a Prometheus native histogram of schema 0, so the conversion
// loses nothing.
type Durations struct {
	Counts [classes]uint64
	Count  uint64  // of all durations
	Sum    float64 // in seconds: a million waiting operations would overflow a Duration in three hours
}

const classes = 31

// Bound returns the longest duration of a class, 2^(i-20) s rounded down to the nanosecond:
// 953 ns, 1.907 µs, ..., 1 s for i = 20, ..., 512 s for 29. The bound of the last class is the
// maximum Duration, and for a negative i it is 0.
func (Durations) Bound(i int) time.Duration {
	switch {
	case i < 0:
		return 0
	case i >= classes-1:
		return math.MaxInt64
	}
	return time.Duration(perClass << i >> perClassBits)
}

// A duration d, in nanoseconds, is at most 2^i of the first class's bound if
// d * 2^11 <= 5^9 * 2^i: 10^9 ns * 2^-20 is 5^9 / 2^11.
const (
	perClass     = 1_953_125 // 5^9
	perClassBits = 11
)

func classOf(d time.Duration) int {
	if d <= 0 {
		return 0
	}
	// Beyond 2^52 ns, 52 days, the product would wrap; the last class begins at 512 s.
	n := (uint64(min(d, 1<<52))<<perClassBits - 1) / perClass
	return min(bits.Len64(n), classes-1)
}

// Add counts a duration; a negative one counts as 0. It must not run concurrently with another
// method.
func (h *Durations) Add(d time.Duration) {
	d = max(d, 0)
	h.Counts[classOf(d)]++
	h.Count++
	h.Sum += d.Seconds()
}

// Merge adds the counts of another histogram.
func (h *Durations) Merge(other *Durations) {
	for i, n := range other.Counts {
		h.Counts[i] += n
	}
	h.Count += other.Count
	h.Sum += other.Sum
}

// Quantile returns the q-quantile, for q from 0 to 1, rounded up to the bound of its class: at
// least the true value, and at most twice that or 953 ns. Durations above 512 s count as
// 1,024 s. It returns 0 if nothing is counted.
func (h Durations) Quantile(q float64) time.Duration {
	rank := q * float64(h.Count)
	rank = math.Ceil(rank - 1e-15*rank) // 0.14 of 100 is 14, and no float64 is 0.14
	seen := uint64(0)
	for i, n := range h.Counts[:classes-1] {
		if seen += n; n > 0 && float64(seen) >= rank {
			return h.Bound(i)
		}
	}
	if h.Count == 0 {
		return 0
	}
	return 2 * h.Bound(classes-2)
}

// Mean returns the mean, or 0 if nothing is counted.
func (h Durations) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	mean := math.Round(h.Sum / float64(h.Count) * float64(time.Second))
	if mean >= math.MaxInt64 { // MaxInt64 as a float64 is 2^63
		return math.MaxInt64
	}
	return time.Duration(mean)
}

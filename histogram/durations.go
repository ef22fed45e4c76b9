// Package histogram counts durations: how long operations waited, and how late timers were.
// Stats of the other packages have them, and package observe publishes them.
package histogram

import (
	"math"
	"math/bits"
	"time"
)

// Durations counts durations in classes that double: Counts[i] are those of at most
// Bound(i), and of more than Bound(i-1). The last class has all that were longer. The
// bounds are the powers of two of a second that a Prometheus native histogram of schema 0
// has, so nothing is lost on the way there.
type Durations struct {
	Counts [classes]uint64
	Count  uint64  // of all
	Sum    float64 // of all, in seconds: as a Duration, a million that wait would fill it in three hours
}

const classes = 31

// Bound returns the longest duration of a class, 2^(i-20) s rounded down to the nanosecond:
// 953 ns, 1.907 µs, ..., 1 s for i = 20, ..., 512 s for 29. That of the last class is the
// longest there is, and that of an i below 0 is 0.
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

// Add counts a duration; one below zero as 0. It must not be called at once with another
// method.
func (h *Durations) Add(d time.Duration) {
	d = max(d, 0)
	h.Counts[classOf(d)]++
	h.Count++
	h.Sum += d.Seconds()
}

// Merge adds what another one has counted.
func (h *Durations) Merge(other *Durations) {
	for i, n := range other.Counts {
		h.Counts[i] += n
	}
	h.Count += other.Count
	h.Sum += other.Sum
}

// Quantile returns the q-quantile, q from 0 to 1, rounded up to the bound of its class: at
// least the true value, and at most twice that or 953 ns. What was longer than 512 s counts
// as 1,024 s. 0 if nothing is counted.
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

// Mean returns the mean. 0 if nothing is counted.
func (h Durations) Mean() time.Duration {
	if h.Count == 0 {
		return 0
	}
	mean := math.Round(h.Sum / float64(h.Count) * float64(time.Second))
	if mean >= math.MaxInt64 { // which a float64 rounds up to 2^63
		return math.MaxInt64
	}
	return time.Duration(mean)
}

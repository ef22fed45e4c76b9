package delayqueue

import (
	"math"
	"time"
)

// maxSkew is the largest apparent shift of the wall clock against the monotonic clock that does
// not mean that it was set. The two are read nanoseconds apart unless the thread is preempted
// in between.
const maxSkew = int64(time.Millisecond)

// now reads the clock that deadlines are compared with.
func (q *Queue[T]) now() int64 { return int64(time.Since(q.base)) }

// sinceBaseLocked converts a deadline, saturating at both ends. It reads no clock when the
// deadline carries a monotonic reading.
func (q *Queue[T]) sinceBaseLocked(deadline time.Time) int64 {
	d := int64(deadline.Sub(q.base))
	if deadline != deadline.Round(0) { // Round(0) strips the monotonic reading
		return d
	}
	q.skew = adoptSkew(q.skew, func() int64 {
		now := time.Now()
		return int64(now.Round(0).Sub(q.base)) - int64(now.Sub(q.base))
	})
	return subSat(d, q.skew)
}

// adoptSkew returns the distance to use between the wall clock and the monotonic clock. The two
// cannot be read at the same instant, so the measured distance jitters, and converting by it
// would scatter equal deadlines, which must stay equal to be taken in order. adoptSkew adopts
// only a difference that means that the clock was set, and only if the next reading agrees: one
// reading may be far off because the thread was preempted between the clocks.
func adoptSkew(kept int64, read func() int64) int64 {
	differ := func(a, b int64) bool { return a-b > maxSkew || b-a > maxSkew }
	for seen := read(); differ(seen, kept); {
		again := read()
		if !differ(again, seen) {
			return again
		}
		seen = again
	}
	return kept
}

// subSat returns a-b, saturating. The ends of the range are fixed: they stand for "that far or
// farther".
func subSat(a, b int64) int64 {
	d := a - b
	switch {
	case a == math.MaxInt64 || a == math.MinInt64:
		return a
	case b < 0 && d < a:
		return math.MaxInt64
	case b > 0 && d > a:
		return math.MinInt64
	}
	return d
}

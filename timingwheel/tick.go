package timingwheel

import (
	"math"
	"time"
)

// tick counts whole ticks since the wheel was made: absolute time, in the
// wheel's own unit. It is never negative.
type tick int64

// nanos is absolute monotonic time: nanoseconds since the wheel was made.
type nanos int64

const maxNanos = nanos(math.MaxInt64)

// now reads the monotonic clock. Wall-clock steps do not show in it (T14).
func (w *Wheel[V]) now() nanos { return nanos(time.Since(w.base)) }

// after is now+delay, saturating where the sum would wrap (T8).
func after(now nanos, delay time.Duration) nanos {
	if delay > time.Duration(maxNanos-now) {
		return maxNanos
	}
	return now + nanos(delay)
}

// ceil is the first tick at or past t. Rounding up is what keeps T1: the tick
// begins no earlier than the deadline. Written without t+tick-1, which wraps.
func (w *Wheel[V]) ceil(t nanos) tick {
	d := tick(t / w.tick)
	if nanos(d)*w.tick != t {
		d++
	}
	return d
}

// floor is the tick that t falls into: the latest one that has begun.
func (w *Wheel[V]) floor(t nanos) tick { return tick(t / w.tick) }

// start is the instant at which d begins, saturating: the last tick before
// MaxInt64 may begin past it.
func (w *Wheel[V]) start(d tick) nanos {
	if d > tick(maxNanos/w.tick) {
		return maxNanos
	}
	return nanos(d) * w.tick
}

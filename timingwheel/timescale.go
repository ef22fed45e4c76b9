package timingwheel

import (
	"math"
	"time"
)

// tick counts whole ticks since the wheel was made: absolute time, in the wheel's own unit. It
// is never negative.
type tick int64

// nanos is absolute monotonic time: nanoseconds since the wheel was made.
type nanos int64

const maxNanos = nanos(math.MaxInt64)

// timescale converts between ticks and nanos, and reads the clock. It never changes.
type timescale struct {
	base time.Time // the zero of nanos and ticks
	tick nanos
}

// now reads the monotonic clock, which steps of the wall clock do not affect.
func (c *timescale) now() nanos { return nanos(time.Since(c.base)) }

// after returns now+delay, saturating where the sum would wrap. A negative delay counts as
// zero.
func after(now nanos, delay time.Duration) nanos {
	switch {
	case delay <= 0:
		return now
	case delay > time.Duration(maxNanos-now):
		return maxNanos
	}
	return now + nanos(delay)
}

// until converts a point in time to this scale; the result may be negative.
func (c *timescale) until(deadline time.Time) nanos {
	if deadline != deadline.Round(0) { // not Equal, which ignores the monotonic reading
		return nanos(deadline.Sub(c.base))
	}
	// There is no monotonic reading. The wall clock may have been set since base was read, so
	// deadline.Sub(c.base) is not the remaining time.
	t := time.Now()
	return after(nanos(t.Sub(c.base)), deadline.Sub(t))
}

// ceil returns the first tick at or after t. Rounding up means never early (T1): the tick begins
// no earlier than the deadline. t+tick-1 would wrap.
func (c *timescale) ceil(t nanos) tick {
	d := tick(t / c.tick)
	if nanos(d)*c.tick != t {
		d++
	}
	return d
}

// floor returns the tick that contains t: the latest tick that has begun.
func (c *timescale) floor(t nanos) tick { return tick(t / c.tick) }

// start returns the instant at which d begins, saturating: the last tick before MaxInt64 may
// begin after it.
func (c *timescale) start(d tick) nanos {
	if d > tick(maxNanos/c.tick) {
		return maxNanos
	}
	return nanos(d) * c.tick
}

// instant returns the start of d as a time.Time.
func (c *timescale) instant(d tick) time.Time {
	return c.base.Add(time.Duration(c.start(d)))
}

package purgatory

import "time"

// base is what all points in time are counted from, in nanoseconds of the
// monotonic clock. One for all, so that a handle can tell its deadline without
// asking the purgatory that it was given by.
var base = time.Now()

// never is the deadline of an operation with NoTimeout.
const never time.Duration = 1<<63 - 1

func now() time.Duration { return time.Since(base) }

// instant returns the time of a point, by what the clock shows now.
func instant(at time.Duration, clock time.Time) time.Time {
	return clock.Add(at - clock.Sub(base))
}

// after returns the point that is timeout after now: at once if that is zero or
// less, and never if it is NoTimeout or beyond the end of time.
func after(now, timeout time.Duration) time.Duration {
	switch {
	case timeout <= 0:
		return now
	case timeout == NoTimeout || now > never-timeout:
		return never
	}
	return now + timeout
}

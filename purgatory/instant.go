package purgatory

import "time"

// base is the origin of all points in time, in nanoseconds of the monotonic clock. All
// purgatories share it, so that a handle can compute its deadline without its purgatory.
var base = time.Now()

// never is the deadline of an operation with NoTimeout.
const never time.Duration = 1<<63 - 1

func now() time.Duration { return time.Since(base) }

// instant converts a point in time to a time.Time; clock is the current time.
func instant(at time.Duration, clock time.Time) time.Time {
	return clock.Add(at - clock.Sub(base))
}

// after returns the point timeout after now: now if timeout is zero or less, and never if it is
// NoTimeout or the sum overflows.
func after(now, timeout time.Duration) time.Duration {
	switch {
	case timeout <= 0:
		return now
	case timeout == NoTimeout || now > never-timeout:
		return never
	}
	return now + timeout
}

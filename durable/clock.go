package durable

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// engineClock converts the engine's time to this process's own time. The two clocks may be hours
// apart; only their progress matters.
//
// A reply that was requested at sent, arrived at arrived, and carries the engine time now shows
// that at arrived the engine's clock reads now or later. So a wait of at-now after arrived is
// never too short, and too long by at most the duration of the reply. engineClock keeps the reply
// that gives the shortest waits, until a reply shows that the engine's clock has fallen back, as
// after a fail-over to a machine whose clock is behind.
//
// Own times are durations since the worker was made, by the monotonic clock.
type engineClock struct {
	known   bool
	now     store.Millis  // the engine's clock read this, or later,
	arrived time.Duration // at this own time
}

// observe records a reply's time.
func (c *engineClock) observe(sent, arrived time.Duration, now store.Millis) {
	if c.known {
		passed := span(now, c.now) // by the engine's clock, since the kept reply
		// c.now was rounded down, by less than 1 ms.
		fallenBack := passed+time.Millisecond < sent-c.arrived
		if passed < arrived-c.arrived && !fallenBack {
			return
		}
	}
	*c = engineClock{true, now, arrived}
}

// own returns the own time at which the engine's clock reads at: never too early, and late by at
// most the duration of a reply. Times further than maxSpan from the last reply are clamped to
// maxSpan.
func (c *engineClock) own(at store.Millis) time.Duration { return c.arrived + span(at, c.now) }

// since returns how far the engine's clock is past at, at an own time: at most the true value,
// less than that by at most the duration of a reply, and never below 0.
func (c *engineClock) since(at store.Millis, own time.Duration) time.Duration {
	if !c.known {
		return 0
	}
	return max(0, time.Duration(c.now-at)*time.Millisecond+own-c.arrived)
}

// maxSpan bounds waits, so that no difference of two times overflows.
const maxSpan = time.Hour

// span returns how long b is before a, within ±maxSpan.
func span(a, b store.Millis) time.Duration {
	const most = store.Millis(maxSpan / time.Millisecond)
	return time.Duration(min(max(a-b, -most), most)) * time.Millisecond
}

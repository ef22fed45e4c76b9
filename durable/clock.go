package durable

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// engineClock turns a time by an engine's clock into one by this process's own. The
// two may be hours apart; what counts is that both pass.
//
// Of a reply that was asked for at sent, came at arrived, and has now as the engine's
// time, one knows that at arrived the engine's clock reads now or later. From that
// alone a wait of at-now is never too short, and too long by the time that the reply took to come.
// So of all replies the one is kept that makes the shortest waits, until one shows
// that the engine's clock has fallen back, as after a fail-over to a machine whose
// clock is behind.
//
// Own times are durations since the worker was made, by the monotonic clock.
type engineClock struct {
	known   bool
	now     store.Millis  // the engine's clock read this, or later,
	arrived time.Duration // at this own time
}

// observe takes a reply's time.
func (c *engineClock) observe(sent, arrived time.Duration, now store.Millis) {
	if c.known {
		passed := span(now, c.now) // by the engine's clock, since what is kept
		// Its reading was rounded down: it was less than 1 ms more.
		fallenBack := passed+time.Millisecond < sent-c.arrived
		if passed < arrived-c.arrived && !fallenBack {
			return
		}
	}
	*c = engineClock{true, now, arrived}
}

// own returns the own time at which the engine's clock reads at: not before that,
// and later by no more than replies have taken. What is more than maxSpan away
// from the last reply is that far away.
func (c *engineClock) own(at store.Millis) time.Duration { return c.arrived + span(at, c.now) }

// since returns how long after at the engine's clock is at an own time: at most the true value, less
// than that by no more than replies have taken, and never below 0.
func (c *engineClock) since(at store.Millis, own time.Duration) time.Duration {
	if !c.known {
		return 0
	}
	return max(0, time.Duration(c.now-at)*time.Millisecond+own-c.arrived)
}

// maxSpan bounds the waits, so that no difference of two times overflows.
const maxSpan = time.Hour

// span returns how long b is before a, within ±maxSpan.
func span(a, b store.Millis) time.Duration {
	const most = store.Millis(maxSpan / time.Millisecond)
	return time.Duration(min(max(a-b, -most), most)) * time.Millisecond
}

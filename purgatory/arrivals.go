package purgatory

import "time"

// Most operations end long before their timeout: a request that waits for replicas is answered
// within a few ms, and its timeout is 30 s. Entering each timeout on the wheel and removing it
// again is a sixth of the cost of such an operation (docs/decisions.md). So an operation whose
// timeout is not soon is put into a list of arrivals, which costs a few ns, and after sweepAfter a
// sweep enters the timeouts of the operations that still wait. This makes no operation expire
// later: a timeout that could be due before its sweep is entered at once. That may happen even
// with a long timeout, after a long first check.
const (
	sweepAfter   = 50 * time.Millisecond
	sweepEvery   = 10 * time.Millisecond
	minPostponed = sweepAfter + 2*sweepEvery + 5*time.Millisecond // the shortest timeout that is postponed
)

// arrival is an operation that has begun. It stays in the list for sweepAfter and up to one sweep
// longer, even if the operation has ended: then the generation is stale.
type arrival struct {
	w   *waiter
	gen uint64
	at  time.Duration // when it began; not before the arrival in front of it
}

// postponeLocked puts an operation into the list, and reports whether it did. It does not if the
// deadline may precede the sweep that would find the operation.
func (t *tally) postponeLocked(w *waiter, gen uint64) bool {
	deadline := time.Duration(w.deadline.Load())
	if deadline-w.since < minPostponed || !t.sweeping && !t.scheduleSweepLocked(sweepAfter+sweepEvery) {
		return false
	}
	a := arrival{w, gen, t.arrivalTimeLocked(w.since)}
	if deadline < max(a.at+sweepAfter, t.sweepAt)+sweepEvery {
		return false
	}
	t.arrivals.Push(a)
	return true
}

// arrivalTimeLocked returns the time to record for an arrival at the given time if it is put into
// the list now: not before that of the last one in the list, as they are removed in order.
func (t *tally) arrivalTimeLocked(at time.Duration) time.Duration {
	if t.arrivals.Len() > 0 {
		at = max(at, t.arrivals.Back().at)
	}
	return at
}

// takeLocked moves the operations that arrived up to a point in time from the list into dst,
// until dst is full.
func (t *tally) takeLocked(before time.Duration, dst []arrival) (n int) {
	for n < len(dst) && t.arrivals.Len() > 0 && t.arrivals.Front().at <= before {
		dst[n] = t.arrivals.Front()
		t.arrivals.Pop()
		n++
	}
	return n
}

// scheduleSweepLocked schedules the next sweep, and reports whether it did: not if the wheel is
// full. Then the next arrival tries again.
func (t *tally) scheduleSweepLocked(delay time.Duration) bool {
	timer, err := t.core.clock.timers.Schedule(event{t, 0}, delay)
	if err != nil {
		return false
	}
	t.sweeping, t.sweep, t.sweepAt = true, timer, now()+delay
	return true
}

// due runs a sweep. The wheel calls it.
func (t *tally) due(uint64) {
	t.core.startWork()
	defer t.core.stopWork()
	var batch [64]arrival
	for {
		at := now()
		t.mu.Lock()
		t.sweepAt = at
		n := t.takeLocked(at-sweepAfter, batch[:])
		if n == 0 {
			if t.sweeping = false; t.arrivals.Len() > 0 {
				t.scheduleSweepLocked(sweepEvery)
			}
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		// The records are scattered in memory. Reading all of them first overlaps their cache
		// misses.
		waiting := 0
		for _, a := range batch[:n] {
			if a.w.state.waiting(a.gen) {
				batch[waiting] = a
				waiting++
			}
		}
		for _, a := range batch[:waiting] {
			t.sweepOne(a, at)
		}
	}
}

// sweepOne enters the timeout of an operation on the wheel.
func (t *tally) sweepOne(a arrival, at time.Duration) {
	if a.w.state.hold(a.gen) {
		a.w.arm()
		a.w.state.release(a.gen)
		return
	}
	// A check is running, perhaps for long, so do not wait for its owner. Only the owner may
	// store the timer for the goroutine that ends the operation. So postpone the operation once
	// more or, if little time is left, schedule a timer that no record refers to: it soon fires
	// anyway.
	left := time.Duration(a.w.deadline.Load()) - now()
	switch {
	case !a.w.state.waiting(a.gen):
	case left < minPostponed:
		t.core.clock.schedule(event{a.w, a.gen}, left)
	default:
		t.mu.Lock()
		a.at = t.arrivalTimeLocked(at)
		t.arrivals.Push(a)
		t.mu.Unlock()
	}
}

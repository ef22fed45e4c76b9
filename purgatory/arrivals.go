package purgatory

import "time"

// Most operations end long before their timeout: a request that waits for replicas
// is answered within some ms, and its timeout is 30 s. Entering each timeout on the
// wheel and taking it out again is a sixth of what such an operation costs
// (docs/decisions.md). So an operation whose timeout is not soon is put into a list
// of arrivals, which costs a few ns, and a sweep enters on the wheel what still waits
// after lazyFor. Nothing expires later by that: what could be due before the sweep
// has come to it is entered at once. That may be so although its timeout is long, after
// a first check that took long.
const (
	lazyFor  = 50 * time.Millisecond
	lazyEach = 10 * time.Millisecond
	lazyFrom = lazyFor + 2*lazyEach + 5*time.Millisecond // the shortest timeout that is put off
)

// arrival is an operation that has come. It stays in the list for lazyFor and up to
// one sweep after, also if the operation has ended meanwhile: by then it names an
// operation of the past.
type arrival struct {
	w   *waiter
	gen uint64
	at  time.Duration // when it came; not before the one in front of it
}

// putOffLocked puts an operation into the list, and reports whether it did: not if its
// deadline may come before the sweep that finds it there.
func (t *tally) putOffLocked(w *waiter, gen uint64) bool {
	deadline := time.Duration(w.deadline.Load())
	if deadline-w.since < lazyFrom || !t.sweeping && !t.sweepLaterLocked(lazyFor+lazyEach) {
		return false
	}
	a := arrival{w, gen, t.behindLocked(w.since)}
	if deadline < max(a.at+lazyFor, t.sweepAt)+lazyEach {
		return false
	}
	t.arrivals.Push(a)
	return true
}

// behindLocked returns the point in time of an arrival that came then, if it is put into
// the list now: those in front of it are taken first.
func (t *tally) behindLocked(at time.Duration) time.Duration {
	if t.arrivals.Len() > 0 {
		at = max(at, t.arrivals.Back().at)
	}
	return at
}

// takeLocked removes the operations that came before a point in time, up to as many as
// there is room for.
func (t *tally) takeLocked(before time.Duration, room []arrival) (n int) {
	for n < len(room) && t.arrivals.Len() > 0 && t.arrivals.Front().at <= before {
		room[n] = t.arrivals.Front()
		t.arrivals.Pop()
		n++
	}
	return n
}

// sweepLaterLocked plans the next sweep, and reports whether it did: not if the wheel is
// full. The next arrival tries again then.
func (t *tally) sweepLaterLocked(delay time.Duration) bool {
	timer, err := t.core.clock.timers.Schedule(event{t, 0}, delay)
	if err != nil {
		return false
	}
	t.sweeping, t.sweep, t.sweepAt = true, timer, now()+delay
	return true
}

// due is what the wheel calls: it is time for a sweep.
func (t *tally) due(uint64) {
	t.core.startWork()
	defer t.core.stopWork()
	var batch [64]arrival
	for {
		at := now()
		t.mu.Lock()
		t.sweepAt = at
		n := t.takeLocked(at-lazyFor, batch[:])
		if n == 0 {
			if t.sweeping = false; t.arrivals.Len() > 0 {
				t.sweepLaterLocked(lazyEach)
			}
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		// They lie anywhere. A look at all of them has them come into the cache
		// together, and not each when its turn comes.
		waiting := 0
		for _, a := range batch[:n] {
			if a.w.state.waits(a.gen) {
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
	// It is being checked, perhaps for long: its owner cannot be waited for. Without
	// being the owner one cannot note the timer for the one who ends the operation, so
	// that is put off once more, or the timer is soon gone anyway.
	left := time.Duration(a.w.deadline.Load()) - now()
	switch {
	case !a.w.state.waits(a.gen):
	case left < lazyFrom:
		t.core.clock.schedule(event{a.w, a.gen}, left)
	default:
		t.mu.Lock()
		a.at = t.behindLocked(at)
		t.arrivals.Push(a)
		t.mu.Unlock()
	}
}

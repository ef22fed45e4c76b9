package timingwheel

import "time"

// What Keyed and Scheduler need of a wheel beyond its exported methods. Each
// says false to a stale handle, and changes nothing then.

// value is a pending timer's value.
func (w *Wheel[V]) value(t Timer) (v V, ok bool) {
	s, n := w.lock(t)
	if n == nil {
		return v, false
	}
	defer s.mu.Unlock()
	return n.value, true
}

// replace gives a pending timer another value and deadline.
func (w *Wheel[V]) replace(t Timer, v V, now, deadline nanos) bool {
	s, n := w.lock(t)
	if n == nil {
		return false
	}
	defer s.mu.Unlock()
	n.value = v
	w.moveLocked(s, t.index(), n, now, deadline)
	return true
}

// extend is Reset, but never to a deadline that is sooner than the present one.
func (w *Wheel[V]) extend(t Timer, delay time.Duration) bool {
	now := w.now()
	deadline := after(now, max(delay, 0))
	s, n := w.lock(t)
	if n == nil {
		return false
	}
	defer s.mu.Unlock()
	if w.ceil(deadline) > n.deadline {
		w.moveLocked(s, t.index(), n, now, deadline)
	}
	return true
}

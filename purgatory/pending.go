package purgatory

import "time"

// Pending is the handle to an operation that waits: 16 bytes, comparable, free to
// copy and to keep for as long as you like. The zero Pending is no operation.
// Once its operation has ended a handle is stale for good: every method returns
// false for it and touches nothing, even when the memory of its operation serves
// another one. The methods are safe for use from any goroutine.
type Pending struct {
	w   *waiter
	gen uint64
}

// IsZero reports whether this is no operation: the handle of one that ended
// within the call that would have had it wait.
func (h Pending) IsZero() bool { return h == Pending{} }

// ForceComplete ends the operation as Completed, without a check, and reports
// whether this call decided that. If a check is just running, it is the
// checking goroutine that calls the operation's Complete.
func (h Pending) ForceComplete() bool { return h.end(Completed) }

// Cancel ends the operation as Cancelled, and reports whether this call decided
// that. The operation is told cause, or [ErrCancelled] if that is nil. If a
// check is just running, it is the checking goroutine that calls the operation's
// Complete.
func (h Pending) Cancel(cause error) bool {
	if cause == nil {
		cause = ErrCancelled
	}
	return h.endWith(Cancelled, cause)
}

// endWith ends the operation with a cause, from outside.
func (h Pending) endWith(o Outcome, cause error) bool {
	if h.IsZero() {
		return false
	}
	won, mine := h.w.decide(h.gen, o, cause)
	if mine {
		h.w.finish(o)
	}
	return won
}

// Waiting reports whether the operation has not been ended yet.
func (h Pending) Waiting() bool { return !h.IsZero() && h.w.state.waits(h.gen) }

// Deadline returns when the operation expires, with a monotonic reading, and
// whether it waits and does expire: not with [NoTimeout].
func (h Pending) Deadline() (deadline time.Time, ok bool) {
	if h.IsZero() {
		return time.Time{}, false
	}
	at := time.Duration(h.w.deadline.Load())
	// The record's next operation has its generation before its deadline, so what
	// was read is that of this one if this one waits still.
	if !h.w.state.waits(h.gen) || at == never {
		return time.Time{}, false
	}
	return instant(at, time.Now()), true
}

// end decides the outcome, from outside.
func (h Pending) end(o Outcome) bool {
	if h.IsZero() {
		return false
	}
	won, mine := h.w.state.decide(h.gen, o)
	if mine {
		h.w.finish(o)
	}
	return won
}

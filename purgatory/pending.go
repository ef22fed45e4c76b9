package purgatory

import "time"

// Pending is the handle to a pending operation: 16 bytes, comparable, free to copy and to keep
// for as long as you like. The zero Pending is no operation. Once its operation has ended, a
// handle is stale permanently: every method returns false for it and changes nothing, even when the
// memory of its operation serves another one. The methods are safe for use from any goroutine.
type Pending struct {
	w   *waiter
	gen uint64
}

// IsZero reports whether this is no operation. TryCompleteElseWatch returns such a handle for
// an operation that ended within the call.
func (h Pending) IsZero() bool { return h == Pending{} }

// ForceComplete ends the operation as Completed, without a check, and reports whether this call
// decided that. If a check is running, the goroutine that runs it calls the operation's
// Complete.
func (h Pending) ForceComplete() bool { return h.end(Completed) }

// Cancel ends the operation as Cancelled, and reports whether this call decided that. Complete
// receives cause, or [ErrCancelled] if cause is nil. If a check is running, the goroutine that
// runs it calls the operation's Complete.
func (h Pending) Cancel(cause error) bool {
	if cause == nil {
		cause = ErrCancelled
	}
	return h.endWith(Cancelled, cause)
}

// endWith ends the operation with a cause. The caller need not be the owner.
func (h Pending) endWith(o Outcome, cause error) bool {
	if h.IsZero() {
		return false
	}
	won, owns := h.w.decide(h.gen, o, cause)
	if owns {
		h.w.finish(o)
	}
	return won
}

// Waiting reports whether the operation has not ended yet.
func (h Pending) Waiting() bool { return !h.IsZero() && h.w.state.waiting(h.gen) }

// Deadline returns when the operation expires, with a monotonic reading. ok is false if the
// operation has ended, or has [NoTimeout].
func (h Pending) Deadline() (deadline time.Time, ok bool) {
	if h.IsZero() {
		return time.Time{}, false
	}
	at := time.Duration(h.w.deadline.Load())
	// The record's next operation gets its generation before its deadline. So if this operation
	// still waits, the deadline that was read is its own.
	if !h.w.state.waiting(h.gen) || at == never {
		return time.Time{}, false
	}
	return instant(at, time.Now()), true
}

// end ends the operation without a cause. The caller need not be the owner.
func (h Pending) end(o Outcome) bool {
	if h.IsZero() {
		return false
	}
	won, owns := h.w.state.decide(h.gen, o)
	if owns {
		h.w.finish(o)
	}
	return won
}

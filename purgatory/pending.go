package purgatory

// Pending is the handle to an operation that waits: 16 bytes, comparable, free to
// copy and to keep for as long as you like. The zero Pending is no operation.
// Once its operation has ended a handle is stale for good: every method says
// false to it and touches nothing, even when the memory of its operation serves
// another one. The methods are safe for use from any goroutine.
type Pending struct {
	r   *record
	gen uint64
}

// IsZero says whether this is no operation: the handle of one that completed
// within the call that would have had it wait.
func (h Pending) IsZero() bool { return h == Pending{} }

// Complete forces the operation to its end as Completed, without a check, and
// says whether this call decided that. If a check is just running, it is the
// checking goroutine that calls the operation's Complete.
func (h Pending) Complete() bool { return h.end(Completed) }

// Cancel ends the operation as Cancelled, and says whether this call decided
// that. If a check is just running, it is the checking goroutine that calls
// the operation's Complete.
func (h Pending) Cancel() bool { return h.end(Cancelled) }

// end decides the outcome, from outside.
func (h Pending) end(o Outcome) bool {
	if h.IsZero() {
		return false
	}
	won, mine := h.r.state.decide(h.gen, o)
	if mine {
		h.r.finish(o)
	}
	return won
}

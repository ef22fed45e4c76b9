package purgatory

import "fmt"

// Operation is what waits: a request that cannot be answered yet. No lock of
// the library is held while its methods run (P6).
type Operation interface {
	// TryComplete reports whether the operation can complete now. It is called
	// at most twice by TryCompleteElseWatch (P4), then once or more for every
	// CheckAndComplete of one of its keys; never twice at once, never while
	// Complete runs, never after it (P3). So it may keep what it found in the
	// operation, for Complete to use, without a lock.
	//
	// It must not call CheckAndComplete for a key of its own, nor for one
	// whose watchers' checks do that: each asks for one more check, for ever.
	TryComplete() bool

	// Complete ends the operation. It is called exactly once (P1), after the
	// operation has left all lists and the wheel, on the goroutine that ended
	// it: that of TryCompleteElseWatch, CheckAndComplete, a cancel or
	// Shutdown, of a check that was running then, or a worker's.
	Complete(Outcome)
}

// Outcome is how an operation ended.
type Outcome uint8

const (
	// Completed means that TryComplete said yes, or that Pending.Complete was called.
	Completed Outcome = iota + 1
	// Expired means that its timeout passed.
	Expired
	// Cancelled means by Pending.Cancel, CancelForKey, or its context.
	Cancelled
	// Closed means that the purgatory was shut down.
	Closed
	// Failed means that its TryComplete panicked.
	Failed

	outcomes // how many, with "none yet"

	// withdrawn is the outcome of an operation that TryCompleteElseWatch takes
	// back: it returns an error, and Complete is not called.
	withdrawn Outcome = outcomes
)

// String is the outcome in lower case: "completed", "expired", "cancelled",
// "closed" or "failed".
func (o Outcome) String() string {
	switch o {
	case Completed:
		return "completed"
	case Expired:
		return "expired"
	case Cancelled:
		return "cancelled"
	case Closed:
		return "closed"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

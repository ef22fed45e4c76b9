package purgatory

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-782fa212/limbo/internal/sentinel"
)

// Operation is what waits: a request that cannot be answered yet. No lock of
// the library is held while its methods run.
type Operation interface {
	// TryComplete reports whether the operation can complete now. It is called
	// at most twice by TryCompleteElseWatch, and a call begins after every
	// CheckAndComplete of one of its keys, of which several may share one; never
	// twice at once, never while Complete runs, never after it. So it may keep what it found in the
	// operation, for Complete to use, without a lock.
	//
	// It must not call CheckAndComplete for a key of its own, nor for one
	// whose watchers' checks do that: each call asks for one more check. An
	// operation that is found to do so for ever ends as Failed.
	TryComplete() bool

	Completion
}

// Completion is what is called when an operation has ended.
type Completion interface {
	// Complete is told how the operation ended, and why: cause is nil if it
	// completed, and otherwise what [Outcome] says. It is called exactly once,
	// after the operation has left all lists, on the goroutine that ended it: that of
	// TryCompleteElseWatch, CheckAndComplete, Advance, a cancel or Shutdown, of a
	// check that was running then, or a worker's. A timer of it may be on the wheel
	// for another 100 ms; it ends nothing.
	Complete(outcome Outcome, cause error)
}

// Outcome is how an operation ended.
type Outcome uint8

const (
	// Completed means that TryComplete returned true, that its goals were
	// reached, or that Pending.ForceComplete was called. The cause is nil.
	Completed Outcome = iota + 1
	// Expired means that its timeout passed. The cause is [ErrExpired].
	Expired
	// Cancelled means by Pending.Cancel or CancelForKey, with the cause given
	// there, or by its context, with context.Cause of that.
	Cancelled
	// Closed means that the purgatory was shut down. The cause is [ErrClosed].
	Closed
	// Failed means that its TryComplete, or a method of its context, panicked or did
	// not return, or that it asked for its own check for ever. The cause is a
	// [*CheckError].
	Failed

	outcomes // how many, with "none yet"
)

var outcomeNames = [outcomes]string{
	Completed: "completed", Expired: "expired", Cancelled: "cancelled", Closed: "closed", Failed: "failed",
}

// String returns the outcome in lower case: "completed", "expired", "cancelled",
// "closed" or "failed".
func (o Outcome) String() string {
	if o > 0 && o < outcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// MarshalText returns the outcome as String does. An unknown one is an error.
func (o Outcome) MarshalText() ([]byte, error) {
	if o > 0 && o < outcomes {
		return []byte(outcomeNames[o]), nil
	}
	return nil, fmt.Errorf("purgatory: the outcome is %d, must be 1 to %d", uint8(o), outcomes-1)
}

// UnmarshalText reads what MarshalText has written. Anything else is an error.
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, name := range outcomeNames {
		if i > 0 && name == string(text) {
			*o = Outcome(i)
			return nil
		}
	}
	return fmt.Errorf("purgatory: the outcome is %q, must be one of %q", text, outcomeNames[1:])
}

// Err returns the error of the outcome: nil for Completed, and otherwise
// [ErrExpired], [ErrCancelled], [ErrClosed] or [ErrFailed].
func (o Outcome) Err() error {
	switch o {
	case Completed:
		return nil
	case Expired:
		return ErrExpired
	case Cancelled:
		return ErrCancelled
	case Closed:
		return ErrClosed
	case Failed:
		return ErrFailed
	}
	return fmt.Errorf("purgatory: unknown outcome %d", uint8(o))
}

var (
	// ErrExpired is the cause of an operation that Expired. It matches
	// context.DeadlineExceeded.
	ErrExpired error = &matching{"purgatory: the operation's timeout has passed", context.DeadlineExceeded}

	// ErrCancelled is the cause of an operation that was Cancelled without
	// another. It matches context.Canceled.
	ErrCancelled error = &matching{"purgatory: the operation was cancelled", context.Canceled}

	// ErrFailed matches the cause of every operation that Failed.
	ErrFailed = errors.New("purgatory: the operation's check failed")

	// ErrClosed is returned for what a purgatory in shutdown refuses, and is the
	// cause of an operation that ended as Closed.
	ErrClosed = sentinel.Closed("purgatory: closed")

	// ErrFull is returned for an operation that Options.MaxPending refuses.
	ErrFull = sentinel.Full("purgatory: MaxPending operations wait already")
)

// matching is an error that matches another one.
type matching struct {
	text string
	also error
}

func (e *matching) Error() string        { return e.text }
func (e *matching) Is(target error) bool { return target == e.also }

// CheckError is the cause of an operation that Failed. It matches [ErrFailed].
type CheckError struct {
	// Value is what TryComplete panicked with; nil if it ended its goroutine by
	// runtime.Goexit; an error if it asked for its own check for ever. Or what a
	// method of the operation's context did.
	Value any

	context bool // it was the context
}

// Error returns what TryComplete or the context did, in words.
func (e *CheckError) Error() string {
	who := "TryComplete"
	if e.context {
		who = "the context"
	}
	switch e.Value {
	case nil:
		return "purgatory: " + who + " called runtime.Goexit"
	case any(errSpinning):
		return errSpinning.Error()
	}
	return fmt.Sprintf("purgatory: %s panicked: %v", who, e.Value)
}

// Is reports whether target is [ErrFailed].
func (e *CheckError) Is(target error) bool { return target == ErrFailed }

// Unwrap returns the value of the panic, if that is an error.
func (e *CheckError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

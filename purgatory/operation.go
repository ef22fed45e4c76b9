package purgatory

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-782fa212/limbo/internal/sentinel"
)

// Operation is a request that cannot be answered yet. The library holds no lock while its
// methods run.
type Operation interface {
	// TryComplete reports whether the operation can complete now. TryCompleteElseWatch calls it
	// at most twice. After every CheckAndComplete of one of its keys another call begins, which
	// several CheckAndCompletes may share. Calls never overlap each other or Complete, and none
	// follows Complete. So TryComplete may store its result in the operation, for Complete to
	// use, without a lock.
	//
	// It must not call CheckAndComplete for a key of its own, nor for a key whose watchers'
	// checks do that: each call asks for one more check. An operation that is found to do so
	// endlessly ends as Failed.
	TryComplete() bool

	Completion
}

// Completion is notified when an operation has ended.
type Completion interface {
	// Complete receives the outcome and the cause: nil if the operation completed, and
	// otherwise as [Outcome] says. It is called exactly once, after the operation has left all
	// lists, on the goroutine that ended it: the caller of TryCompleteElseWatch,
	// CheckAndComplete, Advance, a cancel or Shutdown, a goroutine that was running a check of
	// it, or a worker. The operation's timer may stay on the wheel for another 100 ms; it ends
	// nothing.
	Complete(outcome Outcome, cause error)
}

// Outcome is how an operation ended.
type Outcome uint8

const (
	// Completed means that TryComplete returned true, that the goals were reached, or that
	// Pending.ForceComplete was called. The cause is nil.
	Completed Outcome = iota + 1
	// Expired means that the timeout passed. The cause is [ErrExpired].
	Expired
	// Cancelled means that Pending.Cancel or CancelForKey was called, with the cause given
	// there, or that the operation's context was done, with context.Cause of the context.
	Cancelled
	// Closed means that the purgatory was shut down. The cause is [ErrClosed].
	Closed
	// Failed means that TryComplete, or a method of the operation's context, panicked or did
	// not return, or that the operation asked for its own check endlessly. The cause is a
	// [*CheckError].
	Failed

	outcomes // the number of outcomes, including 0: none yet
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

// MarshalText returns the outcome as String does. An unknown outcome is an error.
func (o Outcome) MarshalText() ([]byte, error) {
	if o > 0 && o < outcomes {
		return []byte(outcomeNames[o]), nil
	}
	return nil, fmt.Errorf("purgatory: the outcome is %d, must be 1 to %d", uint8(o), outcomes-1)
}

// UnmarshalText reads the output of MarshalText. Anything else is an error.
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

	// ErrCancelled is the cause of an operation that was Cancelled without a cause. It matches
	// context.Canceled.
	ErrCancelled error = &matching{"purgatory: the operation was cancelled", context.Canceled}

	// ErrFailed matches the cause of every operation that Failed.
	ErrFailed = errors.New("purgatory: the operation's check failed")

	// ErrClosed is returned for calls that a purgatory refuses once its shutdown has begun, and
	// is the cause of an operation that ended as Closed.
	ErrClosed = sentinel.Closed("purgatory: closed")

	// ErrFull is returned for an operation that Options.MaxPending refuses.
	ErrFull = sentinel.Full("purgatory: MaxPending operations are already pending")
)

// matching is an error that matches another one.
type matching struct {
	text   string
	target error
}

func (e *matching) Error() string        { return e.text }
func (e *matching) Is(target error) bool { return target == e.target }

// CheckError is the cause of an operation that Failed. It matches [ErrFailed].
type CheckError struct {
	// Value is the panic value of TryComplete or of a method of the operation's context; nil if
	// it ended its goroutine by runtime.Goexit; an error if TryComplete asked for its own check
	// endlessly.
	Value any

	context bool // the context failed, not TryComplete
}

// Error describes what TryComplete or the context did.
func (e *CheckError) Error() string {
	subject := "TryComplete"
	if e.context {
		subject = "the context"
	}
	switch e.Value {
	case nil:
		return "purgatory: " + subject + " called runtime.Goexit"
	case any(errSpinning):
		return errSpinning.Error()
	}
	return fmt.Sprintf("purgatory: %s panicked: %v", subject, e.Value)
}

// Is reports whether target is [ErrFailed].
func (e *CheckError) Is(target error) bool { return target == ErrFailed }

// Unwrap returns the value of the panic, if that is an error.
func (e *CheckError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

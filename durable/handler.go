package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Handler is called with each timer that is due. It runs on a goroutine of its own, up to
// WorkerOptions.Concurrency of them at once.
//
// A timer is removed once its handler has returned nil and the engine knows that. It runs again,
// on this or another worker, when the handler returns an error or panics, and when its worker
// dies. So a handler must be safe to call twice for one timer, which it can recognise by Fired.ID.
// [RetryAfter], [Snooze] and [Discard] return errors that choose another outcome, also if they are
// wrapped: the worker examines the first 1,000 errors that the handler's error unwraps to. The
// methods of an error are called on the handler's goroutine. If one panics, as Error of a nil
// pointer may, the attempt has failed, and the timer's last error names the method.
//
// The ctx has the values of the ctx given to Run. It ends when the timer is cancelled
// ([ErrCancelled]), when another worker may run it ([ErrLeaseLost]), or when the worker stops and
// cannot wait longer ([ErrStopped]); [context.Cause] returns which. A handler that goes on
// regardless does not harm other timers, and its result counts only if its lease still holds.
type Handler func(ctx context.Context, f Fired) error

// Fired is a timer that is due.
type Fired struct {
	Key   string
	ID    ID // the same in all attempts: the key by which handlers are idempotent
	Topic string
	Body  []byte
	Due   time.Time // by the engine's clock
	// Attempt is the number of this attempt, from 1. An attempt that ended with its worker's death
	// counts; one that was snoozed, or whose handler was not called, does not.
	Attempt int
	// Fence grows with each lease in the timer's shard. A system that receives it with each write
	// can reject a lower Fence than it has seen: that write comes from a worker that was paused.
	Fence     uint64
	LastError string // of the previous attempt, cut to 1 KiB; "" if there was none

	// Schedule is the key of an occurrence's schedule, and Planned its planned time, in UTC.
	// Jitter, lateness and attempts do not change them.
	Schedule string
	Planned  time.Time
}

// RetryAfter returns an error that makes the worker retry after d instead of its backoff. It wraps
// err. A negative d is 0. A nil err is replaced by an error of this package, because the attempt
// has failed. After MaxAttempts attempts the timer becomes a dead letter nevertheless.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("durable: the handler asked for a retry")
	}
	return &verdict{kind: verdictRetry, after: max(d, 0), err: err}
}

// Snooze returns an error that makes the worker call the handler again after d. This attempt does
// not count: nothing has failed. A negative d is 0.
func Snooze(d time.Duration) error {
	return &verdict{kind: verdictSnooze, after: max(d, 0), err: errors.New("durable: snoozed")}
}

// Discard returns an error that makes the timer a dead letter at once, without further attempts. It
// wraps err. A nil err is replaced by an error of this package.
func Discard(err error) error {
	if err == nil {
		err = errors.New("durable: discarded by the handler")
	}
	return &verdict{kind: verdictDiscard, err: err}
}

type verdictKind uint8

const (
	verdictRetry verdictKind = iota + 1
	verdictSnooze
	verdictDiscard
)

// verdict is an error that carries the handler's choice of outcome. Its text is that of the error
// in it, and it may be wrapped.
type verdict struct {
	kind  verdictKind
	after time.Duration
	err   error
}

func (v *verdict) Error() string { return v.err.Error() }
func (v *verdict) Unwrap() error { return v.err }

// panicked is the error of a handler that did not return.
type panicked struct {
	value any // nil: it called runtime.Goexit
	stack []byte
}

func (p *panicked) Error() string {
	if p.value == nil {
		return "durable: the handler called runtime.Goexit"
	}
	return fmt.Sprintf("durable: the handler panicked: %v", p.value)
}

// handlerResult is the result of a handler's call, as read from its error.
type handlerResult struct {
	failed   bool // the error is not nil
	verdict  verdict
	panicked *panicked // the handler did not return
	text     string    // cut to MaxError
}

// classify reads a handler's error, and calls done with the result. An error's methods belong to
// the handler: they can panic, as Error of a nil pointer does, or end the goroutine, so no lock
// may be held while they run.
func classify(err error, done func(handlerResult)) {
	res := handlerResult{failed: err != nil, verdict: verdict{kind: verdictRetry, after: -1}}
	if err == nil {
		done(res)
		return
	}
	method, returned := "Unwrap or As", false
	defer func() {
		if !returned {
			res.text = store.CutError(fmt.Sprintf("durable: an error of type %T, whose %s did not return: %v", err, method, recover()))
		}
		done(res)
	}()
	res.panicked, _ = err.(*panicked) //nolint:errorlint // only invoke makes one
	left := maxErrors
	if v := findVerdict(err, &left); v != nil {
		res.verdict = *v
	}
	method = "Error"
	res.text = store.CutError(err.Error())
	returned = true
}

// maxErrors bounds how many errors in the tree of a handler's error are examined.
const maxErrors = 1000

// findVerdict is errors.As for verdicts. It examines at most left errors, because an error that
// unwraps to itself has no end.
func findVerdict(err error, left *int) *verdict {
	for err != nil && *left > 0 {
		*left--
		if v, ok := err.(*verdict); ok { //nolint:errorlint // this is where it is unwrapped
			return v
		}
		if as, ok := err.(interface{ As(any) bool }); ok {
			var v *verdict
			if as.As(&v) {
				return v
			}
		}
		if tree, ok := err.(interface{ Unwrap() []error }); ok {
			for _, below := range tree.Unwrap() {
				if v := findVerdict(below, left); v != nil {
					return v
				}
			}
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// invoke calls a handler, and then done with its result, whether the handler returned, panicked or
// ended its goroutine.
func invoke(ctx context.Context, h Handler, f Fired, done func(error)) {
	returned := false
	var err error
	defer func() {
		if !returned {
			err = &panicked{value: recover(), stack: debug.Stack()}
		}
		done(err)
	}()
	err = h(ctx, f)
	returned = true
}

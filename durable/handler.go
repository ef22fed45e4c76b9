package durable

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Handler is called with each timer that is due. It runs on a goroutine of its own,
// up to WorkerOptions.Concurrency of them at once.
//
// A timer is gone once its handler has returned nil and the engine has been told. It
// is run again, by this or another worker, when the handler returns an error or
// panics, and when its worker dies: so a handler must be safe to call twice for one
// timer, which it can recognise by Fired.ID. [RetryAfter], [Snooze] and [Discard] make
// errors that choose what follows, also if they are wrapped: the first 1,000 errors that
// the handler's unwraps to are read. The methods of an error are called on the handler's
// goroutine. If one panics, as Error of a nil pointer may, the attempt has failed, and the
// timer's last error names the method.
//
// The ctx has the values of the ctx given to Run, and ends when the timer is
// cancelled ([ErrCancelled]), when another worker may run it ([ErrLeaseLost]), or
// when the worker stops and cannot wait longer ([ErrStopped]): [context.Cause] returns
// which. A handler that goes on all the same harms no other timer, and what it
// returns then counts only if its lease still holds.
type Handler func(ctx context.Context, f Fired) error

// Fired is a timer that is due.
type Fired struct {
	Key   string
	ID    ID // the same in all attempts: what has been done for it need not be done again
	Topic string
	Body  []byte
	Due   time.Time // by the engine's clock
	// Attempt is which one this is, from 1. One that ended with its worker's death
	// counts; one that was snoozed, or not begun, does not.
	Attempt int
	// Fence grows with each lease in the timer's shard: what is written with it can
	// refuse a writer that was paused and is late.
	Fence     uint64
	LastError string // of the attempt before, if there was one; at most 1 KiB of it

	// Schedule is the key of an occurrence's schedule, and Planned its planned time, in UTC. Jitter,
	// lateness and attempts do not change that.
	Schedule string
	Planned  time.Time
}

// RetryAfter returns an error for a handler that knows when to try again: after d,
// instead of the worker's backoff. It wraps err.
// A negative d is 0. A nil err is replaced by one of this package, for the attempt has
// failed. After MaxAttempts the timer is a dead letter all the same.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("durable: tried again on the handler's wish")
	}
	return &verdict{kind: verdictRetry, after: max(d, 0), err: err}
}

// Snooze returns an error for a handler that wants to be called again after d, and
// for which this attempt does not count: nothing has failed. A negative d is 0.
func Snooze(d time.Duration) error {
	return &verdict{kind: verdictSnooze, after: max(d, 0), err: errors.New("durable: snoozed")}
}

// Discard makes an error final: the timer is a dead letter at once. A nil err is
// replaced by one of this package.
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

// verdict is an error with what is to follow. It reads as the error in it, and
// may be wrapped.
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

// judgement is what there is to know of the error that a handler has returned.
type judgement struct {
	failed   bool // it is not nil
	verdict  verdict
	panicked *panicked // the handler did not return
	text     string    // cut
}

// judge reads an error, and calls done with what it says. An error's methods are code
// of the handler's: they can panic, as Error of a nil pointer does, or end the goroutine,
// and no lock may be held while they run.
func judge(err error, done func(judgement)) {
	j := judgement{failed: err != nil, verdict: verdict{kind: verdictRetry, after: -1}}
	if err == nil {
		done(j)
		return
	}
	method, returned := "Unwrap or As", false
	defer func() {
		if !returned {
			j.text = store.CutError(fmt.Sprintf("durable: an error of type %T, whose %s did not return: %v", err, method, recover()))
		}
		done(j)
	}()
	j.panicked, _ = err.(*panicked) //nolint:errorlint // only invoke makes one
	left := maxErrors
	if v := findVerdict(err, &left); v != nil {
		j.verdict = *v
	}
	method = "Error"
	j.text = store.CutError(err.Error())
	returned = true
}

// maxErrors bounds how many errors of the tree that a handler returns are read.
const maxErrors = 1000

// findVerdict is errors.As for verdicts, which reads at most left errors: one that unwraps
// to itself has no end.
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

// invoke calls a handler, and done with what came of it, whether the handler
// returned, panicked or ended its goroutine.
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

package purgatory

import (
	"context"
	"errors"
	"time"
)

// Await blocks until cond says true, which it is asked as an operation's
// TryComplete is: at first, and then for every CheckAndComplete of one of keys.
// It gives up after timeout, when ctx is done, and when the purgatory is shut
// down, and says which it was: Completed, Expired, Cancelled or Closed; Failed
// if cond panics. See [Purgatory.TryCompleteElseWatch] for timeouts and keys.
//
// An error means that it did not wait: a nil cond, or an error of
// TryCompleteElseWatch. It must not be called from a TryComplete or a Complete
// that something else waits for; it runs no goroutine.
func (p *Purgatory[K]) Await(ctx context.Context, timeout time.Duration, cond func() bool, keys ...K) (Outcome, error) {
	if cond == nil {
		return 0, errors.New("purgatory: the condition is nil")
	}
	if ctx == nil {
		return 0, errors.New("purgatory: the context is nil")
	}
	w := waiter{cond, make(chan Outcome, 1)}
	h, err := p.TryCompleteElseWatch(w, timeout, keys...)
	return w.wait(ctx, h, err)
}

// Await blocks until goals are reached, all or any of them as need says. It
// gives up as [Purgatory.Await] does, and says which it was.
func (t *Threshold[K, N]) Await(ctx context.Context, timeout time.Duration, need Need, goals ...Goal[K, N]) (Outcome, error) {
	if ctx == nil {
		return 0, errors.New("purgatory: the context is nil")
	}
	w := waiter{done: make(chan Outcome, 1)}
	h, err := t.TryCompleteElseWatch(w, timeout, need, goals...)
	return w.wait(ctx, h, err)
}

// waiter is the operation of a goroutine that waits for its end.
type waiter struct {
	cond func() bool
	done chan Outcome
}

func (w waiter) TryComplete() bool { return w.cond() }

func (w waiter) Complete(o Outcome) { w.done <- o }

// wait is here that the goroutine blocks. It looks after its context itself,
// which costs less than a hook does.
func (w waiter) wait(ctx context.Context, h Pending, err error) (Outcome, error) {
	if err != nil {
		return 0, err
	}
	select {
	case o := <-w.done:
		return o, nil
	case <-ctx.Done():
		h.Cancel() // or somebody else has just ended it
		return <-w.done, nil
	}
}

package purgatory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Futures holds operations that wait for results from elsewhere, such as an answer of each
// replica. Make one with [NewFutures]. It is a [Threshold] whose keys are futures, and whose
// numbers are 0 and 1.
type Futures[T any] struct {
	threshold *Threshold[*Future[T], uint8]
}

// Future is a result that is set once, later. Its methods are safe for use from any goroutine.
type Future[T any] struct {
	owner *Futures[T]

	mu    sync.Mutex
	done  bool
	value T
	err   error
}

// NewFutures makes a Futures. An option out of range is an error.
func NewFutures[T any](o Options) (*Futures[T], error) {
	t, err := NewThreshold(func(f *Future[T]) uint8 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.done {
			return 1
		}
		return 0
	}, o)
	if err != nil {
		return nil, err
	}
	return &Futures[T]{t}, nil
}

// mustBeMade returns the threshold. It panics for a zero value.
func (s *Futures[T]) mustBeMade() *Threshold[*Future[T], uint8] {
	if s.threshold == nil {
		panic(zeroValue)
	}
	return s.threshold
}

// Future makes a future that is not done. A future without waiters costs nothing but its own
// memory, done or not.
func (s *Futures[T]) Future() *Future[T] {
	s.mustBeMade()
	return &Future[T]{owner: s}
}

func (f *Future[T]) mustBeMade() {
	if f.owner == nil {
		panic("purgatory: the zero Future is not usable, make one with Futures.Future")
	}
}

// Set sets the result, and completes, on the calling goroutine, the operations for which it was
// the last one missing. Only the first call sets it; Set reports whether this call did.
func (f *Future[T]) Set(value T, err error) bool {
	f.mustBeMade()
	f.mu.Lock()
	if f.done {
		f.mu.Unlock()
		return false
	}
	f.done, f.value, f.err = true, value, err
	f.mu.Unlock()
	f.owner.threshold.Advance(f, 1)
	return true
}

// Result returns the result; done is false until Set has been called.
func (f *Future[T]) Result() (value T, done bool, err error) {
	f.mustBeMade()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value, f.done, f.err
}

// TryCompleteElseWatch completes op if as many of the futures are done as need says, with a
// value or an error. Otherwise op waits for that; see the method of [Threshold]. A future of
// another Futures is an error; a nil one panics.
func (s *Futures[T]) TryCompleteElseWatch(ctx context.Context, op Completion, timeout time.Duration, need Need, futures ...*Future[T]) (Pending, error) {
	goals, err := s.goals(futures)
	if err != nil {
		return Pending{}, err
	}
	return s.threshold.TryCompleteElseWatch(ctx, op, timeout, need, goals...)
}

// Await blocks until as many of the futures are done as need says, with a value or an error,
// and returns nil. Otherwise it returns the reason; see [Purgatory.Await].
func (s *Futures[T]) Await(ctx context.Context, timeout time.Duration, need Need, futures ...*Future[T]) error {
	goals, err := s.goals(futures)
	if err != nil {
		return err
	}
	return s.threshold.Await(ctx, timeout, need, goals...)
}

// Quorum blocks until n of the futures have a value, and returns the available values in the
// order of the futures. As soon as so many futures have failed that n values are impossible, it
// returns an error that matches each of theirs. Otherwise it gives up as [Purgatory.Await]
// does. It returns the values available so far also with an error. An n that is not 1 to the
// number of futures is an error.
func (s *Futures[T]) Quorum(ctx context.Context, timeout time.Duration, n int, futures ...*Future[T]) ([]T, error) {
	mustHaveContext(ctx)
	goals, err := s.goals(futures)
	switch {
	case err != nil:
		return nil, err
	case n < 1 || n > len(futures):
		return nil, fmt.Errorf("purgatory: n is %d, must be 1 to %d, the number of futures", n, len(futures))
	}
	timeout = max(timeout, 0) // subtracting from a very negative timeout would overflow
	for begun := now(); ; {
		values, failed := results(futures)
		missing, spare := n-len(values), len(futures)-n-len(failed)
		switch {
		case missing <= 0:
			return values, nil
		case err != nil:
			return values, err
		case spare < 0:
			return values, fmt.Errorf("purgatory: %d of %d futures have failed, %d must not: %w",
				len(failed), len(futures), n, errors.Join(failed...))
		}
		left := timeout
		if timeout != NoTimeout {
			left = max(timeout-(now()-begun), 0)
		}
		// A decision needs this many: as many values as are missing, or one failure too many.
		done := len(values) + len(failed) + min(missing, spare+1)
		err = s.threshold.Await(ctx, left, AtLeast(done), goals...)
	}
}

// results returns the values and errors of the futures that are done.
func results[T any](futures []*Future[T]) (values []T, failed []error) {
	for _, f := range futures {
		switch value, done, err := f.Result(); {
		case done && err != nil:
			failed = append(failed, err)
		case done:
			values = append(values, value)
		}
	}
	return values, failed
}

func (s *Futures[T]) goals(futures []*Future[T]) ([]Goal[*Future[T], uint8], error) {
	s.mustBeMade()
	goals := make([]Goal[*Future[T], uint8], len(futures))
	for i, f := range futures {
		if f == nil {
			panic(fmt.Sprintf("purgatory: futures[%d] is nil", i))
		}
		if f.owner != s {
			return nil, fmt.Errorf("purgatory: futures[%d] belongs to another Futures", i)
		}
		goals[i] = Goal[*Future[T], uint8]{f, 1}
	}
	return goals, nil
}

// Stats returns the statistics; Watched counts the results that operations still wait for.
func (s *Futures[T]) Stats() Stats { return s.mustBeMade().Stats() }

// Len returns the number of pending operations; see [Purgatory.Len].
func (s *Futures[T]) Len() int { return s.mustBeMade().Len() }

// Clock is like [Purgatory.Clock].
func (s *Futures[T]) Clock() *Clock { return s.mustBeMade().Clock() }

// Close ends the pending operations as Closed, and does not wait; see [Purgatory.Close].
func (s *Futures[T]) Close() { s.mustBeMade().Close() }

// Shutdown ends the pending operations as Closed; see [Purgatory.Shutdown]. Afterwards futures
// can still be set, and their results be read.
func (s *Futures[T]) Shutdown(ctx context.Context) error { return s.mustBeMade().Shutdown(ctx) }

package purgatory

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// reuse makes operations on other keys until one has the record of a handle that
// is stale; the zero handle if none has.
func reuse(t *testing.T, p *Purgatory[int], old Pending, keys int) (*testOp, Pending) {
	t.Helper()
	var others []int
	for i := range keys {
		others = append(others, 1000+i)
	}
	var made []Pending // they are held, so that all records there are come up
	defer func() {
		for _, h := range made {
			require.True(t, h.Cancel())
		}
	}()
	for range 100 {
		op := newOp(t)
		h := park(t, p, op, time.Hour, others...)
		if h.r == old.r {
			require.NotEqual(t, old, h)
			return op, h
		}
		made = append(made, h)
	}
	return nil, Pending{}
}

// untilReused has a test make its attempt until it found a record that is used again: a
// pool may forget one, and under the race detector it does so on purpose.
func untilReused(t *testing.T, attempt func() bool) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one pool for the test and the workers
	for range 100 {
		if attempt() {
			return
		}
	}
	t.Fatal("no record is ever used again")
}

// P1, T6's rule for operations: once its operation has ended a handle is stale for
// good, also when another operation has its record; and so is everything else of
// the library that may still name it.
func TestP1StaleHandles(t *testing.T) {
	for keys := 1; keys <= 5; keys++ {
		for name, end := range map[string]struct {
			timeout time.Duration
			by      func(*Purgatory[int], *testOp, Pending)
		}{
			"completed": {time.Hour, func(_ *Purgatory[int], _ *testOp, h Pending) { h.Complete() }},
			"cancelled": {time.Hour, func(_ *Purgatory[int], _ *testOp, h Pending) { h.Cancel() }},
			"checked": {time.Hour, func(p *Purgatory[int], op *testOp, _ Pending) {
				op.try = func(int) bool { return true }
				p.CheckAndComplete(0)
			}},
			"expired": {time.Millisecond, func(_ *Purgatory[int], op *testOp, _ Pending) {
				for op.ends.Load() == 0 {
					time.Sleep(time.Millisecond)
				}
			}},
		} {
			untilReused(t, func() bool {
				p := open[int](t, Options{})
				defer shut(t, p)
				var of []int
				for k := range keys {
					of = append(of, k)
				}
				op := newOp(t)
				old := park(t, p, op, end.timeout, of...)
				s := p.shardOf(0)
				s.mu.Lock()
				w := walk[int]{shard: s, left: 1, visit: cancelling}
				_, hash := p.place(0)
				if l := s.keys.find(0, hash); l != nil { // it may have expired
					w.fillLocked(l.head, 0)
					require.Equal(t, old, w.found[0])
				}
				s.mu.Unlock()

				end.by(p, op, old)
				require.EqualValues(t, 1, op.ends.Load(), name)
				next, h := reuse(t, p, old, keys)
				if next == nil {
					return false
				}
				require.EqualValues(t, 2, h.r.checks, "%s: the record begins anew", name)
				checks := next.checks.Load()
				require.False(t, old.Cancel(), name)
				require.False(t, old.Complete(), name)
				p.expire(old) // a worker that was slow
				p.expireNow(old, &s.mu)
				w.run() // a walk that was
				w.at, w.visit = 0, checking
				w.run()
				require.Zero(t, w.ended, name)
				require.Equal(t, checks, next.checks.Load(), "%s: a check that was meant for another operation", name)
				require.Zero(t, next.ends.Load(), name)
				require.True(t, h.Cancel(), name)
				require.False(t, h.Cancel(), name)
				empty(t, p)
				return true
			})
		}
	}
}

// P9: the hook of a context that is done just as the operation ends otherwise
// does nothing to the operation that has its record next.
func TestP9StaleHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		untilReused(t, func() bool {
			p := open[int](t, Options{})
			defer shut(t, p)
			ctx := &heldContext{Context: context.Background(), done: make(chan struct{})}
			old, err := p.TryCompleteElseWatchContext(ctx, newOp(t), NoTimeout, 0)
			require.NoError(t, err)
			require.True(t, old.Complete())
			next, h := reuse(t, p, old, 1)
			if next == nil {
				return false
			}
			require.Nil(t, h.r.unhook, "the first operation's context is held")
			close(ctx.done)
			ctx.hook() // it had begun, and could not be taken away
			synctest.Wait()
			require.Zero(t, next.ends.Load())
			require.True(t, h.Cancel())
			empty(t, p)
			return true
		})
	})
}

// heldContext keeps its hook until the test calls it, and never gives it back.
type heldContext struct {
	context.Context
	done chan struct{}
	hook func()
}

func (c *heldContext) Done() <-chan struct{} { return c.done }

func (c *heldContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

func (c *heldContext) AfterFunc(f func()) func() bool {
	c.hook = f
	return func() bool { return false }
}

// P12: an operation that was taken back leaves a record that serves as well as
// any, although it was in some of its lists only.
func TestP12RecordOfOneTakenBack(t *testing.T) {
	p := open[int](t, Options{})
	const closed = 1
	s := p.shardOf(closed)
	first := 2
	for p.shardOf(first) == s {
		first++
	}
	for range 100 {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		_, err := p.TryCompleteElseWatch(newOp(t), time.Hour, first, closed)
		require.ErrorIs(t, err, ErrClosed)
		s.mu.Lock()
		s.closed = false
		s.mu.Unlock()
		verify(t, p)
		require.True(t, park(t, p, newOp(t), time.Hour, first, closed, 3).Complete())
		require.True(t, park(t, p, newOp(t), time.Hour, closed, first).Complete())
		empty(t, p)
	}
	shut(t, p)
}

// It allocates nothing, whatever the number of keys, once records have been used.
// (Under the race detector a pool forgets a quarter of what it is given; the
// average is rounded down.)
func TestWatchingAllocatesNothing(t *testing.T) {
	p := open[int](t, Options{})
	for _, keys := range [][]int{{1}, {1, 2, 3}, {1, 2, 3, 4, 5, 6, 7}} {
		op := never{}
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			h, err := p.TryCompleteElseWatch(op, time.Hour, keys...)
			if err != nil || !h.Cancel() {
				panic("it did not wait")
			}
		}), "%d keys", len(keys))
	}
	shut(t, p)
}

type never struct{}

func (never) TryComplete() bool { return false }
func (never) Complete(Outcome)  {}

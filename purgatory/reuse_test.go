package purgatory

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// reuse makes operations on other keys until one uses the record of a stale handle; it returns
// the zero handle if none does.
func reuse(t *testing.T, p *Purgatory[int], old Pending, keys int) (*testOp, Pending) {
	t.Helper()
	var others []int
	for i := range keys {
		others = append(others, 1000+i)
	}
	var made []Pending // kept pending, so that each record comes up
	defer func() {
		for _, h := range made {
			require.True(t, h.Cancel(nil))
		}
	}()
	for range 100 {
		op := newOp(t)
		h := mustWatch(t, p, op, time.Hour, others...)
		if h.w == old.w {
			require.NotEqual(t, old, h)
			return op, h
		}
		made = append(made, h)
	}
	return nil, Pending{}
}

// untilReused repeats a test's attempt until it gets a used record: a pool may drop one, and
// under the race detector it does so on purpose.
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

// P1, T6's rule for operations: a handle stays stale once its operation has ended, even when
// another operation uses its record; so do all other references inside the library.
func TestP1StaleHandles(t *testing.T) {
	for keys := 1; keys <= 5; keys++ {
		for name, end := range map[string]struct {
			timeout time.Duration
			by      func(*Purgatory[int], *testOp, Pending)
		}{
			"completed": {time.Hour, func(_ *Purgatory[int], _ *testOp, h Pending) { h.ForceComplete() }},
			"cancelled": {time.Hour, func(_ *Purgatory[int], _ *testOp, h Pending) { h.Cancel(nil) }},
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
				defer mustShutdown(t, p)
				var of []int
				for k := range keys {
					of = append(of, k)
				}
				op := newOp(t)
				old, err := p.TryCompleteElseWatch(context.Background(), op, end.timeout, of...)
				require.NoError(t, err)
				if old.IsZero() { // it expired within the call
					return false
				}
				w := walk[int]{table: &p.table, key: 0, hash: p.hash(0), visit: cancelling}
				w.begin()
				if w.n > 0 { // otherwise it may have expired
					require.Equal(t, old, w.found()[0])
				}
				end.by(p, op, old)
				require.EqualValues(t, 1, op.ends.Load(), name)
				next, h := reuse(t, p, old, keys)
				if next == nil {
					return false
				}
				require.EqualValues(t, 2, h.w.checks, "%s: the record is reset", name)
				checks := next.checks.Load()
				require.False(t, old.Cancel(nil), name)
				require.False(t, old.ForceComplete(), name)
				old.w.due(old.gen) // a slow worker
				require.False(t, old.Waiting(), name)
				_, ok := old.Deadline()
				require.False(t, ok, name)
				require.False(t, old.w.state.hold(old.gen), name) // a sweep
				w.run()                                           // a slow walk
				w.at, w.visit = 0, checking
				w.run()
				require.Zero(t, w.ended, name)
				require.Equal(t, checks, next.checks.Load(), "%s: a check that was meant for another operation", name)
				require.Zero(t, next.ends.Load(), name)
				require.True(t, h.Cancel(nil), name)
				require.False(t, h.Cancel(nil), name)
				requireEmpty(t, p)
				return true
			})
		}
	}
}

// P13: a sweep that refers to an ended operation counts nothing for the next operation in its
// record.
func TestP13StaleSweep(t *testing.T) {
	for need, goals := range map[Need][]Goal[int, int]{All: {{1, 5}}, Any: {{1, 5}, {2, 5}, {3, 5}}} {
		for _, as := range []Outcome{Completed, Cancelled} {
			untilReused(t, func() bool {
				r := newThresholdFixture(t, Options{})
				old := r.mustWatch(newOp(t), NoTimeout, need, goals...)
				s := sweep[int, int]{threshold: r.Threshold, key: 1, hash: r.hash(1), upTo: 5, outcome: as}
				s.fill()
				require.Equal(t, old, s.found[0].handle())
				require.True(t, old.Cancel(nil))
				next := r.mustWatch(newOp(t), NoTimeout, need, goals...)
				if next.w != old.w {
					return false
				}
				s.run()
				require.Zero(t, s.ended)
				require.Equal(t, 1, r.verify())
				require.Equal(t, 1, r.setAndAdvance(1, 5), "all that is missing is missing still")
				require.False(t, next.Waiting())
				return true
			})
		}
	}
}

// P9: if a context is done just as the operation ends otherwise, its hook does nothing to the
// next operation in the record.
func TestP9StaleHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		untilReused(t, func() bool {
			p := open[int](t, Options{})
			defer mustShutdown(t, p)
			ctx := &heldContext{Context: context.Background(), done: make(chan struct{})}
			old, err := p.TryCompleteElseWatch(ctx, newOp(t), NoTimeout, 0)
			require.NoError(t, err)
			require.True(t, old.ForceComplete())
			next, h := reuse(t, p, old, 1)
			if next == nil {
				return false
			}
			require.Nil(t, h.w.unhook, "the first operation's context is held")
			close(ctx.done)
			ctx.hook() // it had begun, and could not be removed
			synctest.Wait()
			require.Zero(t, next.ends.Load())
			require.True(t, h.Cancel(nil))
			requireEmpty(t, p)
			return true
		})
	})
}

// heldContext keeps its hook until the test calls it, and never releases it.
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

// TryCompleteElseWatch with up to 16 keys allocates nothing, once records have been used.
func TestWatchingAllocatesNothing(t *testing.T) {
	p := open[int](t, Options{})
	for _, n := range []int{1, 3, 7, 11, fewKeys} {
		keys := make([]int, n)
		for i := range keys {
			keys[i] = i
		}
		op := neverReady{}
		allocatesNothing(t, func() {
			h, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, keys...)
			if err != nil || !h.Cancel(nil) {
				panic("it did not wait")
			}
		})
	}
	mustShutdown(t, p)

	full := open[int](t, Options{MaxPending: 1})
	mustWatch(t, full, newOp(t), NoTimeout, 1)
	allocatesNothing(t, func() {
		if _, err := full.TryCompleteElseWatch(context.Background(), neverReady{}, time.Hour, 1); err != ErrFull {
			panic(err)
		}
	})
	mustShutdown(t, full)
}

// allocatesNothing fails the test if each call of f allocates. A few calls in a row without an
// allocation suffice: under the race detector a pool drops a quarter of its items.
func allocatesNothing(t *testing.T, f func()) {
	t.Helper()
	for range 1000 {
		if testing.AllocsPerRun(3, f) == 0 {
			return
		}
	}
	t.Fatal("each call allocates")
}

type neverReady struct{}

func (neverReady) TryComplete() bool       { return false }
func (neverReady) Complete(Outcome, error) {}

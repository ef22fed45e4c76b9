package purgatory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P9: CancelForKey ends all operations that watch the key, on their other keys as well, and no
// others, and returns their number.
func TestP9CancelForKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[string](t, Options{})
		var a, both, b []*testOp
		for range 50 {
			for _, c := range []struct {
				ops  *[]*testOp
				keys []string
			}{{&a, []string{"a"}}, {&both, []string{"b", "a"}}, {&b, []string{"b"}}} {
				op := newOp(t)
				*c.ops = append(*c.ops, op)
				mustWatch(t, p, op, time.Hour, c.keys...)
			}
		}
		require.Equal(t, 100, p.CancelForKey("a", nil))
		require.Zero(t, p.CancelForKey("a", nil))
		require.Equal(t, [3]int{50, 50, 1}, counts(p))
		verify(t, p)
		for i := range 50 {
			require.Equal(t, Cancelled, a[i].Outcome())
			require.Equal(t, Cancelled, both[i].Outcome())
			require.Zero(t, b[i].Outcome())
		}
		require.Equal(t, 50, p.CancelForKey("b", nil))
		require.EqualValues(t, 150, p.Stats().Cancelled)
		mustShutdown(t, p)
	})
}

// P9: CancelForKey counts the operations that it decided: not an operation that has ended
// otherwise, but an operation whose running check ends it.
func TestP9CancelForKeyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		checking, resume := make(chan bool), make(chan bool)
		op := newOp(t)
		op.try = func(n int) bool {
			if n == 3 {
				close(checking)
				<-resume
			}
			return n >= 3
		}
		h := mustWatch(t, p, op, time.Hour, 1, 2)
		ended := mustWatch(t, p, newOp(t), time.Hour, 2)
		require.True(t, ended.Cancel(nil))
		done := make(chan int)
		go func() { done <- p.CheckAndComplete(1) }()
		<-checking
		require.Equal(t, 1, p.CancelForKey(2, nil))
		require.Zero(t, p.CancelForKey(1, nil), "decided already")
		require.Zero(t, op.Outcome())
		require.False(t, h.Cancel(nil))
		close(resume)
		require.Zero(t, <-done)
		require.Equal(t, Cancelled, op.Outcome())
		mustShutdown(t, p)
	})
}

// P9: the methods of a zero handle, as for an operation that completed at once, do nothing.
func TestP9NilHandle(t *testing.T) {
	var h Pending
	require.False(t, h.Cancel(nil))
	require.False(t, h.ForceComplete())
}

// P9: a context that is done ends its own operations as cancelled, and no others: before, during
// and after the registration.
func TestP9Context(t *testing.T) {
	for _, when := range []string{"before", "first check", "second check", "hooking", "later"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := open[int](t, Options{})
				ctx, cancel := context.WithCancel(t.Context())
				other := newOp(t)
				mustWatch(t, p, other, time.Hour, 1)
				op := newOp(t)
				op.try = func(n int) bool {
					if n == 1 && when == "first check" || n == 2 && when == "second check" {
						cancel()
					}
					return false
				}
				given := ctx
				switch when {
				case "before":
					cancel()
				case "hooking":
					given = lateContext{ctx, cancel}
				}
				h, err := p.TryCompleteElseWatch(given, op, time.Hour, 1, 2)
				require.NoError(t, err)
				switch when {
				case "hooking": // a race
				case "later":
					require.NotZero(t, h)
					time.Sleep(time.Minute)
					require.Zero(t, op.Outcome())
					cancel()
				default:
					require.Zero(t, h)
					require.Equal(t, Cancelled, op.Outcome())
				}
				synctest.Wait()
				require.Equal(t, Cancelled, op.Outcome())
				require.EqualValues(t, 2, op.checks.Load())
				require.Equal(t, [3]int{1, 1, 1}, counts(p))
				require.Zero(t, other.Outcome())
				verify(t, p)
				mustShutdown(t, p)
			})
		})
	}
}

// lateContext becomes done just after its first Err.
type lateContext struct {
	context.Context
	cancel func()
}

func (c lateContext) Err() error {
	defer c.cancel()
	return c.Context.Err()
}

// P9: an operation whose context is done, but that can complete, completes.
func TestP9ContextDoneButReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for yesAt := 1; yesAt <= 2; yesAt++ {
			op := newOp(t)
			op.try = func(n int) bool { return n == yesAt }
			h, err := p.TryCompleteElseWatch(ctx, op, time.Hour, 1)
			require.NoError(t, err)
			require.Zero(t, h)
			synctest.Wait()
			require.Equal(t, Completed, op.Outcome())
		}
		mustShutdown(t, p)
	})
}

// P9: a client that disconnects cancels all its pending operations, and a deadline of its
// context applies to the operation.
func TestP9ClientHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ops := make([]*testOp, 1000)
		for i := range ops {
			ops[i] = newOp(t)
			_, err := p.TryCompleteElseWatch(ctx, ops[i], time.Hour, i, i/2, i/3)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, op := range ops {
			require.Equal(t, Cancelled, op.Outcome())
		}
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

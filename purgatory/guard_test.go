package purgatory

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// faultyContext is a user's context that misbehaves in one of its methods, from a given call
// on.
type faultyContext struct {
	context.Context
	method string
	from   int
	fault  func()
	calls  map[string]int
}

func (c *faultyContext) called(method string) {
	if c.calls[method]++; method == c.method && c.calls[method] >= c.from {
		c.fault()
	}
}

func (c *faultyContext) Done() <-chan struct{} {
	c.called("Done")
	return c.Context.Done()
}

func (c *faultyContext) Err() error {
	c.called("Err")
	return c.Context.Err()
}

func (c *faultyContext) Value(key any) any {
	c.called("Value")
	return c.Context.Value(key)
}

// selfHooking is a faultyContext with its own AfterFunc, whose hook cannot be removed.
type selfHooking struct{ *faultyContext }

func (c selfHooking) AfterFunc(f func()) func() bool {
	c.called("AfterFunc")
	stop := context.AfterFunc(c.Context, f)
	return func() bool {
		c.called("stop")
		return stop()
	}
}

// P7: a context whose methods do not return, at whatever call, leaves no operation that cannot
// end: the operation fails, or ends otherwise, once; the shutdown returns.
func TestP7ContextFails(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	for name, fault := range faults {
		for _, method := range []string{"Done", "Err", "Value", "AfterFunc", "stop"} {
			for from := 1; from <= 4; from++ {
				for _, how := range []string{"done", "cancelled", "expired", "closed"} {
					t.Run(fmt.Sprintf("%s,%s %d,%s", name, method, from, how), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { contextFails(t, fault, method, from, how) })
					})
				}
			}
		}
	}
}

func contextFails(t *testing.T, fault func(), method string, from int, how string) {
	p := open[int](t, Options{OnPanic: func(Panic) {}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	faulty := &faultyContext{ctx, method, from, fault, map[string]int{}}
	var given context.Context = faulty
	if method == "AfterFunc" || method == "stop" {
		given = selfHooking{faulty}
	}
	op := newOp(t)
	var h Pending
	entered := false
	onItsOwn(func() {
		defer func() { _ = recover() }()
		h, _ = p.TryCompleteElseWatch(given, op, time.Hour, 1, 2)
		entered = true
	})
	if method == "Done" && from == 1 {
		require.False(t, entered)
		require.Zero(t, op.checks.Load()+op.ends.Load(), "the call panics before it has begun")
	} else {
		if op.Outcome() == 0 {
			require.NotZero(t, h)
		} else {
			require.Equal(t, Failed, op.Outcome())
			require.ErrorIs(t, op.cause, ErrFailed)
			require.ErrorContains(t, op.cause, "the context ")
		}
		onItsOwn(func() {
			switch how {
			case "done":
				cancel()
			case "cancelled":
				h.Cancel(nil)
			case "expired":
				time.Sleep(2 * time.Hour)
			case "closed":
				p.Close()
			}
		})
		synctest.Wait()
		require.EqualValues(t, 1, op.ends.Load(), "the operation has not ended")
		requireEmpty(t, p)
	}
	mustShutdown(t, p)
}

// P7: when a context panics, its operation receives the panic as the cause, and the panic is
// reported.
func TestP7ContextPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []any
		p := open[int](t, Options{OnPanic: func(x Panic) { panics = append(panics, x.Value) }})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		op := newOp(t)
		h, err := p.TryCompleteElseWatch(&faultyContext{ctx, "Err", 1, faults["panic"], map[string]int{}}, op, time.Hour, 1)
		require.NoError(t, err)
		require.Zero(t, h)
		require.Equal(t, Failed, op.Outcome())
		require.ErrorIs(t, op.cause, errBad)
		require.EqualError(t, op.cause, "purgatory: the context panicked: bad operation")
		require.Equal(t, []any{errBad}, panics)
		require.EqualValues(t, 1, p.Stats().Panics)
		mustShutdown(t, p)
	})
}

// P9: behind its guard a context of the standard library costs no goroutine, and the operation
// receives its cause.
func TestP9ContextCostsNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), 1, 2))
		ctx, stop := context.WithTimeout(parent, time.Hour)
		defer stop()
		op := newOp(t)
		h, err := p.TryCompleteElseWatch(ctx, op, NoTimeout, 1)
		require.NoError(t, err)
		require.True(t, h.Waiting())
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		require.NotContains(t, string(stacks), "created by context.(*cancelCtx).propagateCancel")
		cancel(errBad)
		synctest.Wait()
		require.Equal(t, Cancelled, op.Outcome())
		require.Equal(t, errBad, op.cause)
		mustShutdown(t, p)
	})
}

// P7: an Await whose context panics, or is a typed nil, leaves no operation behind.
func TestAwaitContextFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{OnPanic: func(Panic) {}})
		r := newThresholdFixture(t, Options{OnPanic: func(Panic) {}})
		f, err := NewFutures[int](Options{OnPanic: func(Panic) {}})
		require.NoError(t, err)
		never := func() bool { return false }
		future := f.Future()
		await := map[string]func(context.Context) error{
			"Purgatory": func(ctx context.Context) error { return p.Await(ctx, NoTimeout, never, 1) },
			"Threshold": func(ctx context.Context) error { return r.Await(ctx, NoTimeout, All, Goal[int, int]{1, 1}) },
			"Futures":   func(ctx context.Context) error { return f.Await(ctx, NoTimeout, All, future) },
			"Quorum":    func(ctx context.Context) error { _, err := f.Quorum(ctx, NoTimeout, 1, future); return err },
		}
		from := map[string]int{"Done": 2, "Err": 1, "Value": 1} // Done's first call precedes the operation
		delayed := func() int { return p.Len() + r.Len() + f.Len() }
		for name, await := range await {
			require.Panics(t, func() { _ = await((*faultyContext)(nil)) }, name)
			require.Zero(t, delayed(), name)
			for method, from := range from {
				if name == "Quorum" && method == "Done" {
					from++ // the context also calls itself
				}
				ctx, cancel := context.WithCancel(t.Context())
				var err error
				go func() {
					err = await(&faultyContext{ctx, method, from, faults["panic"], map[string]int{}})
				}()
				synctest.Wait()
				require.Equal(t, 1, delayed(), name)
				cancel()
				synctest.Wait()
				require.Zero(t, delayed(), "%s: %s", name, method)
				require.Error(t, err)
			}
		}
		mustShutdown(t, p)
		require.NoError(t, r.Shutdown(context.Background()))
		require.NoError(t, f.Shutdown(context.Background()))
	})
}

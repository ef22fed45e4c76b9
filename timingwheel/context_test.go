package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errBecause = errors.New("because")
	errParent  = errors.New("the parent's cause")
)

// ctxWith is context.WithDeadlineCause, or the scheduler's.
type ctxWith func(parent context.Context, deadline time.Time, cause error) (context.Context, context.CancelFunc)

// ctxLog is what a scenario sees, line by line.
type ctxLog struct {
	with ctxWith
	born time.Time
	seen []string
}

func (l *ctxLog) say(format string, args ...any) {
	l.seen = append(l.seen, fmt.Sprintf("%v: ", time.Since(l.born))+fmt.Sprintf(format, args...))
}

func (l *ctxLog) in(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return l.with(parent, time.Now().Add(d), nil)
}

// see notes all that a context says of itself.
func (l *ctxLog) see(what string, ctx context.Context) {
	done := "never"
	if d := ctx.Done(); d != nil {
		select {
		case <-d:
			done = "yes"
		default:
			done = "no"
		}
	}
	deadline, ok := ctx.Deadline()
	at := "none"
	if ok {
		at = deadline.Sub(l.born).String()
	}
	l.say("%s: done %s, err %v, cause %v, deadline %s", what, done, ctx.Err(), context.Cause(ctx), at)
}

// at sleeps until this time after the start, and lets all happen.
func (l *ctxLog) at(d time.Duration) {
	time.Sleep(d - time.Since(l.born))
	synctest.Wait()
}

type ctxKey string

// ctxForeign is a context that the standard library does not know.
type ctxForeign struct{ context.Context }

// ctxScenarios are run with both, and must see the same.
var ctxScenarios = []struct {
	name string
	do   func(l *ctxLog)
}{
	{"deadline", func(l *ctxLog) {
		ctx, cancel := l.in(context.Background(), 10*milli)
		defer cancel()
		l.see("at first", ctx)
		l.at(10*milli - 1)
		l.see("just before", ctx)
		l.at(10 * milli)
		l.see("at it", ctx)
		cancel()
		l.see("cancelled after", ctx)
		l.at(time.Hour)
		l.see("later", ctx)
	}},
	{"deadline with cause", func(l *ctxLog) {
		ctx, cancel := l.with(context.Background(), l.born.Add(10*milli), errBecause)
		defer cancel()
		l.at(10 * milli)
		l.see("at it", ctx)
	}},
	{"deadline wakes who waits", func(l *ctxLog) {
		ctx, cancel := l.in(context.Background(), 10*milli)
		defer cancel()
		<-ctx.Done()
		l.see("awake", ctx)
	}},
	{"cancel", func(l *ctxLog) {
		ctx, cancel := l.with(context.Background(), l.born.Add(10*milli), errBecause)
		done := ctx.Done()
		l.at(milli)
		cancel()
		<-done
		l.see("at once", ctx)
		cancel()
		l.see("cancelled twice", ctx)
		l.at(time.Hour)
		l.see("after the deadline", ctx)
	}},
	{"Done is one channel", func(l *ctxLog) {
		ctx, cancel := l.in(context.Background(), 10*milli)
		defer cancel()
		d := ctx.Done()
		l.say("same: %v", d == ctx.Done())
		l.at(10 * milli)
		l.say("same: %v", d == ctx.Done())
	}},
	{"deadline has passed", func(l *ctxLog) {
		for _, d := range []time.Time{l.born, l.born.Add(-1), l.born.Add(-time.Hour), {}, time.Unix(0, 0)} {
			ctx, cancel := l.with(context.Background(), d, errBecause)
			l.see("at once", ctx)
			cancel()
			l.see("cancelled", ctx)
			ctx, cancel = l.with(context.Background(), d, nil)
			l.see("at once, no cause", ctx)
			cancel()
		}
	}},
	{"parent is cancelled already", func(l *ctxLog) {
		parent, cancelParent := context.WithCancelCause(context.Background())
		cancelParent(errParent)
		for _, d := range []time.Duration{10 * milli, 0, -time.Hour} {
			ctx, cancel := l.with(parent, l.born.Add(d), errBecause)
			l.see("at once", ctx)
			cancel()
			l.see("cancelled", ctx)
		}
	}},
	{"parent's deadline is earlier", func(l *ctxLog) {
		parent, cancelParent := context.WithTimeoutCause(context.Background(), 5*milli, errParent)
		defer cancelParent()
		ctx, cancel := l.with(parent, l.born.Add(10*milli), errBecause)
		defer cancel()
		l.see("at first", ctx)
		l.at(5 * milli)
		l.see("at the parent's", ctx)
		ctx, cancel2 := l.with(parent, l.born.Add(10*milli), errBecause)
		defer cancel2()
		l.see("made after", ctx)
	}},
	{"parent's deadline is earlier, both of a kind", func(l *ctxLog) {
		parent, cancelParent := l.with(context.Background(), l.born.Add(5*milli), errParent)
		defer cancelParent()
		ctx, cancel := l.with(parent, l.born.Add(10*milli), errBecause)
		defer cancel()
		l.see("at first", ctx)
		l.at(5 * milli)
		l.see("at the parent's", ctx)
	}},
	{"parent's deadline is the same, or later", func(l *ctxLog) {
		for _, d := range []time.Duration{10 * milli, 20 * milli} {
			parent, cancelParent := l.with(context.Background(), l.born.Add(d), errParent)
			ctx, cancel := l.with(parent, l.born.Add(10*milli), errBecause)
			l.see("at first", ctx)
			l.at(10*milli - 1)
			l.see("before", ctx)
			cancel()
			cancelParent()
		}
	}},
	{"parent's deadline is later", func(l *ctxLog) {
		parent, cancelParent := l.with(context.Background(), l.born.Add(20*milli), errParent)
		defer cancelParent()
		ctx, cancel := l.with(parent, l.born.Add(10*milli), errBecause)
		defer cancel()
		l.at(10 * milli)
		l.see("at its own", ctx)
		l.see("parent", parent)
		l.at(20 * milli)
		l.see("at the parent's", ctx)
		l.see("parent", parent)
	}},
	{"parent is cancelled", func(l *ctxLog) {
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel := l.with(parent, l.born.Add(10*milli), errBecause)
		defer cancel()
		done := ctx.Done()
		l.at(milli)
		cancelParent(errParent)
		l.see("at once", ctx)
		<-done
		cancel()
		l.see("cancelled after", ctx)
		l.at(time.Hour)
		l.see("after the deadline", ctx)
	}},
	{"parent is cancelled, asked for the cause first", func(l *ctxLog) {
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel := l.in(parent, 10*milli)
		defer cancel()
		cancelParent(errParent)
		l.say("%v", context.Cause(ctx))
		l.say("%v", ctx.Err())
	}},
	{"parent is cancelled, and then this", func(l *ctxLog) {
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel := l.in(parent, 10*milli)
		cancelParent(errParent)
		cancel()
		l.see("at once", ctx)
	}},
	{"parent is cancelled at the deadline", func(l *ctxLog) {
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel := l.in(parent, 10*milli)
		defer cancel()
		l.at(10*milli - 1)
		cancelParent(errParent)
		l.at(10 * milli)
		l.see("at it", ctx)
	}},
	{"parent's parent is cancelled", func(l *ctxLog) {
		top, cancelTop := context.WithCancelCause(context.Background())
		parent, cancelParent := l.in(context.WithValue(top, ctxKey("k"), 1), 20*milli)
		defer cancelParent()
		ctx, cancel := l.in(context.WithValue(parent, ctxKey("j"), 2), 10*milli)
		defer cancel()
		l.see("at first", ctx)
		cancelTop(errParent)
		l.see("at once", ctx)
		l.see("parent", parent)
		synctest.Wait()
		l.see("after a moment", ctx)
	}},
	{"parent's parent is cancelled, and then this", func(l *ctxLog) {
		top, cancelTop := context.WithCancelCause(context.Background())
		parent, cancelParent := l.in(top, 20*milli)
		ctx, cancel := l.in(parent, 10*milli)
		cancelTop(errParent)
		cancelParent()
		cancel()
		l.see("at once", ctx)
		l.see("parent", parent)
	}},
	{"values", func(l *ctxLog) {
		parent := context.WithValue(context.Background(), ctxKey("k"), 1)
		ctx, cancel := l.in(parent, 10*milli)
		child := context.WithValue(ctx, ctxKey("j"), 2)
		look := func() {
			l.say("%v %v %v", ctx.Value(ctxKey("k")), ctx.Value(ctxKey("none")), ctx.Value(ctxKey("j")))
			l.say("%v %v", child.Value(ctxKey("k")), child.Value(ctxKey("j")))
		}
		look()
		cancel()
		look()
		l.see("child", child)
	}},
	{"children at the deadline", ctxFamily(func(l *ctxLog, _ func()) { l.at(10 * milli) })},
	{"children when cancelled", ctxFamily(func(_ *ctxLog, cancel func()) { cancel() })},
	{"children of one that has ended", func(l *ctxLog) {
		ctx, cancel := l.with(context.Background(), l.born.Add(milli), errBecause)
		defer cancel()
		l.at(milli)
		for _, parent := range []context.Context{ctx, context.WithValue(ctx, ctxKey("k"), 1), ctxForeign{ctx}} {
			child, cancelChild := context.WithCancel(parent)
			l.see("child", child)
			cancelChild()
			child, cancelChild = context.WithTimeout(parent, time.Hour)
			l.see("child with timeout", child)
			cancelChild()
			child, cancelChild = l.in(parent, time.Hour)
			l.see("child of the kind", child)
			cancelChild()
			l.see("without cancel", context.WithoutCancel(parent))
		}
	}},
	{"child is cancelled", func(l *ctxLog) {
		ctx, cancel := l.in(context.Background(), 10*milli)
		defer cancel()
		for _, parent := range []context.Context{ctx, context.WithValue(ctx, ctxKey("k"), 1), ctxForeign{ctx}} {
			child, cancelChild := context.WithCancelCause(parent)
			cancelChild(errBecause)
			l.see("child", child)
			l.see("parent", ctx)
		}
		l.at(10 * milli)
		l.see("parent", ctx)
	}},
	{"child's deadline is earlier", func(l *ctxLog) {
		ctx, cancel := l.in(context.Background(), 10*milli)
		defer cancel()
		child, cancelChild := context.WithTimeoutCause(ctx, 5*milli, errBecause)
		defer cancelChild()
		later, cancelLater := context.WithTimeoutCause(ctx, 15*milli, errBecause)
		defer cancelLater()
		for _, d := range []time.Duration{0, 5 * milli, 10 * milli, 15 * milli} {
			l.at(d)
			l.see("child", child)
			l.see("later", later)
		}
	}},
	{"AfterFunc at the deadline", ctxAfterFuncs(func(l *ctxLog, _, _ func()) { l.at(10 * milli) })},
	{"AfterFunc when cancelled", ctxAfterFuncs(func(_ *ctxLog, cancel, _ func()) { cancel() })},
	{"AfterFunc when the parent is cancelled", ctxAfterFuncs(func(_ *ctxLog, _, cancelParent func()) { cancelParent() })},
	{"AfterFunc on one that has ended", func(l *ctxLog) {
		ctx, cancel := l.in(context.Background(), 10*milli)
		cancel()
		stop := context.AfterFunc(ctx, func() { l.say("called") })
		synctest.Wait()
		l.say("stop: %v", stop())
	}},
	{"parent is foreign", func(l *ctxLog) {
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel := l.in(ctxForeign{parent}, 10*milli)
		defer cancel()
		l.see("at first", ctx)
		cancelParent(errParent)
		synctest.Wait()
		l.see("after a moment", ctx)
	}},
	{"parent is never done", func(l *ctxLog) {
		top, cancelTop := l.in(context.Background(), 5*milli)
		defer cancelTop()
		ctx, cancel := l.in(context.WithoutCancel(top), 10*milli)
		defer cancel()
		l.at(5 * milli)
		l.see("at the parent's", ctx)
		l.at(10 * milli)
		l.see("at its own", ctx)
	}},
	{"far deadline", func(l *ctxLog) {
		ctx, cancel := l.with(context.Background(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), nil)
		l.at(time.Hour)
		l.see("later", ctx)
		cancel()
		l.see("cancelled", ctx)
	}},
}

// ctxFamily derives contexts of each kind, directly and with others between,
// and looks at them after the end.
func ctxFamily(end func(l *ctxLog, cancel func())) func(l *ctxLog) {
	return func(l *ctxLog) {
		top := context.WithValue(context.Background(), ctxKey("k"), "v")
		ctx, cancel := l.with(top, l.born.Add(10*milli), errBecause)
		defer cancel()
		names := []string{"itself"}
		family := []context.Context{ctx}
		add := func(name string, c context.Context) {
			names, family = append(names, name), append(family, c)
		}
		for _, between := range []struct {
			name string
			ctx  context.Context
		}{
			{"", ctx},
			{" of WithValue", context.WithValue(ctx, ctxKey("j"), 1)},
			{" of a foreign one", ctxForeign{ctx}},
		} {
			add("WithCancel"+between.name, ctxFirst(context.WithCancel(between.ctx)))
			add("WithCancelCause"+between.name, ctxFirstCause(context.WithCancelCause(between.ctx)))
			add("WithTimeout"+between.name, ctxFirst(context.WithTimeout(between.ctx, time.Hour)))
			add("of the kind"+between.name, ctxFirst(l.in(between.ctx, time.Hour)))
			add("of the kind, same deadline"+between.name, ctxFirst(l.with(between.ctx, l.born.Add(10*milli), errParent)))
			add("WithoutCancel"+between.name, context.WithoutCancel(between.ctx))
			add("WithValue"+between.name, context.WithValue(between.ctx, ctxKey("i"), 0))
			add("grandchild"+between.name, ctxFirst(context.WithCancel(ctxFirst(context.WithCancel(between.ctx)))))
		}
		for i := range family {
			l.see(names[i], family[i])
		}
		end(l, cancel)
		synctest.Wait()
		for i := range family {
			if strings.HasPrefix(names[i], "of the kind, same deadline") {
				l.say("%s: %v", names[i], family[i].Err()) // two timers at one time: either may be first, so no cause
				continue
			}
			l.see(names[i], family[i])
			l.say("%v", family[i].Value(ctxKey("k")))
		}
	}
}

func ctxFirst(ctx context.Context, _ context.CancelFunc) context.Context { return ctx }

func ctxFirstCause(ctx context.Context, _ context.CancelCauseFunc) context.Context { return ctx }

func ctxAfterFuncs(end func(l *ctxLog, cancel, cancelParent func())) func(l *ctxLog) {
	return func(l *ctxLog) {
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel := l.with(parent, l.born.Add(10*milli), errBecause)
		defer cancel()
		var calls, early atomic.Int32
		f := func() {
			calls.Add(1)
			if ctx.Err() == nil {
				early.Add(1)
			}
			cancel() // all is allowed in it
		}
		stop := context.AfterFunc(ctx, f)
		stopValue := context.AfterFunc(context.WithValue(ctx, ctxKey("k"), 1), f)
		stopped := context.AfterFunc(ctx, func() { l.say("called after stop") })
		l.say("stop: %v, again: %v", stopped(), stopped())
		synctest.Wait()
		l.say("calls: %d, before the end %d", calls.Load(), early.Load())
		end(l, cancel, func() { cancelParent(errParent) })
		synctest.Wait()
		l.say("calls: %d, before the end %d", calls.Load(), early.Load())
		l.say("stop: %v %v %v", stop(), stopValue(), stopped())
		cancel()
		l.at(time.Hour)
		l.say("calls: %d, before the end %d", calls.Load(), early.Load())
		l.see("itself", ctx)
	}
}

// ctxSame is whether both are the same, not one wrapped in the other.
func ctxSame(a, b error) bool { return any(a) == any(b) }

// The scheduler's contexts do as the standard library's.
func TestContextAsStandard(t *testing.T) {
	for _, c := range ctxScenarios {
		t.Run(c.name, func(t *testing.T) {
			var want, got []string
			synctest.Test(t, func(*testing.T) {
				l := &ctxLog{with: context.WithDeadlineCause, born: time.Now()}
				c.do(l)
				want = l.seen
			})
			synctest.Test(t, func(t *testing.T) {
				r := schedStart(t, Options{})
				l := &ctxLog{with: r.WithDeadlineCause, born: time.Now()}
				c.do(l)
				got = l.seen
			})
			require.Equal(t, want, got)
			require.NotEmpty(t, want)
		})
	}
}

// What the other three functions are short for.
func TestContextFunctions(t *testing.T) {
	for i, with := range []func(r *schedRig) (context.Context, context.CancelFunc){
		func(r *schedRig) (context.Context, context.CancelFunc) {
			return r.WithTimeout(context.Background(), 10*milli)
		},
		func(r *schedRig) (context.Context, context.CancelFunc) {
			return r.WithDeadline(context.Background(), r.born.Add(10*milli))
		},
		func(r *schedRig) (context.Context, context.CancelFunc) {
			return r.WithTimeoutCause(context.Background(), 10*milli, errBecause)
		},
		func(r *schedRig) (context.Context, context.CancelFunc) {
			return r.WithDeadlineCause(context.Background(), r.born.Add(10*milli), errBecause)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{})
			ctx, cancel := with(r)
			defer cancel()
			require.Equal(t, 1, r.Len(), "on the wheel")
			d, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, r.born.Add(10*milli), d)
			r.pass(10*milli - 1)
			require.NoError(t, ctx.Err())
			r.pass(1)
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
			require.Equal(t, []error{context.DeadlineExceeded, errBecause}[i/2], context.Cause(ctx))
			require.Contains(t, fmt.Sprint(ctx), "WithDeadline")
		})
	}
	r := schedStart(t, Options{})
	require.PanicsWithValue(t, "timingwheel: the parent context is nil", func() {
		_, _ = r.WithTimeout(nil, time.Hour)
	})
}

// A context costs no goroutine, nor does what derives from it; and cancelled,
// nothing of it is left on the wheel.
func TestContextCostsNoGoroutine(t *testing.T) {
	r := schedStart(t, Options{})
	parent, cancelParent := context.WithCancel(t.Context())
	defer cancelParent()
	before := runtime.NumGoroutine()
	const n = 1000
	var cancels []func()
	for range n {
		ctx, cancel := r.WithTimeout(parent, time.Hour)
		child, cancelChild := context.WithCancel(ctx)
		value := context.WithValue(ctx, ctxKey("k"), 1)
		ofValue, cancelOfValue := context.WithTimeout(value, time.Minute)
		nested, cancelNested := r.WithTimeout(value, time.Minute)
		for _, c := range []context.Context{ctx, child, value, ofValue, nested} {
			stop := context.AfterFunc(c, func() {})
			cancels = append(cancels, func() { stop() })
		}
		cancels = append(cancels, cancelNested, cancelOfValue, cancelChild, cancel)
	}
	require.Equal(t, 2*n, r.Len())
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
	for _, cancel := range cancels {
		cancel()
	}
	require.Zero(t, r.Len())
	require.Zero(t, r.Stats().Pending)
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// Nothing is left on the wheel, or with the parent, however a context ends.
func TestContextLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		parent, cancelParent := context.WithCancel(t.Context())
		for range 3 {
			_, cancel := r.WithTimeout(parent, time.Hour)
			require.Equal(t, 1, r.Len())
			cancel()
			require.Zero(t, r.Len())
		}
		ctx, cancel := r.WithTimeout(parent, milli)
		r.pass(milli)
		require.Error(t, ctx.Err())
		cancel()
		ctx, cancel = r.WithTimeout(parent, time.Hour)
		defer cancel()
		cancelParent()
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.Zero(t, r.Len(), "asked, it has let go at once")
		ctx, cancel = r.WithTimeout(parent, time.Hour)
		defer cancel()
		require.Error(t, ctx.Err())
		ctx, cancel = r.WithTimeout(t.Context(), 0)
		defer cancel()
		require.Error(t, ctx.Err())
		require.Zero(t, r.Len())

		// Not asked, it lets go after a moment.
		parent, cancelParent = context.WithCancel(t.Context())
		_, cancel = r.WithTimeout(parent, time.Hour)
		defer cancel()
		cancelParent()
		synctest.Wait()
		require.Zero(t, r.Len())
	})
}

// Cancelled contexts can be collected while their parent lives on (timers 17).
func TestContextIsCollected(t *testing.T) {
	r := schedStart(t, Options{})
	parent, cancelParent := context.WithCancel(t.Context())
	defer cancelParent()
	before := keyedHeap()
	for range 20_000 {
		ctx, cancel := r.WithTimeout(parent, time.Hour)
		child, cancelChild := context.WithCancel(ctx)
		cancelChild()
		_ = child
		cancel()
	}
	require.Less(t, keyedHeap()-before, 3<<20)

	// Children that are cancelled leave their parent's books.
	ctx, cancel := r.WithTimeout(parent, time.Hour)
	defer cancel()
	before = keyedHeap()
	for range 20_000 {
		_, cancel := context.WithCancel(ctx)
		cancel()
		context.AfterFunc(ctx, func() {})()
		_, cancel = r.WithTimeout(ctx, time.Minute)
		cancel()
	}
	require.Less(t, keyedHeap()-before, 3<<20)
}

// A scheduler that refuses gives the standard library's context.
func TestContextRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{MaxPending: 1})
		full := r.after(time.Hour, r.note)
		try := func() {
			t.Helper()
			parent := context.WithValue(t.Context(), ctxKey("k"), "v")
			ctx, cancel := r.WithTimeoutCause(parent, 10*milli, errBecause)
			defer cancel()
			require.NoError(t, ctx.Err())
			require.Equal(t, "v", ctx.Value(ctxKey("k")))
			r.pass(10*milli - 1)
			require.NoError(t, ctx.Err())
			r.pass(1)
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
			require.Equal(t, errBecause, context.Cause(ctx))
			ctx, cancel = r.WithTimeout(parent, 10*milli)
			cancel()
			require.Equal(t, context.Canceled, ctx.Err())
		}
		try()
		require.True(t, full.Stop())
		_, err := r.Shutdown(t.Context(), Discard)
		require.NoError(t, err)
		try()
	})
}

// Contexts outlive the scheduler, under each policy, and can still be
// cancelled; nothing is left of those.
func TestContextAfterShutdown(t *testing.T) {
	for _, policy := range []Policy{Discard, HandBack, RunNow} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{})
			ctx, cancel := r.WithTimeoutCause(t.Context(), 10*milli, errBecause)
			defer cancel()
			other, cancelOther := r.WithTimeout(t.Context(), 10*milli)
			child, cancelChild := context.WithCancel(ctx)
			defer cancelChild()
			_, err := r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
			require.Zero(t, time.Since(r.born))
			cancelOther()
			require.Equal(t, context.Canceled, other.Err())
			require.False(t, other.(*deadlineContext).source.late.Stop(), "its timer is left")
			r.pass(10*milli - 1)
			require.NoError(t, ctx.Err())
			require.NoError(t, child.Err())
			r.pass(1)
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
			require.Equal(t, context.DeadlineExceeded, child.Err())
			require.Equal(t, errBecause, context.Cause(child))
			require.Equal(t, context.Canceled, other.Err())
		})
	}
}

// A deadline without a monotonic reading is turned into a delay once, as the
// standard library does: a wall clock that was, or is, set changes nothing.
func TestContextWallClock(t *testing.T) {
	r := schedStart(t, Options{})
	r.wheel.base = withWall(r.wheel.base, r.wheel.base.Add(-time.Hour)) // set forward since
	ctx, cancel := r.WithDeadline(t.Context(), time.Now().Round(0).Add(30*milli))
	defer cancel()
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("late")
	}
	require.Equal(t, context.DeadlineExceeded, ctx.Err())
}

// Derived contexts are made while their parent ends: no deadlock, and each
// sees the end. What ends it is asked for within the standard library's own
// registration: Value looks at the parent.
func TestContextDerivedWhileEnding(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := schedStart(t, Options{})
		// The parent ends at its k-th question, whatever asks.
		for k := range int32(20) {
			top := &ctxEndsWhenAsked{Context: t.Context(), done: make(chan struct{})}
			ctx, cancel := r.WithTimeout(top, time.Hour)
			top.left.Store(k + 1)
			child, cancelChild := context.WithCancel(ctx)
			stop := context.AfterFunc(ctx, func() {})
			_ = ctx.Err()
			for top.left.Load() > 0 {
				_ = ctx.Err()
			}
			<-child.Done()
			if !ctxSame(child.Err(), context.Canceled) {
				t.Error(child.Err())
			}
			stop()
			cancelChild()
			cancel()
		}
		rounds := 3000
		if testing.Short() {
			rounds = 300
		}
		for range rounds {
			top, cancelTop := context.WithCancel(context.Background())
			ctx, cancel := r.WithTimeout(top, time.Hour)
			go cancelTop()
			child, cancelChild := context.WithCancel(ctx)
			nested, cancelNested := r.WithTimeout(ctx, time.Minute)
			value, cancelValue := context.WithCancel(context.WithValue(ctx, ctxKey("k"), 1))
			called := make(chan struct{})
			context.AfterFunc(ctx, func() { close(called) })
			for _, c := range []context.Context{child, nested, value} {
				<-c.Done()
				if !ctxSame(c.Err(), context.Canceled) {
					t.Error(c.Err())
				}
			}
			<-called
			cancelValue()
			cancelNested()
			cancelChild()
			cancel()
			cancelTop()
		}
	}()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		buf := make([]byte, 1<<16)
		t.Fatalf("deadlock\n%s", buf[:runtime.Stack(buf, true)])
	}
}

// ctxEndsWhenAsked is cancelled when its Err is asked for the left-th time.
type ctxEndsWhenAsked struct {
	context.Context
	left atomic.Int32
	done chan struct{}
	once sync.Once
}

func (c *ctxEndsWhenAsked) Done() <-chan struct{} { return c.done }

func (c *ctxEndsWhenAsked) Err() error {
	if c.left.Load() > 0 && c.left.Add(-1) == 0 {
		c.once.Do(func() { close(c.done) })
	}
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// Cancel against the deadline, the parent and a look: one end, seen alike by
// all, and nothing left.
func TestContextHammer(t *testing.T) {
	r := schedStart(t, Options{Tick: 20 * time.Microsecond})
	rounds := 1500
	if testing.Short() {
		rounds = 150
	}
	var done sync.WaitGroup
	var deadlines, cancels atomic.Int32
	for g := range 4 {
		done.Go(func() {
			x := rand.New(rand.NewPCG(uint64(g), 2))
			for range rounds {
				parent, cancelParent := context.WithCancelCause(context.Background())
				ctx, cancel := r.WithTimeoutCause(parent, time.Duration(x.IntN(100))*time.Microsecond, errBecause)
				var calls atomic.Int32
				called := make(chan struct{})
				context.AfterFunc(ctx, func() {
					if calls.Add(1) == 1 {
						close(called)
					}
				})
				child, cancelChild := context.WithCancel(context.WithValue(ctx, ctxKey("k"), 1))
				var ends sync.WaitGroup
				wait := time.Duration(x.IntN(100)) * time.Microsecond
				end := [](func()){cancel, func() { cancelParent(errParent) }, func() {}}[x.IntN(3)]
				ends.Go(func() { time.Sleep(wait); end() })
				ends.Go(func() {
					for ctx.Err() == nil {
						runtime.Gosched()
					}
				})
				<-ctx.Done()
				err, cause := ctx.Err(), context.Cause(ctx)
				<-child.Done()
				<-called
				ends.Wait()
				switch {
				case ctxSame(err, context.DeadlineExceeded) && ctxSame(cause, errBecause):
					deadlines.Add(1)
				case ctxSame(err, context.Canceled) && (ctxSame(cause, errParent) || ctxSame(cause, context.Canceled)):
					cancels.Add(1)
				default:
					t.Errorf("err %v, cause %v", err, cause)
				}
				if e, c := child.Err(), context.Cause(child); !ctxSame(e, err) || !ctxSame(c, cause) {
					t.Errorf("the child says %v, %v; the context %v, %v", e, c, err, cause)
				}
				if e, c := ctx.Err(), context.Cause(ctx); !ctxSame(e, err) || !ctxSame(c, cause) {
					t.Errorf("first %v, %v; then %v, %v", err, cause, e, c)
				}
				if calls.Load() != 1 {
					t.Error("AfterFunc called twice")
				}
				cancelChild()
				cancel()
				cancelParent(nil)
			}
		})
	}
	done.Wait()
	require.Zero(t, r.Stats().Pending)
	t.Logf("%d by deadline, %d cancelled", deadlines.Load(), cancels.Load())
}

// White box: the parent is cancelled when a worker has taken the timer, and
// not yet ended the context. The parent was first.
func TestContextParentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		parent, cancelParent := context.WithCancelCause(t.Context())
		ctx, cancel := r.WithTimeoutCause(parent, 10*milli, errBecause)
		defer cancel()
		source := &ctx.(*deadlineContext).source
		require.True(t, r.wheel.Stop(source.timer)) // as a worker takes it
		r.pass(20 * milli)
		cancelParent(errParent)
		source.run()
		require.Equal(t, context.Canceled, ctx.Err())
		require.Equal(t, errParent, context.Cause(ctx))
	})
}

// Whoever knows that the parent is cancelled finds the context ended, also
// while another goroutine is ending it.
func TestContextParentAtOnceHammer(t *testing.T) {
	r := schedStart(t, Options{})
	rounds := 20_000
	if testing.Short() {
		rounds = 4_000
	}
	for range rounds {
		parent, cancelParent := context.WithCancel(context.Background())
		ctx, cancel := r.WithTimeout(parent, time.Hour)
		var done sync.WaitGroup
		for range 2 {
			done.Go(func() {
				for parent.Err() == nil {
					runtime.Gosched()
				}
				if ctx.Err() == nil {
					t.Error("the parent is cancelled, the context is not")
				}
				select {
				case <-ctx.Done():
				default:
					t.Error("the parent is cancelled, the context is not done")
				}
			})
		}
		cancelParent()
		if ctx.Err() == nil {
			t.Error("the parent is cancelled, the context is not")
		}
		done.Wait()
		cancel()
	}
	require.Zero(t, r.Len())
}

// White box: the same, with the one that ends it held up at its worst.
func TestContextEndIsWaitedFor(t *testing.T) {
	r := schedStart(t, Options{})
	parent, cancelParent := context.WithCancel(context.Background())
	ctx, cancel := r.WithTimeout(parent, time.Hour)
	defer cancel()
	source := &ctx.(*deadlineContext).source
	entered, letGo := make(chan struct{}), make(chan struct{})
	tell := source.tell
	source.tell = func() {
		close(entered)
		<-letGo
		tell()
	}
	cancelParent() // its hook ends the source, on a goroutine
	<-entered
	answers := make(chan error)
	go func() { answers <- ctx.Err() }()
	select {
	case err := <-answers:
		require.Error(t, err, "the parent is cancelled, the context is not")
		t.Fatal("it has not ended yet, and says so")
	case <-time.After(20 * milli): // it waits
	}
	close(letGo)
	require.Equal(t, context.Canceled, <-answers)
}

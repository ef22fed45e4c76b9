package purgatory

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P8: bad input is an error that names it, without effects: nothing is watched, and neither
// method is called.
func TestP8BadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nan := math.NaN()
		p := open[float64](t, Options{})
		for _, c := range []struct {
			name string
			keys []float64
			want string
		}{
			{"no keys", nil, "no keys"},
			{"empty keys", []float64{}, "no keys"},
			{"NaN", []float64{1, 2, nan, 3}, "keys[2] is NaN"},
			{"NaN of many", append(make([]float64, 20), nan), "keys[20] is NaN"},
			{"too many", make([]float64, 65_536), "65536 keys, must have at most 65535"},
		} {
			op := newOp(t)
			h, err := p.TryCompleteElseWatch(t.Context(), op, time.Hour, c.keys...)
			require.ErrorContains(t, err, c.want, c.name)
			require.ErrorContains(t, err, "purgatory: ", c.name)
			require.Zero(t, h, c.name)
			require.Zero(t, op.checks.Load()+op.ends.Load(), c.name)
			requireEmpty(t, p)
		}
		for want, call := range map[string]func(){
			"purgatory: the operation is nil": func() { _, _ = p.TryCompleteElseWatch(t.Context(), nil, time.Hour, 1) },
			"purgatory: the context is nil":   func() { _, _ = p.TryCompleteElseWatch(nil, newOp(t), time.Hour, 1) },
		} {
			require.PanicsWithValue(t, want, call)
		}
		// A context that panics leaves nothing behind either.
		require.Panics(t, func() { _, _ = p.TryCompleteElseWatch((*countingContext)(nil), newOp(t), time.Hour, 1) })
		require.ErrorContains(t, p.CheckAndCompleteLater(nan), "the key is NaN")
		require.Zero(t, p.CheckAndComplete(nan))
		require.Zero(t, p.CancelForKey(nan, nil))
		require.Zero(t, p.CheckAndComplete(5))
		require.Zero(t, p.CancelForKey(5, nil))
		requireEmpty(t, p)
		require.Zero(t, p.Stats().Ended())
		most := make([]float64, 65_535)
		for i := range most {
			most[i] = float64(i)
		}
		require.True(t, mustWatch(t, p, newOp(t), time.Hour, most...).Cancel(nil))
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// P8: a key of an interface type whose value cannot be compared panics in the caller, as in a
// map, before anything is changed.
func TestP8UncomparableKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[any](t, Options{})
		type nested struct{ x any }
		for _, bad := range []any{[]int{1}, map[int]int{}, func() {}, nested{[]int{}}, [2]any{1, []int{}}} {
			op := newOp(t)
			require.Panics(t, func() { _, _ = p.TryCompleteElseWatch(context.Background(), op, time.Hour, 1, "2", bad) })
			require.Panics(t, func() {
				_, _ = p.TryCompleteElseWatch(context.Background(), op, time.Hour, append(make([]any, 20), bad)...)
			})
			require.Panics(t, func() { _ = p.CheckAndCompleteLater(bad) })
			require.Panics(t, func() { p.CheckAndComplete(bad) })
			require.Panics(t, func() { p.CancelForKey(bad, nil) })
			require.Zero(t, op.checks.Load()+op.ends.Load())
			requireEmpty(t, p)
		}
		// No lock is left held, and keys of several types, nil included, work.
		h := mustWatch[any](t, p, newOp(t), time.Hour, 1, "1", 1.0, nil, nested{1}, nil, uint8(1))
		require.Equal(t, [3]int{1, 6, 6}, counts(p))
		verify(t, p)
		require.Equal(t, 1, p.CancelForKey(nil, nil))
		require.False(t, h.Cancel(nil))
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// P8: a key given twice, among few or many keys, counts once, and its operation is checked
// once.
func TestP8DuplicateKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		for n := 1; n <= 40; n++ {
			for distinct := 1; distinct <= n; distinct++ {
				keys := make([]int, n)
				for i := range keys {
					keys[i] = i % distinct
				}
				op := newOp(t)
				h := mustWatch(t, p, op, time.Hour, keys...)
				require.Equal(t, [3]int{1, distinct, distinct}, counts(p))
				verify(t, p)
				require.Zero(t, p.CheckAndComplete(0))
				require.EqualValues(t, 3, op.checks.Load())
				require.True(t, h.Cancel(nil))
				requireEmpty(t, p)
			}
		}
		mustShutdown(t, p)
	})
}

// P8: a timeout of zero or less expires at once, on a worker: never on the caller's goroutine,
// whatever the time between arming and returning. This context delays the call at that point.
func TestP8NoTimeLeft(t *testing.T) {
	for _, timeout := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
		for _, held := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := open[int](t, Options{})
				start := time.Now()
				op := newOp(t)
				worker := false
				op.end = func(Outcome) { worker = onWorker() }
				ctx := t.Context()
				if held {
					ctx = slowContext{ctx, func() { time.Sleep(time.Millisecond) }}
				}
				h, err := p.TryCompleteElseWatch(ctx, op, timeout, 1, 2)
				require.NoError(t, err)
				require.NotZero(t, h)
				synctest.Wait()
				require.Equal(t, Expired, op.Outcome())
				require.EqualValues(t, 2, op.checks.Load(), "the checks come first")
				require.True(t, worker, "not on a worker")
				if !held {
					require.Zero(t, time.Since(start), "not at once")
				}
				require.False(t, h.Cancel(nil))
				requireEmpty(t, p)
				mustShutdown(t, p)
			})
		}
	}
}

// slowContext calls slow in its Err, which is called once the operation is in its lists.
type slowContext struct {
	context.Context
	slow func()
}

func (c slowContext) Err() error {
	c.slow()
	return c.Context.Err()
}

// P8: with no time left, an operation whose checks return true completes.
func TestP8NoTimeLeftButReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		for yesAt := 1; yesAt <= 2; yesAt++ {
			op := newOp(t)
			op.try = func(n int) bool { return n == yesAt }
			h, err := p.TryCompleteElseWatch(context.Background(), op, 0, 1)
			require.NoError(t, err)
			require.Zero(t, h)
			synctest.Wait()
			require.Equal(t, Completed, op.Outcome())
		}
		mustShutdown(t, p)
	})
}

// P8: with no time left and no worker free, the operation can still be ended otherwise. The
// event that waits for a worker then does nothing.
func TestP8NoTimeLeftAndNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Workers: 1})
		blocked, resume := make(chan bool), make(chan bool)
		busy := newOp(t)
		busy.end = func(Outcome) {
			close(blocked)
			<-resume
		}
		mustWatch(t, p, busy, 0, 1)
		<-blocked
		op := newOp(t)
		h := mustWatch(t, p, op, 0, 1)
		require.Equal(t, [3]int{1, 1, 1}, counts(p))
		require.True(t, h.Cancel(nil))
		require.Equal(t, [3]int{}, counts(p))
		// The same, ended while TryCompleteElseWatch is still running.
		late := newOp(t)
		ctx := slowContext{t.Context(), func() { p.CancelForKey(2, nil) }}
		h, err := p.TryCompleteElseWatch(ctx, late, 0, 2)
		require.NoError(t, err)
		require.Zero(t, h, "it has ended within the call")
		require.Equal(t, Cancelled, late.Outcome())
		require.Equal(t, [3]int{}, counts(p))
		close(resume)
		synctest.Wait()
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// P8: NoTimeout never expires, and costs no timer; a timeout just below does not overflow.
func TestP8NoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		op, long := newOp(t), newOp(t)
		h := mustWatch(t, p, op, NoTimeout, 1)
		require.Zero(t, p.clock.timers.Len())
		mustWatch(t, p, long, NoTimeout-1, 1)
		time.Sleep(minPostponed)
		require.Equal(t, 1, p.clock.timers.Len())
		time.Sleep(100 * 365 * 24 * time.Hour)
		synctest.Wait()
		require.Zero(t, op.Outcome())
		require.Zero(t, long.Outcome())
		verify(t, p)
		require.True(t, h.ForceComplete())
		mustShutdown(t, p)
		require.Equal(t, Closed, long.Outcome())
	})
}

// A timeout is never early, and late by at most a tick.
func TestTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{1, time.Microsecond, time.Millisecond - 1, time.Millisecond, time.Millisecond + 1, 300 * time.Millisecond, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{})
			time.Sleep(777 * time.Microsecond)
			start := time.Now()
			var took time.Duration
			op := newOp(t)
			op.end = func(Outcome) { took = time.Since(start) }
			mustWatch(t, p, op, timeout, 1)
			time.Sleep(timeout + 2*time.Millisecond)
			synctest.Wait()
			require.Equal(t, Expired, op.Outcome())
			require.GreaterOrEqual(t, took, timeout)
			require.LessOrEqual(t, took, timeout+time.Millisecond)
			mustShutdown(t, p)
		})
	}
}

// P8: an option out of range is an error that names it; others are accepted.
func TestP8Options(t *testing.T) {
	shared, err := NewClock(ClockOptions{})
	require.NoError(t, err)
	shutdownAtEnd(t, shared)
	for want, o := range map[string]Options{
		"Options.Tick is -1ns":                               {Tick: -1},
		"Options.Workers is -1":                              {Workers: -1},
		"Options.Workers is 65537":                           {Workers: 1<<16 + 1},
		"Options.Tick is 1ns, must be 0 with Options.Clock":  {Tick: 1, Clock: shared},
		"Options.Workers is 1, must be 0 with Options.Clock": {Workers: 1, Clock: shared},
		"Options.Clock is the zero value":                    {Clock: new(Clock)},
		"Options.MaxPending is -1":                           {MaxPending: -1},
		"Options.MaxPending is -100":                         {MaxPending: -100},
	} {
		p, err := New[int](o)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "purgatory: ")
		require.Nil(t, p)
	}
	synctest.Test(t, func(t *testing.T) {
		mustShutdown(t, open[int](t, Options{Tick: 1, Workers: 1, MaxPending: 1, Name: "a"}))
	})
}

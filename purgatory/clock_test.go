package purgatory

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P17: purgatories, thresholds and futures on one wheel each keep their own timeouts, deferred
// keys and statistics, and shutting one down does not affect the others.
func TestP17OneWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheel, err := NewClock(ClockOptions{Name: "all", Workers: 2})
		require.NoError(t, err)
		p, q := open[int](t, Options{Clock: wheel}), open[string](t, Options{Clock: wheel})
		r := newThresholdFixture(t, Options{Clock: wheel})
		futures, err := NewFutures[int](Options{Clock: wheel})
		require.NoError(t, err)

		short, long, deferred, number, result := newOp(t), newOp(t), newOp(t), newOp(t), newOp(t)
		mustWatch(t, p, short, 10*time.Millisecond, 1)
		mustWatch(t, q, long, time.Minute, "1")
		mustWatch(t, q, deferred, time.Minute, "2")
		r.mustWatch(number, time.Minute, All, Goal[int, int]{1, 1})
		f := futures.Future()
		_, err = futures.TryCompleteElseWatch(t.Context(), result, time.Minute, All, f)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, Expired, short.Outcome())
		require.Equal(t, 4, wheel.Stats().Pending)
		require.Equal(t, wheel.Stats().Pending, p.Stats().Wheel.Pending)

		require.NoError(t, p.Shutdown(t.Context()))
		deferred.ready.Store(true)
		require.NoError(t, q.CheckAndCompleteLater("2"))
		r.set(1, 1)
		require.NoError(t, r.AdvanceLater(1))
		f.Set(1, nil)
		synctest.Wait()
		require.Equal(t, []Outcome{Completed, Completed, Completed}, []Outcome{deferred.Outcome(), number.Outcome(), result.Outcome()})
		time.Sleep(time.Minute)
		require.Equal(t, Expired, long.Outcome())

		// The wheel ends after its last user.
		done := make(chan error)
		go func() { done <- wheel.Shutdown(t.Context()) }()
		synctest.Wait()
		_, err = New[int](Options{Clock: wheel})
		require.EqualError(t, err, "purgatory: closed: Options.Clock")
		require.ErrorIs(t, err, ErrClosed)
		last := newOp(t)
		mustWatch(t, q, last, time.Second, "1")
		time.Sleep(2 * time.Second)
		require.Equal(t, Expired, last.Outcome(), "others use it still")
		require.NoError(t, q.Shutdown(t.Context()))
		require.NoError(t, r.Shutdown(t.Context()))
		select {
		case <-done:
			t.Fatal("it has ended, though it is used")
		default:
		}
		require.NoError(t, futures.Shutdown(t.Context()))
		require.NoError(t, <-done)
		require.NoError(t, wheel.Shutdown(t.Context()))
		require.Zero(t, wheel.Stats().Workers)
		require.Zero(t, wheel.Stats().Pending)
	})
}

// P12, P17: on a shared wheel a shutdown also waits for a Complete that runs on a worker, and
// it finishes even if its ctx ends first.
func TestP17ShutdownWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wheel, err := NewClock(ClockOptions{})
		require.NoError(t, err)
		p := open[int](t, Options{Clock: wheel})
		resume, inside := make(chan bool), make(chan bool)
		op := newOp(t)
		op.end = func(Outcome) {
			close(inside)
			<-resume
		}
		mustWatch(t, p, op, time.Millisecond, 1)
		<-inside
		require.Zero(t, p.Len())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Shutdown(ctx), context.DeadlineExceeded)
		ended := make(chan bool)
		go func() {
			<-p.closing.done
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("it does not wait for the Complete")
		default:
		}
		close(resume)
		<-ended // without another call of Shutdown
		require.NoError(t, p.Shutdown(t.Context()))
		wheel.Close()
		wheel.Close()
		require.NoError(t, wheel.Shutdown(t.Context()))
	})
}

// P17: errors name bad options of a wheel; a nil context panics.
func TestP17BadInput(t *testing.T) {
	_, err := NewClock(ClockOptions{Tick: -1})
	require.ErrorContains(t, err, "purgatory: ")
	require.ErrorContains(t, err, "Options.Tick is -1ns")
	wheel, err := NewClock(ClockOptions{})
	require.NoError(t, err)
	require.PanicsWithValue(t, "purgatory: the context is nil", func() { _ = wheel.Shutdown(nil) })
	_, err = New[int](Options{Clock: wheel, Tick: 1})
	require.EqualError(t, err, "purgatory: Options.Tick is 1ns, must be 0 with Options.Clock")
	require.NoError(t, wheel.Shutdown(t.Context()))
}

// P17: an empty purgatory costs at most 8 KiB on a shared wheel, and 48 KiB with its own.
func TestP17Idle(t *testing.T) {
	wheel, err := NewClock(ClockOptions{})
	require.NoError(t, err)
	const n = 200
	each := func(o Options, most int) {
		t.Helper()
		keep := make([]*Purgatory[string], n)
		before := heap()
		for i := range keep {
			keep[i] = open[string](t, o)
		}
		size := (heap() - before) / n
		t.Logf("%d bytes each", size)
		require.LessOrEqual(t, size, most)
		runtime.KeepAlive(keep)
	}
	each(Options{Clock: wheel}, 8<<10)
	each(Options{}, 48<<10)
}

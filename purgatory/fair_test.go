package purgatory

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P15: a hot deferred key occupies one worker at a time: the others are free for expiries.
func TestP15HotDeferredKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Workers: 2})
		var inside, most atomic.Int32
		slow := newOp(t)
		slow.try = func(n int) bool {
			if n > 2 {
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Second)
				inside.Add(-1)
			}
			return false
		}
		for range 5 { // makes a walk slow, so that others could overtake it
			mustWatch(t, p, slow, NoTimeout, 1)
			slow = &testOp{t: t, try: slow.try}
		}
		start := time.Now()
		other := newOp(t)
		var expired time.Duration
		other.end = func(Outcome) { expired = time.Since(start) }
		mustWatch(t, p, other, 3*time.Second, 2)
		for range 20 {
			require.NoError(t, p.CheckAndCompleteLater(1))
			time.Sleep(time.Second / 2)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.EqualValues(t, 1, most.Load())
		require.Equal(t, Expired, other.Outcome())
		require.Equal(t, 3*time.Second, expired)
		verify(t, p)
		mustShutdown(t, p)
	})
}

// P15: an operation that checks its own key in each check spins for a bounded time, ends as
// Failed, and is reported.
func TestP15ChecksItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics []Panic
		p := open[int](t, Options{OnPanic: func(x Panic) { panics = append(panics, x) }})
		op := newOp(t)
		op.try = func(n int) bool {
			if n > 2 {
				p.CheckAndComplete(1)
			}
			return false
		}
		mustWatch(t, p, op, NoTimeout, 1)
		require.Zero(t, p.CheckAndComplete(1))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, Failed, op.Outcome())
		require.Equal(t, "purgatory: TryComplete endlessly calls CheckAndComplete for a key of its own", op.cause.Error())
		require.Len(t, panics, 1)
		require.Equal(t, errSpinning, panics[0].Value)
		require.InDelta(t, spinSuspect, op.checks.Load(), 2*maxChecksHere)
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// P15: an operation that other goroutines check as often is not mistaken for an operation that
// checks itself, however long that goes on, and the goroutines that ask are not delayed.
func TestP15ChecksRequestedByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		op := newOp(t)
		requested := make(chan bool)
		op.try = func(n int) bool {
			if n > 2 && n < 3*spinSuspect {
				requested <- true // another goroutine asks while the check runs
				<-requested
			}
			return op.ready.Load()
		}
		mustWatch(t, p, op, NoTimeout, 1)
		done := make(chan bool)
		go func() {
			for range requested {
				require.Zero(t, p.CheckAndComplete(1))
				requested <- true
			}
			close(done)
		}()
		// And now and then while no check runs.
		stop := make(chan bool)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
					p.CheckAndComplete(1)
				}
			}
		}()
		require.Zero(t, p.CheckAndComplete(1))
		for op.checks.Load() < 3*spinSuspect {
			time.Sleep(time.Millisecond)
		}
		close(stop)
		synctest.Wait()
		require.Zero(t, op.Outcome())
		op.ready.Store(true)
		p.CheckAndComplete(1)
		synctest.Wait()
		require.Equal(t, Completed, op.Outcome())
		close(requested)
		<-done
		mustShutdown(t, p)
	})
}

// P15: when others have requested a check in a pause, the count restarts: an operation fails
// only after a dozen checks in a row that it has requested itself.
func TestP15ChecksRequestedInPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		op := newOp(t)
		op.try = func(n int) bool {
			if n > 2 && n < spinSuspect+30 {
				p.CheckAndComplete(1)
			}
			return op.ready.Load()
		}
		mustWatch(t, p, op, NoTimeout, 1)
		require.Zero(t, p.CheckAndComplete(1))
		for op.checks.Load() < spinSuspect+30 {
			time.Sleep(100 * time.Microsecond)
			if op.checks.Load() < spinSuspect+22 {
				p.CheckAndComplete(1)
			}
			require.Zero(t, op.Outcome(), "failed after %d checks", op.checks.Load())
		}
		synctest.Wait()
		require.Zero(t, op.Outcome())
		op.ready.Store(true)
		require.Equal(t, 1, p.CheckAndComplete(1))
		mustShutdown(t, p)
	})
}

// P3, P15: an operation that is ended while its next check waits for a worker is not checked
// again.
func TestP15EndedBetweenChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		op := newOp(t)
		op.try = func(n int) bool {
			if n > 2 {
				p.CheckAndComplete(1)
			}
			return false
		}
		h := mustWatch(t, p, op, NoTimeout, 1)
		require.Zero(t, p.CheckAndComplete(1))
		for op.checks.Load() <= spinSuspect { // from then on a pause follows each check
			time.Sleep(minPause / 2)
		}
		checks := op.checks.Load()
		require.True(t, h.Cancel(nil))
		require.Zero(t, op.ends.Load(), "its owner ends it, after the pause")
		time.Sleep(2 * minPause)
		synctest.Wait()
		require.Equal(t, Cancelled, op.Outcome())
		require.Equal(t, checks, op.checks.Load())
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// P15: CheckAndComplete returns even if others ask for checks without end.
func TestP15CallerReturns(t *testing.T) {
	p := open[int](t, Options{Workers: 1})
	op := newOp(t)
	mustWatch(t, p, op, NoTimeout, 1)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				p.CheckAndComplete(1)
			}
		})
	}
	for range 1000 { // a failure is a timeout of the test
		p.CheckAndComplete(1)
	}
	stop.Store(true)
	wg.Wait()
	for !op.ready.Swap(true) || op.ends.Load() == 0 {
		p.CheckAndComplete(1)
	}
	mustShutdown(t, p)
}

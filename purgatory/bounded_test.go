package purgatory

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P10: beyond MaxPending operations are refused with ErrFull and leave no trace; each kind of
// end frees the capacity of exactly one.
func TestP10Full(t *testing.T) {
	for _, e := range endings {
		if e.outcome == Closed {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				op := newOp(t)
				s := &endingFixture{p: open[int](t, Options{MaxPending: 3}), op: op}
				var err error
				ctx, cancel := context.WithCancel(t.Context())
				s.cancel = cancel
				s.h, err = s.p.TryCompleteElseWatch(ctx, op, endingTimeout, 1, 2)
				require.NoError(t, err)
				mustWatch(t, s.p, newOp(t), NoTimeout, 3)
				mustWatch(t, s.p, newOp(t), NoTimeout, 4)
				refused := func() {
					x := newOp(t)
					h, err := s.p.TryCompleteElseWatch(context.Background(), x, time.Hour, 5, 6)
					require.ErrorIs(t, err, ErrFull)
					require.Zero(t, h)
					require.Zero(t, x.ends.Load())
					require.Zero(t, s.p.CheckAndComplete(5))
					require.EqualValues(t, 1, x.checks.Load())
					verify(t, s.p)
				}
				refused()
				require.Equal(t, [3]int{3, 4, 4}, counts(s.p))
				e.end(s)
				synctest.Wait()
				require.Equal(t, e.outcome, op.Outcome())
				mustWatch(t, s.p, newOp(t), time.Hour, 1)
				refused()
				// An operation that need not wait is not refused.
				now := newOp(t)
				now.ready.Store(true)
				h, err := s.p.TryCompleteElseWatch(context.Background(), now, time.Hour, 1)
				require.NoError(t, err)
				require.Zero(t, h)
				refused()
				mustShutdown(t, s.p)
			})
		})
	}
}

// P10: an operation frees its capacity before its Complete, so that its Complete can add one,
// even at the limit (as timers 5 says for timers).
func TestP10AddedFromComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{MaxPending: 2})
		added := 0
		var again func(int) *testOp
		again = func(left int) *testOp {
			op := newOp(t)
			op.end = func(o Outcome) {
				if left > 0 && o != Closed {
					mustWatch(t, p, again(left-1), time.Second, 1)
					added++
				}
			}
			return op
		}
		mustWatch(t, p, newOp(t), NoTimeout, 1)
		mustWatch(t, p, again(100), time.Second, 1)
		for range 20 {
			time.Sleep(time.Second + time.Millisecond)
			synctest.Wait()
		}
		require.Equal(t, 20, added)
		require.Equal(t, [3]int{2, 2, 1}, counts(p))
		verify(t, p)
		mustShutdown(t, p)
	})
}

// P10: a second check that returns true, or panics, frees the capacity.
func TestP10SecondCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{MaxPending: 1, OnPanic: func(Panic) {}})
		for i := range 10 {
			op := newOp(t)
			op.try = func(n int) bool {
				if n == 2 && i%2 == 0 {
					panic("no")
				}
				return n == 2
			}
			_, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, 1, 2)
			require.NoError(t, err)
			require.NotZero(t, op.Outcome())
			requireEmpty(t, p)
		}
		require.LessOrEqual(t, p.Stats().Wheel.Scheduled, uint64(runtime.GOMAXPROCS(0)), "a timer was set for what has ended, besides sweeps")
		mustShutdown(t, p)
	})
}

// P10: an ended operation is subtracted from the count before another can take its capacity, or
// Len would exceed the bound.
func TestP10CapacityIsFreedLast(t *testing.T) {
	p := open[int](t, Options{MaxPending: 1})
	h := mustWatch(t, p, newOp(t), NoTimeout, 1)
	ended := make(chan bool)
	var once sync.Once
	held := int64(-1)
	p.each(func(*tally) { // it holds the locks of all parts
		once.Do(func() {
			go func() {
				defer close(ended)
				h.Cancel(nil)
			}()
			blockedOnMutex(t, "countOut")
			held = p.limit.Held()
		})
	})
	<-ended
	require.EqualValues(t, 1, held, "the capacity is freed before the operation is counted out")
	require.Zero(t, p.limit.Held())
	requireEmpty(t, p)
	mustShutdown(t, p)
}

// P10: the bound is exact under concurrency: never more operations wait, and once none arrives
// and none was refused needlessly, exactly MaxPending wait.
func TestP10ExactUnderConcurrency(t *testing.T) {
	const bound, goroutines = 10, 8
	p := open[int](t, Options{MaxPending: bound})
	var waiting, most atomic.Int32
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range 2000 {
				op := newOp(t)
				op.try = func(n int) bool {
					if n == 2 { // it has been counted
						if now := waiting.Add(1); now > most.Load() {
							most.Store(now)
						}
					}
					return false
				}
				// Counted down before the capacity is freed.
				h, err := p.TryCompleteElseWatch(context.Background(), op, NoTimeout, rand.IntN(3), 3)
				switch {
				case err == ErrFull:
					p.CheckAndComplete(3)
				case err != nil:
					t.Error(err)
				default:
					waiting.Add(-1)
					if !h.Cancel(nil) {
						t.Error("cancelled by another call")
					}
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int32(bound))
	requireEmpty(t, p)

	var accepted atomic.Int32
	for range goroutines {
		wg.Go(func() {
			for range 5 {
				if _, err := p.TryCompleteElseWatch(context.Background(), newOp(t), NoTimeout, 1); err == nil {
					accepted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, bound, accepted.Load())
	require.Equal(t, bound, p.Len())
	mustShutdown(t, p)
}

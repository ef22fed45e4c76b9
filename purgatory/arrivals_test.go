package purgatory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P5: an operation's timeout is entered on the wheel only if it still waits after a while. Ended
// operations leave the list of arrivals and the wheel within 100 ms.
func TestArrivalsSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		soon := mustWatch(t, p, newOp(t), minPostponed-1, 1)
		var late []Pending
		for range 500 {
			late = append(late, mustWatch(t, p, newOp(t), time.Hour, 1))
		}
		require.Equal(t, 1, timers(&p.core), "what is soon is entered at once")
		for _, h := range late[:400] {
			require.True(t, h.Cancel(nil))
		}
		require.True(t, soon.Cancel(nil))
		require.Zero(t, timers(&p.core))
		time.Sleep(sweepAfter + 2*sweepEvery)
		synctest.Wait()
		require.Equal(t, 100, timers(&p.core))
		require.Equal(t, 100, p.clock.timers.Len(), "and no sweep, while nothing comes")
		for _, h := range late[400:] {
			require.True(t, h.Cancel(nil))
		}
		require.Zero(t, p.clock.timers.Len())
		require.Zero(t, p.Stats().Wheel.EmptyWakeups)

		// One by one, at any time: all leave within 100 ms.
		for range 300 {
			h := mustWatch(t, p, newOp(t), time.Hour, 1)
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			require.True(t, h.Cancel(nil))
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Zero(t, p.clock.timers.Len())
		p.each(func(part *tally) {
			require.Zero(t, part.arrivals.Len())
			require.LessOrEqual(t, part.arrivals.Cap(), 64, "memory follows the load")
		})
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// T1, T2: operations of any timeout, with sweeps in between, expire in time: never early, and
// at most a tick late, even if their first check takes nearly as long.
func TestArrivalsExpireInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Tick: time.Millisecond})
		timeouts := []time.Duration{
			minPostponed - 1, minPostponed, minPostponed + 1, sweepAfter, sweepAfter + sweepEvery, sweepAfter + sweepEvery + 1,
			100 * time.Millisecond, 123456789, time.Second, time.Hour,
		}
		var n atomic.Int32
		for range 1000 {
			timeout := timeouts[rand.IntN(len(timeouts))]
			came := time.Now()
			op := newOp(t)
			checkFor := time.Duration(0)
			if rand.IntN(2) == 0 {
				timeout = time.Duration(rand.IntN(200_000_000))
				checkFor = timeout - time.Duration(rand.IntN(100_000_000))
			}
			op.try = func(n int) bool {
				if n == 1 {
					time.Sleep(checkFor)
				}
				return false
			}
			op.end = func(o Outcome) {
				n.Add(1)
				require.Equal(t, Expired, o)
				require.GreaterOrEqual(t, time.Since(came), timeout)
				require.LessOrEqual(t, time.Since(came), timeout+time.Millisecond)
			}
			go func() {
				if _, err := p.TryCompleteElseWatch(context.Background(), op, timeout, 1); err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(time.Duration(rand.IntN(20_000_000)))
		}
		time.Sleep(2 * time.Hour)
		require.EqualValues(t, 1000, n.Load())
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// An operation whose long check runs during the sweep still expires in time: its outcome is
// decided then. When its check has returned and its timeout is far, the wheel holds only its
// timer.
func TestArrivalsWhileChecked(t *testing.T) {
	for _, timeout := range []time.Duration{80 * time.Millisecond, 200 * time.Millisecond, 10 * time.Second} {
		for _, checkFor := range []time.Duration{60 * time.Millisecond, 150 * time.Millisecond, 5 * time.Second, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				p := open[int](t, Options{})
				op := newOp(t)
				op.try = func(n int) bool {
					if n == 3 {
						time.Sleep(checkFor)
					}
					return n == 3 && checkFor > timeout // after the timeout
				}
				start := time.Now()
				h := mustWatch(t, p, op, timeout, 1)
				ended := time.Duration(0)
				op.end = func(Outcome) { ended = time.Since(start) }
				go p.CheckAndComplete(1)
				time.Sleep(min(checkFor, timeout) + 200*time.Millisecond)
				if checkFor+200*time.Millisecond < timeout {
					require.Equal(t, 1, timers(&p.core))
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				require.Equal(t, Expired, op.Outcome())
				want := max(timeout, checkFor)
				require.GreaterOrEqual(t, ended, want)
				require.LessOrEqual(t, ended, want+time.Millisecond)
				require.False(t, h.Waiting())
				require.Zero(t, p.clock.timers.Len())
				requireEmpty(t, p)
				mustShutdown(t, p)
			})
		}
	}
}

// T1, T2: an operation with a slow first or second check, or with numbers that are slow to
// read, expires as if they were fast, whatever arrives in between, and at once after a check
// longer than its timeout.
func TestArrivalsAfterSlowCheck(t *testing.T) {
	const tick = time.Millisecond
	watch := map[string]func(*testing.T, *testOp, time.Duration, bool){
		"purgatory": func(t *testing.T, op *testOp, timeout time.Duration, busy bool) {
			p := open[int](t, Options{Tick: tick})
			withArrivals(t, busy, func() { mustWatch(t, p, newOp(t), time.Second, 2) })
			_, err := p.TryCompleteElseWatch(t.Context(), op, timeout, 1)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			requireEmpty(t, p)
			mustShutdown(t, p)
		},
		"threshold": func(t *testing.T, op *testOp, timeout time.Duration, busy bool) {
			p, err := NewThreshold(func(key int) int {
				if key == 1 {
					op.TryComplete()
				}
				return 0
			}, Options{Tick: tick})
			require.NoError(t, err)
			withArrivals(t, busy, func() {
				_, err := p.TryCompleteElseWatch(context.Background(), newOp(t), time.Second, All, Goal[int, int]{2, 1})
				require.NoError(t, err)
			})
			_, err = p.TryCompleteElseWatch(context.Background(), op, timeout, All, Goal[int, int]{1, 1})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			require.Zero(t, timers(&p.core))
			require.NoError(t, p.Shutdown(context.Background()))
		},
	}
	const ms = time.Millisecond
	for name, watch := range watch {
		for _, timeout := range []time.Duration{20 * ms, minPostponed, 76 * ms, 100 * ms, 150 * ms, time.Second} {
			for _, took := range []time.Duration{1, ms, 6 * ms, 19 * ms, 70 * ms, 95 * ms, 149 * ms, 980 * ms, 2 * time.Second} {
				for _, which := range []int{1, 2} {
					for _, busy := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s,%v,check %d takes %v,%v", name, timeout, which, took, busy), func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) {
								op := newOp(t)
								op.try = func(n int) bool {
									if n == which {
										time.Sleep(took)
									}
									return false
								}
								came, ended := time.Now(), time.Duration(0)
								op.end = func(Outcome) { ended = time.Since(came) }
								watch(t, op, timeout, busy)
								require.Equal(t, Expired, op.Outcome())
								require.GreaterOrEqual(t, ended, timeout)
								require.LessOrEqual(t, ended, max(timeout, took)+tick)
							})
						})
					}
				}
			}
		}
	}
}

// withArrivals calls arrive every 7 ms for some time, if busy is set.
func withArrivals(t *testing.T, busy bool, arrive func()) {
	if !busy {
		return
	}
	for range 3 {
		arrive()
	}
	go func() {
		for range 300 {
			time.Sleep(7 * time.Millisecond)
			arrive()
		}
	}()
}

// While a sweep enters an operation's timeout, a goroutine that checks or ends the operation
// waits for it: no check runs, so Complete is called before they return.
func TestEndsWhileItIsSwept(t *testing.T) {
	p := open[int](t, Options{})
	for name, end := range map[string]func(Pending, *testOp) bool{
		"Cancel":        func(h Pending, _ *testOp) bool { return h.Cancel(nil) },
		"ForceComplete": func(h Pending, _ *testOp) bool { return h.ForceComplete() },
		"CancelForKey":  func(Pending, *testOp) bool { return p.CancelForKey(1, nil) == 1 },
		"CheckAndComplete": func(_ Pending, op *testOp) bool {
			op.ready.Store(true)
			return p.CheckAndComplete(1) == 1
		},
		"timeout": func(h Pending, _ *testOp) bool {
			h.w.due(h.gen)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			op := newOp(t)
			h := mustWatch(t, p, op, NoTimeout, 1)
			require.True(t, h.w.state.hold(h.gen))
			ends := make(chan int32)
			go func() {
				if !end(h, op) {
					t.Error("ended by another one")
				}
				ends <- op.ends.Load()
			}()
			select {
			case n := <-ends:
				t.Fatalf("did not wait; Complete was called %d times", n)
			case <-time.After(5 * time.Millisecond):
			}
			h.w.state.release(h.gen)
			require.EqualValues(t, 1, <-ends)
			requireEmpty(t, p)
		})
	}
}

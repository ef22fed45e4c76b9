package purgatory

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An operation's timeout is entered on the wheel when it has waited for a while, and only
// if it waits still; what has ended leaves the list of arrivals and the wheel within
// 100 ms (P5).
func TestArrivalsSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		soon := park(t, p, newOp(t), lazyFrom-1, 1)
		var late []Pending
		for range 500 {
			late = append(late, park(t, p, newOp(t), time.Hour, 1))
		}
		require.Equal(t, 1, timers(&p.core), "what is soon is entered at once")
		for _, h := range late[:400] {
			require.True(t, h.Cancel(nil))
		}
		require.True(t, soon.Cancel(nil))
		require.Zero(t, timers(&p.core))
		time.Sleep(lazyFor + 2*lazyEach)
		synctest.Wait()
		require.Equal(t, 100, timers(&p.core))
		require.Equal(t, 100, p.wheel.timers.Len(), "and no sweep, while nothing comes")
		for _, h := range late[400:] {
			require.True(t, h.Cancel(nil))
		}
		require.Zero(t, p.wheel.timers.Len())
		require.Zero(t, p.Stats().Wheel.EmptyWakeups)

		// One by one, at any time: within 100 ms all is gone.
		for range 300 {
			h := park(t, p, newOp(t), time.Hour, 1)
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			require.True(t, h.Cancel(nil))
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Zero(t, p.wheel.timers.Len())
		p.each(func(part *tally) {
			require.Zero(t, part.arrivals.Len())
			require.LessOrEqual(t, part.arrivals.Cap(), 64, "memory follows the load")
		})
		empty(t, p)
		shut(t, p)
	})
}

// T1, T2: operations of any timeout, with sweeps between, expire in time: never early,
// and at most a tick late.
func TestArrivalsExpireInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Tick: time.Millisecond})
		timeouts := []time.Duration{
			lazyFrom - 1, lazyFrom, lazyFrom + 1, lazyFor, lazyFor + lazyEach, lazyFor + lazyEach + 1,
			100 * time.Millisecond, 123456789, time.Second, time.Hour,
		}
		var n atomic.Int32
		for range 200 {
			timeout := timeouts[rand.IntN(len(timeouts))]
			came := time.Now()
			op := newOp(t)
			op.end = func(o Outcome) {
				n.Add(1)
				require.Equal(t, Expired, o)
				require.GreaterOrEqual(t, time.Since(came), timeout)
				require.LessOrEqual(t, time.Since(came), timeout+time.Millisecond)
			}
			park(t, p, op, timeout, 1)
			time.Sleep(time.Duration(rand.IntN(20_000_000)))
		}
		time.Sleep(2 * time.Hour)
		require.EqualValues(t, 200, n.Load())
		empty(t, p)
		shut(t, p)
	})
}

// An operation that is being checked while the sweep comes, and for long, expires in
// time all the same: its outcome is decided then. When its check is over, and its
// timeout is far, the wheel holds its timer and no more.
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
					return n == 3 && checkFor > timeout // too late
				}
				start := time.Now()
				h := park(t, p, op, timeout, 1)
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
				require.Zero(t, p.wheel.timers.Len())
				empty(t, p)
				shut(t, p)
			})
		}
	}
}

package timingwheel

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Failures of other implementations: docs/lessons.md has the catalogue and names the test of
// each. This file covers failures without a contract's test.

// timers 2: a late add to the slot of the bucket that is being flushed gets its own bucket, a
// lap later; the flush does not find it, and the clock does not jump.
func TestLateAddDuringFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 4, Shards: 1, Workers: 1})
		f.stopAdvancer()
		const n = 20_000
		for i := range n {
			f.schedule(i, 9*time.Millisecond)
		}
		time.Sleep(6 * time.Millisecond)
		s, id := f.head()
		require.Equal(t, uint8(1), s.lists.bucket(id).level)
		f.duringCascade(s, id, func(int) {
			s.mu.Unlock()
			defer s.mu.Lock()
			for i, d := range []time.Duration{1, 3, 33, 34} { // 40: the flushed bucket's slot again, if the clock were at 12
				f.schedule(n+i, d*time.Millisecond)
			}
		})
		require.Equal(t, tick(6), s.clock)
		f.startAdvancer()
		f.advance(time.Hour)
		want := map[int]time.Duration{n: 7, n + 1: 9, n + 2: 39, n + 3: 40}
		for _, r := range f.fired() {
			if r.v < n {
				require.Equal(t, 9*time.Millisecond, r.at)
			} else {
				require.Equal(t, want[r.v]*time.Millisecond, r.at)
			}
		}
	})
	// A later timer for the same slot, one lap later, does not join a bucket of the lowest
	// level that was passed to the workers.
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{WheelSize: 4, Shards: 1, Workers: 1}, g.wait)
		f.blockWorkers(1)
		f.schedule(1, 3*time.Millisecond)
		f.advance(3 * time.Millisecond)
		f.schedule(2, 4*time.Millisecond) // the same slot
		f.advance(time.Millisecond)
		require.Equal(t, 1, f.Stats().Ready)
		close(g)
		f.advance(time.Second)
		require.Equal(t, []firing{{1, 4 * time.Millisecond}, {2, 7 * time.Millisecond}}, f.fired())
	})
}

// timers 4: adding during a shutdown is refused and never blocks, whatever the shutdown waits
// for.
func TestAddDuringShutdown(t *testing.T) {
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			g := make(gate)
			f := start(t, Options{Workers: 1, Shards: 2}, g.wait)
			f.blockWorkers(1)
			f.schedule(1, time.Minute)
			ended := make(chan struct{})
			go func() {
				f.Shutdown(context.Background(), policy)
				close(ended)
			}()
			synctest.Wait()
			for range 1000 {
				_, err := f.Schedule(2, 0)
				require.ErrorIs(t, err, ErrClosed)
				_, err = f.Schedule(2, time.Hour)
				require.ErrorIs(t, err, ErrClosed)
			}
			close(g)
			<-ended
			f.closed()
			require.NotContains(t, f.values(), 2)
		})
	}
}

// timers 5: Stop and Reset while the function runs do no harm, and Len decreases once.
func TestStopWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 1, Workers: 2, MaxPending: 10}, g.wait)
		h := f.schedule(-1, time.Millisecond)
		neighbours := []Timer{f.schedule(1, time.Second), f.schedule(2, time.Second)}
		f.advance(2 * time.Millisecond)
		require.Equal(t, 2, f.Len())
		reused := f.schedule(3, time.Second) // the node
		require.Equal(t, h.index(), reused.index())
		for range 3 {
			require.False(t, f.Stop(h))
			require.False(t, f.Reset(h, 0))
			require.Equal(t, 3, f.Len())
			f.waitIdle()
		}
		close(g)
		f.advance(time.Hour)
		require.Len(t, f.fired(), 4)
		require.Zero(t, f.Len())
		require.False(t, slices.ContainsFunc(neighbours, f.Stop))
	})
}

// timers 7: a timer that reschedules itself in its own callback and is stopped there, or right
// after, does not run again.
func TestStoppedInItsOwnCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		var current atomic.Uint64
		f = start(t, Options{WheelSize: 2}, func(v int) {
			if f.since() > time.Second {
				return
			}
			h, err := f.Schedule(v, 3*time.Millisecond)
			require.NoError(t, err)
			if v == 1 && f.since() >= 30*time.Millisecond {
				require.True(t, f.Stop(h))
			}
			if v == 2 {
				current.Store(h.id)
			}
		})
		f.schedule(1, 3*time.Millisecond)
		f.schedule(2, 3*time.Millisecond)
		f.advance(60 * time.Millisecond)
		require.True(t, f.Stop(Timer{current.Load()}))
		f.waitIdle()
		require.Len(t, f.fired(), 10+20)
		f.advance(time.Second)
		require.Empty(t, f.fired())
		require.Zero(t, f.Len())
	})
}

// timers 13: one timer after the other for more ticks than a 32-bit counter holds, and another
// timer that waits through all of them.
func TestManyTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Tick: 1, WheelSize: 4, Shards: 1})
		f.schedule(-1, 1<<40)
		for k := 20; k < 40; k++ {
			for _, at := range []time.Duration{1<<k - 1, 1 << k, 1<<k + 1} {
				f.schedule(k, at-f.since())
				f.advance(at - f.since())
				require.Equal(t, []firing{{k, at}}, f.fired())
			}
		}
		f.advance(1 << 40)
		require.Equal(t, []firing{{-1, 1 << 40}}, f.fired())
	})
}

// timers 14: after a stall the wheel is on time again at once: it neither stays late nor
// catches up one tick per poll.
func TestOnTimeAfterAStall(t *testing.T) {
	for _, size := range []int{2, 256} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{WheelSize: size, Shards: 2})
			f.schedule(1, 10*time.Millisecond)
			late := f.schedule(2, 25*time.Hour)
			f.stopAdvancer()
			time.Sleep(24 * time.Hour)
			f.startAdvancer()
			f.waitIdle()
			require.Equal(t, []firing{{1, 24 * time.Hour}}, f.fired())
			wakeups := f.Stats().Wakeups
			f.schedule(3, 7*time.Millisecond)
			f.advance(time.Second)
			require.Equal(t, []firing{{3, 24*time.Hour + 7*time.Millisecond}}, f.fired())
			require.Less(t, f.Stats().Wakeups-wakeups, uint64(12), "no tick is polled")
			f.advance(time.Hour)
			require.Equal(t, []firing{{2, 25 * time.Hour}}, f.fired())
			require.False(t, f.Stop(late))
		})
	}
}

// timers 16, T14: the base of delays has a monotonic reading.
func TestClockIsMonotonic(t *testing.T) {
	f := start(t, Options{})
	require.NotEqual(t, f.shared.base, f.shared.base.Round(0))
	before := f.shared.now()
	f.shared.base = withWall(f.shared.base, f.shared.base.Add(-20*365*24*time.Hour))
	require.Less(t, f.shared.now()-before, nanos(time.Hour))
}

// timers 17: at a high rate of timers that are armed and stopped, memory does not grow: neither
// slabs, nor bucket records, nor the queue.
func TestHighArmRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 8, Shards: 1})
		for i := range 200_000 {
			h := f.schedule(i, time.Duration(i%5000)*time.Millisecond)
			if i%5000 != 0 {
				require.True(t, f.Stop(h))
			}
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		f.waitIdle()
		s := f.shards[0]
		require.LessOrEqual(t, s.lists.timers.size, slabNodes)
		require.LessOrEqual(t, s.lists.chunks.size, slabNodes)
		require.LessOrEqual(t, s.lists.buckets.used, 16*len(s.levels)+2)
		require.LessOrEqual(t, f.shared.queue.Len(), 16*len(s.levels))
		require.Len(t, f.fired(), 40)
	})
}

// timers 11: durations below a second, and ticks longer than all delays.
func TestOddTicks(t *testing.T) {
	for _, tick := range []time.Duration{1, 999, 333 * time.Millisecond, 25 * time.Hour, math.MaxInt64 / 2} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{Tick: tick, WheelSize: 2})
			time.Sleep(7)
			want := f.due(time.Second / 3)
			h := f.schedule(1, time.Second/3)
			if tick > time.Second*1e9 {
				require.True(t, f.Stop(h))
				return
			}
			f.advance(30 * time.Hour)
			require.Equal(t, []firing{{1, want}}, f.fired())
		})
	}
}

// timers 18: 64-bit fields that are accessed atomically are aligned, on 32-bit machines too.
func TestAtomicsAreAligned(t *testing.T) {
	var w Wheel[byte]
	require.Zero(t, (unsafe.Offsetof(w.shared)+unsafe.Offsetof(w.shared.limit))%8)
	require.Zero(t, (unsafe.Offsetof(w.advancer)+unsafe.Offsetof(w.advancer.emptyWakeups))%8)
	require.Zero(t, (unsafe.Offsetof(w.workers)+unsafe.Offsetof(w.workers.panics))%8)
	require.Equal(t, uintptr(8), unsafe.Alignof(w.shared.limit))
}

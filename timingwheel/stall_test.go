package timingwheel

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contract T14: an advancer that is late.

// T14: after a stall overdue timers run in the order of their deadlines, whatever their levels
// and shards, and all at once. timers 14: no catching up by one tick per poll.
func TestOverdueInOrder(t *testing.T) {
	for _, size := range []int{2, 4, 256} {
		for _, shards := range []int{1, 4} {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, Options{WheelSize: size, Shards: shards, Workers: 1})
				f.stopAdvancer()
				n := 3 * cascadeChunk
				for i := range n {
					ms := i * 7919 % 1000 // some twice, out of order
					f.scheduleOn(i%shards, ms, time.Duration(ms)*time.Millisecond+1)
				}
				time.Sleep(1001 * time.Millisecond)
				now := f.since()
				f.startAdvancer()
				f.waitIdle()
				ran := f.fired()
				require.Len(t, ran, n)
				require.True(t, slices.IsSortedFunc(ran, func(a, b firing) int { return a.v - b.v }), "%v", ran)
				for _, r := range ran {
					require.Equal(t, now, r.at)
				}
			})
		}
	}
}

// T14: timers that are added while the advancer lags find the shard's clock behind. They do not
// advance it past buckets that are still to be flushed.
func TestAddDuringStall(t *testing.T) {
	for _, size := range []int{2, 256} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{WheelSize: size, Shards: 1, Workers: 1})
			f.schedule(2000, 2000*time.Millisecond)
			f.stopAdvancer()
			time.Sleep(time.Second)
			f.schedule(1500, 500*time.Millisecond) // the clock may catch up, and does
			require.Equal(t, tick(1000), f.shards[0].clock)
			f.schedule(1001, 1)
			time.Sleep(4 * time.Second)
			f.schedule(9000, 4*time.Second)
			f.schedule(5001, 1)
			f.schedule(6000, time.Second)
			require.Equal(t, tick(1000), f.shards[0].clock)
			time.Sleep(time.Second)
			f.startAdvancer()
			f.waitIdle()
			require.Equal(t, []int{1001, 1500, 2000, 5001, 6000}, f.values())
			f.advance(time.Hour)
			require.Equal(t, []firing{{9000, 9 * time.Second}}, f.fired())
		})
	}
}

// T14: a timer that is added between two chunks of a cascade, after a stall, does not advance
// the clock past the timers that are still to be cascaded.
func TestAddDuringCascadeOfAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		f := start(t, Options{WheelSize: 128, Shards: 1, Workers: 1})
		f.stopAdvancer()
		for i := range n {
			ms := 256 + i*97%128
			f.schedule(ms, time.Duration(ms)*time.Millisecond)
		}
		time.Sleep(time.Minute)
		s, id := f.head()
		f.duringCascade(s, id, func(int) {
			_, err := s.add(60_001, f.shared.now(), f.shared.now()+1)
			require.NoError(t, err)
		})
		f.startAdvancer()
		f.advance(time.Second)
		ran := f.values()
		require.Len(t, ran, n+1)
		require.True(t, slices.IsSorted(ran))
	})
}

// T1, T2: a shard's clock may have advanced while Schedule, which had already read the time,
// waited for its lock. A timer that is due by that clock is ready at once, without waiting for
// a flush.
func TestDueByTheShardsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 1, Workers: 1}, g.wait)
		defer close(g)
		f.blockWorkers(1)
		f.stopAdvancer()
		f.schedule(1, 10*time.Millisecond)
		now := f.shared.now()
		time.Sleep(10 * time.Millisecond)
		s, id := f.head()
		require.False(t, f.flush(s, id))
		require.Equal(t, 1, f.Stats().Ready)
		s.mu.Lock()
		for i, d := range []time.Duration{8, 10, 11} {
			_, err := s.add(2+i, now, now+nanos(d*time.Millisecond))
			require.NoError(t, err)
		}
		s.mu.Unlock()
		require.Equal(t, 3, f.Stats().Ready)
		f.startAdvancer()
	})
}

// T7: a timer whose bucket is due but not yet flushed is ready at once when it is reset to be.
func TestResetToNowDuringStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 1, Workers: 1}, g.wait)
		defer close(g)
		f.blockWorkers(1)
		f.stopAdvancer()
		h := f.schedule(1, 10*time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		require.True(t, f.Reset(h, 0))
		require.Equal(t, 1, f.Stats().Ready)
		f.startAdvancer()
	})
}

// duringCascade flushes a bucket and calls do, with the shard locked, after the
// first chunk of its cascade.
func (f *fixture) duringCascade(s *shard[int], id uint32, do func(left int)) {
	f.t.Helper()
	a := &f.advancer
	require.False(f.t, a.flush(f.refTo(s, id)))
	require.True(f.t, a.cascade())
	require.Len(f.t, a.cascades, 1)
	s.mu.Lock()
	do(int(s.lists.bucket(id).count))
	s.mu.Unlock()
	for a.cascade() {
		continue
	}
}

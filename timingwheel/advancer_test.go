package timingwheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contracts about the advancer: T9, T15.

// T9: neither an idle wheel nor the time before a far timer causes wake-ups; each bucket with a
// timer costs one.
func TestIdleMakesNoWakeups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 2, Shards: 2})
		f.advance(1000 * time.Hour)
		require.Zero(t, f.Stats().Wakeups)

		f.schedule(0, 0) // due at once: nothing for the advancer
		f.advance(time.Hour)
		require.Zero(t, f.Stats().Wakeups)

		f.schedule(1, time.Millisecond)
		f.advance(1000 * time.Hour)
		st := f.Stats()
		require.Equal(t, uint64(2), st.Wakeups, "one for the push, one for the bucket")
		require.Zero(t, st.EmptyWakeups)
		require.Len(t, f.fired(), 2)
	})
}

// T9: a bucket that Stop has emptied does not wake the advancer, except once if the advancer
// already sleeps for it.
func TestEmptiedBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 4, Shards: 1})
		for round := range uint64(5) {
			var hs []Timer
			for i := range 100 {
				hs = append(hs, f.schedule(i, time.Duration(i+1)*17*time.Millisecond))
				f.waitIdle() // the advancer sees it, and sleeps on the first
			}
			before := f.Stats()
			for _, h := range hs {
				require.True(t, f.Stop(h))
			}
			f.advance(1000 * time.Hour)
			after := f.Stats()
			require.Equal(t, before.Wakeups+1, after.Wakeups)
			require.Equal(t, round+1, after.EmptyWakeups)
			require.Zero(t, f.shared.queue.Len())
			f.advance(1000 * time.Hour)
			require.Equal(t, after, f.Stats())
		}

		// With another timer at the end, the buckets in between are skipped.
		var hs []Timer
		for i := range 100 {
			hs = append(hs, f.schedule(i, time.Duration(i+1)*17*time.Millisecond))
		}
		f.waitIdle()
		before := f.Stats()
		for _, h := range hs[:99] {
			f.Stop(h)
		}
		f.advance(time.Hour)
		after := f.Stats()
		require.Equal(t, uint64(1), after.EmptyWakeups-before.EmptyWakeups)
		require.LessOrEqual(t, after.Wakeups-before.Wakeups, 1+uint64(after.Levels))
		require.Equal(t, []int{99}, f.values())
	})
}

// T9: EmptyWakeups are part of Wakeups: two buckets that are found empty at once cost one
// sleep.
func TestEmptyWakeupsAreWakeups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 4})
		var hs []Timer
		for i := range 4 {
			hs = append(hs, f.scheduleOn(i, i, time.Second))
		}
		f.waitIdle()
		before := f.Stats().Wakeups
		for _, h := range hs {
			f.Stop(h)
		}
		f.advance(time.Hour)
		require.Equal(t, before+1, f.Stats().Wakeups)
		require.Equal(t, uint64(1), f.Stats().EmptyWakeups)
	})
}

// T9: a bucket that was emptied and refilled is not pruned, and a pruned one can return.
func TestRefilledBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 4, Shards: 1})
		f.Stop(f.schedule(1, 5*time.Millisecond))
		f.schedule(2, 5*time.Millisecond)
		f.waitIdle()
		f.advance(5 * time.Millisecond)
		require.Equal(t, []firing{{2, 5 * time.Millisecond}}, f.fired())
		f.Stop(f.schedule(3, 5*time.Millisecond))
		f.advance(time.Second) // pruned
		f.schedule(4, 5*time.Millisecond)
		f.advance(time.Second)
		require.Equal(t, []int{4}, f.values())
	})
}

// T15: the advancer passes on a bucket of the lowest level as a whole, whatever its size: it
// touches no timer and locks once.
func TestBurstBecomesReadyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 1, Workers: 1}, g.wait)
		f.blockWorkers(1)
		f.stopAdvancer()
		const n = 50_000
		var first Timer
		for i := range n {
			h := f.schedule(i, 10*time.Millisecond)
			if i == 0 {
				first = h
			}
		}
		f.advanceStopped(10 * time.Millisecond)
		s, id := f.head()
		seq, before := s.lists.seq, f.Stats()
		f.flush(s, id)
		require.Equal(t, seq, s.lists.seq, "no other bucket was made")
		require.Equal(t, before.Cascaded, f.Stats().Cascaded)
		require.Equal(t, n, f.Stats().Ready)
		require.Equal(t, id, s.bucketOf(first))
		require.True(t, f.Stop(first))
		f.startAdvancer()
		close(g)
		f.waitIdle()
		require.Len(t, f.fired(), n-1)
	})
}

// T15: a cascade releases the lock after each cascadeChunk timers, and loses or repeats none of
// them.
func TestCascadeReleasesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 2, Shards: 1})
		f.stopAdvancer()
		const n = 100 * cascadeChunk
		for i := range n {
			f.schedule(i, 5*time.Millisecond)
		}
		f.advanceStopped(3 * time.Millisecond)
		s, id := f.head()
		f.duringCascade(s, id, func(left int) {
			require.Equal(t, n-cascadeChunk, left)
		})
		require.Equal(t, uint64(n), s.counts.cascaded)
		f.startAdvancer()
		f.advance(2 * time.Millisecond)
		require.Len(t, f.fired(), n)
	})
}

// T9: a bucket emptied by Stop is skipped although its positions are not yet cleared, and does not
// count as overdue.
func TestEmptiedBucketOfAnotherShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 2})
		f.scheduleOn(0, 1, 10*time.Millisecond)
		emptied := f.scheduleOn(1, 2, 20*time.Millisecond)
		f.scheduleOn(1, 3, time.Hour)
		f.waitIdle()
		require.True(t, f.Stop(emptied))
		require.Equal(t, 1, f.unlinked(1))
		f.advance(30 * time.Millisecond)
		require.Zero(t, f.Stats().EmptyWakeups)
		require.Equal(t, []int{1}, f.values())

		f.stopAdvancer()
		emptied = f.scheduleOn(1, 4, 10*time.Millisecond)
		f.scheduleOn(1, 5, time.Hour)
		require.True(t, f.Stop(emptied))
		require.Equal(t, 1, f.unlinked(1))
		f.advanceStopped(20 * time.Millisecond)
		require.Zero(t, f.Stats().Overdue)
		f.startAdvancer()
	})
}

package timingwheel

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contracts about the end of a timer: T3, T4, T5, T6.

// T3, T4: each way to end happens exactly once.
func TestEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 2, Shards: 2})
		run, stop := f.schedule(1, time.Second), f.schedule(2, time.Second)
		require.Equal(t, 2, f.Len())
		require.True(t, f.Stop(stop))
		require.False(t, f.Stop(stop), "timers 6: a second Stop returns false")
		require.Equal(t, 1, f.Len())
		f.advance(time.Minute)
		require.Equal(t, []firing{{1, time.Second}}, f.fired())
		for range 2 {
			require.False(t, f.Stop(run))
			require.False(t, f.Stop(stop))
			require.False(t, f.Reset(run, time.Second))
			require.False(t, f.Reset(stop, time.Second))
		}
		f.advance(time.Minute)
		require.Empty(t, f.fired())
		st := f.Stats()
		require.Equal(t, []uint64{2, 1, 1, 0, 0}, []uint64{st.Scheduled, st.Expired, st.Stopped, st.Discarded, st.Returned})
	})
}

// T4, timers 1: Stop and Len are exact before each turn of the advancer, from Schedule down
// through the levels to the ready list.
func TestStopAtEveryStage(t *testing.T) {
	for _, size := range []int{2, 3, 8} {
		for turns := 0; ; turns++ {
			ready := false
			synctest.Test(t, func(t *testing.T) {
				g := make(gate)
				f := start(t, Options{WheelSize: size, Shards: 1, Workers: 1}, g.wait)
				defer close(g)
				f.blockWorkers(1)
				f.stopAdvancer()
				h := f.schedule(1, 999*time.Millisecond)
				other := f.schedule(2, 999*time.Millisecond)
				time.Sleep(time.Minute)
				for range turns {
					s, id := f.head()
					f.flush(s, id)
					f.waitStopped()
				}
				ready = f.Stats().Ready > 0
				require.True(t, f.Stop(h))
				require.False(t, f.Stop(h))
				require.Equal(t, 1, f.Len())
				f.startAdvancer()
				g <- struct{}{}
				f.waitIdle()
				require.Equal(t, []int{2}, f.values())
				require.False(t, f.Stop(other))
			})
			if ready {
				require.GreaterOrEqual(t, turns, 3)
				break
			}
		}
	}
}

// T4, timers 1: during a cascade Stop is exact for timers already moved and for those still to
// be moved; Len is right throughout.
func TestStopDuringCascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{WheelSize: 128, Shards: 1, Workers: 1}, g.wait)
		defer close(g)
		f.blockWorkers(1)
		f.stopAdvancer()
		const n = 20_000
		hs := make([]Timer, n)
		for i := range hs {
			hs[i] = f.schedule(i, time.Duration(256+i%128)*time.Millisecond)
		}
		time.Sleep(256 * time.Millisecond)
		stopped := map[int]bool{}
		s, id := f.head()
		f.duringCascade(s, id, func(left int) {
			require.Equal(t, n, s.counts.pending)
			s.mu.Unlock()
			defer s.mu.Lock()
			for i := 1; i < n; i += 3 {
				require.True(t, f.Stop(hs[i]))
				require.False(t, f.Stop(hs[i]))
				stopped[i] = true
			}
			require.Equal(t, n-len(stopped), f.Len())
		})
		f.startAdvancer()
		g <- struct{}{}
		f.advance(time.Second)
		seen := map[int]bool{}
		for _, v := range f.values() {
			require.False(t, stopped[v] || seen[v])
			seen[v] = true
		}
		require.Equal(t, n, len(seen)+len(stopped))
	})
}

// T4: Stop is exact for a timer that is due and waits for a worker; so is Reset, which removes
// it from the ready list.
func TestStopAndResetOfReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{WheelSize: 2, Shards: 1, Workers: 1}, g.wait)
		f.blockWorkers(1)
		var hs []Timer
		for i := range 10 {
			hs = append(hs, f.schedule(i, time.Duration(i/2)*time.Millisecond)) // two in each bucket
		}
		f.advance(time.Second)
		require.Equal(t, 10, f.Stats().Ready)
		for _, i := range []int{0, 1, 4, 7} { // first, a whole bucket, ...
			require.True(t, f.Stop(hs[i]))
			require.False(t, f.Stop(hs[i]))
			f.waitIdle()
		}
		require.True(t, f.Reset(hs[2], time.Second))
		require.True(t, f.Reset(hs[9], 0))
		require.True(t, f.Reset(hs[3], 0))
		f.waitIdle()
		require.Equal(t, 5, f.Stats().Ready)
		require.Equal(t, 6, f.Len())
		close(g)
		f.waitIdle()
		require.Equal(t, []int{5, 6, 8, 9, 3}, f.values())
		f.advance(time.Minute)
		require.Equal(t, []firing{{2, 2 * time.Second}}, f.fired())
	})
}

// T5, T1, T2, timers 8: Reset moves a pending timer, later or sooner, at any stage, and the
// timer runs once, at the time of the last Reset.
func TestResetMoves(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 4, 256} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{WheelSize: size, Shards: 1, Workers: 1})
			r := rand.New(rand.NewPCG(5, uint64(size)))
			for range 300 {
				h := f.schedule(1, time.Duration(r.IntN(300))*time.Millisecond/2+1)
				want := time.Duration(0)
				for range r.IntN(5) + 1 {
					d := time.Duration(r.IntN(700)+1) * time.Millisecond / 2
					want = f.due(d)
					require.True(t, f.Reset(h, d))
					f.waitIdle()
					f.advance(min(time.Duration(r.IntN(100))*time.Millisecond/2, want-f.since()-1))
				}
				require.Empty(t, f.fired())
				f.advance(want - f.since() + 1)
				require.Equal(t, []firing{{1, want}}, f.fired())
				require.False(t, f.Reset(h, 1))
			}
			f.advance(time.Hour)
			require.Empty(t, f.fired())
		})
	}
}

// T5, timers 8: a timer of 8 ticks that is moved to 4 runs at 4; to less than a tick, once, at
// the next tick; to zero, at once; moved and then stopped, never.
func TestResetEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		f := start(t, Options{WheelSize: 4, Shards: 1})
		f.advance(ms / 2)
		a, b, c, d := f.schedule(1, 8*ms), f.schedule(2, 8*ms), f.schedule(3, 8*ms), f.schedule(4, 8*ms)
		require.True(t, f.Reset(a, 4*ms))
		require.True(t, f.Reset(b, ms/4))
		require.True(t, f.Reset(c, 0))
		require.True(t, f.Reset(d, 4*ms))
		require.True(t, f.Stop(d))
		f.advance(time.Hour)
		require.Equal(t, []firing{{3, ms / 2}, {2, ms}, {1, 5 * ms}}, f.fired())
	})
}

// T5: extending a deadline leaves the timer in its bucket. However often that happens, it costs
// one move when the bucket is flushed, and the timer does not run then.
func TestResetExtensionIsLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 4, Shards: 1})
		h := f.schedule(1, 2*time.Millisecond)
		f.schedule(2, 2*time.Millisecond)
		bucket := f.bucketOf(h)
		for i := range 1000 {
			require.True(t, f.Reset(h, time.Second+time.Duration(i)))
			require.Equal(t, bucket, f.bucketOf(h))
		}
		f.advance(2 * time.Millisecond)
		require.Equal(t, []firing{{2, 2 * time.Millisecond}}, f.fired())
		require.NotEqual(t, bucket, f.bucketOf(h))
		require.True(t, f.Reset(h, math.MaxInt64))
		require.True(t, f.Reset(h, 30*time.Second))
		f.advance(time.Minute)
		require.Equal(t, []firing{{1, 30002 * time.Millisecond}}, f.fired())
	})
}

// T1, T5: a timer that was due when scheduled waits for a worker, on a shard whose clock is far
// behind because it has nothing to flush. Extending it still removes it from the ready list.
func TestResetOfReadyOnAnOldClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		g := make(gate)
		f := start(t, Options{WheelSize: 4, Shards: 1, Workers: 1}, g.wait)
		f.schedule(-1, 0)
		f.advance(time.Second)
		h := f.schedule(1, 0)
		require.Equal(t, 1, f.Stats().Ready)
		require.True(t, f.Reset(h, 50*ms))
		require.Zero(t, f.Stats().Ready)
		close(g)
		f.advance(time.Minute)
		require.Equal(t, []firing{{-1, 0}, {1, time.Second + 50*ms}}, f.fired())
	})
}

// T5, timers 6: Reset of a timer that has ended returns false and arms nothing, also while its
// function runs.
func TestResetOfEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{}, g.wait)
		h := f.schedule(-1, time.Second)
		f.advance(time.Minute)
		require.False(t, f.Reset(h, time.Second), "its function is running")
		require.False(t, f.Stop(h))
		close(g)
		f.waitIdle()
		require.False(t, f.Reset(h, time.Second))
		f.advance(time.Minute)
		require.Len(t, f.fired(), 1)
		require.Zero(t, f.Stats().Pending)
	})
}

// T6, timers 6: handles that were never issued, of other wheels, and of timers whose node has
// been reused.
func TestStaleHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 2})
		live := f.schedule(1, 1000*time.Hour)
		unknown := []Timer{
			{}, {math.MaxUint64}, {1}, {live.id + 1}, {live.id ^ 1<<(indexBits+genBits)}, // another shard
			{live.id + 1<<indexBits}, {live.id - 1<<indexBits}, // another generation
			makeTimer(live.shard(), 1, 0), makeTimer(live.shard(), 0, 1<<slabBits), makeTimer(live.shard(), 1, 1<<slabBits|5),
			makeTimer(live.shard(), 0, 7), makeTimer(live.shard(), 0, live.index()+1), // fresh nodes
		}
		for i := range 1000 { // the node is reused each time
			h := f.schedule(2, time.Minute)
			if i%2 == 0 {
				require.True(t, f.Stop(h))
			} else {
				f.advance(time.Minute)
			}
			unknown = append(unknown, h)
		}
		require.Equal(t, 500, len(f.fired()))
		for _, h := range unknown {
			require.False(t, f.Stop(h), "%x", h.id)
			require.False(t, f.Reset(h, 0), "%x", h.id)
		}
		f.waitIdle()
		require.Empty(t, f.fired())
		require.True(t, f.Stop(live))
	})
}

// T6, timers 6: handles stay stale when slabs are released and allocated again.
func TestHandlesStayStaleAfterRegrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 1})
		var stale []Timer
		seen := map[Timer]bool{}
		for range 4 {
			var hs []Timer
			for i := range 4 * slabNodes {
				h := f.schedule(i, time.Hour)
				require.False(t, seen[h], "a handle was issued twice")
				seen[h] = true
				hs = append(hs, h)
			}
			for _, h := range stale {
				require.False(t, f.Stop(h))
				require.False(t, f.Reset(h, 0))
			}
			require.Equal(t, len(hs), f.Len())
			for _, i := range rand.Perm(len(hs)) {
				require.True(t, f.Stop(hs[i]))
			}
			f.waitIdle()
			require.LessOrEqual(t, f.shards[0].lists.timers.size, slabNodes, "the memory of a burst is released")
			stale = append(stale, hs...)
		}
	})
}

// waitStopped is waitIdle between turns that the test runs itself: buckets may be due.
func (f *fixture) waitStopped() {
	synctest.Wait()
	require.Equal(f.t, 2, f.Len())
}

// T6: a handle of another wheel, with more shards, is no timer here.
func TestHandleOfAnotherWheel(t *testing.T) {
	f, other := start(t, Options{Shards: 1}), start(t, Options{Shards: 4})
	f.schedule(1, time.Hour)
	for shard := range 4 {
		h := other.scheduleOn(shard, 1, time.Hour)
		if shard > 0 {
			require.False(t, f.Stop(h) || f.Reset(h, 0))
		}
	}
	require.Equal(t, 1, f.Len())
}

// T4, T6: most Stops of many timers defer the unlinking, but are exact: in random order, among
// timers that are started, moved and run, and in a shutdown.
func TestStopMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2500
		f := start(t, Options{Shards: 1, MaxPending: most})
		r := rand.New(rand.NewPCG(1, 2))
		within := func() time.Duration { return time.Duration(1+r.IntN(3_600_000)) * time.Millisecond }
		var held []Timer
		deferred := 0
		stop := func() {
			h := held[len(held)-1]
			held = held[:len(held)-1]
			pending, unlinked := f.Len(), f.unlinked(0)
			if _, ok := f.Value(h); !ok {
				require.False(t, f.Stop(h)) // it has run
				return
			}
			require.True(t, f.Stop(h))
			if f.unlinked(0) > unlinked {
				deferred++
			}
			require.Equal(t, pending-1, f.Len())
			require.False(t, f.Stop(h))
			require.False(t, f.Reset(h, time.Second))
			_, ok := f.Value(h)
			require.False(t, ok)
		}
		for range 40 {
			for f.Len() < most {
				held = append(held, f.schedule(len(held), within()))
			}
			_, err := f.Schedule(0, within())
			require.ErrorIs(t, err, ErrFull)
			r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for range r.IntN(most) {
				stop()
				if r.IntN(8) == 0 && len(held) > 0 {
					f.Reset(held[r.IntN(len(held))], within())
				}
			}
			f.waitIdle()
			f.advance(time.Duration(r.IntN(1000)) * time.Second)
		}
		require.Greater(t, deferred, 1000)

		_, err := f.Close(Await)
		require.NoError(t, err)
		for len(held) > 0 {
			stop()
		}
		synctest.Wait()
		require.Zero(t, f.Len())
		_, err = f.Shutdown(t.Context(), Await)
		require.NoError(t, err)
	})
}

// T13: the last timer is never deferred: its Stop ends a shutdown that waits for it.
func TestStopOfTheLastTimer(t *testing.T) {
	f := start(t, Options{Shards: 1})
	last, other := f.schedule(1, time.Hour), f.schedule(2, 2*time.Hour) // in two chunks
	_, err := f.Close(Await)
	require.NoError(t, err)
	require.True(t, f.Stop(other))
	require.True(t, f.Stop(last))
	require.Zero(t, f.unlinked(0))
	_, err = f.Shutdown(t.Context(), Await)
	require.NoError(t, err)
}

// T5: Reset moves a timer whose slab is packed by the same call, because it completes a batch
// of deferred timers.
func TestResetPacksTheSlab(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 1})
		var all []Timer // all in one slab
		for i := range slabNodes - 1 {
			all = append(all, f.schedule(i, time.Hour))
		}
		f.schedule(0, 2*time.Hour) // in another one, and the last to be linked
		synctest.Wait()            // the advancer, which clears deferred stops when it prunes, sleeps
		l := &f.shards[0].lists
		keep := int(l.timers.packAt) + unlinkBatch - 1
		require.Zero(t, (len(all)-keep)%unlinkBatch)
		for _, h := range all[keep:] {
			require.True(t, f.Stop(h))
		}
		require.Zero(t, f.unlinked(0))
		for _, h := range all[1:unlinkBatch] {
			require.True(t, f.Stop(h))
		}
		require.Nil(t, l.timers.table[0].kept)
		require.True(t, f.Reset(all[0], time.Minute))
		require.NotNil(t, l.timers.table[0].kept)
		f.waitIdle()
		at, ok := f.Deadline(all[0])
		require.True(t, ok)
		require.Equal(t, time.Minute, time.Until(at))
		f.advance(time.Minute)
		require.Equal(t, []int{0}, f.values())
	})
}

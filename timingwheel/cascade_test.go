package timingwheel

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T2: timers that are due during the cascade of a large bucket do not wait for it; T14: later
// timers follow those of that bucket.
func TestCascadeBeginsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 128, Shards: 2, Workers: 1})
		f.stopAdvancer()
		const n = 3*cascadeChunk + 1
		for i := range n {
			f.scheduleOn(0, i, time.Duration(256+i%128)*time.Millisecond) // [256, 384): it is flushed at 192
		}
		f.scheduleOn(1, -1, 200*time.Millisecond)
		a := &f.advancer
		flush := func() bool {
			r, ok := a.due()
			if ok {
				a.flush(r)
			}
			return ok
		}
		time.Sleep(191 * time.Millisecond)
		require.False(t, flush())
		require.False(t, a.cascade())
		time.Sleep(time.Millisecond)
		require.True(t, flush(), "half a span ahead")
		require.False(t, flush())
		require.True(t, a.cascade())

		time.Sleep(8 * time.Millisecond)
		require.Empty(t, f.fired())
		require.True(t, flush(), "between two chunks")
		synctest.Wait()
		require.Len(t, f.fired(), 1)

		f.scheduleOn(1, -2, 55*time.Millisecond) // at 255
		f.scheduleOn(1, -3, 56*time.Millisecond) // at 256, like the first of the cascade
		require.True(t, a.cascade())
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 45*time.Millisecond, f.Stats().Overdue)
		require.True(t, flush(), "due before them")
		synctest.Wait()
		require.Equal(t, 44*time.Millisecond, f.Stats().Overdue, "of those that still cascade")
		require.False(t, flush(), "due after the first of them")
		require.True(t, a.cascade())
		require.False(t, flush())
		require.True(t, a.cascade(), "the last one")
		require.False(t, a.cascade())
		require.True(t, flush())
		f.startAdvancer()
		f.advance(time.Second)
		require.Len(t, f.fired(), n+2)
	})
}

// T14: a stall with a bucket half cascaded. A timer that is scheduled then must not advance the
// shard's clock past the timers still in the bucket, or they would become due together, in the
// order in which they were scheduled.
func TestCatchUpStopsAtACascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 128, Shards: 1, Workers: 1})
		f.stopAdvancer()
		for range cascadeChunk {
			f.schedule(383, 383*time.Millisecond)
		}
		f.schedule(300, 300*time.Millisecond)
		f.schedule(290, 290*time.Millisecond)
		f.schedule(256, 256*time.Millisecond)
		a := &f.advancer
		time.Sleep(192 * time.Millisecond)
		q, ok := a.due()
		require.True(t, ok)
		require.False(t, a.flush(q))
		require.True(t, a.cascade())
		time.Sleep(time.Second)
		f.schedule(-1, time.Millisecond)
		require.Equal(t, tick(255), f.shards[0].clock)
		require.Equal(t, 936*time.Millisecond, f.Stats().Overdue, "that of the first of those that still cascade")
		require.True(t, a.cascade())
		require.False(t, a.cascade())
		f.startAdvancer()
		f.advance(time.Minute)
		order := f.values()
		require.Equal(t, []int{256, 290, 300, 383}, order[:4])
		require.Equal(t, -1, order[len(order)-1])
	})
}

// T14: the clock stops before the first bucket of a higher level, wherever on its circle the
// present is.
func TestCatchUpStopsAtTheFirstBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 4, Shards: 1, Workers: 1})
		f.schedule(7, 7*time.Millisecond)
		f.advance(7 * time.Millisecond)
		f.stopAdvancer()
		s := f.shards[0]
		require.Equal(t, tick(7), s.clock)
		f.schedule(18, 11*time.Millisecond) // in the fourth slot of eight, flushed at 14
		f.schedule(30, 23*time.Millisecond) // in the last one
		require.Len(t, s.levels, 2)
		time.Sleep(18 * time.Millisecond)
		f.schedule(26, time.Millisecond)
		require.Equal(t, tick(13), s.clock)
		f.startAdvancer()
		f.advance(time.Second)
		require.Equal(t, []int{7, 18, 26, 30}, f.values())
	})
}

// T2: when a timer of a bucket was extended, the due ones become ready chunk by chunk, and do
// not wait until the last has been checked.
func TestExtendedBucketIsReadyByChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 1, Workers: 1}, g.wait)
		f.blockWorkers(1)
		f.stopAdvancer()
		var last Timer
		for i := range 3 * cascadeChunk {
			last = f.schedule(i, 10*time.Millisecond)
		}
		require.True(t, f.Reset(last, time.Second))
		f.advanceStopped(10 * time.Millisecond)
		a := &f.advancer
		r, ok := a.due()
		require.True(t, ok)
		require.False(t, a.flush(r))
		require.Zero(t, f.Stats().Ready)
		for k := range 2 {
			require.True(t, a.cascade())
			require.Equal(t, (k+1)*cascadeChunk, f.Stats().Ready)
		}
		f.startAdvancer()
		close(g)
		f.advance(time.Minute)
		require.Len(t, f.fired(), 3*cascadeChunk)
	})
}

// Overdue is that of the first bucket of all levels, due or not.
func TestOverdueOfSeveralLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 128, Shards: 1})
		f.stopAdvancer()
		f.schedule(1, 5*time.Millisecond)
		f.schedule(2, 10*time.Second)
		f.schedule(3, time.Hour)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 95*time.Millisecond, f.Stats().Overdue)
		f.startAdvancer()
		f.advance(time.Second)
		require.Zero(t, f.Stats().Overdue)
	})
}

// The cascade that expires first proceeds first.
func TestCascadesInOrder(t *testing.T) {
	var a advancer[int]
	for _, e := range []tick{5, 9, 2, 5, 7, 1, 9} {
		a.begin(cascade{bucketRef{seq: uint64(len(a.cascades))}, e})
	}
	var order []tick
	for _, c := range a.cascades {
		order = append(order, c.expiration)
	}
	require.Equal(t, []tick{1, 2, 5, 5, 7, 9, 9}, order)
	require.Less(t, a.cascades[2].seq, a.cascades[3].seq, "equal ones as they came")
}

// A level finds its first bucket from any start, whatever other buckets it has.
func TestFirstOfLevel(t *testing.T) {
	v := newLevel(11)
	require.Equal(t, 33<<9, v.bytes(), "T18: 16.5 KiB")
	for bits := range uint(9) {
		v := newLevel(bits)
		n := uint(len(v.ids))
		require.Equal(t, uint(2)<<bits, n)
		held := map[uint]uint32{}
		for i := range 2000 {
			at := rand.N(n)
			if rand.N(2) == 0 {
				v.put(at, uint32(i)+1)
				held[at] = uint32(i) + 1
			} else {
				v.clear(at)
				delete(held, at)
			}
			from := rand.N(tick(1 << 40))
			want := uint32(0)
			for k := range n {
				if id, ok := held[(uint(from)+k)%n]; ok {
					want = id
					break
				}
			}
			require.Equal(t, want, v.first(from))
		}
	}
}

package timingwheel

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T3, T18: buckets keep their timers in order of arrival, whichever leave at once or later and
// whichever chunks are merged; nodes are reused before their old positions are cleared.
func TestLists(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := newLists[int](0)
		l.mergeAbove = int(seed % 2 * 8)
		ids := make([]uint32, 1+r.IntN(4))
		oracle := make([][]int, len(ids)) // values, in order
		for k := range ids {
			ids[k], _ = l.newBucket(bucketWaiting, 0, tick(k))
		}
		at := map[int]uint32{} // value: index
		next := 0
		for range 4000 {
			k := r.IntN(len(ids))
			switch grow := r.IntN(100) < 50+int(seed)%3*10-10; {
			case grow:
				i, n, ok := l.timers.alloc()
				require.True(t, ok)
				next++
				n.value = next
				l.link(i, n, l.bucket(ids[k]), ids[k])
				at[next] = i
				oracle[k] = append(oracle[k], next)
			case len(oracle[k]) > 0:
				j := r.IntN(len(oracle[k]))
				v := oracle[k][j]
				i, n := at[v], l.timers.node(at[v])
				require.Equal(t, v, n.value)
				switch r.IntN(3) {
				case 0:
					l.deferEnd(i, n)
					if l.unlinkedLen == unlinkBatch {
						l.clearUnlinked()
					}
				case 1:
					l.deferUnlink(n)
					l.timers.release(i, l.timers.node(i))
				case 2:
					id, b := l.unlink(i)
					require.Equal(t, ids[k], id)
					require.Same(t, l.bucket(id), b)
					l.timers.release(i, l.timers.node(i))
				}
				delete(at, v)
				oracle[k] = slices.Delete(oracle[k], j, j+1)
			}
			require.EqualValues(t, len(oracle[k]), l.count(ids[k]))
			l.nextMerge = uint32(r.IntN(l.chunks.used + 2)) // or it mostly names no chunk
			if r.IntN(50) == 0 {
				seen, chunks := map[uint32]bool{}, map[uint32]bool{}
				for _, id := range ids {
					verifyList(t, &l, id, 0, seen, chunks)
				}
				require.Len(t, seen, len(at))
			}
			if k = r.IntN(len(ids)); r.IntN(10) == 0 { // one reader only: it clears positions for the next
				want := oracle[k]
				i, n := l.first(l.bucket(ids[k]))
				if len(want) == 0 {
					require.Zero(t, i, "seed %d: an empty bucket has a first timer", seed)
				} else {
					require.Equal(t, at[want[0]], i, "seed %d: the first timer is another", seed)
					require.Equal(t, want[0], n.value)
				}
			} else if r.IntN(10) == 0 {
				values := []int{}
				l.each(l.bucket(ids[k]), func(i uint32, n *node[int]) {
					require.Equal(t, at[n.value], i)
					values = append(values, n.value)
				})
				require.True(t, slices.Equal(oracle[k], values), "seed %d: want %v, have %v", seed, oracle[k], values)
			}
		}
		l.clearUnlinked()
		require.Equal(t, len(at), l.timers.used)
		if l.mergeAbove == 0 && l.timers.used > 0 {
			// Chunks stay dense: no bucket keeps long runs of chunks with one or two of nine
			// slots used.
			require.LessOrEqual(t, l.chunks.used, l.timers.used+1+len(ids))
		}
	}
}

// T18: chunks that hold one or two timers each are merged, so that chunks follow the load down
// too.
func TestChunksAreMerged(t *testing.T) {
	t.Parallel()
	l := newLists[int](0)
	id, _ := l.newBucket(bucketWaiting, 0, 0)
	var at []uint32
	const n = 100 * mergeAbove
	for v := range n {
		i, n, _ := l.timers.alloc()
		n.value = v
		l.link(i, n, l.bucket(id), id)
		at = append(at, i)
	}
	full := l.chunks.used
	require.Equal(t, (n+chunkSlots-1)/chunkSlots, full)
	var left []int
	for v, i := range at {
		if v%chunkSlots == 4 { // one of each chunk stays
			left = append(left, v)
			continue
		}
		l.deferUnlink(l.timers.node(i))
		l.timers.release(i, l.timers.node(i))
	}
	l.clearUnlinked()
	require.Less(t, l.chunks.used, 2*len(left)/mergeUpTo)
	var values []int
	l.each(l.bucket(id), func(_ uint32, n *node[int]) { values = append(values, n.value) })
	require.Equal(t, left, values)
}

// T18: timers move to the previous chunk if its end has enough free slots, otherwise to the
// next one if its beginning has, even if just enough; never out of order.
func TestMerge(t *testing.T) {
	for _, c := range []struct {
		first, second uint16 // slots in use
		from          int    // the chunk that is merged
		merged        bool
	}{
		{0b110000000, 0b111111100, 0, true},
		{0b110000000, 0b111111110, 0, false},
		{0b110000000, 0b111111000, 0, true},
		{0b001111111, 0b000000011, 1, true},
		{0b011111111, 0b000000011, 1, false},
		{0b000000001, 0b000000111, 1, true},
	} {
		l := newLists[int](0)
		id, _ := l.newBucket(bucketWaiting, 0, 0)
		var left []int
		for v := range 2 * chunkSlots {
			i, n, _ := l.timers.alloc()
			n.value = v
			l.link(i, n, l.bucket(id), id)
		}
		at := []uint32{l.bucket(id).head, l.bucket(id).tail}
		for v := range 2 * chunkSlots {
			if []uint16{c.first, c.second}[v/chunkSlots]>>(v%chunkSlots)&1 == 1 {
				left = append(left, v)
				continue
			}
			i := uint32(v + 1)
			l.unlink(i)
			l.timers.release(i, l.timers.node(i))
		}
		n := l.chunks.node(at[c.from])
		l.merge(at[c.from], &n.value, n.pos.bucket())
		require.Equal(t, c.merged, l.bucket(id).head == l.bucket(id).tail, "%09b %09b", c.first, c.second)
		var values []int
		l.each(l.bucket(id), func(i uint32, n *node[int]) {
			require.Equal(t, n, l.timers.node(i))
			values = append(values, n.value)
		})
		require.Equal(t, left, values)
	}
}

// T11, T17: a timer beyond a shard's capacity is refused and counted, and harms nothing: no
// panic leaves a lock behind.
func TestShardIsFull(t *testing.T) {
	f := start(t, Options{Shards: 1, MaxPending: 2 * slabNodes})
	s := f.shards[0]
	s.lists.timers.limit = 1
	var hs []Timer
	for i := range slabNodes - 1 {
		hs = append(hs, f.schedule(i, time.Hour))
	}
	for range 3 {
		h, err := f.Schedule(1, time.Hour)
		require.ErrorIs(t, err, ErrFull)
		require.Zero(t, h)
	}
	require.Equal(t, uint64(3), f.Stats().RefusedFull)
	require.True(t, f.Stop(hs[0]))
	require.Equal(t, 1, f.unlinked(0))
	hs[0] = f.schedule(0, time.Minute) // in the node whose freeing was deferred: no other is left
	require.Zero(t, f.unlinked(0))
	f.verifyStopped()

	s.lists.timers.limit = 2
	held := s.counts.pending // as if each timer needed a chunk of its own
	s.counts.pending = maxTimers
	_, err := f.Schedule(1, time.Hour)
	s.counts.pending = held
	require.ErrorIs(t, err, ErrFull)
	require.Equal(t, uint64(4), f.Stats().RefusedFull)
	require.Equal(t, slabNodes-1, f.Len())
	for _, h := range hs {
		require.True(t, f.Stop(h))
	}
}

// Stats changes nothing, not even positions that it could clear.
func TestStatsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 1, Workers: 1}, g.wait)
		defer close(g)
		f.blockWorkers(1)
		a, _ := f.schedule(1, time.Millisecond), f.schedule(2, 2*time.Millisecond)
		f.advance(3 * time.Millisecond)
		require.True(t, f.Stop(a))
		far := f.schedule(3, time.Hour)
		f.schedule(4, 2*time.Hour) // or far would be in the chunk used last
		f.waitIdle()
		require.True(t, f.Stop(far))
		require.Equal(t, 1, f.unlinked(0))
		require.Equal(t, time.Millisecond, f.Stats().Overdue)
		require.Equal(t, 1, f.unlinked(0))
	})
}

// T18: when the last timer has left, its chunk is released, and so are those of timers that
// were deferred before.
func TestEmptyKeepsNoChunk(t *testing.T) {
	l := newLists[int](0)
	var all []uint32
	for range 2*slabNodes + unlinkBatch/2 {
		id, _ := l.newBucket(bucketWaiting, 0, 0)
		i, n, _ := l.timers.alloc()
		l.link(i, n, l.bucket(id), id)
		all = append(all, i)
	}
	require.Greater(t, l.chunks.size, slabNodes)
	for _, i := range slices.Backward(all[1:]) {
		l.deferEnd(i, l.timers.node(i))
		if l.unlinkedLen == unlinkBatch {
			l.clearUnlinked()
		}
	}
	require.Positive(t, l.unlinkedLen)
	l.unlink(all[0])
	l.timers.release(all[0], l.timers.node(all[0]))
	l.empty()
	require.LessOrEqual(t, l.chunks.used, 1, "chunks in use, the spare one with them")
	require.LessOrEqual(t, l.chunks.size, slabNodes)
}

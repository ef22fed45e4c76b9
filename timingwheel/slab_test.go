package timingwheel

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// slabsUnderTest lets verifySlabs look at slabs without a shard.
type slabsUnderTest struct {
	slabs[*int]
	t    testing.TB
	used map[uint32]bool
	gens map[uint32]uint32 // the last generation seen of each index
}

func newSlabs(t testing.TB) *slabsUnderTest {
	return &slabsUnderTest{t: t, used: map[uint32]bool{}, gens: map[uint32]uint32{}}
}

func (a *slabsUnderTest) take() uint32 {
	a.t.Helper()
	i, n := a.alloc()
	if a.used[i] || n.value != nil || a.lookup(i) != n || n.gen <= a.gens[i] || n.gen >= maxGen {
		a.t.Fatalf("T6: index %d, used %v, after generation %d: %+v", i, a.used[i], a.gens[i], *n)
	}
	a.gens[i] = n.gen
	n.value, n.place = new(int), 1
	a.used[i] = true
	return i
}

func (a *slabsUnderTest) give(i uint32) {
	a.t.Helper()
	a.release(i, a.node(i))
	delete(a.used, i)
}

func (a *slabsUnderTest) verify() {
	a.t.Helper()
	verifySlabs(a.t, &a.slabs, a.used)
	require.Equal(a.t, a.live*int(unsafe.Sizeof(block[*int]{})), a.bytes())
}

// T3, T6: random growth and shrinkage; no node is held twice, no generation of
// an index comes twice, and what is empty is given back but for one slab.
func TestSlabs(t *testing.T) {
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 1))
		a := newSlabs(t)
		var held []uint32
		for range 60 {
			for range r.IntN(2 * slabNodes) {
				held = append(held, a.take())
			}
			r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for range r.IntN(len(held) + 1) {
				a.give(held[len(held)-1])
				held = held[:len(held)-1]
			}
			a.verify()
		}
		for _, i := range held {
			a.give(i)
		}
		a.verify()
		require.Equal(t, 1, a.live)
	}
}

// T6, T8, timers 13: a node whose generations are used up is retired instead
// of wrapped around, a slab of such nodes is given back, and its number is not
// used again.
func TestGenerationsEnd(t *testing.T) {
	a := newSlabs(t)
	first := a.take()
	a.node(first).gen = maxGen - 3
	for gen := uint32(maxGen - 3); gen < maxGen-1; gen++ {
		a.give(first)
		require.Equal(t, first, a.take())
		require.Equal(t, gen+1, a.node(first).gen)
	}
	a.give(first)
	require.Equal(t, uint32(maxGen), a.node(first).gen)
	a.verify()
	second := a.take()
	require.NotEqual(t, first, second, "a retired node came again")

	// All nodes of the slab at their last generation, some retired while others
	// are in use, the last one while the slab is full.
	held := []uint32{second}
	for len(held) < slabNodes-2 {
		held = append(held, a.take())
	}
	require.True(t, a.table[0].full())
	require.Zero(t, a.room)
	for _, i := range held {
		a.node(i).gen = maxGen - 1
		a.give(i)
		a.verify()
	}
	require.Zero(t, a.live, "nothing to keep a retired slab for")
	require.Empty(t, a.gone, "its number is used up")
	require.Equal(t, uint32(1), a.take()>>slabBits)
	require.Nil(t, a.lookup(first))
	a.verify()
}

// T6: a slab that is given back with one worn node starts again from that
// node's generation, for all its nodes; and if it was worn out, not at all.
func TestGenerationFloor(t *testing.T) {
	for _, top := range []uint32{5, maxGen - 1, maxGen} {
		a := newSlabs(t)
		var held []uint32
		for range 2*slabNodes - 2 {
			held = append(held, a.take())
		}
		worn := held[slabNodes+6]
		a.node(worn).gen = top - 1
		for _, i := range held {
			a.give(i)
		}
		a.verify()
		require.Equal(t, 1, a.live)
		require.Nil(t, a.table[1].nodes)
		require.Equal(t, top, a.table[1].floor)
		held = held[:0]
		for range 2*slabNodes - 2 {
			held = append(held, a.take())
		}
		again := a.table[1].nodes != nil
		require.Equal(t, top < maxGen, again)
		if again {
			require.Equal(t, top, a.node(slabNodes|17).gen)
		}
		a.verify()
	}
}

// T11: the limit of a shard says so, before an index wraps.
func TestTooManyNodes(t *testing.T) {
	a := slabs[int]{table: make([]slab[int], 1<<(indexBits-slabBits))}
	require.PanicsWithValue(t, "timingwheel: more than 2^32 timers in one shard", func() { a.alloc() })
}

func TestTimerBits(t *testing.T) {
	for _, h := range [][3]uint32{{0, 1, 1}, {255, maxGen, 1<<32 - 1}, {7, 0, 9}, {0, maxGen, 0}, {0, 0, 1<<32 - 1}, {255, 0, 0}} {
		x := makeTimer(h[0], h[1], h[2])
		require.Equal(t, h, [3]uint32{x.shard(), x.gen(), x.index()})
	}
}

// timers 17: bucket records and the ready ring of a backlog go back, too.
func TestBucketRecordsGoBack(t *testing.T) {
	var a buckets
	const n = 5000
	for range 2 {
		var runs []run
		for range n {
			id := a.alloc(bucketReady, 0, 1)
			runs = append(runs, run{0, id, a.seq})
			require.True(t, a.holds(runs[len(runs)-1]))
		}
		for i, r := range runs {
			require.NotNil(t, a.table)
			a.release(r.bucket)
			require.False(t, a.holds(r), i)
		}
		require.Nil(t, a.table)
		require.Nil(t, a.gone)
	}
	id := a.alloc(bucketReady, 0, 1)
	require.False(t, a.holds(run{0, id, 1}), "T3: the record is another bucket's now")
}

// T11: the ready list grows and shrinks, first in, first out.
func TestRuns(t *testing.T) {
	var r runs
	in, out := uint64(0), uint64(0)
	rnd := rand.New(rand.NewPCG(3, 3))
	for round := range 400 {
		for range rnd.IntN(200) {
			in++
			r.push(run{seq: in})
			require.Equal(t, in, r.back().seq)
		}
		limit := rnd.IntN(200)
		if round%40 == 39 {
			limit = r.n
		}
		for range min(limit, r.n) {
			out++
			require.Equal(t, out, r.front().seq)
			r.pop()
		}
		require.Equal(t, int(in-out), r.n)
		require.LessOrEqual(t, len(r.ring), max(minRing, 8*(r.n+1)))
	}
}

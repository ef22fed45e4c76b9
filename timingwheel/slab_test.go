package timingwheel

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// slabsUnderTest lets verifySlabs check slabs without a shard.
type slabsUnderTest struct {
	slabs[*int]
	t    testing.TB
	used map[uint32]bool
	gens map[uint32]uint32 // the last generation seen of each index
}

func newSlabs(t testing.TB) *slabsUnderTest {
	return &slabsUnderTest{slabs: slabs[*int]{named: true, limit: 1 << 22, packAt: slabNodes / 2}, t: t, used: map[uint32]bool{}, gens: map[uint32]uint32{}}
}

func (a *slabsUnderTest) mustAlloc() uint32 {
	a.t.Helper()
	i, n, ok := a.alloc()
	if !ok || a.used[i] || n.value != nil || n.inUse() || n.gen <= a.gens[i] || n.gen >= maxGen {
		a.t.Fatalf("T6: index %d, used %v, after generation %d: %+v", i, a.used[i], a.gens[i], *n)
	}
	a.gens[i] = n.gen
	n.value, n.pos = new(int), onItsOwn
	a.used[i] = true
	return i
}

func (a *slabsUnderTest) mustRelease(i uint32) {
	a.t.Helper()
	a.release(i, a.node(i))
	delete(a.used, i)
}

func (a *slabsUnderTest) verify() {
	a.t.Helper()
	verifySlabs(a.t, &a.slabs, a.used)
	require.Equal(a.t, a.size*int(unsafe.Sizeof(node[*int]{}))+cap(a.table)*int(unsafe.Sizeof(slab[*int]{})), a.bytes())
}

// T3, T6: random growth and shrinkage; no node is held twice, no generation of an index
// repeats, and empty slabs are released, except one.
func TestSlabs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 1))
		a := newSlabs(t)
		a.packAt >>= seed
		var held []uint32
		for range 60 {
			for range r.IntN(2 * slabNodes) {
				held = append(held, a.mustAlloc())
			}
			r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			for range r.IntN(len(held) + 1) {
				a.mustRelease(held[len(held)-1])
				held = held[:len(held)-1]
			}
			a.verify()
		}
		for _, i := range held {
			a.mustRelease(i)
		}
		a.verify()
		require.Equal(t, slabNodes, a.size)
	}
}

// T6, T8, timers 13: a node whose generations are used up is retired instead of wrapped around,
// a slab of such nodes is released, and its number is not reused.
func TestGenerationsAreUsedUp(t *testing.T) {
	t.Parallel()
	a := newSlabs(t)
	first := a.mustAlloc()
	a.node(first).gen = maxGen - 3
	for gen := uint32(maxGen - 3); gen < maxGen-1; gen++ {
		a.mustRelease(first)
		require.Equal(t, first, a.mustAlloc())
		require.Equal(t, gen+1, a.node(first).gen)
	}
	a.mustRelease(first)
	require.Equal(t, uint32(maxGen), a.node(first).gen)
	a.verify()
	second := a.mustAlloc()
	require.NotEqual(t, first, second, "a retired node came again")

	// All nodes of the slab are at their last generation; some retire while others are in use,
	// the last one while the slab is full.
	held := []uint32{second}
	for len(held) < slabNodes-2 {
		held = append(held, a.mustAlloc())
	}
	require.True(t, a.table[0].full())
	require.Zero(t, a.partial)
	for _, i := range held {
		a.node(i).gen = maxGen - 1
		a.mustRelease(i)
		a.verify()
	}
	require.Zero(t, a.size, "a retired slab holds memory")
	require.Empty(t, a.dropped, "its number is used up")
	require.Equal(t, uint32(1), a.mustAlloc()>>slabBits)
	require.Nil(t, a.find(first))
	a.verify()
}

// T6: a slab that is released with one old node starts again from that node's generation for
// all its nodes; a retired one does not start again.
func TestMinGeneration(t *testing.T) {
	for _, top := range []uint32{5, maxGen - 1, maxGen} {
		a := newSlabs(t)
		var held []uint32
		for range 2*slabNodes - 2 {
			held = append(held, a.mustAlloc())
		}
		old := held[slabNodes+6]
		a.node(old).gen = top - 1
		for _, i := range held {
			a.mustRelease(i)
		}
		a.verify()
		require.Equal(t, slabNodes, a.size)
		require.Nil(t, a.table[1].nodes)
		require.Equal(t, top, a.table[1].minGen)
		held = held[:0]
		for range 2*slabNodes - 2 {
			held = append(held, a.mustAlloc())
		}
		again := a.table[1].nodes != nil
		require.Equal(t, top < maxGen, again)
		if again {
			require.Equal(t, top, a.node(slabNodes|17).gen)
		}
		a.verify()
	}
}

// T6, T18: a packed slab with a retired node is no longer unpacked. Its other nodes stay
// until they are freed.
func TestPackedSlabWithRetiredNode(t *testing.T) {
	for _, before := range []bool{true, false} { // before it is packed, or after
		a := newSlabs(t)
		var held []uint32
		for range 3*slabNodes - 3 {
			held = append(held, a.mustAlloc())
		}
		a.mustRelease(held[slabNodes]) // the next slab is the first partial one, which is not packed
		retire := func() {
			a.node(held[0]).gen = maxGen - 1
			a.mustRelease(held[0])
			a.verify()
		}
		if before {
			retire()
		}
		for _, i := range held[1 : slabNodes-slabNodes/8] {
			a.mustRelease(i)
		}
		require.NotNil(t, a.table[0].kept)
		if !before {
			retire()
		}
		a.verify()
		require.Zero(t, a.packed)
		for range 2 * slabNodes {
			require.NotZero(t, a.mustAlloc()>>slabBits, "a slab with a retired node is not refilled")
		}
		for _, i := range held[:slabNodes-1] {
			if a.used[i] {
				a.mustRelease(i)
			}
		}
		a.verify()
		require.Nil(t, a.table[0].nodes)
		require.NotContains(t, a.dropped, uint32(0))
	}
}

// T18: a retired slab that empties leaves the other packed slabs refillable.
func TestRetiredSlabLeavesOthersPacked(t *testing.T) {
	const each = slabNodes - 1
	a := newSlabs(t)
	var held []uint32
	for range 3 * each {
		held = append(held, a.mustAlloc())
	}
	a.mustRelease(held[2*each]) // the third is being filled
	a.node(held[0]).gen = maxGen - 1
	for slab := range 2 {
		for _, i := range held[slab*each : (slab+1)*each-slabNodes/8] {
			a.mustRelease(i)
		}
		require.NotNil(t, a.table[slab].kept)
		a.verify()
	}
	for _, i := range held[each-slabNodes/8 : each] {
		a.mustRelease(i)
	}
	a.verify()
	require.Nil(t, a.table[0].nodes)
	require.Equal(t, uint32(1+1), a.packed, "the second slab is in the list")
}

// T18: slabs that keep almost no nodes keep almost no memory.
func TestSparseSlabs(t *testing.T) {
	const slabs, stay = 10, 2
	a := newSlabs(t)
	var held []uint32
	for range slabs * (slabNodes - 1) {
		held = append(held, a.mustAlloc())
	}
	for n, i := range held {
		if n%(slabNodes-1) >= stay {
			a.mustRelease(i)
		}
	}
	a.verify()
	require.Len(t, a.table, slabs)
	require.LessOrEqual(t, a.size, slabNodes+8*slabs, "except one that is being filled")
}

// T18: packed slabs are refilled before new ones are added.
func TestPackedSlabsAreRefilled(t *testing.T) {
	a := newSlabs(t)
	r := rand.New(rand.NewPCG(5, 5))
	var held []uint32
	for range 4 {
		for len(held) < 4*(slabNodes-1) {
			held = append(held, a.mustAlloc())
		}
		require.Len(t, a.table, 4)
		a.verify()
		r.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		for _, i := range held[slabNodes/2:] {
			a.mustRelease(i)
		}
		held = held[:slabNodes/2]
		a.verify()
		require.Less(t, a.size, 2*slabNodes)
	}
}

// T6: nodes retire one after the other, while their slab is the only one or while another has
// free nodes.
func TestAllNodesRetire(t *testing.T) {
	t.Parallel()
	a := newSlabs(t)
	for range slabNodes - 1 {
		i := a.mustAlloc()
		a.node(i).gen = maxGen - 1
		a.mustRelease(i)
		a.verify()
	}
	require.Zero(t, a.size, "a retired slab holds memory")

	var held []uint32
	for range 2*slabNodes - 2 {
		held = append(held, a.mustAlloc())
	}
	a.mustRelease(held[slabNodes+5]) // the second slab is partial
	for _, i := range held[:slabNodes-1] {
		a.node(i).gen = maxGen - 1
		a.mustRelease(i)
		a.verify()
	}
	require.Equal(t, slabNodes, a.size)
	require.Equal(t, held[slabNodes+5], a.mustAlloc())
}

// T11: a shard refuses nodes beyond its limit, without a panic and before an index wraps; a
// node that leaves frees capacity.
func TestTooManyNodes(t *testing.T) {
	a := newSlabs(t)
	a.limit = 2
	var held []uint32
	for range 2*slabNodes - 2 {
		held = append(held, a.mustAlloc())
	}
	_, _, ok := a.alloc()
	require.False(t, ok)
	a.verify()
	a.mustRelease(held[slabNodes+5])
	require.Equal(t, held[slabNodes+5], a.mustAlloc())
}

// T8: chunks and buckets have no handles, so their nodes never retire.
func TestUnnamedNodesDoNotRetire(t *testing.T) {
	p := slabs[chunk]{limit: 2, packAt: slabNodes / 2}
	for range 3 {
		i, n, ok := p.alloc()
		require.True(t, ok)
		n.pos, n.gen = onItsOwn, 1<<32-1
		p.release(i, n)
		var all []uint32
		for range 2*slabNodes - 2 {
			i, n, ok := p.alloc()
			require.True(t, ok)
			n.pos = onItsOwn
			all = append(all, i)
		}
		for _, i := range all {
			p.node(i).gen = maxGen
			p.release(i, p.node(i))
		}
	}
	require.Equal(t, slabNodes, p.size)
}

func TestTimerBits(t *testing.T) {
	for _, h := range [][3]uint32{{0, 1, 1}, {255, maxGen, 1<<32 - 1}, {7, 0, 9}, {0, maxGen, 0}, {0, 0, 1<<32 - 1}, {255, 0, 0}} {
		x := makeTimer(h[0], h[1], h[2])
		require.Equal(t, h, [3]uint32{x.shard(), x.gen(), x.index()})
	}
}

// T3: a reference to a freed bucket finds nothing, although its record has been reused.
func TestBucketRefs(t *testing.T) {
	l := newLists[int](0)
	id, b := l.newBucket(bucketReady, 0, 1)
	seq := b.seq
	require.Same(t, b, l.find(id, seq))
	l.freeBucket(id)
	require.Nil(t, l.find(id, seq))
	again, b := l.newBucket(bucketReady, 0, 1)
	require.Equal(t, id, again)
	require.Nil(t, l.find(id, seq))
	require.Same(t, b, l.find(id, b.seq))
	require.Nil(t, l.find(1<<31, seq))
}

package timingwheel

import (
	"math/bits"
	"unsafe"
)

// Timers are stored in nodes, and nodes in slabs: arrays of up to 1,024 nodes. Nodes refer to
// each other by index instead of by pointer, so that a slab of pointer-free values is one
// object to the garbage collector, which never scans it. Chunks and buckets come from slabs as
// well.
//
// Memory follows the load in both directions. The first slab of a pool starts small and
// grows. An empty slab returns to the allocator. A handle names its node by index, so nodes
// cannot move freely; but a slab that has lost most of its nodes is packed: the remaining ones
// move into a smaller array, where a node is found by the rank of its index (see ranks.go).

const (
	slabBits  = 10
	slabNodes = 1 << slabBits
	slabMask  = slabNodes - 1

	// firstNodes is the size, in nodes, of a pool's first slab.
	firstNodes = 16

	// minPacked is the number of nodes not worth packing again: they take little more than the
	// ranks that locate them.
	minPacked = 8
)

// node holds one value, or is free.
type node[V any] struct {
	pos      position // 0: free
	gen      uint32   // of its current timer, or of its next one
	deadline tick     // of a timer; a free node has no deadline, see nextFree
	value    V
}

// position is where the value of a node belongs, so it differs between the pools: a timer's is a
// slot of a chunk, a chunk's is a bucket (chunk.go), and a bucket's is onItsOwn. It is 0 if and
// only if the node is free.
type position uint32

// onItsOwn is the position of a value that belongs to no other.
const onItsOwn position = 1

func (n *node[V]) inUse() bool { return n.pos != 0 }

// nextFree returns the offset of the next node on the slab's free list, 0 if there is none. A
// node on that list stores it in place of the deadline.
func (n *node[V]) nextFree() uint16 { return uint16(n.deadline) }

func (n *node[V]) setNextFree(off uint16) { n.deadline = tick(off) }

// slab is an array of nodes and its bookkeeping. Offset 0 is never used, so that index 0 can
// mean "none".
type slab[V any] struct {
	nodes      []node[V] // nil: returned to the allocator
	kept       *ranks    // packed: the positions of the nodes; nil: each at its offset
	free       uint16    // head of the list of freed nodes, by offset; 0: none
	nextUnused uint16    // offset of the first node that was never used
	used       uint16    // nodes in use
	prev, next uint32    // in the list of partial slabs, or of packed ones: number + 1
	// Nodes that are made, for the first time or again, start from generation minGen, so that
	// handles to earlier timers stay stale. nextGen is the generation that they would start
	// from if they were made again now: no freed node has reached it.
	minGen, nextGen uint32
}

// slabs is a pool of nodes. A shard's lock guards it.
type slabs[V any] struct {
	table   []slab[V] // by slab number
	limit   uint32    // maximum number of slabs
	packAt  uint16    // a slab with at most this many nodes in use is packed
	named   bool      // handles name the nodes: generations must not repeat
	dropped []uint32  // numbers of the returned slabs, for reuse
	partial uint32    // head of the list of slabs with free nodes: number + 1; 0: none
	packed  uint32    // head of the list of packed slabs that may be unpacked
	spare   int       // partial slabs that are empty; one is kept
	used    int       // nodes in use
	size    int       // nodes that memory is held for
}

// bytes returns the memory that the pool holds.
func (p *slabs[V]) bytes() int {
	return p.size*int(unsafe.Sizeof(node[V]{})) + cap(p.table)*int(unsafe.Sizeof(slab[V]{}))
}

// node returns a node by its index. The pointer is valid until the next alloc or release, which
// may move nodes.
func (p *slabs[V]) node(i uint32) *node[V] {
	s := &p.table[i>>slabBits]
	off := i & slabMask
	if s.kept != nil {
		off = s.kept.rank(off)
	}
	return &s.nodes[off]
}

// find returns the node in use at an index taken from a handle or a reference, or nil if there
// is none.
func (p *slabs[V]) find(i uint32) *node[V] {
	n := p.findUnpacked(i)
	if n == nil {
		n = p.findPacked(i)
	}
	if n == nil || !n.inUse() {
		return nil
	}
	return n
}

// findUnpacked is find for a slab that is not packed; the node may be free. It is short enough
// to be inlined.
func (p *slabs[V]) findUnpacked(i uint32) *node[V] {
	if num := uint(i >> slabBits); num < uint(len(p.table)) {
		s := &p.table[num]
		if off := uint(i & slabMask); s.kept == nil && off < uint(len(s.nodes)) {
			return &s.nodes[off]
		}
	}
	return nil
}

// findPacked is find for a packed slab; the node may be free.
func (p *slabs[V]) findPacked(i uint32) *node[V] {
	num, off := i>>slabBits, i&slabMask
	if num >= uint32(len(p.table)) || p.table[num].kept == nil || !p.table[num].kept.has(off) {
		return nil
	}
	s := &p.table[num]
	return &s.nodes[s.kept.rank(off)]
}

// alloc returns the most recently freed node of the first partial slab. The caller sets
// everything except gen; ok is false if all indices are used up.
func (p *slabs[V]) alloc() (i uint32, n *node[V], ok bool) {
	if p.partial == 0 && !p.addPartial() {
		return 0, nil, false
	}
	num := p.partial - 1
	s := &p.table[num]
	off := uint32(s.free)
	if off != 0 {
		n = &s.nodes[off]
		s.free = n.nextFree()
	} else {
		off = uint32(s.nextUnused)
		if off == uint32(len(s.nodes)) {
			p.resize(s, 2*len(s.nodes))
		}
		s.nextUnused++
		n = &s.nodes[off]
		n.gen = s.minGen
	}
	if s.used == 0 {
		p.spare--
	}
	s.used++
	p.used++
	if s.full() {
		p.unlink(&p.partial, num)
	}
	return num<<slabBits | off, n, true
}

// release frees a node. It zeroes the value so that its referents can be collected. A slab that
// is then empty returns to the allocator.
func (p *slabs[V]) release(i uint32, n *node[V]) {
	num := i >> slabBits
	s := &p.table[num]
	var zero V
	n.value = zero
	n.pos = 0
	n.gen++
	p.used--
	s.used--
	if s.kept != nil {
		p.releasedPacked(num, n.gen)
		return
	}
	s.nextGen = max(s.nextGen, n.gen)
	wasFull := s.full()
	if !p.named || n.gen < maxGen {
		n.setNextFree(s.free)
		s.free = uint16(i & slabMask)
	}
	if wasFull && !s.full() {
		p.link(&p.partial, num)
	}
	switch {
	case s.used == 0 && p.spare == 0 && !s.full():
		p.spare = 1 // one is kept, for the next alloc
	case s.used == 0:
		if !s.full() { // or every node is retired
			p.unlink(&p.partial, num)
		}
		p.drop(num)
	case s.used <= p.packAt && p.partial != num+1 && len(s.nodes) == slabNodes:
		// Not the first partial slab, which fills up again.
		if !s.full() {
			p.unlink(&p.partial, num)
		}
		p.pack(num)
	}
}

// full reports whether alloc can take no node from s: each is in use or retired.
func (s *slab[V]) full() bool { return s.free == 0 && s.nextUnused == slabNodes }

// addPartial provides a slab with free nodes: a packed one if there is any, otherwise a new
// one.
func (p *slabs[V]) addPartial() bool {
	if p.packed != 0 {
		p.unpack(p.packed - 1)
		return true
	}
	var num uint32
	if k := len(p.dropped); k > 0 {
		num = p.dropped[k-1]
		p.dropped = p.dropped[:k-1]
	} else {
		num = uint32(len(p.table))
		if num == p.limit {
			return false
		}
		p.table = append(p.table, slab[V]{minGen: 1, nextGen: 1})
	}
	size := slabNodes
	if p.size == 0 {
		size = firstNodes
	}
	s := &p.table[num]
	s.nextUnused = 1
	p.resize(s, size)
	p.spare++
	p.link(&p.partial, num)
	return true
}

// resize moves the nodes of a slab that is not packed into an array of another size.
func (p *slabs[V]) resize(s *slab[V], size int) {
	nodes := make([]node[V], size)
	copy(nodes, s.nodes)
	p.size += len(nodes) - len(s.nodes)
	s.nodes = nodes
}

// drop returns an empty slab to the allocator. Its number is reused unless its generations are
// used up.
func (p *slabs[V]) drop(num uint32) {
	s := &p.table[num]
	minGen := s.nextGen
	p.size -= len(s.nodes)
	*s = slab[V]{minGen: minGen, nextGen: minGen}
	if !p.named || minGen < maxGen {
		p.dropped = append(p.dropped, num)
	}
}

// each calls f with the nodes in use, in order of their indices.
func (p *slabs[V]) each(f func(i uint32, n *node[V])) {
	for num := range p.table {
		p.table[num].each(func(off uint32, n *node[V]) { f(uint32(num)<<slabBits|off, n) })
	}
}

func (s *slab[V]) each(f func(off uint32, n *node[V])) {
	if s.kept != nil {
		at := 0
		for w, word := range s.kept.words {
			for ; word != 0; word &= word - 1 {
				if n := &s.nodes[at]; n.inUse() {
					f(uint32(w*64+bits.TrailingZeros64(word)), n)
				}
				at++
			}
		}
		return
	}
	for off := range s.nodes {
		if n := &s.nodes[off]; n.inUse() {
			f(uint32(off), n)
		}
	}
}

// link puts a slab second into a list: the first one is being filled, and stays first.
func (p *slabs[V]) link(head *uint32, num uint32) {
	s := &p.table[num]
	if *head == 0 {
		*head = num + 1
		s.prev, s.next = 0, 0
		return
	}
	first := &p.table[*head-1]
	s.prev, s.next = *head, first.next
	if first.next != 0 {
		p.table[first.next-1].prev = num + 1
	}
	first.next = num + 1
}

func (p *slabs[V]) unlink(head *uint32, num uint32) {
	s := &p.table[num]
	if s.prev != 0 {
		p.table[s.prev-1].next = s.next
	} else {
		*head = s.next
	}
	if s.next != 0 {
		p.table[s.next-1].prev = s.prev
	}
	s.prev, s.next = 0, 0
}

// A slab of timers is packed when it has lost seven eighths of its nodes, one of chunks or
// buckets when it has lost half; and again each time half of the rest has left. So after nine
// tenths of the timers have left, the pool keeps at most twice the memory that the others need
// (memory follows the load, T18). Packing sooner would cost more: most slabs that are emptied
// that far are soon empty, and a packing is a few microseconds of cache misses, 20 ns for each
// expiring timer if it is done at a quarter.
//
// Nothing is allocated from a packed slab. When no other slab has free nodes, a packed one is
// unpacked as a whole, and filled before the next.

// pack moves the nodes in use into a contiguous smaller array.
func (p *slabs[V]) pack(num uint32) {
	s := &p.table[num]
	nodes := make([]node[V], s.used)
	kept := s.kept
	if kept == nil {
		kept = new(ranks)
		at := 0
		for w := range kept.words {
			word, from := uint64(0), s.nodes[w*64:w*64+64]
			for k := range from {
				// Set if the node is in use, without a branch, which would be mispredicted.
				pos := uint64(from[k].pos)
				word |= -pos >> 63 << (k & 63)
			}
			kept.words[w] = word
			for ; word != 0; word &= word - 1 {
				nodes[at] = from[bits.TrailingZeros64(word)]
				at++
			}
		}
		if p.unpackable(s.nextGen) {
			p.link(&p.packed, num)
		}
	} else {
		at, from := 0, 0
		for w, word := range kept.words {
			for ; word != 0; word &= word - 1 {
				if s.nodes[from].inUse() {
					nodes[at] = s.nodes[from]
					at++
				} else {
					kept.words[w] &^= word & -word
				}
				from++
			}
		}
	}
	kept.count()
	p.size += len(nodes) - len(s.nodes)
	s.nodes, s.kept, s.free, s.nextUnused = nodes, kept, 0, slabNodes
}

// unpackable reports whether freed nodes could be used again after unpacking.
func (p *slabs[V]) unpackable(nextGen uint32) bool { return !p.named || nextGen < maxGen }

// releasedPacked is called when a node of a packed slab was freed; gen is the generation that
// the node would have next.
func (p *slabs[V]) releasedPacked(num, gen uint32) {
	s := &p.table[num]
	if p.unpackable(s.nextGen) && !p.unpackable(gen) {
		p.unlink(&p.packed, num)
	}
	s.nextGen = max(s.nextGen, gen)
	switch {
	case s.used == 0:
		if p.unpackable(s.nextGen) {
			p.unlink(&p.packed, num)
		}
		p.drop(num)
	case int(s.used) <= len(s.nodes)/2 && len(s.nodes) > minPacked:
		p.pack(num)
	}
}

// unpack moves the nodes of a packed slab back to their offsets. The other nodes are free, and
// the slab is partial.
func (p *slabs[V]) unpack(num uint32) {
	p.unlink(&p.packed, num)
	s := &p.table[num]
	nodes := make([]node[V], slabNodes)
	s.each(func(off uint32, n *node[V]) { nodes[off] = *n })
	minGen, free := s.nextGen, uint16(0)
	for off := slabNodes - 1; off > 0; off-- {
		if n := &nodes[off]; !n.inUse() {
			n.gen = minGen
			n.setNextFree(free)
			free = uint16(off)
		}
	}
	p.size += len(nodes) - len(s.nodes)
	s.nodes, s.kept, s.free, s.minGen = nodes, nil, free, minGen
	p.link(&p.partial, num)
}

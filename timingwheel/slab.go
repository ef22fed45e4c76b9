package timingwheel

import "unsafe"

// Timers live in nodes, nodes in slabs: arrays that are allocated whole and
// given back whole. Nodes name each other by index instead of by pointer, so
// that a slab of pointer-free values is one object to the garbage collector,
// which never looks inside it.

const (
	slabBits  = 10
	slabNodes = 1 << slabBits
	slabMask  = slabNodes - 1
)

// node holds one timer, or stands on its slab's free list.
//
// Invariant: place != 0 if and only if the node holds a timer; that slot of
// that row then names this node, and no other slot does.
type node[V any] struct {
	place    uint32 // see row
	gen      uint32 // of the timer it holds, or that it will hold next
	deadline tick   // when free, the offset of the next one on the free list
	value    V
}

// block is a slab's memory. Its first node is never used, so that index 0 can
// mean "none". With values of 8 bytes it fills a size class of the allocator.
type block[V any] [slabNodes]node[V]

// slab is a block and what is known of it. That is kept apart from the block,
// in the table: it is used with each node of it, and at the head of each block
// it would lie at the same distance from the next, where caches, which place
// memory by its address's lower bits, can keep few.
type slab[V any] struct {
	nodes      *block[V] // nil: given back
	free       uint16    // head of the list of freed nodes, by offset; 0: none
	fresh      uint16    // offset of the first node that was never used
	used       uint16    // nodes that hold a timer
	prev, next uint32    // in the list of slabs with room, by slab number + 1
	// floor says which generation the nodes of a new block start from, so that
	// handles into the one that stood there before stay stale.
	floor uint32
}

// slabs is one shard's memory for timers. The shard's lock guards it.
type slabs[V any] struct {
	table []slab[V] // by slab number
	gone  []uint32  // numbers of the slabs given back, to be used again
	room  uint32    // head of the list of slabs with room: number + 1; 0: none
	spare int       // slabs without any timer; one is kept against thrashing
	live  int       // slabs with a block
}

func (a *slabs[V]) bytes() int { return a.live * int(unsafe.Sizeof(block[V]{})) }

func (a *slabs[V]) node(i uint32) *node[V] {
	return &a.table[i>>slabBits].nodes[i&slabMask]
}

// lookup is node for an index that comes from outside; nil if there is none.
func (a *slabs[V]) lookup(i uint32) *node[V] {
	n := i >> slabBits
	if i&slabMask == 0 || int(n) >= len(a.table) || a.table[n].nodes == nil {
		return nil
	}
	return a.node(i)
}

// alloc takes a node, the most recently freed one of the first slab with room.
// The caller sets everything but gen.
func (a *slabs[V]) alloc() (uint32, *node[V]) {
	if a.room == 0 {
		a.grow()
	}
	num := a.room - 1
	s := &a.table[num]
	off := uint32(s.free)
	var n *node[V]
	if off != 0 {
		n = &s.nodes[off&slabMask]
		s.free = uint16(n.deadline)
	} else {
		off = uint32(s.fresh)
		s.fresh++
		n = &s.nodes[off&slabMask]
		n.gen = s.floor
	}
	if s.used == 0 {
		a.spare--
	}
	s.used++
	if s.full() {
		a.unlist(num)
	}
	return num<<slabBits | off, n
}

// release takes back a node. The value is zeroed so that what it points to
// can be collected; the slab goes back when it was the last timer in it and
// another spare one is kept.
func (a *slabs[V]) release(i uint32, n *node[V]) {
	num := i >> slabBits
	s := &a.table[num]
	wasFull := s.full()
	var zero V
	n.value = zero
	n.place = 0
	n.gen++
	s.used--
	if n.gen < maxGen {
		n.deadline = tick(s.free)
		s.free = uint16(i & slabMask)
	}
	if wasFull && !s.full() {
		a.list(num)
	}
	if s.used > 0 {
		return
	}
	if s.full() { // all retired: nothing to keep it for
		a.drop(num)
		return
	}
	a.spare++
	if a.spare > 1 {
		a.spare--
		a.unlist(num)
		a.drop(num)
	}
}

// full says that alloc can take nothing from s: each node is used or retired.
func (s *slab[V]) full() bool { return s.free == 0 && s.fresh == slabNodes }

func (a *slabs[V]) grow() {
	var num uint32
	if k := len(a.gone); k > 0 {
		num = a.gone[k-1]
		a.gone = a.gone[:k-1]
	} else {
		num = uint32(len(a.table))
		if num == 1<<(indexBits-slabBits) {
			panic("timingwheel: more than 2^32 timers in one shard")
		}
		a.table = append(a.table, slab[V]{floor: 1})
	}
	s := &a.table[num]
	s.nodes, s.fresh = new(block[V]), 1
	a.live++
	a.spare++
	a.list(num)
}

// drop gives slab num back to the allocator. Its number is used again unless
// its generations are used up.
func (a *slabs[V]) drop(num uint32) {
	s := &a.table[num]
	top := s.floor
	for i := range s.nodes[1:s.fresh] {
		top = max(top, s.nodes[1+i].gen)
	}
	*s = slab[V]{floor: top}
	a.live--
	if top < maxGen {
		a.gone = append(a.gone, num)
	}
}

func (a *slabs[V]) list(num uint32) {
	s := &a.table[num]
	s.prev, s.next = 0, a.room
	if a.room != 0 {
		a.table[a.room-1].prev = num + 1
	}
	a.room = num + 1
}

func (a *slabs[V]) unlist(num uint32) {
	s := &a.table[num]
	if s.prev != 0 {
		a.table[s.prev-1].next = s.next
	} else {
		a.room = s.next
	}
	if s.next != 0 {
		a.table[s.next-1].prev = s.prev
	}
	s.prev, s.next = 0, 0
}

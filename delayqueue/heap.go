package delayqueue

import "math"

const (
	// arity is the number of children of a heap node. Four beats two by 9 % for Push and Poll and by 40 % for Move
	// at a million elements, and costs nothing at a thousand: half the depth, and siblings lie side by side. Eight
	// wins a little more at a million and loses 3 % for Push and Poll at a thousand.
	arity = 4

	// keep is the capacity, in elements, that is never given back: below it shrinking would only cost.
	keep = 256

	// noSlot ends the list of free slots, so it is no slot itself.
	noSlot = math.MaxUint32
)

// Handle names one element of the queue that returned it. It is a small comparable value. The zero Handle names
// nothing, and a Handle goes stale for good when its element leaves, whichever way: identities are 64 bits wide and
// never used twice, so a stale Handle cannot reach an element that came later. A Handle means nothing to another queue.
type Handle struct {
	id   uint64
	slot uint32
}

// item is an element as the heap sees it. It is free of pointers and carries its whole key, so that sifting touches
// neither values nor the garbage collector.
type item struct {
	deadline int64  // nanoseconds since Queue.base
	seq      uint64 // order of arrival, breaks ties
	slot     uint32 // where the value is
}

func (a item) before(b item) bool {
	if a.deadline != b.deadline {
		return a.deadline < b.deadline
	}
	return a.seq < b.seq
}

// slot keeps a value in one place while its item moves through the heap.
type slot[T any] struct {
	value T
	id    uint64 // identity of the element, zero while the slot is free
	pos   uint32 // live: index in items; free: the next free slot
}

// heap is an arity-ary min-heap over a table of slots. It knows nothing of clocks, locks or takers.
//
// Invariant 1: no item is before its parent.
// Invariant 2: items and live slots are one to one: slots[items[i].slot].pos == i, and its id is not zero.
// Invariant 3: every other slot is in the free list exactly once, with id zero and a zero value.
// Invariant 4: no two live slots share an id, and no id is above seq.
type heap[T any] struct {
	items []item
	slots []slot[T]
	free  uint32 // first free slot, or noSlot
	seq   uint64 // last number given out, as an identity or an order of arrival
	left  int    // elements that left since the slot table was last compacted
}

// push adds v. Amortised O(log n); allocates only to grow.
func (h *heap[T]) push(v T, deadline int64) Handle {
	h.seq++
	s := h.free
	if s != noSlot {
		h.free = h.slots[s].pos
	} else {
		if uint64(len(h.slots)) >= noSlot {
			panic("delayqueue: more than 4294967295 elements")
		}
		s = uint32(len(h.slots))
		h.slots = append(h.slots, slot[T]{})
	}
	h.slots[s].value, h.slots[s].id = v, h.seq

	it := item{deadline: deadline, seq: h.seq, slot: s}
	h.items = append(h.items, it)
	h.up(len(h.items)-1, it)
	return Handle{id: h.seq, slot: s}
}

// find gives the position of the element named by hd.
func (h *heap[T]) find(hd Handle) (int, bool) {
	if hd.id == 0 || uint64(hd.slot) >= uint64(len(h.slots)) || h.slots[hd.slot].id != hd.id {
		return 0, false
	}
	return int(h.slots[hd.slot].pos), true
}

// remove takes out the element at position i. Its slot's value is zeroed, so that nothing keeps it alive.
func (h *heap[T]) remove(i int) T {
	s := h.items[i].slot
	last := len(h.items) - 1
	moved := h.items[last]
	h.items = h.items[:last]
	if i < last {
		h.place(i, moved)
	}

	v := h.slots[s].value
	h.slots[s] = slot[T]{pos: h.free}
	h.free = s
	h.left++
	h.release()
	return v
}

// move gives the element at position i a new deadline, behind all that have the same one.
func (h *heap[T]) move(i int, deadline int64) {
	h.seq++
	it := h.items[i]
	it.deadline, it.seq = deadline, h.seq
	h.place(i, it)
}

// place puts it where it belongs, starting from the hole at i.
func (h *heap[T]) place(i int, it item) {
	if i > 0 && it.before(h.items[(i-1)/arity]) {
		h.up(i, it)
	} else {
		h.down(i, it)
	}
}

func (h *heap[T]) up(i int, it item) {
	for i > 0 {
		parent := (i - 1) / arity
		if !it.before(h.items[parent]) {
			break
		}
		h.set(i, h.items[parent])
		i = parent
	}
	h.set(i, it)
}

func (h *heap[T]) down(i int, it item) {
	n := len(h.items)
	for {
		first := i*arity + 1
		if first >= n {
			break
		}
		least := first
		for c := first + 1; c < min(first+arity, n); c++ {
			if h.items[c].before(h.items[least]) {
				least = c
			}
		}
		if !h.items[least].before(it) {
			break
		}
		h.set(i, h.items[least])
		i = least
	}
	h.set(i, it)
}

func (h *heap[T]) set(i int, it item) {
	h.items[i] = it
	h.slots[it.slot].pos = uint32(i)
}

// release gives memory back when the load has fallen. Identities outlive the table, so a slot that is dropped and
// made again cannot be reached through an old Handle.
func (h *heap[T]) release() {
	n := len(h.items)
	if cap(h.items) > keep && n < cap(h.items)/4 {
		// A quarter, not a half, so that a load at the edge does not copy on every other call.
		h.items = append(make([]item, 0, cap(h.items)/2), h.items...)
	}
	switch {
	case cap(h.slots) <= keep:
	case n == 0:
		h.items, h.slots, h.free, h.left = nil, nil, noSlot, 0
	case n < cap(h.slots)/4 && h.left >= cap(h.slots)/2:
		// The second condition pays for the walk: O(1) amortised even when a live slot at the end pins the table.
		h.compact()
	}
}

// compact cuts the slot table behind its last live slot, which cannot move because its Handle is outside. The free
// list is rebuilt lowest first, so that new elements fill the front and the end can drain.
func (h *heap[T]) compact() {
	n := 0
	for _, it := range h.items {
		n = max(n, int(it.slot)+1)
	}
	if n <= cap(h.slots)/2 {
		h.slots = append(make([]slot[T], 0, n), h.slots[:n]...)
	} else {
		h.slots = h.slots[:n]
	}
	h.free, h.left = noSlot, 0
	for i := n - 1; i >= 0; i-- {
		if h.slots[i].id == 0 {
			h.slots[i].pos, h.free = h.free, uint32(i)
		}
	}
}

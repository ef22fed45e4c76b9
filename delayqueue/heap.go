package delayqueue

import "math"

const (
	// arity is the number of children of a heap node. Four beats two by 9 % for Push and Poll
	// and by 40 % for Reset at a million elements, and costs nothing at a thousand: half the
	// depth, and siblings are contiguous. Eight gains a little more at a million and loses 3 %
	// for Push and Poll at a thousand.
	arity = 4

	// noSlot ends the list of free slots, so it is not a slot number.
	noSlot = math.MaxUint32
)

// item is an element of the heap. It has no pointers and carries its whole key, so that sifting
// touches neither values nor the garbage collector.
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

// slot keeps a value at one index while its item moves through the heap.
type slot[T any] struct {
	value  T
	id     uint64 // identity of the element, zero while the slot is free
	pos    uint32 // live: index in items; free: the next free slot
	handle uint32 // live: the slot number in the element's Handle; uses space that would be padding
}

// heap is an arity-ary min-heap over a table of slots. It is independent of clocks, locks and
// takers.
//
// Invariant 1: no item is before its parent.
// Invariant 2: items and live slots are one to one: slots[items[i].slot].pos == i,
// and its id is not zero.
// Invariant 3: every other slot is in the free list exactly once, with id zero and
// a zero value.
// Invariant 4: no two live slots share an id, and no id is above seq.
// Invariant 5: a live slot whose number is not the one in its Handle is in moved.
type heap[T any] struct {
	items []item
	slots []slot[T]
	free  uint32 // first free slot, or noSlot
	seq   uint64 // last number issued, as an id or an order of arrival
	limit uint32 // maximum number of slots: noSlot, less in tests

	// For shrink.go.
	moved     []uint32 // index of the slots by id, as of the last pack; nil before the first
	spare     int      // spare capacity that is never released: defaultSpare, less in tests
	iterating int      // loops over All in progress: no slot moves during one
}

func newHeap[T any]() heap[T] { return heap[T]{free: noSlot, limit: noSlot, spare: defaultSpare} }

// push adds v, and reports whether there was capacity. Amortised O(log n); it allocates only to
// grow.
func (h *heap[T]) push(v T, deadline int64) (Handle, bool) {
	s := h.free
	switch {
	case s != noSlot:
		h.free = h.slots[s].pos
	case uint64(len(h.slots)) < uint64(h.limit):
		s = uint32(len(h.slots))
		h.slots = append(h.slots, slot[T]{})
	default:
		return Handle{}, false
	}
	h.seq++
	sl := &h.slots[s]
	sl.value, sl.id, sl.handle = v, h.seq, s

	it := item{deadline: deadline, seq: h.seq, slot: s}
	h.items = append(h.items, it)
	h.up(len(h.items)-1, it)
	return Handle{id: it.seq, slot: s}, true
}

// remove removes the element at position i. It zeroes the slot's value, so that nothing keeps
// it alive.
func (h *heap[T]) remove(i int) T {
	s := h.items[i].slot
	last := len(h.items) - 1
	moved := h.items[last]
	h.items = h.items[:last]
	if i < last {
		h.sift(i, moved)
	}
	v := h.slots[s].value
	h.slots[s] = slot[T]{pos: h.free}
	h.free = s
	if maxCap := h.maxCap(); cap(h.items) > maxCap || cap(h.slots) > maxCap {
		h.shrink()
	}
	return v
}

// reset gives the element at position i a new deadline, behind all elements with the same
// deadline.
func (h *heap[T]) reset(i int, deadline int64) {
	h.seq++
	it := h.items[i]
	it.deadline, it.seq = deadline, h.seq
	h.sift(i, it)
}

// clear removes all elements. Ids continue from the last one, so that old Handles stay stale.
func (h *heap[T]) clear() (items []item, slots []slot[T]) {
	items, slots = h.items, h.slots
	h.items, h.slots, h.free, h.moved = nil, nil, noSlot, nil
	return items, slots
}

// sift moves it up or down to its position, starting from the hole at i.
func (h *heap[T]) sift(i int, it item) {
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

package delayqueue

import "math/bits"

// How memory follows the load down.
//
// items can be copied to a smaller array at any time, slots cannot: callers hold their numbers
// in Handles. Cutting the table behind its last live slot is not enough. The user decides which
// elements remain, and when nine in ten leave at random, the last remaining one is near the
// end. Dividing the table into slabs that are freed whole fails for the same reason: of 64
// neighbours some 6 remain.
//
// So when the table has become sparse, the live slots are packed into a new one, and their new
// numbers are kept in an index by id. An element that has not been packed is found by the slot
// in its Handle as before, at no extra cost. After a pack, the Handles from before it go
// through the index, until their elements leave.
//
// The index is an open-addressed table with linear probing, of slot numbers only: the ids are
// in the slots. So nothing needs to be deleted from it. A slot that was reused for another
// element has another id, and does not match; the next pack rebuilds the index. A pack of
// 600,000 elements takes some 30 ms. A sorted array of ids instead of the index would take 80
// ms to sort alone, and Go's map 70 ms to fill.

// defaultSpare is the capacity, in elements, that is never released: shrinking below it would
// not be worth its cost.
const defaultSpare = 256

// maxCap returns the capacity that is kept for the present elements: 13/8 of them, plus h.spare.
func (h *heap[T]) maxCap() int {
	n := len(h.items)
	return n + n/2 + n/8 + h.spare
}

// shrink releases memory when the load has fallen. Above maxCap it copies to 5/4, so 3/13 of the
// elements must leave, or a quarter as many arrive, before the next copy: O(1) amortised.
// Including the index, at most 32/3 bytes for each packed element, it keeps less than twice the
// memory needed.
func (h *heap[T]) shrink() {
	n, maxCap := len(h.items), h.maxCap()
	capacity := n + n/4 + h.spare/2
	if cap(h.items) > maxCap {
		h.items = append(make([]item, 0, capacity), h.items...)
	}
	if cap(h.slots) > maxCap && h.iterating == 0 {
		h.pack(capacity)
	}
}

// pack copies the live slots to a new table with the given capacity, and indexes
// them. Their order becomes that of the heap.
func (h *heap[T]) pack(capacity int) {
	n := len(h.items)
	slots := make([]slot[T], n, capacity)
	h.moved = make([]uint32, 1<<bits.Len(uint(n+n/3))) // so it is between 3/8 and 3/4 full
	for i := range h.items {
		s := &h.items[i].slot
		slots[i] = h.slots[*s]
		*s = uint32(i)
		j := h.bucket(slots[i].id)
		for h.moved[j] != 0 {
			j = h.next(j)
		}
		h.moved[j] = *s + 1 // zero: empty
	}
	h.slots, h.free = slots, noSlot
}

// find returns the position of the element named by hd.
func (h *heap[T]) find(hd Handle) (int, bool) {
	if hd.id == 0 {
		return 0, false
	}
	if uint64(hd.slot) < uint64(len(h.slots)) {
		if s := &h.slots[hd.slot]; s.id == hd.id {
			return int(s.pos), true
		}
	}
	if h.moved == nil {
		return 0, false
	}
	for j := h.bucket(hd.id); h.moved[j] != 0; j = h.next(j) {
		if s := &h.slots[h.moved[j]-1]; s.id == hd.id {
			return int(s.pos), true
		}
	}
	return 0, false
}

// bucket returns the position in moved at which the search for id begins. Ids are mostly
// consecutive: a multiplication by 2^64 over the golden ratio spreads them evenly (Knuth, The
// Art of Computer Programming, volume 3, section 6.4).
func (h *heap[T]) bucket(id uint64) int {
	return int(id * 0x9E3779B97F4A7C15 >> (65 - bits.Len(uint(len(h.moved)))))
}

func (h *heap[T]) next(j int) int { return (j + 1) & (len(h.moved) - 1) }

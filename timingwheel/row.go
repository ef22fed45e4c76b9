package timingwheel

import "math/bits"

// row is a link in a bucket's list of timers: up to nine of them, by index, in
// the order in which they came. An unrolled linked list (Shao, Reppy and Appel,
// 1994).
//
// Timers are scheduled in one order and come due in another, so the nodes of a
// bucket lie anywhere, and each is a cache miss. Linked to one another they
// would be missed one after the other, for each says where the next one is; a
// row says it of nine at once, and the processor fetches them together.
//
// A row is kept as the value of a node, whose place is the row's bucket. So it
// comes from slabs as the timers do, and goes back as they do, and with what a
// node has besides it fills one cache line.
//
// A timer's place is its row's index and its slot in it:
//
//	31            4 3    0
//	[ row's index ][ slot ]
type row struct {
	next, prev uint32 // in the bucket's list
	used       uint16 // a bit for each slot that holds a timer; never 0 in a bucket
	slots      [rowSlots]uint32
}

const (
	rowSlots = 9
	slotBits = 4
	slotMask = 1<<slotBits - 1
)

// bucketLocked is the bucket that holds a timer.
func (s *shard[V]) bucketLocked(n *node[V]) *bucket {
	return &s.buckets.table[s.rows.node(n.place>>slotBits).place]
}

// linkLocked adds a timer to a bucket, behind all others.
func (s *shard[V]) linkLocked(i uint32, n *node[V], id uint32) {
	b := &s.buckets.table[id]
	var r *row
	if b.tail != 0 {
		r = &s.rows.node(b.tail).value
	}
	if r == nil || r.used >= 1<<(rowSlots-1) {
		r = s.addRowLocked(b, id)
	}
	k := bits.Len16(r.used)
	r.slots[k] = i
	r.used |= 1 << k
	b.count++
	n.place = b.tail<<slotBits | uint32(k)
}

// unlinkLocked takes a timer out of its bucket. A bucket emptied so stays where
// it is, to be filled again without another turn through the delay queue; the
// advancer removes it before it would sleep for it (T9).
func (s *shard[V]) unlinkLocked(n *node[V]) *bucket {
	at := n.place >> slotBits
	r := s.rows.node(at)
	b := &s.buckets.table[r.place]
	b.count--
	r.value.used &^= 1 << (n.place & slotMask)
	if r.value.used == 0 {
		s.dropRowLocked(b, at, &r.value)
	}
	return b
}

// addRowLocked adds a row to a bucket.
func (s *shard[V]) addRowLocked(b *bucket, id uint32) *row {
	at := s.spareRow
	s.spareRow = 0
	if at == 0 {
		at, _ = s.rows.alloc()
		if at > 1<<(32-slotBits)-1 {
			panic("timingwheel: more than 2^28 rows of timers in one shard")
		}
	}
	r := s.rows.node(at)
	r.place = id
	r.value.next, r.value.prev = 0, b.tail
	if b.tail != 0 {
		s.rows.node(b.tail).value.next = at
	} else {
		b.head = at
	}
	b.tail = at
	return &r.value
}

// dropRowLocked takes an empty row out of its bucket's list.
func (s *shard[V]) dropRowLocked(b *bucket, at uint32, r *row) {
	if r.prev != 0 {
		s.rows.node(r.prev).value.next = r.next
	} else {
		b.head = r.next
	}
	if r.next != 0 {
		s.rows.node(r.next).value.prev = r.prev
	} else {
		b.tail = r.prev
	}
	if s.spareRow == 0 {
		s.spareRow = at // 10 ns less for a timer that is alone in its bucket
	} else {
		s.rows.release(at, s.rows.node(at))
	}
}

// dropSpareLocked gives back the spare row, so that its slab can go.
func (s *shard[V]) dropSpareLocked() {
	s.rows.release(s.spareRow, s.rows.node(s.spareRow))
	s.spareRow = 0
}

// firstLocked is the timer of a bucket that came first; 0 if there is none.
func (s *shard[V]) firstLocked(b *bucket) (uint32, *node[V]) {
	if b.head == 0 {
		return 0, nil
	}
	r := &s.rows.node(b.head).value
	k := bits.TrailingZeros16(r.used)
	if k == 0 {
		s.fetchLocked(r)
	}
	i := r.slots[k]
	return i, s.slabs.node(i)
}

// fetchLocked looks at all timers of a row, so that they come into the cache
// together and not each in its turn.
func (s *shard[V]) fetchLocked(r *row) {
	for used := r.used; used != 0; used &= used - 1 {
		if s.slabs.node(r.slots[bits.TrailingZeros16(used)]).place == 0 {
			panic("timingwheel: a row names a timer that is not there")
		}
	}
}

// eachLocked calls f with each timer of a bucket, in order.
func (s *shard[V]) eachLocked(b *bucket, f func(i uint32, n *node[V])) {
	for at := b.head; at != 0; {
		r := &s.rows.node(at).value
		for used := r.used; used != 0; used &= used - 1 {
			i := r.slots[bits.TrailingZeros16(used)]
			f(i, s.slabs.node(i))
		}
		at = r.next
	}
}

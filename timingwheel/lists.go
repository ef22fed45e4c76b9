package timingwheel

import "math/bits"

// lists is a shard's memory: its timers, in the lists of their buckets. It knows
// nothing of time. The shard's lock guards it.
type lists[V any] struct {
	timers  slabs[V]
	chunks  slabs[chunk]
	buckets slabs[bucket]
	seq     uint64 // of the last bucket made

	spareChunk uint32 // a chunk in no bucket, kept for the next that needs one; 0: none

	batchAbove int // timers above which those that leave are noted; a constant, except in tests
	mergeAbove int // chunks above which they are merged; likewise

	// unlinked are timers that have left, for clearUnlinked to clear their places and
	// free their nodes (see unlinkLater, endLater).
	unlinked    [unlinkBatch]unlinked
	unlinkedLen uint
	lastChunk   uint32 // of the timer that was linked last
	nextMerge   uint32 // the chunk that was examined last
	touched     uint32 // keeps clearUnlinked's loads from being optimized away
}

// newLists returns lists without a timer, whose buckets' numbers follow seq.
func newLists[V any](seq uint64) lists[V] {
	l := lists[V]{seq: seq, batchAbove: batchAbove, mergeAbove: mergeAbove}
	l.timers.named = true
	l.timers.packAt, l.chunks.packAt, l.buckets.packAt = slabNodes/8, slabNodes/2, slabNodes/2
	l.timers.limit = 1 << (32 - slabBits)
	l.chunks.limit = 1 << (32 - slotBits - slabBits)
	l.buckets.limit = 1 << (32 - slabBits)
	return l
}

func (l *lists[V]) bytes() int { return l.timers.bytes() + l.chunks.bytes() + l.buckets.bytes() }

// newBucket makes an empty bucket.
func (l *lists[V]) newBucket(state bucketState, level uint8, expiration tick) (id uint32, b *bucket) {
	id, n, _ := l.buckets.alloc() // there are more indices than places and timers
	l.seq++
	n.place = 1
	n.value = bucket{state: state, level: level, expiration: expiration, seq: l.seq}
	return id, &n.value
}

// bucket returns a bucket's record. The pointer is good until the next bucket
// is made or freed.
func (l *lists[V]) bucket(id uint32) *bucket { return &l.buckets.node(id).value }

func (l *lists[V]) freeBucket(id uint32) { l.buckets.release(id, l.buckets.node(id)) }

// find returns the bucket that id and seq name; nil if it is gone.
func (l *lists[V]) find(id uint32, seq uint64) *bucket {
	n := l.buckets.find(id)
	if n == nil || n.value.seq != seq {
		return nil
	}
	return &n.value
}

// bucketOf returns the bucket that holds a timer.
func (l *lists[V]) bucketOf(n *node[V]) *bucket { return l.bucket(l.bucketID(n)) }

func (l *lists[V]) bucketID(n *node[V]) uint32 { return l.chunks.node(n.place >> slotBits).place }

// link adds a timer to the bucket of that id, behind all others.
func (l *lists[V]) link(i uint32, n *node[V], b *bucket, id uint32) {
	var c *chunk
	if b.tail != 0 {
		c = &l.chunks.node(b.tail).value
	}
	if c == nil || c.used >= 1<<(chunkSlots-1) {
		c = l.addChunk(b, id)
	}
	k := bits.Len16(c.used)
	c.slots[k] = i
	c.used |= 1 << k
	b.count++
	n.place = b.tail<<slotBits | uint32(k)
	l.lastChunk = b.tail
}

// unlink takes a timer out of its bucket, which it returns, and which may be
// empty then: of a waiting one the next timer may need it, and the advancer removes it
// before it would sleep for it (T9).
//
// Nodes may move, here and in all methods that clear what is noted.
func (l *lists[V]) unlink(i uint32) *bucket {
	if l.unlinkedLen > 0 {
		l.clearUnlinked()
	}
	place := l.timers.node(i).place
	r := l.chunks.node(place >> slotBits)
	b := l.bucket(r.place)
	b.count--
	if r.value.used &^= 1 << (place & slotMask); r.value.used == 0 {
		l.dropChunk(b, place>>slotBits, &r.value)
	}
	if l.sparse() {
		l.mergeSome(1)
	}
	return b
}

// unlinked is a timer that has left its bucket or the wheel, for clearUnlinked.
type unlinked struct {
	place uint32 // to be cleared
	freed uint32 // the node to be freed, by index; 0: the timer is pending, in another place
}

// unlinkLater is unlink for a timer of a waiting or cascading bucket, at the next
// clearUnlinked. The caller gives the timer another place at once: the old one is
// cleared.
//
// Invariant: a chunk's used slot names a node whose place is that slot, unless
// the slot is in unlinked. So whoever walks through a bucket, counts it or frees
// it calls clearUnlinked first.
func (l *lists[V]) unlinkLater(n *node[V]) {
	l.note(n.place, 0)
	if l.unlinkedLen == unlinkBatch {
		l.clearUnlinked()
	}
}

// endLater ends a timer of a waiting or cascading bucket. Its handle is stale and its
// value is zeroed at once; clearUnlinked clears the place and frees the node. The
// caller calls that when unlinkBatch are noted.
//
// Timers are stopped in another order than they lie in. So the node of each is a cache
// miss, its chunk is another, and its bucket may be a third. The processor overlaps
// the misses of successive Stops only if there are few instructions, and few stores,
// between them. Therefore Stop does no more than this for most timers, and
// clearUnlinked does the rest for a batch, whose chunks it fetches together.
//
// Invariant: a node with ended set in its generation is in unlinked, once, and keeps
// its place until it is freed.
func (l *lists[V]) endLater(i uint32, n *node[V]) {
	n.gen |= ended
	var zero V
	n.value = zero
	l.note(n.place, i)
}

func (l *lists[V]) note(place, freed uint32) {
	l.unlinked[l.unlinkedLen%unlinkBatch] = unlinked{place, freed}
	l.unlinkedLen++
}

const (
	// maxTimers is how many timers one shard can hold: each might need a chunk
	// of its own. The difference is for the spare one and for those that are noted.
	maxTimers = 1<<(32-slotBits-slabBits)*(slabNodes-1) - slabNodes

	// ended is set in the generation of a timer that has ended and whose node is not
	// freed yet. No handle has that bit.
	ended = 1 << genBits

	// unlinkBatch is how many timers clearUnlinked handles at most.
	unlinkBatch = 16

	// batchAbove is how many timers a shard holds when those that leave are not noted:
	// they are in the cache. It is 1 at least, so the last timer is never noted.
	batchAbove = 1 << 10
)

// clearUnlinked clears the places of timers that have left, and frees their nodes.
func (l *lists[V]) clearUnlinked() {
	noted := l.unlinked[:l.unlinkedLen]
	l.unlinkedLen = 0
	var chunks [unlinkBatch]*node[chunk]
	var buckets [unlinkBatch]*bucket
	// The loads of each loop do not wait for one another.
	touched := uint32(0)
	for k, u := range noted {
		chunks[k] = l.chunks.node(u.place >> slotBits)
		touched += chunks[k].place
	}
	for k := range noted {
		buckets[k] = l.bucket(chunks[k].place)
		touched += buckets[k].count
	}
	l.touched = touched
	// Chunks that are empty go afterwards, since that may move others.
	var empty [unlinkBatch]uint32
	n := 0
	for k, u := range noted {
		buckets[k].count--
		c := &chunks[k].value
		if c.used &^= 1 << (u.place & slotMask); c.used == 0 {
			empty[n] = u.place >> slotBits
			n++
		}
	}
	for _, at := range empty[:n] {
		r := l.chunks.node(at)
		l.dropChunk(l.bucket(r.place), at, &r.value)
	}
	for _, u := range noted {
		if u.freed != 0 {
			n := l.timers.node(u.freed)
			n.gen &^= ended
			l.timers.release(u.freed, n)
		}
	}
	if l.sparse() {
		l.mergeSome(len(noted))
	}
}

// sparse reports whether the chunks hold so few timers that they are to be
// merged (T18).
func (l *lists[V]) sparse() bool {
	return l.chunks.used > l.mergeAbove && l.timers.used < 3*l.chunks.used
}

const (
	// mergeAbove is how many chunks are not worth merging.
	mergeAbove = 64

	// mergeUpTo is how many timers a chunk holds at most that is merged.
	mergeUpTo = 3
)

// mergeSome goes on through the pool for n chunks, and around at its end. One is
// enough for each timer that leaves: every chunk is examined while as many timers
// leave as there are chunks, each of which holds fewer than three by then.
func (l *lists[V]) mergeSome(n int) {
	for range n {
		if l.nextMerge++; l.nextMerge>>slabBits >= uint32(len(l.chunks.table)) {
			l.nextMerge = 0
		}
		if c := l.chunks.find(l.nextMerge); c != nil && bits.OnesCount16(c.value.used) <= mergeUpTo {
			l.merge(l.nextMerge, &c.value, c.place)
		}
	}
}

// merge moves the timers of a chunk to the end of the chunk before it or the
// beginning of the one after it, so that their order stays, if there is room.
func (l *lists[V]) merge(at uint32, c *chunk, id uint32) {
	k := bits.OnesCount16(c.used)
	if k == 0 {
		return // the spare one
	}
	to, slot := c.prev, 0
	if to != 0 {
		slot = bits.Len16(l.chunks.node(to).value.used)
	}
	if to == 0 || slot+k > chunkSlots {
		to = c.next
		if to == 0 {
			return
		}
		if slot = bits.TrailingZeros16(l.chunks.node(to).value.used) - k; slot < 0 {
			return
		}
	}
	other := &l.chunks.node(to).value
	for ; c.used != 0; c.used &= c.used - 1 {
		i := c.slots[bits.TrailingZeros16(c.used)]
		other.slots[slot] = i
		other.used |= 1 << slot
		l.timers.node(i).place = to<<slotBits | uint32(slot)
		slot++
	}
	l.dropChunk(l.bucket(id), at, c)
}

// addChunk adds a chunk to a bucket.
func (l *lists[V]) addChunk(b *bucket, id uint32) *chunk {
	at := l.spareChunk
	l.spareChunk = 0
	if at == 0 {
		at, _, _ = l.chunks.alloc() // there are enough: see maxTimers
	}
	r := l.chunks.node(at)
	r.place = id
	r.value.next, r.value.prev = 0, b.tail
	if b.tail != 0 {
		l.chunks.node(b.tail).value.next = at
	} else {
		b.head = at
	}
	b.tail = at
	return &r.value
}

// dropChunk takes an empty chunk out of its bucket's list.
func (l *lists[V]) dropChunk(b *bucket, at uint32, c *chunk) {
	if c.prev != 0 {
		l.chunks.node(c.prev).value.next = c.next
	} else {
		b.head = c.next
	}
	if c.next != 0 {
		l.chunks.node(c.next).value.prev = c.prev
	} else {
		b.tail = c.prev
	}
	if l.spareChunk == 0 {
		l.spareChunk = at // 10 ns less for a timer that is alone in its bucket
	} else {
		l.chunks.release(at, l.chunks.node(at))
	}
}

// empty is called when the last timer has left, and none is noted: only what one slab of each kind
// holds is kept.
func (l *lists[V]) empty() {
	if l.spareChunk != 0 && l.chunks.size > slabNodes {
		l.chunks.release(l.spareChunk, l.chunks.node(l.spareChunk))
		l.spareChunk = 0
	}
}

// first returns the timer of a bucket that came first; 0 if there is none.
func (l *lists[V]) first(b *bucket) (uint32, *node[V]) {
	if l.unlinkedLen > 0 {
		l.clearUnlinked()
	}
	if b.head == 0 {
		return 0, nil
	}
	c := &l.chunks.node(b.head).value
	k := bits.TrailingZeros16(c.used)
	if k == 0 {
		l.fetch(c)
	}
	i := c.slots[k]
	return i, l.timers.node(i)
}

// firstReady returns the first timer of a ready bucket that is not empty. It
// changes nothing: no place of a ready bucket is cleared later.
func (l *lists[V]) firstReady(b *bucket) *node[V] {
	c := &l.chunks.node(b.head).value
	return l.timers.node(c.slots[bits.TrailingZeros16(c.used)])
}

// fetch looks at all timers of a chunk, so that they come into the cache
// together and not each in its turn.
func (l *lists[V]) fetch(c *chunk) {
	touched := uint32(0)
	for used := c.used; used != 0; used &= used - 1 {
		touched += l.timers.node(c.slots[bits.TrailingZeros16(used)]).place
	}
	l.touched = touched
}

// count is how many timers a bucket holds. It changes nothing, so it does not
// call clearUnlinked.
func (l *lists[V]) count(id uint32) uint32 {
	n := l.bucket(id).count
	for _, u := range l.unlinked[:l.unlinkedLen] {
		if l.chunks.node(u.place>>slotBits).place == id {
			n--
		}
	}
	return n
}

package timingwheel

import "math/bits"

// lists is a shard's memory: its timers, in the lists of their buckets. It is independent of
// time. The shard's lock guards it.
type lists[V any] struct {
	timers  slabs[V]
	chunks  slabs[chunk]
	buckets slabs[bucket]
	seq     uint64 // of the last bucket made

	spareChunk uint32 // a chunk in no bucket, kept for reuse with its last position; 0: none

	batchAbove int // timers above which unlinking is deferred; a constant, except in tests
	mergeAbove int // chunks above which they are merged; likewise

	// unlinked holds timers that have left, until clearUnlinked clears their positions and frees
	// their nodes (see deferUnlink, deferEnd).
	unlinked    [unlinkBatch]unlinked
	unlinkedLen uint
	lastChunk   uint32 // of the timer linked last
	nextMerge   uint32 // the chunk examined last
	loaded      uint32 // see keepLoads
}

// newLists returns lists without timers, whose buckets' sequence numbers follow seq.
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
	id, n, _ := l.buckets.alloc() // there are more indices than slots and timers
	l.seq++
	n.pos = onItsOwn
	n.value = bucket{state: state, level: level, expiration: expiration, seq: l.seq}
	return id, &n.value
}

// bucket returns a bucket's record. The pointer is valid until the next bucket is made or
// freed.
func (l *lists[V]) bucket(id uint32) *bucket { return &l.buckets.node(id).value }

func (l *lists[V]) freeBucket(id uint32) { l.buckets.release(id, l.buckets.node(id)) }

// find returns the bucket that id and seq name, or nil if it was freed.
func (l *lists[V]) find(id uint32, seq uint64) *bucket {
	n := l.buckets.find(id)
	if n == nil || n.value.seq != seq {
		return nil
	}
	return &n.value
}

// bucketOf returns the bucket that holds a timer.
func (l *lists[V]) bucketOf(n *node[V]) *bucket {
	return l.bucket(l.chunks.node(n.pos.chunk()).pos.bucket())
}

// link adds a timer to the end of the bucket with that id.
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
	n.pos = atSlot(b.tail, k)
	l.lastChunk = b.tail
}

// unlink removes a timer from its bucket and returns the bucket, which may then be empty. An
// empty waiting bucket is kept, because the next timer may need it; the advancer removes it
// before it would sleep for it (no empty ticks, T9).
//
// Nodes may move, here and in all methods that call clearUnlinked.
func (l *lists[V]) unlink(i uint32) (id uint32, b *bucket) {
	if l.unlinkedLen > 0 {
		l.clearUnlinked()
	}
	pos := l.timers.node(i).pos
	r := l.chunks.node(pos.chunk())
	id = r.pos.bucket()
	b = l.bucket(id)
	b.count--
	if r.value.used &^= pos.slotBit(); r.value.used == 0 {
		l.dropChunk(b, pos.chunk(), &r.value)
	}
	if l.sparse() {
		l.mergeSome(1)
	}
	return id, b
}

// unlinked is a timer that has left its bucket or the wheel, recorded for clearUnlinked.
type unlinked struct {
	pos   position // to be cleared
	freed uint32   // index of the node to be freed; 0: the timer is pending, at another position
}

// deferUnlink is unlink for a timer of a waiting or cascading bucket, deferred to the next
// clearUnlinked, which clears the old position. The caller gives the timer another position at
// once.
//
// Invariant: a chunk's used slot names a node whose position is that slot, unless the slot is in
// unlinked. So code that walks, counts or frees a bucket calls clearUnlinked first.
func (l *lists[V]) deferUnlink(n *node[V]) {
	l.addUnlinked(n.pos, 0)
	if l.unlinkedLen == unlinkBatch {
		l.clearUnlinked()
	}
}

// deferEnd ends a timer of a waiting or cascading bucket. It invalidates the handle and zeroes
// the value at once; clearUnlinked clears the position and frees the node. The caller calls that
// once unlinkBatch are deferred.
//
// Timers are stopped in an order unrelated to their memory layout, so the node of each is a
// cache miss, its chunk is another, and its bucket may be a third. The processor overlaps the
// misses of successive Stops only if there are few instructions, and few stores, between them.
// Therefore Stop does no more than this for most timers, and clearUnlinked does the rest for a
// batch, whose chunks it fetches together.
//
// Invariant: a node with ended set in its generation is in unlinked, once, and keeps its position
// until it is freed.
func (l *lists[V]) deferEnd(i uint32, n *node[V]) {
	n.gen |= ended
	var zero V
	n.value = zero
	l.addUnlinked(n.pos, i)
}

func (l *lists[V]) addUnlinked(pos position, freed uint32) {
	l.unlinked[l.unlinkedLen%unlinkBatch] = unlinked{pos, freed}
	l.unlinkedLen++
}

const (
	// maxTimers is the number of timers that one shard can hold: each might need a chunk of its
	// own. The subtrahend covers the spare chunk and deferred timers.
	maxTimers = 1<<(32-slotBits-slabBits)*(slabNodes-1) - slabNodes

	// ended is set in the generation of a timer that has ended and whose node is not yet freed.
	// No handle has that bit.
	ended = 1 << genBits

	// unlinkBatch is the maximum number of timers that clearUnlinked handles.
	unlinkBatch = 16

	// batchAbove is the number of timers up to which a shard unlinks at once: they are in the
	// cache. It is at least 1, so the last timer is never deferred.
	batchAbove = 1 << 10
)

// clearUnlinked clears the positions of timers that have left, and frees their nodes.
func (l *lists[V]) clearUnlinked() {
	batch := l.unlinked[:l.unlinkedLen]
	l.unlinkedLen = 0
	var chunks [unlinkBatch]*node[chunk]
	var buckets [unlinkBatch]*bucket
	// The loads within each loop do not depend on each other, so their cache misses overlap.
	loads := uint32(0)
	for k, u := range batch {
		chunks[k] = l.chunks.node(u.pos.chunk())
		loads += chunks[k].pos.bucket()
	}
	for k := range batch {
		buckets[k] = l.bucket(chunks[k].pos.bucket())
		loads += buckets[k].count
	}
	l.keepLoads(loads)
	// Empty chunks are dropped afterwards, because that may move others.
	var empty [unlinkBatch]uint32
	n := 0
	for k, u := range batch {
		buckets[k].count--
		c := &chunks[k].value
		if c.used &^= u.pos.slotBit(); c.used == 0 {
			empty[n] = u.pos.chunk()
			n++
		}
	}
	for _, at := range empty[:n] {
		r := l.chunks.node(at)
		l.dropChunk(l.bucket(r.pos.bucket()), at, &r.value)
	}
	for _, u := range batch {
		if u.freed != 0 {
			n := l.timers.node(u.freed)
			n.gen &^= ended
			l.timers.release(u.freed, n)
		}
	}
	if l.sparse() {
		l.mergeSome(len(batch))
	}
}

// sparse reports whether the chunks hold so few timers that they should be merged (memory
// follows the load, T18).
func (l *lists[V]) sparse() bool {
	return l.chunks.used > l.mergeAbove && l.timers.used < 3*l.chunks.used
}

const (
	// mergeAbove is the number of chunks up to which merging is not worthwhile.
	mergeAbove = 64

	// mergeUpTo is the maximum number of timers in a chunk that is merged.
	mergeUpTo = 3
)

// mergeSome examines the next n chunks of the pool, wrapping around at its end. One chunk for
// each timer that leaves is enough: it examines every chunk while as many timers leave as there
// are chunks, each of which then holds fewer than three.
func (l *lists[V]) mergeSome(n int) {
	for range n {
		if l.nextMerge++; l.nextMerge>>slabBits >= uint32(len(l.chunks.table)) {
			l.nextMerge = 0
		}
		if c := l.chunks.find(l.nextMerge); c != nil && bits.OnesCount16(c.value.used) <= mergeUpTo {
			l.merge(l.nextMerge, &c.value, c.pos.bucket())
		}
	}
}

// merge moves the timers of a chunk to the end of the previous chunk or to the beginning of the
// next one, which keeps their order, if they fit.
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
		l.timers.node(i).pos = atSlot(to, slot)
		slot++
	}
	l.dropChunk(l.bucket(id), at, c)
}

// addChunk adds a chunk to a bucket.
func (l *lists[V]) addChunk(b *bucket, id uint32) *chunk {
	at := l.spareChunk
	l.spareChunk = 0
	if at == 0 {
		at, _, _ = l.chunks.alloc() // cannot fail: see maxTimers
	}
	r := l.chunks.node(at)
	r.pos = inBucket(id)
	r.value.next, r.value.prev = 0, b.tail
	if b.tail != 0 {
		l.chunks.node(b.tail).value.next = at
	} else {
		b.head = at
	}
	b.tail = at
	return &r.value
}

// dropChunk removes an empty chunk from its bucket's list.
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
		l.spareChunk = at // saves 10 ns for a timer that is alone in its bucket
	} else {
		l.chunks.release(at, l.chunks.node(at))
	}
}

// empty is called when the last timer has left and none is deferred. It keeps only memory that
// fits into one slab of each kind.
func (l *lists[V]) empty() {
	if l.spareChunk != 0 && l.chunks.size > slabNodes {
		l.chunks.release(l.spareChunk, l.chunks.node(l.spareChunk))
		l.spareChunk = 0
	}
}

// first returns the earliest timer added to a bucket, or 0 if it is empty.
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

// firstReady returns the first timer of a ready bucket that is not empty. It changes nothing:
// positions in ready buckets are always cleared at once.
func (l *lists[V]) firstReady(b *bucket) *node[V] {
	c := &l.chunks.node(b.head).value
	return l.timers.node(c.slots[bits.TrailingZeros16(c.used)])
}

// fetch reads all timers of a chunk, so that their cache misses overlap.
func (l *lists[V]) fetch(c *chunk) {
	loads := uint32(0)
	for used := c.used; used != 0; used &= used - 1 {
		loads += uint32(l.timers.node(c.slots[bits.TrailingZeros16(used)]).pos)
	}
	l.keepLoads(loads)
}

// keepLoads receives the sum of values that are read only to bring them into the cache, and stores
// it: the compiler omits a load whose result is not used.
func (l *lists[V]) keepLoads(sum uint32) { l.loaded = sum }

// count returns the number of timers in a bucket. It changes nothing, so it does not call
// clearUnlinked.
func (l *lists[V]) count(id uint32) uint32 {
	n := l.bucket(id).count
	for _, u := range l.unlinked[:l.unlinkedLen] {
		if l.chunks.node(u.pos.chunk()).pos.bucket() == id {
			n--
		}
	}
	return n
}

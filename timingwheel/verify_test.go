package timingwheel

import (
	"math/bits"
	"reflect"
	"slices"
	"testing"
	"time"
)

// verify checks every invariant of a wheel at rest: nothing runs, no due timer could be taken
// by a worker, and no call is in progress. Tests call it after each step. It does not use
// testify, because it runs millions of times.
func verify[V any](t testing.TB, w *Wheel[V]) {
	t.Helper()
	pending, waiting := 0, 0
	ready := map[bucketRef]bool{} // non-empty ready buckets
	for _, s := range w.shards {
		p, q := verifyShard(t, s, ready)
		pending, waiting = pending+p, waiting+q
	}
	check := checker(t)
	if w.options.MaxPending > 0 {
		check(w.shared.limit.Held() == int64(pending), "held %d, pending %d", w.shared.limit.Held(), pending)
	}
	if pending > 0 || !w.shards[0].closed {
		check(w.shared.queue.Len() == waiting, "%d in the queue, %d waiting buckets", w.shared.queue.Len(), waiting)
	}
	verifyWorkers(t, w, ready)
}

func checker(t testing.TB) func(ok bool, format string, args ...any) {
	return func(ok bool, format string, args ...any) {
		if !ok {
			t.Helper()
			t.Fatalf("invariant broken: "+format, args...)
		}
	}
}

// verifyShard checks one shard and returns how many timers it holds and how
// many of its buckets should be in the queue.
func verifyShard[V any](t testing.TB, s *shard[V], ready map[bucketRef]bool) (pending, waiting int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	check := checker(t)
	now := s.shared.floor(s.shared.now())
	check(s.clock <= now, "shard %d's clock %d is after the present %d", s.num, s.clock, now)

	l := &s.lists
	check(l.unlinkedLen < unlinkBatch && (l.unlinkedLen == 0 || s.counts.pending > 0), "%d are deferred, %d pending", l.unlinkedLen, s.counts.pending)
	check(s.readyUntil >= s.clock, "readyUntil %d, clock %d", s.readyUntil, s.clock)
	seen := map[uint32]bool{}   // timers in chunks
	chunks := map[uint32]bool{} // chunks in buckets
	seqs := map[uint64]bool{}
	ids := map[uint32]bool{}
	readyTimers := 0
	l.buckets.each(func(id uint32, n *node[bucket]) {
		b := &n.value
		ids[id] = true
		check(b.seq > 0 && b.seq <= l.seq && !seqs[b.seq], "bucket %d: seq %d", id, b.seq)
		seqs[b.seq] = true
		verifyList(t, l, id, s.readyUntil, seen, chunks)
		switch b.state {
		case bucketWaiting:
			waiting++
			verifyWaiting(t, s, id)
		case bucketReady:
			check(l.count(id) == b.count, "ready bucket %d has positions to clear", id)
			check(b.count > 0, "ready bucket %d is empty", id)
			readyTimers += int(b.count)
			if b.count > 0 {
				ready[bucketRef{s.num, id, b.seq}] = true
			}
		default:
			check(false, "bucket %d at rest is in state %d", id, b.state)
		}
	})
	check(len(s.cascading) == 0, "at rest %d buckets cascade", len(s.cascading))
	for l := range s.levels {
		check(len(s.levels[l].ids) == 2<<s.sizeBits, "level %d has %d buckets", l, len(s.levels[l].ids))
		for pos, id := range s.levels[l].ids {
			check((s.levels[l].occupied[pos/64]>>(pos%64)&1 == 1) == (id != 0), "level %d slot %d holds %d, its bit says otherwise", l, pos, id)
			if id == 0 {
				continue
			}
			b := *s.lists.bucket(id)
			check(b.state == bucketWaiting && int(b.level) == l, "level %d slot %d holds %+v", l, pos, b)
		}
	}

	c := s.counts
	check(c.pending == len(seen) && c.ready == readyTimers, "counts %+v, found %d pending %d ready", c, len(seen), readyTimers)
	ends := c.stopped + c.expired + c.discarded + c.returned
	check(c.scheduled == uint64(c.pending)+ends, "T3: counts do not add up: %+v", c)
	if s.lists.spareChunk != 0 {
		check(!chunks[s.lists.spareChunk], "the spare chunk is in use")
		chunks[s.lists.spareChunk] = true
	}
	for _, u := range l.unlinked[:l.unlinkedLen] {
		if i := u.freed; i != 0 {
			n := l.timers.find(i)
			check(n != nil && !seen[i] && n.pos == u.pos && n.gen&ended != 0, "node %d of a timer that has ended: %+v", i, n)
			check(reflect.ValueOf(&n.value).Elem().IsZero(), "T13: node %d keeps the value of a timer that has ended", i)
			seen[i] = true
		}
	}
	verifySlabs(t, &l.timers, seen)
	verifySlabs(t, &l.chunks, chunks)
	verifySlabs(t, &l.buckets, ids)
	if !s.closed {
		check(s.catchUpAt == after(s.shared.start(s.clock), time.Duration(s.shared.tick)<<s.sizeBits), "clock %d, catchUpAt %d", s.clock, s.catchUpAt)
	}
	return c.pending, waiting
}

// verifyList checks a bucket's chunks, and the timers in them. No ready timer's deadline is
// after readyUntil.
func verifyList[V any](t testing.TB, l *lists[V], id uint32, readyUntil tick, seen, chunks map[uint32]bool) {
	t.Helper()
	check := checker(t)
	b := l.bucket(id)
	count, left, prev := uint32(0), uint32(0), uint32(0)
	for at := b.head; at != 0; {
		r := l.chunks.find(at)
		check(r != nil && !chunks[at], "chunk %d is in two lists, or none at all", at)
		chunks[at] = true
		check(r.pos == inBucket(id), "chunk %d of bucket %d says it is in %d", at, id, r.pos)
		v := &r.value
		check(v.prev == prev, "chunk %d of bucket %d: prev %d, not %d", at, id, v.prev, prev)
		check(v.used != 0 && v.used < 1<<chunkSlots, "chunk %d of bucket %d: used %b", at, id, v.used)
		for used := v.used; used != 0; used &= used - 1 {
			k := bits.TrailingZeros16(used)
			if l.isUnlinked(atSlot(at, k)) {
				count++
				left++
				continue
			}
			i := v.slots[k]
			n := l.timers.find(i)
			check(n != nil && !seen[i] && n.gen&ended == 0, "node %d is in two slots, or none at all", i)
			seen[i] = true
			check(b.state != bucketReady || n.deadline <= readyUntil, "node %d is ready, its deadline %d is after %d", i, n.deadline, readyUntil)
			check(n.pos == atSlot(at, k), "node %d in slot %d of chunk %d says it is in %x", i, k, at, n.pos)
			count++
		}
		prev, at = at, v.next
	}
	check(b.tail == prev && b.count == count, "bucket %d: tail %d not %d, count %d not %d", id, b.tail, prev, b.count, count)
	check(l.count(id) == count-left, "bucket %d: %d are in it, not %d", id, count-left, l.count(id))
}

// isUnlinked reports whether a position is to be cleared. verify itself does not clear positions,
// because that would hide a missing clearUnlinked elsewhere.
func (l *lists[V]) isUnlinked(pos position) bool {
	return slices.ContainsFunc(l.unlinked[:l.unlinkedLen], func(u unlinked) bool { return u.pos == pos })
}

func verifyWaiting[V any](t testing.TB, s *shard[V], id uint32) {
	t.Helper()
	check := checker(t)
	b := s.lists.bucket(id)
	check(int(b.level) < len(s.levels), "bucket %d is on level %d of %d", id, b.level, len(s.levels))
	shift := uint(b.level) * s.sizeBits
	check(b.expiration>>shift<<shift == b.expiration, "bucket %d of level %d expires at %d", id, b.level, b.expiration)
	check(s.flushTick(b) > s.clock, "the turn of bucket %d is at %d, the clock shows %d", id, s.flushTick(b), s.clock)
	check(b.expiration>>shift-s.clock>>shift < 2<<s.sizeBits, "bucket %d is more than a lap ahead", id)
	check(s.levels[b.level].ids[b.expiration>>shift&(2<<s.sizeBits-1)] == id, "bucket %d is not in its slot", id)
	for at := b.head; at != 0; at = s.lists.chunks.node(at).value.next {
		c := &s.lists.chunks.node(at).value
		for used := c.used; used != 0; used &= used - 1 {
			k := bits.TrailingZeros16(used)
			if s.lists.isUnlinked(atSlot(at, k)) {
				continue
			}
			d := s.lists.timers.node(c.slots[k]).deadline
			check(d >= b.expiration, "T2: deadline %d in a bucket that expires at %d", d, b.expiration)
			check(b.extended || b.level > 0 || d>>shift<<shift == b.expiration, "T1: deadline %d in bucket %+v", d, *b)
		}
	}
}

// verifySlabs checks a pool. used are the nodes in use.
func verifySlabs[V any](t testing.TB, p *slabs[V], used map[uint32]bool) {
	t.Helper()
	check := checker(t)
	partial, packed := verifySlabList(t, p, p.partial), verifySlabList(t, p, p.packed)
	dropped := map[uint32]bool{}
	for _, num := range p.dropped {
		check(!dropped[num] && p.table[num].nodes == nil && (!p.named || p.table[num].minGen < maxGen), "slab %d is not dropped, or not reusable", num)
		dropped[num] = true
	}
	spare, inUse, size := 0, 0, 0
	for k := range p.table {
		s, num := &p.table[k], uint32(k)
		if s.nodes == nil {
			check(dropped[num] || p.named && s.minGen >= maxGen, "slab %d is lost", num)
			check(reflect.DeepEqual(*s, slab[V]{minGen: s.minGen, nextGen: s.minGen}), "slab %d is dropped and holds %+v", num, *s)
			continue
		}
		size += len(s.nodes)
		if s.used == 0 {
			spare++
		}
		check(int(s.used) <= len(s.nodes), "slab %d: used %d of %d", num, s.used, len(s.nodes))
		holding := 0
		if s.kept == nil {
			check(partial[num] == !s.full() && !packed[num], "slab %d: full %v, in the partial list %v, packed %v", num, s.full(), partial[num], packed[num])
			check(p.partial == num+1 || s.used > p.packAt || s.used == 0 || len(s.nodes) < slabNodes, "T18: slab %d holds %d", num, s.used)
			holding = verifySlab(t, p, num, used)
		} else {
			check(!partial[num] && packed[num] == p.unpackable(s.nextGen), "slab %d is packed, in the partial list %v", num, partial[num])
			check(int(s.used) > len(s.nodes)/2 || len(s.nodes) <= minPacked, "T18: packed slab %d: used %d of %d", num, s.used, len(s.nodes))
			holding = verifyPacked(t, p, num, used)
		}
		check(int(s.used) == holding && holding >= 0, "slab %d: used %d, holds %d", num, s.used, holding)
		inUse += holding
	}
	check(inUse == len(used) && p.used == inUse, "%d nodes in use, %d counted, %d in lists", inUse, p.used, len(used))
	check(p.size == size && p.spare == spare && spare <= 1, "size %d %d, spare %d %d", p.size, size, p.spare, spare)
}

func verifySlabList[V any](t testing.TB, p *slabs[V], head uint32) map[uint32]bool {
	t.Helper()
	in, prev := map[uint32]bool{}, uint32(0)
	for r := head; r != 0; r = p.table[r-1].next {
		checker(t)(p.table[r-1].nodes != nil && !in[r-1] && p.table[r-1].prev == prev, "list at slab %d", r-1)
		in[r-1] = true
		prev = r
	}
	return in
}

// verifySlab checks a slab that is not packed, and returns how many nodes it holds.
func verifySlab[V any](t testing.TB, p *slabs[V], num uint32, used map[uint32]bool) (holding int) {
	t.Helper()
	check := checker(t)
	s := &p.table[num]
	check(s.nextUnused >= 1 && int(s.nextUnused) <= len(s.nodes) && len(s.nodes) <= slabNodes, "slab %d: nextUnused %d of %d", num, s.nextUnused, len(s.nodes))
	free := map[uint32]bool{}
	for off := uint32(s.free); off != 0; off = uint32(s.nodes[off].nextFree()) {
		check(off < uint32(s.nextUnused) && !free[off], "slab %d: free list at %d", num, off)
		free[off] = true
	}
	for off := uint32(1); off < uint32(len(s.nodes)); off++ {
		n := &s.nodes[off]
		switch {
		case off >= uint32(s.nextUnused) && *stripped(n) == (node[struct{}]{}): // most nodes
			continue
		case n.inUse():
			holding++
			check(used[num<<slabBits|off] && !free[off], "node %d/%d", num, off)
			check(!p.named || n.gen&^ended >= 1 && n.gen&^ended < maxGen && off < uint32(s.nextUnused), "T6: node %d/%d: gen %d", num, off, n.gen)
		case off >= uint32(s.nextUnused):
			check(reflect.ValueOf(n).Elem().IsZero(), "unused node %d/%d: %+v", num, off, *n)
		default:
			if free[off] != (!p.named || n.gen < maxGen) || n.gen > s.nextGen {
				check(false, "T6: freed node %d/%d of generation %d, the next one %d, on the free list: %v", num, off, n.gen, s.nextGen, free[off])
			}
			if !reflect.ValueOf(&n.value).Elem().IsZero() {
				check(false, "T13: freed node %d/%d keeps its value", num, off)
			}
		}
	}
	return holding
}

// verifyPacked checks a packed slab, and returns how many nodes it holds.
func verifyPacked[V any](t testing.TB, p *slabs[V], num uint32, used map[uint32]bool) (holding int) {
	t.Helper()
	check := checker(t)
	s := &p.table[num]
	at := uint32(0)
	for off := range uint32(slabNodes) {
		i := num<<slabBits | off
		if !s.kept.has(off) {
			check(p.find(i) == nil && !used[i], "node %d/%d is not kept", num, off)
			continue
		}
		check(s.kept.rank(off) == at, "node %d/%d lies at %d, not at %d", num, off, s.kept.rank(off), at)
		n := &s.nodes[at]
		at++
		if !n.inUse() {
			check(n.gen <= s.nextGen && !used[i] && p.find(i) == nil, "T6: freed node %d/%d of generation %d, the next one %d", num, off, n.gen, s.nextGen)
			check(reflect.ValueOf(&n.value).Elem().IsZero(), "T13: freed node %d/%d keeps its value", num, off)
			continue
		}
		holding++
		check(used[i] && p.node(i) == n && p.find(i) == n, "node %d/%d", num, off)
	}
	check(int(at) == len(s.nodes), "slab %d: %d kept, %d nodes", num, at, len(s.nodes))
	return holding
}

// stripped returns n without its value, which may not be comparable.
func stripped[V any](n *node[V]) *node[struct{}] {
	return &node[struct{}]{n.pos, n.gen, n.deadline, struct{}{}}
}

// verifyWorkers checks the ready queue against the ready buckets found.
func verifyWorkers[V any](t testing.TB, w *Wheel[V], ready map[bucketRef]bool) {
	t.Helper()
	check := checker(t)
	q := &w.shared.ready
	q.mu.Lock()
	defer q.mu.Unlock()
	listed := map[bucketRef]bool{}
	for k := range q.refs.Len() {
		r := q.refs.At(k)
		check(!listed[r], "bucket %+v is queued twice", r)
		listed[r] = true
	}
	for r := range q.freed {
		check(listed[r] && !ready[r] && r != q.refs.Front() && r != q.refs.Back(), "bucket %+v is no more", r)
	}
	check(2*len(q.freed) <= q.refs.Len(), "T18: of %d buckets in the ready queue %d are no more", q.refs.Len(), len(q.freed))
	for r := range ready {
		check(listed[r], "T3: ready bucket %+v is not in the ready queue", r)
	}
	check(q.searching == 0 && q.signalled == 0, "at rest %d search, %d are signalled", q.searching, q.signalled)
	check(q.idle <= q.workers && q.workers <= q.limit, "%d workers of %d, %d idle", q.workers, q.limit, q.idle)
	if q.refs.Len() > 0 {
		check(q.idle == 0 && q.workers == q.limit, "T10: %d buckets wait while %d workers are idle, %d of %d started", q.refs.Len(), q.idle, q.workers, q.limit)
	}
}

// each calls f with each timer of a bucket, in order.
func (l *lists[V]) each(b *bucket, f func(i uint32, n *node[V])) {
	l.clearUnlinked()
	for at := b.head; at != 0; at = l.chunks.node(at).value.next {
		c := &l.chunks.node(at).value
		for used := c.used; used != 0; used &= used - 1 {
			i := c.slots[bits.TrailingZeros16(used)]
			f(i, l.timers.node(i))
		}
	}
}

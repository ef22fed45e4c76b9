package timingwheel

import "sync"

// shard is a hierarchical timing wheel of its own, with its own lock: levels
// of buckets, and the memory for its timers. Shards share the delay queue, the
// advancer and the workers.
type shard[V any] struct {
	mu sync.Mutex

	// All below is guarded by mu.

	// clock is how far this shard has been flushed.
	//
	// Invariant: clock is not after the present, and every bucket in levels
	// whose turn is at or before clock is one that the advancer is about to
	// flush.
	clock     tick
	levels    []level
	slabs     slabs[V]
	rows      slabs[row]
	spareRow  uint32 // a row in no bucket, kept for the next that needs one; 0: none
	buckets   buckets
	cascading []uint32 // buckets that the advancer is moving on, a chunk at a time
	latest    tick     // deadline of the timers that were due when they came
	closed    bool     // no new timers (T13)
	urgent    bool     // Shutdown has made all that is pending due, whatever Reset says
	counts    counts

	num   uint32 // which shard this is
	bits  uint   // log2 of the wheel size
	wheel *Wheel[V]
}

// counts are exact; a shard's share of Stats.
type counts struct {
	pending   int // timers held
	ready     int // of these, due and in the hands of the workers
	scheduled uint64
	stopped   uint64
	expired   uint64
	discarded uint64
	returned  uint64
	cascaded  uint64
}

// placeLocked links a node whose deadline is after s.clock into the lowest
// level that reaches it. The bucket that was empty enters the delay queue.
func (s *shard[V]) placeLocked(i uint32, n *node[V]) {
	d, c := n.deadline, s.clock
	l := reach(d, c, s.bits)
	for uint(len(s.levels)) <= l {
		s.levels = append(s.levels, newLevel(s.bits))
	}
	shift := l * s.bits & 63
	expiration := d >> shift << shift
	at := s.levels[l].at(expiration >> shift)
	id := s.levels[l].ids[at]
	if id == 0 || s.buckets.table[id].expiration != expiration {
		// A bucket of an earlier lap may stand here still: one that is due,
		// and that the advancer has taken from the queue or is about to. It
		// does not need its place for that; the new bucket takes it.
		id = s.buckets.alloc(bucketWaiting, uint8(l), expiration)
		s.levels[l].put(at, id)
		s.linkLocked(i, n, id)
		s.wheel.enqueue(s, id)
		return
	}
	s.linkLocked(i, n, id)
}

// addReadyLocked hands one due timer to the workers.
func (s *shard[V]) addReadyLocked(i uint32, n *node[V]) {
	s.counts.ready++
	s.latest = max(s.latest, n.deadline)
	s.wheel.workers.appendReady(s, i, n)
}

// endLocked takes a timer out for good: its node is free after it.
func (s *shard[V]) endLocked(i uint32, n *node[V]) {
	if s.unlinkLocked(n).state == bucketReady {
		s.counts.ready--
	}
	s.slabs.release(i, n)
	s.counts.pending--
	s.wheel.unreserve()
	if s.counts.pending == 0 {
		s.emptiedLocked()
	}
}

// emptiedLocked is called when the last timer has left.
func (s *shard[V]) emptiedLocked() {
	if s.rows.live > 1 {
		s.dropSpareLocked()
	}
	if s.closed {
		s.wheel.workers.tell()
	}
}

// findLocked is the node that t names, nil if t is stale (T6).
func (s *shard[V]) findLocked(t Timer) *node[V] {
	n := s.slabs.lookup(t.index())
	if n == nil || n.place == 0 || n.gen != t.gen() {
		return nil
	}
	return n
}

// catchUpLocked moves the clock of a shard that had nothing to flush for a
// while on to the present, so that a short delay goes to the lowest level
// again and not, as seen from an old clock, to a high one. It stops short of
// the first bucket, waiting or half cascaded: moving those on is the
// advancer's, in order (T14).
func (s *shard[V]) catchUpLocked(present tick) {
	for l := range s.levels {
		if id := s.levels[l].first(s.clock >> (uint(l) * s.bits)); id != 0 {
			present = min(present, s.turn(&s.buckets.table[id])-1)
		}
	}
	for _, id := range s.cascading {
		present = min(present, s.buckets.table[id].expiration-1)
	}
	s.clock = max(s.clock, present)
}

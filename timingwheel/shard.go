package timingwheel

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/internal/limit"
)

// shard is a complete hierarchical timing wheel with its own lock: levels of buckets, and the
// memory for its timers. Shards share the delay queue, the advancer and the workers. Its
// methods are called with mu held.
type shard[V any] struct {
	mu sync.Mutex

	// All below is guarded by mu.

	// clock is the tick up to which this shard has been flushed.
	//
	// Invariant: clock is not after the present, and the advancer is about to flush every
	// bucket in levels whose flush tick is at or before clock.
	clock tick
	// catchUpAt is when Schedule advances the clock if no flush has done so by then: the wheel
	// size after clock.
	catchUpAt nanos
	levels    []level
	lists     lists[V]
	cascading []uint32 // buckets that the advancer is moving on, a chunk at a time
	// readyUntil is the later of clock and the latest deadline of the timers that were due when
	// scheduled. A timer with a later deadline is not ready.
	readyUntil tick
	closed     bool // no new timers: a shutdown has begun
	runNow     bool // every pending timer is due, and Reset does not change that
	counts     counts

	num      uint32 // which shard this is
	sizeBits uint   // log2 of the wheel size
	shared   *shared
}

// shared is the state that the shards of a wheel share.
type shared struct {
	timescale
	queue *delayqueue.Queue[bucketRef]
	ready readyQueue
	limit limit.Limit // of the timers of all shards together
	// drained has a token when a shard in shutdown has become empty.
	drained chan struct{}
}

// counts are exact: the shard's contribution to Stats.
type counts struct {
	pending       int // timers held
	ready         int // of these, due and waiting for a worker
	scheduled     uint64
	stopped       uint64
	expired       uint64
	discarded     uint64
	returned      uint64
	cascaded      uint64
	refusedFull   uint64
	refusedClosed uint64
	late          histogram.Durations
}

func newShard[V any](num int, sizeBits uint, sh *shared) *shard[V] {
	s := &shard[V]{num: uint32(num), sizeBits: sizeBits, shared: sh, lists: newLists[V](0)}
	s.advance(0)
	return s
}

func (s *shard[V]) add(v V, now, deadline nanos) (Timer, error) {
	if s.closed {
		s.counts.refusedClosed++
		return Timer{}, ErrClosed
	}
	if s.counts.pending >= maxTimers || !s.shared.limit.Reserve() {
		s.counts.refusedFull++
		return Timer{}, ErrFull
	}
	i, n, ok := s.lists.timers.alloc()
	if !ok {
		s.lists.clearUnlinked()
		i, n, ok = s.lists.timers.alloc()
	}
	if !ok {
		s.shared.limit.Release(1)
		s.counts.refusedFull++
		return Timer{}, ErrFull
	}
	n.value = v
	s.counts.pending++
	s.counts.scheduled++
	t := makeTimer(s.num, n.gen, i)
	s.arm(i, n, now, deadline)
	return t, nil
}

// find returns the node that t names, or nil if t is stale.
func (s *shard[V]) find(t Timer) *node[V] {
	n := s.lists.timers.find(t.index())
	if n == nil || n.gen != t.gen() {
		return nil
	}
	return n
}

// arm sets the deadline of a node that is in no bucket, and links it where it belongs.
func (s *shard[V]) arm(i uint32, n *node[V], now, deadline nanos) {
	if deadline <= now {
		n.deadline = s.shared.floor(now)
		s.addReady(i, n)
		return
	}
	if now >= s.catchUpAt {
		s.catchUp(s.shared.floor(now))
	}
	n.deadline = s.shared.ceil(deadline)
	if n.deadline <= s.clock {
		s.addReady(i, n)
		return
	}
	s.place(i, n)
}

// place links a node whose deadline is after s.clock into the lowest level that reaches it. A
// new bucket enters the delay queue.
func (s *shard[V]) place(i uint32, n *node[V]) {
	d, c := n.deadline, s.clock
	l := levelFor(d, c, s.sizeBits)
	for uint(len(s.levels)) <= l {
		s.levels = append(s.levels, newLevel(s.sizeBits))
	}
	shift := l * s.sizeBits & 63
	expiration := d >> shift << shift
	at := s.levels[l].at(expiration >> shift)
	// A bucket in this slot has the same expiration. It expires after the clock, because a
	// flush advances the clock and frees the slot in one step; and two spans that share a slot
	// are a whole circle apart, which is out of reach.
	id := s.levels[l].ids[at]
	var b *bucket
	if id != 0 {
		b = s.lists.bucket(id)
	} else {
		id, b = s.lists.newBucket(bucketWaiting, uint8(l), expiration)
		s.levels[l].put(at, id)
		s.enqueue(id, b)
	}
	s.lists.link(i, n, b, id)
}

// enqueue puts a bucket into the delay queue. Push cannot fail: the queue is closed only after
// every shard is closed and empty.
func (s *shard[V]) enqueue(id uint32, b *bucket) {
	_, _ = s.shared.queue.Push(bucketRef{s.num, id, b.seq}, s.shared.instant(s.flushTick(b)))
}

// flushTick is when the advancer flushes a waiting bucket: on the lowest level when its timers
// are due, on a higher level earlier by cascadeLead.
func (s *shard[V]) flushTick(b *bucket) tick {
	return b.expiration - cascadeLead(uint(b.level), s.sizeBits)
}

// addReady gives one due timer to the workers. The timer joins the last ready bucket if that
// belongs to this shard, so it follows all timers that came due before.
func (s *shard[V]) addReady(i uint32, n *node[V]) {
	s.counts.ready++
	s.readyUntil = max(s.readyUntil, n.deadline)
	q := &s.shared.ready
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refs.Len() > 0 {
		if last := q.refs.Back(); last.shard == s.num {
			if b := s.lists.find(last.bucket, last.seq); b != nil {
				s.lists.link(i, n, b, last.bucket)
				q.wakeLocked()
				return
			}
		}
	}
	id, b := s.lists.newBucket(bucketReady, 0, n.deadline)
	s.lists.link(i, n, b, id)
	q.refs.Push(bucketRef{s.num, id, b.seq})
	q.wakeLocked()
}

// makeBucketReady makes a whole bucket ready.
func (s *shard[V]) makeBucketReady(id uint32) {
	b := s.lists.bucket(id)
	b.state = bucketReady
	s.counts.ready += int(b.count)
	s.shared.ready.push(s.ref(id))
}

func (s *shard[V]) ref(id uint32) bucketRef {
	return bucketRef{s.num, id, s.lists.bucket(id).seq}
}

// remove ends a timer, for Stop and Remove.
func (s *shard[V]) remove(t Timer) (v V, ok bool) {
	n := s.find(t)
	if n == nil {
		return v, false
	}
	v = n.value
	s.counts.stopped++
	s.end(t.index(), n)
	return v, true
}

// canDefer reports whether the unlinking of a timer can wait for the next clearUnlinked: the timer
// is not ready, and its position is not in the cache.
func (s *shard[V]) canDefer(n *node[V]) bool {
	return s.counts.pending > s.lists.batchAbove && n.deadline > s.readyUntil && n.pos.chunk() != s.lists.lastChunk
}

// unlink removes a timer from its bucket. Nodes may move.
func (s *shard[V]) unlink(i uint32, n *node[V]) {
	if s.canDefer(n) {
		s.lists.deferUnlink(n)
	} else {
		s.unlinkNow(i)
	}
}

func (s *shard[V]) unlinkNow(i uint32) {
	id, b := s.lists.unlink(i)
	if b.state != bucketReady {
		return
	}
	s.counts.ready--
	if b.count == 0 {
		r := s.ref(id)
		s.lists.freeBucket(id)
		s.shared.ready.drop(r)
	}
}

// end removes a timer from the wheel and frees its node.
func (s *shard[V]) end(i uint32, n *node[V]) {
	if s.canDefer(n) {
		s.lists.deferEnd(i, n)
		if s.lists.unlinkedLen == unlinkBatch {
			s.lists.clearUnlinked()
		}
	} else {
		s.unlinkNow(i)
		s.lists.timers.release(i, s.lists.timers.node(i))
	}
	s.counts.pending--
	s.shared.limit.Release(1)
	if s.counts.pending == 0 {
		s.emptied()
	}
}

// emptied is called when the last timer has left.
func (s *shard[V]) emptied() {
	s.lists.empty()
	if s.closed {
		select {
		case s.shared.drained <- struct{}{}:
		default: // there is a token already, and its receiver checks every shard
		}
	}
}

// reset gives a pending timer a new deadline.
func (s *shard[V]) reset(i uint32, n *node[V], now, deadline nanos) {
	if s.runNow {
		return
	}
	// A timer whose deadline is extended stays where it is: its bucket is flushed in time, and
	// the timer moves on from there. So a deadline that is extended a thousand times costs one
	// move, not a thousand.
	d := s.shared.ceil(deadline)
	if d >= n.deadline && s.checkedAtFlush(n) {
		n.deadline = d
		return
	}
	if b := s.lists.bucketOf(n); deadline > now && b.state == bucketWaiting && d >= b.expiration {
		if d != n.deadline {
			n.deadline = d
			b.extended = true
		}
		return
	}
	s.unlink(i, n)
	s.arm(i, s.lists.timers.node(i), now, deadline)
}

// checkedAtFlush reports whether the deadline of a timer alone tells that its bucket's flush will
// check the timer, so that reset need not read the bucket, which would be two cache misses. That
// is so if
//   - the deadline is beyond the lowest level: the bucket is on a higher one, whose flush checks
//     each timer, or on the lowest, and an earlier extension has set extended;
//   - and the timer is not ready, see readyUntil.
func (s *shard[V]) checkedAtFlush(n *node[V]) bool {
	return n.deadline-s.clock >= 2<<s.sizeBits && n.deadline > s.readyUntil
}

// catchUp advances the clock of a shard that has not flushed for a while, so that a short delay
// goes to the lowest level again rather than, relative to an old clock, to a high one. It stops
// before the first waiting or half-cascaded bucket: the advancer must move those in order (T14:
// after a stall too).
func (s *shard[V]) catchUp(present tick) {
	for l := range s.levels {
		if id := s.levels[l].first(s.clock >> (uint(l) * s.sizeBits)); id != 0 {
			present = min(present, s.flushTick(s.lists.bucket(id))-1)
		}
	}
	for _, id := range s.cascading {
		present = min(present, s.lists.bucket(id).expiration-1)
	}
	s.advance(present)
}

// advance moves the clock forward to a tick, never back.
func (s *shard[V]) advance(to tick) {
	s.clock = max(s.clock, to)
	s.readyUntil = max(s.readyUntil, s.clock)
	s.catchUpAt = after(s.shared.start(s.clock), time.Duration(s.shared.tick)<<s.sizeBits)
}

// flushed is the outcome of flushing a bucket.
type flushed uint8

const (
	flushedMissing flushed = iota
	flushedReady
	flushedEmpty
	flushedCascading
)

// flush handles a waiting bucket whose flush tick has come. A bucket of the lowest level
// becomes ready as a whole; one of a higher level begins to cascade. A shutdown may already
// have discarded it.
func (s *shard[V]) flush(r bucketRef) flushed {
	s.lists.clearUnlinked()
	id, b := r.bucket, s.lists.find(r.bucket, r.seq)
	if b == nil {
		return flushedMissing
	}
	s.detach(b)
	// Advance to the bucket's own time, not to the present, so that after a stall the buckets
	// whose flush ticks have also passed are still flushed one by one, in order of their
	// deadlines.
	s.advance(s.flushTick(b))
	switch {
	case b.count == 0:
		s.lists.freeBucket(id)
		return flushedEmpty
	case b.level == 0 && !b.extended:
		s.makeBucketReady(id)
		return flushedReady
	}
	b.state = bucketCascading
	s.cascading = append(s.cascading, id)
	return flushedCascading
}

// detach frees a bucket's slot in its level.
func (s *shard[V]) detach(b *bucket) {
	v := &s.levels[b.level]
	v.clear(v.at(b.expiration >> (uint(b.level) * s.sizeBits)))
}

// prune removes a waiting bucket if it is empty, from the queue too (h names it there), and
// reports whether it did.
func (s *shard[V]) prune(r bucketRef, h delayqueue.Handle) bool {
	s.lists.clearUnlinked()
	b := s.lists.find(r.bucket, r.seq)
	if b == nil || b.count > 0 {
		return false
	}
	s.shared.queue.Remove(h)
	s.detach(b)
	s.lists.freeBucket(r.bucket)
	return true
}

// cascadeChunk is how many timers move before the advancer releases the shard's lock and the
// processor, so that it stalls no caller (T15): some 10 µs.
const cascadeChunk = 256

// cascade moves up to cascadeChunk of a bucket's timers, each to the bucket that its deadline
// now belongs to, and reports whether none is left. Timers that have not moved yet are still in
// this bucket, where Stop finds them.
func (s *shard[V]) cascade(id uint32) (done bool) {
	due := uint32(0) // a bucket for the timers of this call that are due
	for range cascadeChunk {
		i, n := s.lists.first(s.lists.bucket(id))
		if i == 0 {
			break
		}
		s.lists.unlink(i)
		s.counts.cascaded++
		if n.deadline > s.clock {
			s.place(i, n)
			continue
		}
		if due == 0 {
			due, _ = s.lists.newBucket(bucketReady, 0, n.deadline)
		}
		s.lists.link(i, n, s.lists.bucket(due), due)
	}
	if due != 0 {
		s.makeBucketReady(due)
	}
	if s.lists.bucket(id).count > 0 {
		return false
	}
	s.lists.freeBucket(id)
	s.cascading = slices.DeleteFunc(s.cascading, func(other uint32) bool { return other == id })
	return true
}

// take removes the first timer from a ready bucket, and frees the bucket with its last timer.
// ok is false if another worker, Stop, Reset or a shutdown has emptied the bucket; freed reports
// that the bucket is free.
func (s *shard[V]) take(r bucketRef, now nanos) (v V, ok, freed bool) {
	b := s.lists.find(r.bucket, r.seq)
	if b == nil {
		s.shared.ready.skip(r)
		return v, false, true
	}
	freed = b.count == 1
	i, n := s.lists.first(b)
	v = n.value
	s.counts.expired++
	s.counts.late.Add(time.Duration(now - s.shared.start(n.deadline)))
	s.end(i, n)
	return v, true, freed
}

// pendingTimer is a timer that Close returns or makes ready.
type pendingTimer[V any] struct {
	deadline tick
	timer    Timer
	value    V
}

// appendPending appends every timer, in no order.
func (s *shard[V]) appendPending(all []pendingTimer[V]) []pendingTimer[V] {
	s.lists.clearUnlinked() // or ended timers would be among them
	all = slices.Grow(all, s.counts.pending)
	s.lists.timers.each(func(i uint32, n *node[V]) {
		all = append(all, pendingTimer[V]{n.deadline, makeTimer(s.num, n.gen, i), n.value})
	})
	return all
}

// makeReady moves those timers that are still pending to the ready queue; all have the same
// deadline. Timers that are ready already stay ahead of them.
func (s *shard[V]) makeReady(timers []pendingTimer[V]) {
	var id uint32
	var b *bucket // made for the first timer found: the shard's memory may be freed already
	for _, p := range timers {
		n := s.find(p.timer)
		if n == nil || s.lists.bucketOf(n).state == bucketReady {
			continue
		}
		if b == nil {
			id, b = s.lists.newBucket(bucketReady, 0, p.deadline)
		}
		s.lists.unlink(p.timer.index()) // moves no node: under runNow none is deferred
		s.lists.link(p.timer.index(), n, b, id)
	}
	if b != nil {
		s.makeBucketReady(id)
	}
}

// dropAll ends all pending timers at once.
func (s *shard[V]) dropAll() {
	s.shared.limit.Release(s.counts.pending)
	s.counts.pending, s.counts.ready = 0, 0
	s.freeMemory()
	s.emptied()
}

// freeMemory releases a closed shard's memory. The delay queue, the ready queue or a cascade may
// still name its buckets; looking them up then finds none.
func (s *shard[V]) freeMemory() {
	s.lists = newLists[V](s.lists.seq)
	s.levels, s.cascading = nil, nil
}

// bytes is the memory that the shard holds, except a few hundred bytes.
func (s *shard[V]) bytes() int {
	n := s.lists.bytes()
	for l := range s.levels {
		n += s.levels[l].bytes()
	}
	return n
}

// overdue is when the oldest timer that waits for the advancer came due, or now if none waits.
// For a bucket of a higher level, that is when its span began.
func (s *shard[V]) overdue(now tick) tick {
	oldest := now
	for l := range s.levels {
		shift := uint(l) * s.sizeBits
		for span := s.clock >> shift; ; span++ {
			id := s.levels[l].first(span)
			if id == 0 {
				break
			}
			b := s.lists.bucket(id)
			if b.expiration>>shift < span || b.expiration >= oldest {
				break // a full circle, or not due
			}
			if s.lists.count(id) > 0 {
				oldest = b.expiration
				break
			}
			span = b.expiration >> shift
		}
	}
	for _, id := range s.cascading {
		if s.lists.count(id) > 0 {
			oldest = min(oldest, s.lists.bucket(id).expiration)
		}
	}
	return oldest
}

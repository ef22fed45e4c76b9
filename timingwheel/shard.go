package timingwheel

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/histogram"
)

// shard is a hierarchical timing wheel of its own, with its own lock: levels of
// buckets, and the memory for its timers. Shards share the delay queue, the
// advancer and the workers. Its methods are called with mu held.
type shard[V any] struct {
	mu sync.Mutex

	// All below is guarded by mu.

	// clock is how far this shard has been flushed.
	//
	// Invariant: clock is not after the present, and every bucket in levels
	// whose flush tick is at or before clock is one that the advancer is about
	// to flush.
	clock tick
	// catchUpAt is when Schedule moves the clock on, if nothing was flushed until
	// then: the wheel size after clock.
	catchUpAt nanos
	levels    []level
	lists     lists[V]
	cascading []uint32 // buckets that the advancer is moving on, a chunk at a time
	// readyUntil is the clock, or the latest deadline of the timers that were due when
	// they were scheduled, whichever is later. A timer with a later deadline is not ready.
	readyUntil tick
	closed     bool // no new timers (T13)
	runNow     bool // all that is pending has been made due, whatever Reset is asked
	counts     counts

	num    uint32 // which shard this is
	bits   uint   // log2 of the wheel size
	shared *shared
}

// shared is what the shards of a wheel have in common.
type shared struct {
	timescale
	queue *delayqueue.Queue[bucketRef]
	ready readyQueue
	limit pendingLimit
	// drained has a token when a shard in shutdown has become empty.
	drained chan struct{}
}

// counts are exact; a shard's share of Stats.
type counts struct {
	pending       int // timers held
	ready         int // of these, due and in the hands of the workers
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
	s := &shard[V]{num: uint32(num), bits: sizeBits, shared: sh, lists: newLists[V](0)}
	s.advance(0)
	return s
}

// add accepts a new timer.
func (s *shard[V]) add(v V, now, deadline nanos) (Timer, error) {
	if s.closed {
		s.counts.refusedClosed++
		return Timer{}, ErrClosed
	}
	if s.counts.pending >= maxTimers || !s.shared.limit.reserve() {
		s.counts.refusedFull++
		return Timer{}, ErrFull
	}
	i, n, ok := s.lists.timers.alloc()
	if !ok {
		s.lists.clearUnlinked()
		i, n, ok = s.lists.timers.alloc()
	}
	if !ok {
		s.shared.limit.release(1)
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

// find returns the node that t names, nil if t is stale (T6).
func (s *shard[V]) find(t Timer) *node[V] {
	n := s.lists.timers.find(t.index())
	if n == nil || n.gen != t.gen() {
		return nil
	}
	return n
}

// arm sets the deadline of a node in no bucket and puts it where it belongs.
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

// place links a node whose deadline is after s.clock into the lowest level that
// reaches it. The bucket that was empty enters the delay queue.
func (s *shard[V]) place(i uint32, n *node[V]) {
	d, c := n.deadline, s.clock
	l := levelFor(d, c, s.bits)
	for uint(len(s.levels)) <= l {
		s.levels = append(s.levels, newLevel(s.bits))
	}
	shift := l * s.bits & 63
	expiration := d >> shift << shift
	at := s.levels[l].at(expiration >> shift)
	// A bucket that stands there expires at the same time. It expires after the
	// clock, for a flush moves that on and gives the place up in one step; and two
	// spans with one place are a whole circle apart, which is out of reach.
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

// enqueue puts a bucket into the delay queue. There is no error: Close closes the
// queue after every shard was closed and is empty.
func (s *shard[V]) enqueue(id uint32, b *bucket) {
	_, _ = s.shared.queue.Push(bucketRef{s.num, id, b.seq}, s.shared.instant(s.flushTick(b)))
}

// flushTick is when the advancer flushes a waiting bucket: on the lowest level
// when its timers are due, on a higher one ahead of that (see cascadeLead).
func (s *shard[V]) flushTick(b *bucket) tick {
	return b.expiration - cascadeLead(uint(b.level), s.bits)
}

// addReady hands one due timer to the workers. It joins the last bucket that is
// ready, if that is this shard's, and so stands behind all that came due before.
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

// handOver makes a whole bucket ready.
func (s *shard[V]) handOver(id uint32) {
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

// later reports whether a timer that leaves is noted, for the next clearUnlinked: it
// is not ready, and its place is not in the cache.
func (s *shard[V]) later(n *node[V]) bool {
	return s.counts.pending > s.lists.batchAbove && n.deadline > s.readyUntil && n.place>>slotBits != s.lists.lastChunk
}

// unlink takes a timer out of its bucket. Nodes may move.
func (s *shard[V]) unlink(i uint32, n *node[V]) {
	if s.later(n) {
		s.lists.unlinkLater(n)
	} else {
		s.unlinkNow(i, n)
	}
}

func (s *shard[V]) unlinkNow(i uint32, n *node[V]) {
	id := s.lists.bucketID(n)
	b := s.lists.unlink(i)
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

// end takes a timer out for good: its node is free after it.
func (s *shard[V]) end(i uint32, n *node[V]) {
	if s.later(n) {
		s.lists.endLater(i, n)
		if s.lists.unlinkedLen == unlinkBatch {
			s.lists.clearUnlinked()
		}
	} else {
		s.unlinkNow(i, n)
		s.lists.timers.release(i, s.lists.timers.node(i))
	}
	s.counts.pending--
	s.shared.limit.release(1)
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
		default: // there is one already, and whoever takes it looks at every shard
		}
	}
}

// move gives a pending timer a new deadline.
func (s *shard[V]) move(i uint32, n *node[V], now, deadline nanos) {
	if s.runNow {
		return
	}
	// Pushed out, it is left where it is: its bucket will be flushed in time, and
	// the timer moved on from there. So a deadline that is pushed out a thousand
	// times costs one move, not a thousand.
	d := s.shared.ceil(deadline)
	if old := n.deadline; d >= old && old-s.clock >= 2<<s.bits && old > s.readyUntil {
		// Not even a look at the bucket, which would be two cache misses. With a
		// deadline so far out the bucket is of a higher level, where each timer
		// is looked at; or of the lowest, and has moved set for an earlier push.
		// It is not ready: see readyUntil.
		n.deadline = d
		return
	}
	if b := s.lists.bucketOf(n); deadline > now && b.state == bucketWaiting && d >= b.expiration {
		if d != n.deadline {
			n.deadline = d
			b.moved = true
		}
		return
	}
	s.unlink(i, n)
	s.arm(i, s.lists.timers.node(i), now, deadline)
}

// catchUp moves the clock of a shard that had nothing to flush for a while on
// to the present, so that a short delay goes to the lowest level again and not,
// as seen from an old clock, to a high one. It stops short of the first bucket,
// waiting or half cascaded: moving those on is the advancer's, in order (T14).
func (s *shard[V]) catchUp(present tick) {
	for l := range s.levels {
		if id := s.levels[l].first(s.clock >> (uint(l) * s.bits)); id != 0 {
			present = min(present, s.flushTick(s.lists.bucket(id))-1)
		}
	}
	for _, id := range s.cascading {
		present = min(present, s.lists.bucket(id).expiration-1)
	}
	s.advance(present)
}

// advance moves the clock to a tick, never back.
func (s *shard[V]) advance(to tick) {
	s.clock = max(s.clock, to)
	s.readyUntil = max(s.readyUntil, s.clock)
	s.catchUpAt = after(s.shared.start(s.clock), time.Duration(s.shared.tick)<<s.bits)
}

// flushed is what has become of a bucket that was flushed.
type flushed uint8

const (
	flushedGone flushed = iota
	flushedReady
	flushedEmpty
	flushedCascading
)

// flush deals with a waiting bucket whose flush tick has come: of the lowest
// level, its timers go to the workers, whole and at once; of a higher one, it
// begins to cascade. It may be gone: discarded by a shutdown.
func (s *shard[V]) flush(r bucketRef) flushed {
	s.lists.clearUnlinked()
	id, b := r.bucket, s.lists.find(r.bucket, r.seq)
	if b == nil {
		return flushedGone
	}
	s.detach(b)
	// To the bucket's own time and not to the present, so that buckets whose
	// flush tick has come as well by now, after a stall, are still flushed one
	// after the other in order of their deadlines (T14).
	s.advance(s.flushTick(b))
	switch {
	case b.count == 0:
		s.lists.freeBucket(id)
		return flushedEmpty
	case b.level == 0 && !b.moved:
		s.handOver(id)
		return flushedReady
	}
	b.state = bucketCascading
	s.cascading = append(s.cascading, id)
	return flushedCascading
}

// detach gives up a bucket's place in its level.
func (s *shard[V]) detach(b *bucket) {
	v := &s.levels[b.level]
	v.clear(v.at(b.expiration >> (uint(b.level) * s.bits)))
}

// prune removes a waiting bucket, from the queue too, where h names it, if it is
// empty, and reports whether it was.
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

// cascadeChunk is how many timers are moved on before the shard's lock is let
// go, and the processor (T15): some 10 µs.
const cascadeChunk = 256

// cascade moves up to cascadeChunk of a bucket's timers on, each to where its
// deadline belongs as of now, and reports whether it was the last. The timers
// not yet reached are still in this bucket, where Stop finds them.
func (s *shard[V]) cascade(id uint32) (done bool) {
	due := uint32(0) // a bucket for those of this call that are due
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
		s.handOver(due)
	}
	if s.lists.bucket(id).count > 0 {
		return false
	}
	s.lists.freeBucket(id)
	s.cascading = slices.DeleteFunc(s.cascading, func(other uint32) bool { return other == id })
	return true
}

// take takes the first timer of a ready bucket, which is gone with its last one; or was
// already, by another worker, Stop, Reset or a shutdown.
func (s *shard[V]) take(r bucketRef, now nanos) (v V, ok, gone bool) {
	b := s.lists.find(r.bucket, r.seq)
	if b == nil {
		s.shared.ready.pass(r)
		return v, false, true
	}
	gone = b.count == 1
	i, n := s.lists.first(b)
	v = n.value
	s.counts.expired++
	s.counts.late.Add(time.Duration(now - s.shared.start(n.deadline)))
	s.end(i, n)
	return v, true, gone
}

// pendingTimer is a timer as Close takes it out or moves it up.
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

// makeReady moves timers with the same deadline that are still pending to the
// ready queue. Those that are ready already keep their place before all others.
func (s *shard[V]) makeReady(timers []pendingTimer[V]) {
	var id uint32
	var b *bucket // made for the first that is found: the shard may be forgotten already
	for _, p := range timers {
		n := s.find(p.timer)
		if n == nil || s.lists.bucketOf(n).state == bucketReady {
			continue
		}
		if b == nil {
			id, b = s.lists.newBucket(bucketReady, 0, p.deadline)
		}
		s.lists.unlink(p.timer.index()) // moves no node: under runNow none is noted
		s.lists.link(p.timer.index(), n, b, id)
	}
	if b != nil {
		s.handOver(id)
	}
}

// dropAll ends all that is pending at once.
func (s *shard[V]) dropAll() {
	s.shared.limit.release(s.counts.pending)
	s.counts.pending, s.counts.ready = 0, 0
	s.forget()
	s.emptied()
}

// forget drops a closed shard's memory. Buckets that the delay queue, the ready
// queue or a cascade still name are found missing there.
func (s *shard[V]) forget() {
	s.lists = newLists[V](s.lists.seq)
	s.levels, s.cascading = nil, nil
}

// bytes is the memory that the shard holds, but for a few hundred bytes.
func (s *shard[V]) bytes() int {
	n := s.lists.bytes()
	for l := range s.levels {
		n += s.levels[l].bytes()
	}
	return n
}

// overdue is when the oldest of the timers that wait for the advancer came due,
// now if none does: on a higher level, when the span of its bucket began.
func (s *shard[V]) overdue(now tick) tick {
	oldest := now
	for l := range s.levels {
		shift := uint(l) * s.bits
		for span := s.clock >> shift; ; span++ {
			id := s.levels[l].first(span)
			if id == 0 {
				break
			}
			b := s.lists.bucket(id)
			if b.expiration>>shift < span || b.expiration >= oldest {
				break // all around, or not due
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

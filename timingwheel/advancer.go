package timingwheel

import (
	"context"
	"runtime"
)

// queued names a bucket in the delay queue. The advancer alone frees buckets
// that were queued, so it needs nothing to tell the record's uses apart.
type queued struct {
	shard  uint32
	bucket uint32
}

// flushChunk is how many timers of a cascading bucket are moved on before the
// shard's lock is let go for others (T15).
const flushChunk = 128

// enqueue puts a bucket into the delay queue. s.mu is held.
func (w *Wheel[V]) enqueue(s *shard[V], id uint32) {
	b := &s.buckets.table[id]
	h, err := w.queue.Push(queued{s.num, id}, w.instant(b.expiration))
	if err != nil {
		// Shutdown has closed the queue, and that only after every shard was
		// closed and emptied.
		panic("timingwheel: a bucket came up after the queue was closed")
	}
	b.queued = h
}

// advance is the advancer: it flushes the buckets in the order in which they
// come due, and sleeps until the first one that holds a timer.
//
// It takes one at a time: a cascade may bring up buckets that come before the
// next one in the queue, and after a stall those are due as well (T14).
func (w *Wheel[V]) advance() {
	defer func() {
		w.workers.mu.Lock()
		w.workers.members.advancer = false
		w.workers.members.tell()
		w.workers.mu.Unlock()
	}()
	for {
		q, ok := w.queue.Poll()
		slept := !ok
		if slept {
			w.prune()
			var err error
			if q, err = w.queue.Take(context.Background()); err != nil {
				return // closed
			}
		}
		if empty := w.flush(w.shards[q.shard], q.bucket); empty && slept {
			w.emptied.Add(1)
		}
	}
}

// prune removes empty buckets from the front of the queue, so that the
// advancer does not sleep for one (T9). One that becomes empty after this, and
// while the advancer sleeps for it, costs one wake-up.
func (w *Wheel[V]) prune() {
	for {
		q, _, ok := w.queue.Peek()
		if !ok {
			return
		}
		s := w.shards[q.shard]
		s.mu.Lock()
		// Not waiting, or not there: Shutdown has discarded what the queue names,
		// and is about to close it.
		if q.bucket >= uint32(len(s.buckets.table)) || s.buckets.table[q.bucket].state != bucketWaiting ||
			s.buckets.table[q.bucket].count > 0 {
			s.mu.Unlock()
			return
		}
		// Still in the queue: nobody but the advancer takes buckets out.
		w.queue.Remove(s.buckets.table[q.bucket].queued)
		s.detachLocked(q.bucket)
		s.buckets.release(q.bucket)
		s.mu.Unlock()
	}
}

// flush empties a bucket that has come due: of the lowest level, whole and at
// once to the workers; of a higher one, timer by timer to the levels below. It
// says whether there was nothing in it.
func (w *Wheel[V]) flush(s *shard[V], id uint32) (empty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id >= uint32(len(s.buckets.table)) {
		return false // discarded by Shutdown meanwhile
	}
	b := &s.buckets.table[id]
	if b.state != bucketWaiting {
		return false // likewise
	}
	s.detachLocked(id)
	// To the bucket's own time and not to the present, so that buckets which
	// are due as well by now, after a stall, are still flushed one after the
	// other in order of their deadlines (T14).
	s.clock = max(s.clock, b.expiration)
	switch {
	case b.count == 0:
		s.buckets.release(id)
		return true
	case b.level == 0 && !b.moved:
		w.workers.handOver(s, id)
	default:
		b.state = bucketCascading
		s.cascadeLocked(id)
	}
	return false
}

// detachLocked gives up a bucket's place in its level, unless a bucket of the
// next lap has taken it already.
func (s *shard[V]) detachLocked(id uint32) {
	b := &s.buckets.table[id]
	shift := uint(b.level) * s.bits
	place := &s.levels[b.level][b.expiration>>shift&(1<<s.bits-1)]
	if *place == id {
		*place = 0
	}
}

// cascadeLocked moves a bucket's timers on, each to where its deadline belongs
// as of now. The lock is let go every so often: the timers not yet reached are
// still in this bucket, where Stop finds them.
func (s *shard[V]) cascadeLocked(id uint32) {
	seq := s.buckets.table[id].seq
	for {
		var due uint32 // a bucket for those of this chunk that are due
		for range flushChunk {
			i := s.buckets.table[id].head
			if i == 0 {
				break
			}
			n := s.slabs.node(i)
			s.unlinkLocked(n)
			s.counts.cascaded++
			if n.deadline > s.clock {
				s.placeLocked(i, n)
				continue
			}
			if due == 0 {
				due = s.buckets.alloc(bucketReady, 0, n.deadline)
			}
			s.linkLocked(i, n, due)
		}
		if due != 0 {
			s.wheel.workers.handOver(s, due)
		}
		if s.buckets.table[id].count == 0 {
			s.buckets.release(id)
			return
		}
		s.partway = true
		s.mu.Unlock()
		runtime.Gosched() // or this goroutine takes the lock back before a waiter runs
		s.mu.Lock()
		s.partway = false
		if !s.buckets.holds(run{s.num, id, seq}) {
			return // discarded by Shutdown meanwhile
		}
	}
}

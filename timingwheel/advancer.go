package timingwheel

import "context"

// queued names a bucket in the delay queue. The advancer alone frees buckets
// that were queued, so it needs nothing to tell the record's uses apart.
type queued struct {
	shard  uint32
	bucket uint32
}

// advancer is the goroutine that moves timers on: it flushes the buckets in the
// order of their turns, and sleeps until that of the first one that holds a
// timer.
type advancer[V any] struct {
	wheel    *Wheel[V]
	cascades []cascade // under way; the first to expire comes first
}

func (a *advancer[V]) run() {
	w := a.wheel
	defer func() {
		w.workers.mu.Lock()
		w.workers.members.advancer = false
		w.workers.members.tell()
		w.workers.mu.Unlock()
	}()
	for {
		q, ok := a.due()
		if ok {
			a.flush(q)
			continue
		}
		if a.cascade() {
			continue
		}
		w.prune()
		q, err := w.queue.Take(context.Background())
		if err != nil {
			return // closed
		}
		if empty := a.flush(q); empty {
			w.emptied.Add(1)
		}
	}
}

// due takes the next bucket out of the queue whose turn has come, one at a
// time: a cascade may bring up buckets that come before the next one in the
// queue, and after a stall those are due as well. For the same reason a bucket
// has to wait whose turn comes after a cascade should have ended (T14).
func (a *advancer[V]) due() (q queued, ok bool) {
	w := a.wheel
	if len(a.cascades) > 0 {
		head, ok := w.queue.Peek()
		if !ok || !head.Deadline.Before(w.instant(a.cascades[0].expiration)) {
			return q, false
		}
	}
	return w.queue.Poll() // that one, or one that has come since and is earlier still
}

// flush deals with a bucket whose turn has come: of the lowest level, its
// timers go to the workers, whole and at once; of a higher one, it begins to
// cascade. It says whether there was nothing in it.
func (a *advancer[V]) flush(q queued) (empty bool) {
	s, id := a.wheel.shards[q.shard], q.bucket
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
	// To the bucket's own time and not to the present, so that buckets whose
	// turn has come as well by now, after a stall, are still flushed one after
	// the other in order of their deadlines (T14).
	s.clock = max(s.clock, s.turn(b))
	switch {
	case b.count == 0:
		s.buckets.release(id)
		return true
	case b.level == 0 && !b.moved:
		a.wheel.workers.handOver(s, id)
	default:
		b.state = bucketCascading
		s.cascading = append(s.cascading, id)
		a.begin(cascade{run{s.num, id, b.seq}, b.expiration})
	}
	return false
}

// detachLocked gives up a bucket's place in its level.
func (s *shard[V]) detachLocked(id uint32) {
	b := &s.buckets.table[id]
	v := &s.levels[b.level]
	v.clear(v.at(b.expiration>>(uint(b.level)*s.bits)), id)
}

// enqueue puts a bucket into the delay queue. s.mu is held.
func (w *Wheel[V]) enqueue(s *shard[V], id uint32) {
	b := &s.buckets.table[id]
	h, err := w.queue.Push(queued{s.num, id}, w.instant(s.turn(b)))
	if err != nil {
		// Shutdown has closed the queue, and that only after every shard was
		// closed and emptied.
		panic("timingwheel: a bucket came up after the queue was closed")
	}
	b.queued = h
}

// prune removes empty buckets from the front of the queue, so that the
// advancer does not sleep for one (T9). One that becomes empty after this, and
// while the advancer sleeps for it, costs one wake-up.
func (w *Wheel[V]) prune() {
	for {
		head, ok := w.queue.Peek()
		if !ok {
			return
		}
		q := head.Value
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

package timingwheel

import "time"

// Stats is what a wheel holds and has done. The figures of the timers, Pending
// to HandedBack but for Overdue, and Cascaded, are those of one moment, exactly;
// the others are exact too, and may be of a moment later.
type Stats struct {
	Pending int // timers held, Ready included
	Ready   int // timers that are due and wait for a worker
	// Overdue is how long ago the oldest timer that waits for a worker, or for
	// the advancer, came due; 0 if none does. To the tick.
	Overdue time.Duration

	Scheduled  uint64 // timers accepted; = Pending + Stopped + Expired + Discarded + HandedBack
	Stopped    uint64 // by Stop
	Expired    uint64 // taken by a worker
	Discarded  uint64 // by Shutdown
	HandedBack uint64 // by Shutdown
	Panics     uint64 // of the expiry function

	Cascaded uint64 // moves of a timer to a lower level
	// Wakeups counts how often the advancer woke; EmptyWakeups of these, how
	// often it had slept for a bucket that turned out empty, because its last
	// timer was stopped meanwhile (T9).
	Wakeups, EmptyWakeups uint64

	Workers int // goroutines that run the expiry function, idle ones included
	Idle    int // of these, waiting for a timer
	Levels  int // the most that any shard needed so far
	// Bytes is the memory of the slabs that hold the timers and their rows.
	Bytes int
}

// Stats reads the wheel's figures, and locks all shards at once for it, for as
// long as it takes to add them up.
func (w *Wheel[V]) Stats() Stats {
	var st Stats
	w.lockAll()
	now := w.now()
	oldest := w.floor(now)
	for _, s := range w.shards {
		c := s.counts
		st.Pending += c.pending
		st.Ready += c.ready
		st.Scheduled += c.scheduled
		st.Stopped += c.stopped
		st.Expired += c.expired
		st.Discarded += c.discarded
		st.HandedBack += c.returned
		st.Cascaded += c.cascaded
		st.Levels = max(st.Levels, len(s.levels))
		st.Bytes += s.slabs.bytes() + s.rows.bytes()
		oldest = min(oldest, s.overdueLocked(oldest))
	}
	w.unlockAll()
	since := w.oldestReady(now)
	if oldest < w.floor(now) {
		since = min(since, w.start(oldest))
	}
	st.Overdue = time.Duration(now - since)
	st.EmptyWakeups = w.emptied.Load() // before Wakeups, so that it is never more
	st.Wakeups = w.queue.Stats().Wakeups
	p := &w.workers
	st.Panics = p.panics.Load()
	p.mu.Lock()
	st.Workers, st.Idle = p.members.workers, p.idle
	p.mu.Unlock()
	return st
}

// overdueLocked is when the oldest of a shard's timers that wait for the
// advancer came due, now if none does.
func (s *shard[V]) overdueLocked(now tick) tick {
	oldest := now
	for l := range s.levels {
		shift := uint(l) * s.bits
		for span := s.clock >> shift; ; span++ {
			id := s.levels[l].first(span)
			if id == 0 {
				break
			}
			b := &s.buckets.table[id]
			if b.expiration>>shift < span || b.expiration >= oldest {
				break // all around, or not due
			}
			if b.count > 0 {
				oldest = b.expiration
				break
			}
			span = b.expiration >> shift
		}
	}
	for _, id := range s.cascading {
		if b := &s.buckets.table[id]; b.count > 0 {
			oldest = min(oldest, b.expiration)
		}
	}
	return oldest
}

// oldestReady is when the first timer of the ready list came due, now if it is
// empty.
func (w *Wheel[V]) oldestReady(now nanos) nanos {
	for {
		w.workers.mu.Lock()
		var first run
		if w.workers.ready.n > 0 {
			first = w.workers.ready.front()
		}
		w.workers.mu.Unlock()
		if first.seq == 0 {
			return now
		}
		s := w.shards[first.shard]
		s.mu.Lock()
		gone := s.dropEmptyLocked(first)
		if !gone {
			// Not the bucket's expiration: timers that are due at once join it.
			_, n := s.firstLocked(&s.buckets.table[first.bucket])
			now = min(now, w.start(n.deadline))
		}
		s.mu.Unlock()
		if !gone {
			return now
		}
	}
}

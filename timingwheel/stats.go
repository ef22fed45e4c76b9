package timingwheel

import (
	"time"

	"github.com/seed-782fa212/limbo/histogram"
)

// Stats describes a wheel's contents and history. The timer counts, Pending to RefusedClosed,
// and Late, Cascaded, Levels and Bytes are exact for one moment; the others are exact too, but
// may be from a later moment.
type Stats struct {
	Pending int // timers held, Ready included
	Ready   int // timers that are due and wait for a worker
	// Overdue is how long ago the oldest timer that waits for a worker or for the advancer came
	// due, or 0 if none waits. Its precision is one tick. It may be too long while the advancer
	// is late with a bucket of a higher level: every timer in the bucket then counts as due since
	// the beginning of the bucket's span.
	Overdue time.Duration

	Scheduled     uint64 // timers accepted; = Pending + Stopped + Expired + Discarded + Returned
	Stopped       uint64 // by Stop and Remove
	Expired       uint64 // taken by a worker
	Discarded     uint64 // by Close and Shutdown
	Returned      uint64 // by Close and Shutdown
	RefusedFull   uint64 // with ErrFull
	RefusedClosed uint64 // with ErrClosed
	Panics        uint64 // of the expiry function

	// Late is how long after its deadline, as [Wheel.Deadline] returns it, a worker took each
	// expired timer, or 0 for a timer that a shutdown with RunNow ran before its deadline. The
	// deadline of a timer that was due when scheduled is the beginning of its tick, so up to
	// one Tick is counted for it although it does not wait.
	Late histogram.Durations

	Cascaded uint64 // moves of a timer to a lower level
	// Wakeups counts how often the advancer woke; EmptyWakeups counts the wakeups for a bucket
	// that had become empty, because its last timer was stopped during the sleep.
	Wakeups, EmptyWakeups uint64

	// Next is when the advancer wakes next, for a bucket that is due or begins to cascade, with
	// a monotonic reading, or zero if there is none. The timers of the bucket may have been
	// stopped by then.
	Next time.Time

	Workers int // goroutines that run the expiry function, including idle ones
	Idle    int // of these, waiting for a timer
	Levels  int // the most that any shard has needed so far
	// Bytes is the memory held for timers, buckets and levels. It excludes the delay queue,
	// some 40 bytes for each bucket, and memory that values point to.
	Bytes int
}

// Stats returns the wheel's statistics. It locks all shards at once while it adds them up, and
// changes nothing.
func (w *Wheel[V]) Stats() Stats {
	var st Stats
	w.lockAll()
	now := w.shared.now()
	oldest := w.shared.floor(now)
	for _, s := range w.shards {
		c := &s.counts
		st.Pending += c.pending
		st.Ready += c.ready
		st.Scheduled += c.scheduled
		st.Stopped += c.stopped
		st.Expired += c.expired
		st.Discarded += c.discarded
		st.Returned += c.returned
		st.RefusedFull += c.refusedFull
		st.RefusedClosed += c.refusedClosed
		st.Cascaded += c.cascaded
		st.Late.Merge(&c.late)
		st.Levels = max(st.Levels, len(s.levels))
		st.Bytes += s.bytes()
		oldest = min(oldest, s.overdue(oldest))
	}
	first, ready := w.oldestReadyLocked()
	if ready {
		oldest = min(oldest, first)
	}
	w.unlockAll()
	if ready || oldest < w.shared.floor(now) {
		st.Overdue = time.Duration(now - w.shared.start(oldest))
	}
	st.EmptyWakeups = w.advancer.emptyWakeups.Load() // before Wakeups, so that it never exceeds it
	st.Wakeups = w.shared.queue.Stats().Wakeups
	if head, ok := w.shared.queue.Peek(); ok {
		st.Next = head.Deadline
	}
	st.Panics = w.workers.panics.Load()
	q := &w.shared.ready
	q.mu.Lock()
	st.Workers, st.Idle = q.workers, q.idle
	q.mu.Unlock()
	return st
}

// oldestReadyLocked returns the deadline of the ready queue's first timer. The caller holds all
// shards' locks.
func (w *Wheel[V]) oldestReadyLocked() (tick, bool) {
	q := &w.shared.ready
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range q.refs.Len() {
		r := q.refs.At(k)
		l := &w.shards[r.shard].lists
		if b := l.find(r.bucket, r.seq); b != nil && b.count > 0 {
			// Not the bucket's expiration: timers that are due at once join it.
			return l.firstReady(b).deadline, true
		}
	}
	return 0, false
}

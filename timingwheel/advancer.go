package timingwheel

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
)

// advancer is the goroutine that moves timers: it flushes the buckets in the order of their
// flush ticks, and sleeps until that of the first bucket that holds a timer.
type advancer[V any] struct {
	shards       []*shard[V]
	shared       *shared
	cascades     []cascade     // in progress, ordered by expiration
	emptyWakeups atomic.Uint64 // buckets found empty after a sleep for them; the advancer writes
}

// cascade is a bucket whose timers the advancer moves to lower levels, a chunk at a time and
// between other buckets. A bucket begins to cascade half its span before its first timer is
// due, so there is no hurry, and timers that come due in that time do not wait for it.
type cascade struct {
	bucketRef
	expiration tick // the time by which it must be done
}

func (a *advancer[V]) run() {
	for {
		r, ok := a.due()
		if ok {
			a.flush(r)
			continue
		}
		if a.cascade() {
			continue
		}
		a.prune()
		r, err := a.shared.queue.Take(context.Background())
		if err != nil {
			return // closed
		}
		if empty := a.flush(r); empty {
			a.emptyWakeups.Add(1)
		}
	}
}

// due removes from the queue the next bucket whose flush tick has come. It removes one at a
// time, because a cascade may add buckets that precede the next one in the queue, and after a
// stall those are due as well. For the same reason, a bucket has to wait if its flush tick is
// not before the expiration of a cascade in progress (timers run in order after a stall, T14).
func (a *advancer[V]) due() (r bucketRef, ok bool) {
	if len(a.cascades) > 0 {
		head, ok := a.shared.queue.Peek()
		if !ok || !head.Deadline.Before(a.shared.instant(a.cascades[0].expiration)) {
			return r, false
		}
	}
	return a.shared.queue.Poll() // the head, or an earlier bucket added since
}

// flush flushes a bucket and reports whether it was empty.
func (a *advancer[V]) flush(r bucketRef) (empty bool) {
	s := a.shards[r.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.flush(r) {
	case flushedEmpty:
		return true
	case flushedCascading:
		a.begin(cascade{r, s.lists.bucket(r.bucket).expiration})
	}
	return false
}

// begin adds a cascade to those in progress.
func (a *advancer[V]) begin(c cascade) {
	at := len(a.cascades)
	for at > 0 && a.cascades[at-1].expiration > c.expiration {
		at--
	}
	a.cascades = slices.Insert(a.cascades, at, c)
}

// cascade moves one chunk, and reports false if no cascade is in progress.
func (a *advancer[V]) cascade() bool {
	if len(a.cascades) == 0 {
		return false
	}
	c := a.cascades[0]
	s := a.shards[c.shard]
	s.mu.Lock()
	// Not found: Shutdown has discarded it.
	done := s.lists.find(c.bucket, c.seq) == nil || s.cascade(c.bucket)
	s.mu.Unlock()
	if done {
		a.cascades = slices.Delete(a.cascades, 0, 1)
	} else {
		runtime.Gosched() // or this goroutine takes the lock back before a waiter runs
	}
	return true
}

// prune removes empty buckets from the front of the queue, so that the advancer does not sleep
// for one (no empty ticks, T9). A bucket that becomes empty later, while the advancer sleeps for
// it, costs one wake-up.
func (a *advancer[V]) prune() {
	for {
		head, ok := a.shared.queue.Peek()
		if !ok {
			return
		}
		s := a.shards[head.Value.shard]
		s.mu.Lock()
		// It is still in the queue: only the advancer removes buckets.
		pruned := s.prune(head.Value, head.Handle)
		s.mu.Unlock()
		if !pruned {
			return
		}
	}
}

package timingwheel

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
)

// advancer is the goroutine that moves timers on: it flushes the buckets in the
// order of their flush ticks, and sleeps until that of the first one that holds
// a timer.
type advancer[V any] struct {
	shards   []*shard[V]
	shared   *shared
	cascades []cascade     // under way; the first to expire comes first
	emptied  atomic.Uint64 // buckets that were slept for and found empty; the advancer writes
}

// cascade is a bucket whose timers the advancer moves on to lower levels. It
// does so a chunk at a time and between other buckets: a bucket begins to
// cascade half its span before its first timer is due, so there is no hurry,
// and the timers that are due meanwhile do not wait for it.
type cascade struct {
	bucketRef
	expiration tick // by when it has to be done
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
			a.emptied.Add(1)
		}
	}
}

// due takes the next bucket out of the queue whose flush tick has come, one at
// a time: a cascade may bring up buckets that come before the next one in the
// queue, and after a stall those are due as well. For the same reason a bucket
// has to wait whose flush tick comes after a cascade should have ended (T14).
func (a *advancer[V]) due() (r bucketRef, ok bool) {
	if len(a.cascades) > 0 {
		head, ok := a.shared.queue.Peek()
		if !ok || !head.Deadline.Before(a.shared.instant(a.cascades[0].expiration)) {
			return r, false
		}
	}
	return a.shared.queue.Poll() // that one, or one that has come since and is earlier still
}

// flush flushes a bucket and reports whether there was nothing in it.
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

// begin adds a cascade to those under way.
func (a *advancer[V]) begin(c cascade) {
	at := len(a.cascades)
	for at > 0 && a.cascades[at-1].expiration > c.expiration {
		at--
	}
	a.cascades = slices.Insert(a.cascades, at, c)
}

// cascade moves one chunk on, if there is any to move.
func (a *advancer[V]) cascade() bool {
	if len(a.cascades) == 0 {
		return false
	}
	c := a.cascades[0]
	s := a.shards[c.shard]
	s.mu.Lock()
	// Not there: discarded by Shutdown meanwhile.
	done := s.lists.find(c.bucket, c.seq) == nil || s.cascade(c.bucket)
	s.mu.Unlock()
	if done {
		a.cascades = slices.Delete(a.cascades, 0, 1)
	} else {
		runtime.Gosched() // or this goroutine takes the lock back before a waiter runs
	}
	return true
}

// prune removes empty buckets from the front of the queue, so that the advancer
// does not sleep for one (T9). One that becomes empty after this, and while the
// advancer sleeps for it, costs one wake-up.
func (a *advancer[V]) prune() {
	for {
		head, ok := a.shared.queue.Peek()
		if !ok {
			return
		}
		s := a.shards[head.Value.shard]
		s.mu.Lock()
		// Still in the queue: nobody but the advancer takes buckets out.
		pruned := s.prune(head.Value, head.Handle)
		s.mu.Unlock()
		if !pruned {
			return
		}
	}
}

package timingwheel

import (
	"runtime"
	"slices"
)

// cascade is a bucket whose timers the advancer moves on to lower levels. It
// does so a chunk at a time and between other buckets: a bucket begins to
// cascade half its span before its first timer is due, so there is no hurry,
// and the timers that are due meanwhile do not wait for it.
type cascade struct {
	run
	expiration tick // by when it has to be done
}

// cascadeChunk is how many timers are moved on before the shard's lock is let
// go, and the processor (T15): some 10 µs.
const cascadeChunk = 256

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
	s := a.wheel.shards[c.shard]
	s.mu.Lock()
	// Not there: discarded by Shutdown meanwhile.
	done := !s.buckets.holds(c.run) || s.cascadeLocked(c.bucket)
	s.mu.Unlock()
	if done {
		a.cascades = slices.Delete(a.cascades, 0, 1)
	} else {
		runtime.Gosched() // or this goroutine takes the lock back before a waiter runs
	}
	return true
}

// cascadeLocked moves a chunk of a bucket's timers on, each to where its
// deadline belongs as of now, and says whether it was the last. The timers not
// yet reached are still in this bucket, where Stop finds them.
func (s *shard[V]) cascadeLocked(id uint32) (done bool) {
	var due uint32 // a bucket for those of this chunk that are due
	for range cascadeChunk {
		i, n := s.firstLocked(&s.buckets.table[id])
		if i == 0 {
			break
		}
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
	if s.buckets.table[id].count > 0 {
		return false
	}
	s.buckets.release(id)
	s.cascading = slices.DeleteFunc(s.cascading, func(other uint32) bool { return other == id })
	return true
}

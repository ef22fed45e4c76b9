package purgatory

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Stats is what a purgatory holds and has done. Its figures are exact, and but
// for Late and Wheel, which may be of a moment later, they are those of one
// moment.
type Stats struct {
	Delayed int // operations that wait
	Watched int // (operation, key) pairs that wait
	Keys    int // keys with watchers

	// How operations ended. Those that completed without ever waiting are
	// among Completed. One whose Complete panicked is among Failed.
	Completed, Expired, Cancelled, Closed, Failed uint64

	// Checks counts the calls of TryComplete by operations that have ended, or,
	// of a Threshold, the readings of their numbers. Divided by how many ended
	// it says what a completion takes: 1 for one that never waited, 3 for one
	// that waited and was completed by the first CheckAndComplete of its keys.
	Checks uint64

	// Late is how late operations expired.
	Late Lateness

	// Wheel is what the timeouts' wheel holds and has done.
	Wheel timingwheel.Stats
}

// Ended is the number of operations that have ended, of all outcomes.
func (s Stats) Ended() uint64 { return s.Completed + s.Expired + s.Cancelled + s.Closed + s.Failed }

// Lateness is a histogram: Lateness[i] counts what was late by less than 2^i
// µs, and not by less than half of that; the last one all that was later, which
// is beyond 4 s.
type Lateness [24]uint64

// Quantile is how late at most the fraction q of all was, from 0 to 1: the upper
// bound of its class, so up to twice as much as it was. 0 if nothing is counted.
func (l Lateness) Quantile(q float64) time.Duration {
	total := uint64(0)
	for _, n := range l {
		total += n
	}
	rank, seen := uint64(q*float64(total)), uint64(0)
	for i, n := range l {
		if seen += n; n > 0 && (seen >= rank || seen == total) {
			return time.Microsecond << i
		}
	}
	return 0
}

// lateness is a Lateness that is being counted.
type lateness [len(Lateness{})]atomic.Uint64

func (l *lateness) add(d time.Duration) {
	class := bits.Len64(uint64(max(d, 0) / time.Microsecond))
	l[min(class, len(l)-1)].Add(1)
}

// tally is what a shard counts of the operations whose first key is in it. The
// shard's lock guards it: it is held anyway when they come and go, so counting
// costs no shared line.
type tally struct {
	delayed int
	checks  uint64
	ended   [outcomes + 1]uint64
}

func (t *tally) out(o Outcome, h *record) {
	t.delayed--
	t.ended[o]++
	if o != withdrawn {
		t.checks += uint64(h.checks)
	}
}

// Stats reads the purgatory's figures, and locks all shards at once for it, for
// as long as it takes to add them up.
func (p *Purgatory[K]) Stats() Stats {
	st, ended := p.begin()
	p.all(func(s *shard[K]) {
		st.Watched += s.watched
		st.Keys += s.named
		ended.add(&st, &s.tally)
	})
	p.fill(&st, &ended)
	return st
}

// counts is how many operations ended, by outcome.
type counts [outcomes + 1]int64

func (c *counts) add(st *Stats, t *tally) {
	st.Delayed += t.delayed
	st.Checks += t.checks
	for o, n := range t.ended {
		c[o] += int64(n)
	}
}

// begin is where adding up begins, before the shards: a correction takes from
// what a shard has counted before it, so one that is seen here finds its
// operation there, and no figure is below zero.
func (t *host) begin() (st Stats, c counts) {
	for o := range c {
		c[o] = t.outside[o].Load()
	}
	st.Checks = t.checks.Load()
	return st, c
}

// fill sets what every host knows.
func (t *host) fill(st *Stats, ended *counts) {
	st.Completed = uint64(ended[Completed])
	st.Expired = uint64(ended[Expired])
	st.Cancelled = uint64(ended[Cancelled])
	st.Closed = uint64(ended[Closed])
	st.Failed = uint64(ended[Failed])
	for i := range t.late {
		st.Late[i] = t.late[i].Load()
	}
	st.Wheel = t.wheel.Stats()
}

// Delayed is the number of operations that wait, each counted once: of one
// moment, exactly, as Watched and Keys are. All shards are locked for it.
func (p *Purgatory[K]) Delayed() (n int) {
	p.all(func(s *shard[K]) { n += s.delayed })
	return n
}

// Watched is the number of watches: operations that wait, each counted once
// for every key of its.
func (p *Purgatory[K]) Watched() (n int) {
	p.all(func(s *shard[K]) { n += s.watched })
	return n
}

// Keys is the number of keys that an operation watches.
func (p *Purgatory[K]) Keys() (n int) {
	p.all(func(s *shard[K]) { n += s.named })
	return n
}

// all calls f with each shard while all are locked, in order of their numbers:
// one after the other, what goes from a shard that was seen already to one that
// was not would be counted twice. Nobody else holds two.
func (p *Purgatory[K]) all(f func(*shard[K])) {
	for i := range p.shards {
		p.shards[i].mu.Lock()
	}
	for i := range p.shards {
		f(&p.shards[i])
	}
	for i := range p.shards {
		p.shards[i].mu.Unlock()
	}
}

package purgatory

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/internal/ring"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// tallies is what is counted of the operations, and the arrivals whose timeouts are
// not on the wheel yet: in parts, so that goroutines on different processors do not
// write to the same cache lines.
//
// Nothing depends on which part an operation is counted in, or out: a part's
// figures may be below zero, and only their sums have a meaning.
type tallies struct {
	most int // parts: GOMAXPROCS, as it was when they were made

	mu     sync.Mutex
	parts  []*tally // guarded by mu; made when first needed
	next   int      // guarded by mu
	closed bool     // guarded by mu; parts yet to be made refuse operations

	// near holds the parts. It gives one that was used last on the same processor.
	near sync.Pool
}

// tally is one part.
type tally struct {
	core *core
	mu   sync.Mutex
	keys atomic.Int64 // any goroutine writes

	// Guarded by mu.
	closed                     bool // refuses operations (P12)
	delayed, watched           int
	working                    int // what runs on workers, beside operations that wait
	vanished                   int // keys, since the last time that the lists were asked to shrink
	checks                     uint64
	ended                      [outcomes]uint64
	refusedFull, refusedClosed uint64
	arrivals                   ring.Queue[arrival]
	sweeping                   bool              // a sweep is planned, or runs
	sweep                      timingwheel.Timer // the last one planned
	sweepAt                    time.Duration     // when it is due, or, as it runs, a moment ago
	histograms                 *histograms       // nil: nothing to count yet

	_ [64]byte
}

// lockTally returns a part that is near, locked. It is to be given back, by putBack.
//
// Two processors may have come to use one part: one that moved took it along, or the
// collector emptied the pool. They meet at its lock soon, and one of them turns to
// another part.
func (c *core) lockTally() *tally {
	t, _ := c.tallies.near.Get().(*tally)
	if t == nil || !t.mu.TryLock() {
		t = c.anotherTally()
		t.mu.Lock()
	}
	return t
}

// anotherTally returns a new part, or, when there are enough, one after the other.
func (c *core) anotherTally() *tally {
	a := &c.tallies
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.parts) < a.most {
		t := &tally{core: c, closed: a.closed}
		a.parts = append(a.parts, t)
		return t
	}
	a.next = (a.next + 1) % len(a.parts)
	return a.parts[a.next]
}

func (c *core) putBack(t *tally) { c.tallies.near.Put(t) }

// countIn counts an operation in that is going to wait; it returns the part, which
// is to be put back. soon: its timeout must be entered on the wheel before it waits. An
// error is that the operation is refused, and is counted.
func (c *core) countIn(w *waiter, gen uint64) (t *tally, soon bool, err error) {
	if !c.reserve() {
		c.countRefused(ErrFull)
		return nil, false, ErrFull
	}
	t = c.lockTally()
	if t.closed {
		t.mu.Unlock()
		c.putBack(t)
		c.unreserve()
		c.countRefused(ErrClosed)
		return nil, false, ErrClosed
	}
	t.delayed++
	t.watched += int(w.n)
	at := time.Duration(w.deadline.Load())
	soon = at != never && at > w.since && !t.putOffLocked(w, gen)
	t.mu.Unlock()
	return t, soon, nil
}

// countOut counts how an operation ended, and returns how long it has waited; 0 if
// it never did.
func (c *core) countOut(w *waiter, o Outcome, watches, vanished int) (waited time.Duration) {
	ended := now()
	waited = ended - w.since
	t := c.lockTally()
	t.checks += uint64(w.checks)
	t.ended[o]++
	shrink, after := false, shrinkEach*c.tallies.most
	if w.n == 0 {
		waited = 0
	} else {
		t.delayed--
		t.watched -= watches
		if vanished > 0 {
			t.keys.Add(-int64(vanished))
		}
		if t.histograms == nil {
			t.histograms = new(histograms)
		}
		t.histograms.waited[o].Add(waited)
		if o == Expired {
			t.histograms.late.Add(ended - time.Duration(w.deadline.Load()))
		}
		if t.vanished += vanished; t.vanished >= after {
			t.vanished, shrink = 0, true
		}
	}
	closed := t.closed
	t.mu.Unlock()
	if w.n > 0 {
		c.unreserve() // not before: Len would exceed MaxPending for a moment
	}
	c.putBack(t)
	if closed {
		c.closing.notify()
	}
	if shrink {
		c.lists.shrink(shrinkBy * after)
	}
	return waited
}

// countRefused counts an operation that is refused.
func (c *core) countRefused(err error) {
	t := c.lockTally()
	defer c.putBack(t)
	defer t.mu.Unlock()
	if errors.Is(err, ErrFull) {
		t.refusedFull++
	} else {
		t.refusedClosed++
	}
}

// startWork counts what runs on a worker: the shutdown waits for it. The caller
// owns an operation, or is known to the shutdown otherwise.
func (c *core) startWork() { c.countWork(1) }

// stopWork ends what startWork has begun.
func (c *core) stopWork() { c.countWork(-1) }

func (c *core) countWork(n int) {
	t := c.lockTally()
	t.working += n
	closed := t.closed
	t.mu.Unlock()
	c.putBack(t)
	if closed {
		c.closing.notify()
	}
}

// countReached counts goals out whose operation may go on waiting, and a key if that
// was its last goal. The caller holds the lock of the key's bucket.
func (c *core) countReached(goals int, vanished bool) {
	t := c.lockTally()
	t.watched -= goals
	if vanished {
		t.keys.Add(-1)
		t.vanished++
	}
	t.mu.Unlock()
	c.putBack(t)
}

// each calls f with each part while all are locked, in order: one after the other,
// what goes from a part that was seen already to one that was not would be counted
// twice. Nobody else holds two.
func (c *core) each(f func(*tally)) {
	c.mustBeMade()
	a := &c.tallies
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.parts {
		t.mu.Lock()
	}
	for _, t := range a.parts {
		f(t)
	}
	for _, t := range a.parts {
		t.mu.Unlock()
	}
}

package purgatory

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/internal/ring"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// tallies holds the counters of the operations, and the arrivals whose timeouts are not on the
// wheel yet. It is split into parts, so that goroutines on different processors do not write to
// the same cache lines.
//
// An operation may be added in one part and subtracted in another: the values of a part may be
// below zero, and only the sums have a meaning.
type tallies struct {
	maxParts int // maximum number of parts: GOMAXPROCS at creation

	mu     sync.Mutex
	parts  []*tally // guarded by mu; made when first needed
	next   int      // guarded by mu
	closed bool     // guarded by mu; future parts refuse operations

	// local holds the parts. It returns a part that was last used on the same processor.
	local sync.Pool
}

// tally is one part.
type tally struct {
	core *core
	mu   sync.Mutex
	keys atomic.Int64 // written by any goroutine

	// Guarded by mu.
	closed                     bool // refuses operations: the shutdown has begun
	pending, watched           int
	working                    int // work on workers, in addition to waiting operations
	keysRemoved                int // keys removed since the last call of lists.shrink
	checks                     uint64
	ended                      [outcomes]uint64
	refusedFull, refusedClosed uint64
	arrivals                   ring.Queue[arrival]
	sweeping                   bool              // a sweep is scheduled or running
	sweep                      timingwheel.Timer // the timer of the last sweep
	sweepAt                    time.Duration     // when it is due; while it runs, when its batch began
	histograms                 *histograms       // nil: nothing to record yet

	_ [64]byte
}

// lockTally returns a part, preferably the processor's own, locked. The caller returns it with
// putTally.
//
// Two processors may come to use the same part, because a goroutine moved with it or the
// collector emptied the pool. They soon contend for its lock, and then one of them takes
// another part.
func (c *core) lockTally() *tally {
	t, _ := c.tallies.local.Get().(*tally)
	if t == nil || !t.mu.TryLock() {
		t = c.anotherTally()
		t.mu.Lock()
	}
	return t
}

// anotherTally returns a new part or, when there are enough, the next one in turn.
func (c *core) anotherTally() *tally {
	a := &c.tallies
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.parts) < a.maxParts {
		t := &tally{core: c, closed: a.closed}
		a.parts = append(a.parts, t)
		return t
	}
	a.next = (a.next + 1) % len(a.parts)
	return a.parts[a.next]
}

func (c *core) putTally(t *tally) { c.tallies.local.Put(t) }

// countIn counts an operation that is going to wait. It returns the part, which the caller must
// put back. soon reports that the timeout must be entered on the wheel before the operation
// waits. An error means that the operation is refused, and counted as such.
func (c *core) countIn(w *waiter, gen uint64) (t *tally, soon bool, err error) {
	if !c.limit.Reserve() {
		c.countRefused(ErrFull)
		return nil, false, ErrFull
	}
	t = c.lockTally()
	if t.closed {
		t.mu.Unlock()
		c.putTally(t)
		c.limit.Release(1)
		c.countRefused(ErrClosed)
		return nil, false, ErrClosed
	}
	t.pending++
	t.watched += int(w.n)
	at := time.Duration(w.deadline.Load())
	soon = at != never && at > w.since && !t.postponeLocked(w, gen)
	t.mu.Unlock()
	return t, soon, nil
}

// countOut counts an ended operation by its outcome, and returns how long it waited; 0 if it
// never did.
func (c *core) countOut(w *waiter, o Outcome, watches, keysRemoved int) (waited time.Duration) {
	ended := now()
	waited = ended - w.since
	t := c.lockTally()
	t.checks += uint64(w.checks)
	t.ended[o]++
	shrink, after := false, shrinkEach*c.tallies.maxParts
	if w.n == 0 {
		waited = 0
	} else {
		t.pending--
		t.watched -= watches
		if keysRemoved > 0 {
			t.keys.Add(-int64(keysRemoved))
		}
		if t.histograms == nil {
			t.histograms = new(histograms)
		}
		t.histograms.waited[o].Add(waited)
		if o == Expired {
			t.histograms.late.Add(ended - time.Duration(w.deadline.Load()))
		}
		if t.keysRemoved += keysRemoved; t.keysRemoved >= after {
			t.keysRemoved, shrink = 0, true
		}
	}
	closed := t.closed
	t.mu.Unlock()
	if w.n > 0 {
		c.limit.Release(1) // not earlier, or Len would exceed MaxPending for a moment
	}
	c.putTally(t)
	if closed {
		c.closing.notify()
	}
	if shrink {
		c.lists.shrink(shrinkBy * after)
	}
	return waited
}

// countRefused counts a refused operation.
func (c *core) countRefused(err error) {
	t := c.lockTally()
	defer c.putTally(t)
	defer t.mu.Unlock()
	if errors.Is(err, ErrFull) {
		t.refusedFull++
	} else {
		t.refusedClosed++
	}
}

// startWork counts work on a worker, for which the shutdown waits. The caller owns an
// operation, or the shutdown knows of the work otherwise.
func (c *core) startWork() { c.countWork(1) }

// stopWork undoes startWork.
func (c *core) stopWork() { c.countWork(-1) }

func (c *core) countWork(n int) {
	t := c.lockTally()
	t.working += n
	closed := t.closed
	t.mu.Unlock()
	c.putTally(t)
	if closed {
		c.closing.notify()
	}
}

// countReached subtracts goals whose operation may go on waiting, and a key if that was its
// last goal. The caller holds the lock of the key's bucket.
func (c *core) countReached(goals int, keyRemoved bool) {
	t := c.lockTally()
	t.watched -= goals
	if keyRemoved {
		t.keys.Add(-1)
		t.keysRemoved++
	}
	t.mu.Unlock()
	c.putTally(t)
}

// each locks every part, in order, and calls f with each. Locking one part at a time could
// count an operation twice when it moves between parts. No other function holds two.
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

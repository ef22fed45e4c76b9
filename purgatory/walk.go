package purgatory

import (
	"math/bits"
	"runtime/debug"
)

// batch is how many operations are taken from a list for one turn of its lock.
const batch = 32

// walk is one way through the operations that watch a key.
type walk[K comparable] struct {
	shard *shard[K]
	// left is how many operations it still may meet. They go from anywhere in
	// the list, and come at its end: those that were there when it began are
	// met first.
	left int
	// row and from are where it goes on after this batch; nil: nowhere.
	row  *row[K]
	from uint8

	found [batch]Pending // those of at to n-1 are yet to visit
	at, n int

	visit visit
	ended int // operations, by this walk
}

// visit is what a walk does with each operation.
type visit uint8

const (
	checking visit = iota
	cancelling
)

// walk visits the operations that watch key, in the order they came, and holds
// no lock meanwhile; it says how many that has ended. It reaches all that watch
// when it begins and have not ended when their turn comes; not, but by chance,
// those that come later, so operations that watch the key again as they complete
// do not keep it going for ever.
//
// The lock is held for one batch at a time, however long the list is.
func (p *Purgatory[K]) walk(key K, what visit) int {
	at, hash := p.place(key)
	s := &p.shards[at]
	s.mu.Lock()
	l := s.keys.find(key, hash)
	if l == nil {
		s.mu.Unlock()
		return 0
	}
	w := walk[K]{shard: s, left: l.n, visit: what}
	w.fillLocked(l.head, 0)
	s.mu.Unlock()
	w.run()
	return w.ended
}

// run visits this batch and all that follow. When a visit ends the goroutine, by
// runtime.Goexit, the rest have their turn while it does: none of them misses
// it for another's sake (P7).
func (w *walk[K]) run() {
	whole := false
	defer func() {
		if !whole {
			w.run()
		}
	}()
	for {
		for w.at < w.n {
			if w.visit == checking {
				w.check()
			} else {
				w.cancel()
			}
		}
		if w.row == nil {
			break
		}
		w.shard.mu.Lock()
		w.fillLocked(w.row, w.from)
		w.shard.mu.Unlock()
	}
	whole = true
}

// next is the operation to visit.
func (w *walk[K]) next() Pending {
	w.at++
	return w.found[w.at-1]
}

// check visits a batch: each operation is asked whether it can complete. One
// that panics ends the batch early; run sees to the rest.
//
// One deferred function serves them all, and an operation that says no, and that
// nothing was asked of meanwhile, is let go in one step.
func (w *walk[K]) check() {
	var asked *record // its TryComplete is running
	defer func() {
		if asked == nil {
			return
		}
		v := recover()
		t := asked.host
		asked.state.own(Failed)
		defer asked.release(false) // by Goexit too, of TryComplete or of the hook
		if v != nil {
			t.report(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	for w.at < w.n {
		h := w.next()
		r := h.r
		if !r.state.acquire(h.gen) {
			continue
		}
		r.checks++
		asked = r
		yes := r.op.TryComplete()
		asked = nil
		if !yes && r.state.rest(h.gen) {
			continue
		}
		if yes {
			yes = r.state.own(Completed)
		}
		if r.release(yes) {
			w.ended++
		}
	}
}

// cancel visits a batch: each operation is ended as Cancelled.
func (w *walk[K]) cancel() {
	for w.at < w.n {
		if w.next().Cancel() {
			w.ended++
		}
	}
}

// fillLocked finds the batch that begins at a slot of a row, and has the row
// with the next one stay until the walk is there.
func (w *walk[K]) fillLocked(r *row[K], from uint8) {
	kept := w.row
	w.row, w.at, w.n = nil, 0, 0
	for w.left > 0 {
		for used := r.used &^ (1<<from - 1); used != 0 && w.left > 0; used &= used - 1 {
			slot := bits.TrailingZeros16(used)
			if w.n == batch {
				w.row, w.from = r, uint8(slot)
				r.walks++
				break
			}
			w.found[w.n].r = r.slots[slot]
			w.n++
			w.left--
		}
		if r, from = r.next, 0; r == nil || w.row != nil {
			break
		}
	}
	if kept != nil {
		kept.walks--
		if kept.walks == 0 && kept.used == 0 {
			w.shard.dropRowLocked(kept)
		}
	}
	// They lie anywhere. A look at all of them has them come into the cache
	// together, and not each when its turn comes.
	for i := range w.found[:w.n] {
		w.found[i] = w.found[i].r.handle()
	}
}

package purgatory

import (
	"math/bits"
	"sync"
)

// batch is how many operations are taken from a list for one turn of its lock: all that
// are side by side, so that a walk never pauses there. fewFound is for how many there is
// room in the walk itself.
const (
	batch    = maxNear
	fewFound = 8
)

var founds = sync.Pool{New: func() any { return new([batch]Pending) }}

// walk is one way through the operations that watch a key, in the order in which
// they came. No lock is held while it visits one.
//
// It reaches all that watch when it begins and have not ended when their turn comes;
// not, but by chance, those that come later, so operations that watch the key again as
// they complete do not keep it going for ever.
type walk[K comparable] struct {
	table *table[K, watchlist]
	key   K
	hash  uint64
	// left is how many operations it still may meet. They go from anywhere in
	// the list, and come at its end: those that were there when it began are
	// met first.
	left int
	// chunk and from are where it goes on after this batch; nil: nowhere.
	chunk *chunk
	from  int

	few   [fewFound]Pending
	many  *[batch]Pending // instead, if they may be more
	at, n int             // those of at to n-1 are yet to visit

	visit visit
	cause error // for cancelling
	ended int   // operations, by this walk
}

// visit is what a walk does with each operation.
type visit uint8

const (
	checking visit = iota
	cancelling
)

// begin finds the first batch.
func (w *walk[K]) begin() {
	b := w.table.lock(uint32(w.hash))
	if e := b.find(w.key, w.hash); e != nil {
		w.left = int(e.value.n)
		w.fillLocked(&e.value)
	}
	b.mu.Unlock()
}

// proceed finds the next batch.
func (w *walk[K]) proceed() {
	b := w.table.lock(uint32(w.hash))
	e := b.find(w.key, w.hash) // it is there: a walk goes on from it
	w.fillLocked(&e.value)
	if e.value.shorten(uint32(w.hash)); e.value.empty() {
		w.table.removeLocked(b, e)
	}
	b.mu.Unlock()
}

// look finds the first batch or the next one, and calls f with it under the key's lock,
// for a caller that only reads. It reports whether there is more. abandon ends the walk.
func (w *walk[K]) look(f func(found []Pending)) (more bool) {
	b := w.table.lock(uint32(w.hash))
	defer b.mu.Unlock()
	e := b.find(w.key, w.hash)
	if e == nil { // gone before the first
		return false
	}
	first := w.chunk == nil
	if first {
		w.left = int(e.value.n)
	}
	w.fillLocked(&e.value)
	f(w.found()[:w.n])
	if e.value.shorten(uint32(w.hash)); !first && e.value.empty() {
		w.table.removeLocked(b, e)
	}
	return w.chunk != nil
}

// abandon ends a walk that looks, wherever it is.
func (w *walk[K]) abandon() {
	if w.chunk != nil {
		w.left = 0
		w.proceed()
	}
	if w.many != nil {
		founds.Put(w.many)
	}
}

// fillLocked finds the batch that begins at the list's front, or where the walk has
// paused, and has the chunk with the next one stay until the walk is there.
func (w *walk[K]) fillLocked(l *watchlist) {
	c, from, paused := w.chunk, w.from, w.chunk
	w.chunk, w.at, w.n = nil, 0, 0
	if paused == nil {
		if l.n > fewFound {
			w.many = founds.Get().(*[batch]Pending)
		}
		found := w.found()
		for _, x := range l.inPlace[:min(l.near, inPlace)] {
			found[w.n].w = x
			w.n++
		}
		if l.longer {
			for _, x := range l.rest.near[:max(l.near-inPlace, 0)] {
				found[w.n].w = x
				w.n++
			}
			c = l.rest.head
		}
		w.left -= w.n
	}
	found := w.found()
	for ; c != nil && w.left > 0 && w.chunk == nil; c, from = c.next, 0 {
		for used := c.used &^ (1<<from - 1); used != 0 && w.left > 0; used &= used - 1 {
			slot := bits.TrailingZeros32(used)
			if w.n == len(found) {
				w.chunk, w.from = c, slot
				c.walks++
				c.list.walks++
				break
			}
			found[w.n].w = c.slots[slot]
			w.n++
			w.left--
		}
	}
	if paused != nil {
		paused.walks--
		paused.list.walks--
		paused.list.tidy(paused)
	}
	// They lie anywhere. A look at all of them has them come into the cache
	// together, and not each when its turn comes.
	for i := range found[:w.n] {
		found[i] = found[i].w.handle()
	}
}

// found returns the room for a batch.
func (w *walk[K]) found() []Pending {
	if w.many != nil {
		return w.many[:]
	}
	return w.few[:]
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
		if w.chunk == nil {
			break
		}
		w.proceed()
	}
	whole = true
	if w.many != nil {
		founds.Put(w.many)
	}
}

// check visits a batch: each operation is asked whether it can complete, or its owner is
// told to ask. One that panics ends the batch early; run sees to the rest.
//
// One deferred function serves them all, and an operation whose check returns false, and that
// nothing was asked of meanwhile, is let go in one step.
func (w *walk[K]) check() {
	var asked *waiter // its TryComplete is running
	defer func() {
		if asked != nil {
			asked.fail(recover())
		}
	}()
	for found := w.found(); w.at < w.n; {
		h := found[w.at]
		w.at++
		x := h.w
		if !x.state.acquire(h.gen) {
			continue
		}
		x.checks++
		asked = x
		yes := x.op.TryComplete()
		asked = nil
		if !yes && x.state.yield(h.gen) {
			continue
		}
		if completed, _ := x.yield(yes && x.state.decideAsOwner(Completed)); completed {
			w.ended++
		}
	}
}

// cancel visits a batch: each operation is ended as Cancelled.
func (w *walk[K]) cancel() {
	for found := w.found(); w.at < w.n; {
		h := found[w.at]
		w.at++
		if h.Cancel(w.cause) {
			w.ended++
		}
	}
}

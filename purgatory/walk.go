package purgatory

import (
	"math/bits"
	"sync"

	"github.com/seed-782fa212/limbo/internal/goexit"
)

// batch is the maximum number of operations taken from a list while its lock is held once. It
// covers the contiguous ones, so that a walk never pauses among them. Up to fewFound operations
// are stored in the walk itself.
const (
	batch    = maxContiguous
	fewFound = 8
)

var batches = sync.Pool{New: func() any { return new([batch]Pending) }}

// walk is one pass over the operations that watch a key, in order of arrival. It holds no lock
// while it visits one.
//
// It reaches all operations that watch when it begins and have not ended by their turn. It does
// not, or only by chance, reach later ones, so operations that watch the key again as they
// complete do not prolong the walk for ever.
type walk[K comparable] struct {
	table *table[K, watchlist]
	key   K
	hash  uint64
	// remaining is the maximum number of operations still to be read. Operations leave from
	// anywhere in the list and arrive at its end, so the ones present at the beginning come
	// first.
	remaining int
	// chunk and from are the position from which the walk continues after this batch; nil:
	// none.
	chunk *chunk
	from  int

	few   [fewFound]Pending
	many  *[batch]Pending // used instead if there may be more
	at, n int             // entries at to n-1 are still to be visited

	visit visit
	cause error // for cancelling
	ended int   // operations ended by this walk
}

// visit is the action of a walk on each operation.
type visit uint8

const (
	checking visit = iota
	cancelling
)

// begin reads the first batch.
func (w *walk[K]) begin() {
	b := w.table.lock(uint32(w.hash))
	if e := b.find(w.key, w.hash); e != nil {
		w.remaining = int(e.value.n)
		w.fillLocked(&e.value)
	}
	b.mu.Unlock()
}

// proceed reads the next batch.
func (w *walk[K]) proceed() {
	b := w.table.lock(uint32(w.hash))
	e := b.find(w.key, w.hash) // the entry exists: a walk is paused in it
	w.fillLocked(&e.value)
	if e.value.compact(uint32(w.hash)); e.value.empty() {
		w.table.removeLocked(b, e)
	}
	b.mu.Unlock()
}

// readBatch reads the first or the next batch, and calls f with it under the key's lock, for a
// caller that only reads. It reports whether there are more. stop ends the walk.
func (w *walk[K]) readBatch(f func(found []Pending)) (more bool) {
	b := w.table.lock(uint32(w.hash))
	defer b.mu.Unlock()
	e := b.find(w.key, w.hash)
	if e == nil { // removed before the first batch
		return false
	}
	first := w.chunk == nil
	if first {
		w.remaining = int(e.value.n)
	}
	w.fillLocked(&e.value)
	f(w.found()[:w.n])
	if e.value.compact(uint32(w.hash)); !first && e.value.empty() {
		w.table.removeLocked(b, e)
	}
	return w.chunk != nil
}

// stop ends a walk that uses readBatch, at any position.
func (w *walk[K]) stop() {
	if w.chunk != nil {
		w.remaining = 0
		w.proceed()
	}
	if w.many != nil {
		batches.Put(w.many)
	}
}

// fillLocked reads the batch that begins at the list's front, or where the walk has paused. It
// pins the chunk where the next batch begins until the walk continues there.
func (w *walk[K]) fillLocked(l *watchlist) {
	c, from, paused := w.chunk, w.from, w.chunk
	w.chunk, w.at, w.n = nil, 0, 0
	if paused == nil {
		if l.n > fewFound {
			w.many = batches.Get().(*[batch]Pending)
		}
		found := w.found()
		for _, x := range l.inline[:min(l.contiguous, maxInline)] {
			found[w.n].w = x
			w.n++
		}
		if l.hasRest {
			for _, x := range l.rest.contiguous[:max(l.contiguous-maxInline, 0)] {
				found[w.n].w = x
				w.n++
			}
			c = l.rest.head
		}
		w.remaining -= w.n
	}
	found := w.found()
	for ; c != nil && w.remaining > 0 && w.chunk == nil; c, from = c.next, 0 {
		for used := c.used &^ (1<<from - 1); used != 0 && w.remaining > 0; used &= used - 1 {
			slot := bits.TrailingZeros32(used)
			if w.n == len(found) {
				w.chunk, w.from = c, slot
				c.walks++
				c.list.walks++
				break
			}
			found[w.n].w = c.slots[slot]
			w.n++
			w.remaining--
		}
	}
	if paused != nil {
		paused.walks--
		paused.list.walks--
		paused.list.tidy(paused)
	}
	// The records are scattered in memory, and so are their operations, whose checks would load
	// them one by one. Reading all records first, and prefetching the operations, overlaps these
	// cache misses. A long list is not worth prefetching as a whole.
	for i := range found[:w.n] {
		found[i] = found[i].w.handle()
	}
	if paused == nil && w.n > 1 {
		for i := range found[:w.n] {
			found[i].w.prefetchOp()
		}
	}
}

// found returns the storage of a batch.
func (w *walk[K]) found() []Pending {
	if w.many != nil {
		return w.many[:]
	}
	return w.few[:]
}

// run visits this batch and all that follow.
func (w *walk[K]) run() {
	done := false
	defer goexit.Resume(&done, w.run)
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
	done = true
	if w.many != nil {
		batches.Put(w.many)
	}
}

// check visits a batch: it checks each operation, or asks its owner to. A check that panics
// ends the batch early; run continues with the rest.
//
// One deferred function serves all operations. An operation whose check returns false, and for
// which no other check was requested, is released in one step.
func (w *walk[K]) check() {
	var current *waiter // its TryComplete is running
	defer func() {
		if current != nil {
			current.fail(recover())
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
		current = x
		yes := x.op.TryComplete()
		current = nil
		if !yes && x.state.yield(h.gen) {
			continue
		}
		if completed, _ := x.yield(yes && x.state.decideAsOwner(Completed)); completed {
			w.ended++
		}
	}
}

// cancel visits a batch: it ends each operation as Cancelled.
func (w *walk[K]) cancel() {
	for found := w.found(); w.at < w.n; {
		h := found[w.at]
		w.at++
		if h.Cancel(w.cause) {
			w.ended++
		}
	}
}

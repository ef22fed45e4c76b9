package timingwheel

import (
	"sync"

	"github.com/seed-782fa212/limbo/internal/ring"
)

// readyQueue is the buckets that are due, first in, first out, and the workers
// that wait for one. It holds buckets, which hold their timers where they are. So
// a backlog costs no memory but 16 bytes here and a record for each bucket, and
// nothing ever blocks on the queue being full.
//
// Waking is by relay: at most one worker is on its way (searching) at any
// moment. When it finds a timer and sees more, it wakes the next one before it
// runs its own. So a trickle wakes one worker, a burst wakes all of them, and
// the advancer pays for one wake-up at most.
//
// Invariant: while the queue is not empty and a worker is idle or can still be
// started, a worker is searching.
type readyQueue struct {
	limit int    // workers, at most
	start func() // starts a worker that is searching

	mu   sync.Mutex
	wake sync.Cond // signalled for an idle worker; L is &mu

	// All below is guarded by mu.

	refs      ring.Queue[bucketRef]
	gone      map[bucketRef]struct{} // of these, the buckets that are no more; neither first nor last
	workers   int                    // started and not gone
	idle      int                    // workers in wake.Wait; one that was signalled counts until it is back
	searching int                    // workers on their way: 0 or 1
	signalled int                    // of these, not back from wake.Wait yet
	closing   bool
}

// push adds a bucket behind all others.
func (q *readyQueue) push(r bucketRef) {
	q.mu.Lock()
	q.refs.Push(r)
	q.wakeLocked()
	q.mu.Unlock()
}

// drop takes out a bucket whose last timer has left.
func (q *readyQueue) drop(r bucketRef) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r == q.refs.Front() {
		q.refs.Pop()
	} else {
		if q.gone == nil {
			q.gone = make(map[bucketRef]struct{})
		}
		q.gone[r] = struct{}{}
	}
	if len(q.gone) > 0 {
		q.tidyLocked()
	}
}

// tidyLocked removes buckets that are no more, at both ends, and all when they are more
// than half.
func (q *readyQueue) tidyLocked() {
	if 2*len(q.gone) > q.refs.Len() {
		for range q.refs.Len() {
			r := q.refs.Front()
			q.refs.Pop()
			if _, gone := q.gone[r]; !gone {
				q.refs.Push(r)
			}
		}
		q.gone = nil
		return
	}
	for q.goneLocked(q.refs.Front()) {
		q.refs.Pop()
	}
	for q.goneLocked(q.refs.Back()) {
		q.refs.PopBack()
	}
}

// goneLocked reports whether a bucket is no more, and forgets that.
func (q *readyQueue) goneLocked(r bucketRef) bool {
	_, gone := q.gone[r]
	delete(q.gone, r)
	return gone
}

// pass takes r off the front, if it is still there: a shutdown has ended its timers.
func (q *readyQueue) pass(r bucketRef) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refs.Len() > 0 && q.refs.Front() == r {
		q.refs.Pop()
		if len(q.gone) > 0 {
			q.tidyLocked()
		}
	}
}

// wakeLocked sees to it that a worker comes for what is in the queue.
func (q *readyQueue) wakeLocked() {
	switch {
	case q.searching > 0:
	case q.idle > 0:
		q.searching++
		q.signalled++
		q.wake.Signal()
	case q.workers < q.limit:
		q.searching++
		q.workers++
		q.start()
	}
}

// front waits until the queue is not empty and returns its first bucket. It
// returns false once the queue is closed, and empty. me is the calling worker's
// searching flag.
//
// The first bucket stays the first until it is empty, so a worker that still
// has timers in its current one need not ask again: that is why taking a timer
// costs the shard's lock only.
func (q *readyQueue) front(me *bool) (bucketRef, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.refs.Len() == 0 {
		if *me {
			*me = false
			q.searching--
		}
		if q.closing {
			return bucketRef{}, false
		}
		q.idle++
		q.wake.Wait()
		q.idle--
		if q.signalled > 0 {
			q.signalled--
			*me = true
		}
	}
	return q.refs.Front(), true
}

// found ends a worker's search, successful, and wakes the next one if there is
// more to take.
func (q *readyQueue) found(me *bool) {
	q.mu.Lock()
	*me = false
	q.searching--
	if q.refs.Len() > 0 {
		q.wakeLocked()
	}
	q.mu.Unlock()
}

// close lets the workers leave that find the queue empty.
func (q *readyQueue) close() {
	q.mu.Lock()
	q.closing = true
	q.wake.Broadcast()
	q.mu.Unlock()
}

package timingwheel

import (
	"sync"

	"github.com/seed-782fa212/limbo/internal/ring"
)

// readyQueue holds the buckets that are due, first in, first out, and the workers that wait for
// one. The timers stay in their buckets, so a backlog costs only 16 bytes here and a record for
// each bucket, and a push never blocks on a full queue.
//
// Waking is by relay: at most one worker is on its way (searching) at any moment. When it finds
// a timer and sees more, it wakes the next worker before it runs its own. So a trickle wakes
// one worker, a burst wakes all of them, and the advancer pays for at most one wake-up.
//
// Invariant: while the queue is not empty and a worker is idle or can still be started, a
// worker is searching.
type readyQueue struct {
	limit int    // workers, at most
	start func() // starts a worker that is searching

	mu   sync.Mutex
	wake sync.Cond // signalled for an idle worker; L is &mu

	// All below is guarded by mu.

	refs      ring.Queue[bucketRef]
	freed     map[bucketRef]struct{} // of these, the buckets that were freed; neither first nor last
	workers   int                    // started and not ended
	idle      int                    // workers in wake.Wait; a signalled one counts until it returns
	searching int                    // workers on their way: 0 or 1
	signalled int                    // of these, not yet returned from wake.Wait
	closing   bool
}

// push adds a bucket to the end.
func (q *readyQueue) push(r bucketRef) {
	q.mu.Lock()
	q.refs.Push(r)
	q.wakeLocked()
	q.mu.Unlock()
}

// drop removes a bucket whose last timer has left.
func (q *readyQueue) drop(r bucketRef) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r == q.refs.Front() {
		q.refs.Pop()
	} else {
		if q.freed == nil {
			q.freed = make(map[bucketRef]struct{})
		}
		q.freed[r] = struct{}{}
	}
	if len(q.freed) > 0 {
		q.tidyLocked()
	}
}

// tidyLocked removes freed buckets at both ends, or everywhere when they are more than half.
func (q *readyQueue) tidyLocked() {
	if 2*len(q.freed) > q.refs.Len() {
		for range q.refs.Len() {
			r := q.refs.Front()
			q.refs.Pop()
			if _, freed := q.freed[r]; !freed {
				q.refs.Push(r)
			}
		}
		q.freed = nil
		return
	}
	for q.takeFreedLocked(q.refs.Front()) {
		q.refs.Pop()
	}
	for q.takeFreedLocked(q.refs.Back()) {
		q.refs.PopBack()
	}
}

// takeFreedLocked reports whether a bucket was freed, and removes it from freed.
func (q *readyQueue) takeFreedLocked(r bucketRef) bool {
	_, freed := q.freed[r]
	delete(q.freed, r)
	return freed
}

// skip removes r from the front if it is still there: a shutdown has ended its timers.
func (q *readyQueue) skip(r bucketRef) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refs.Len() > 0 && q.refs.Front() == r {
		q.refs.Pop()
		if len(q.freed) > 0 {
			q.tidyLocked()
		}
	}
}

// wakeLocked makes sure that a worker is searching, if one is idle or can be started.
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

// front waits until the queue is not empty and returns its first bucket. It returns false once
// the queue is closed and empty. searching is the calling worker's flag.
//
// The first bucket stays first until it is empty, so a worker whose current bucket still has
// timers need not ask again. Therefore taking a timer needs only the shard's lock.
func (q *readyQueue) front(searching *bool) (bucketRef, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.refs.Len() == 0 {
		if *searching {
			*searching = false
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
			*searching = true
		}
	}
	return q.refs.Front(), true
}

// found ends a worker's successful search, and wakes the next worker if there is more to take.
func (q *readyQueue) found(searching *bool) {
	q.mu.Lock()
	*searching = false
	q.searching--
	if q.refs.Len() > 0 {
		q.wakeLocked()
	}
	q.mu.Unlock()
}

// close makes workers end when they find the queue empty.
func (q *readyQueue) close() {
	q.mu.Lock()
	q.closing = true
	q.wake.Broadcast()
	q.mu.Unlock()
}

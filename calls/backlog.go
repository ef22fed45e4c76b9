package calls

import (
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
)

// backlog bounds the number of workers in done functions to one less than the wheel has. The
// end of a Do needs a worker only for a moment, and one is always free or about to be: so
// blocking done functions delay no Do, but only each other.
type backlog[ID comparable, R any] struct {
	limit int // Options.Workers

	mu          sync.Mutex
	running     int          // guarded by mu: workers in done functions
	first, last *call[ID, R] // guarded by mu: calls of Go that wait for a worker, in due order
	n           int          // guarded by mu: length of the list
}

// begin adds a call that is due, or none if c is nil, and returns the call whose done function
// the calling worker must run; nil: other workers will run it.
func (b *backlog[ID, R]) begin(c *call[ID, R]) *call[ID, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c != nil && c.ended {
		c = nil
	}
	if c != nil && (b.running == b.limit || b.n > 0) {
		b.pushLocked(c) // behind the earlier ones
		c = nil
	}
	if b.running == b.limit {
		return nil
	}
	if c == nil && b.n > 0 {
		c = b.popLocked()
	}
	if c != nil {
		b.running++
	}
	return c
}

// next returns the next call for a worker whose last one has ended; nil: there is none, and the
// worker is counted as free.
func (b *backlog[ID, R]) next() *call[ID, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n > 0 {
		return b.popLocked()
	}
	b.running--
	return nil
}

// removeWorker subtracts a worker whose goroutine ends, and reports whether calls are left.
func (b *backlog[ID, R]) removeWorker() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running--
	return b.n > 0
}

// remove removes a call that has ended. If a worker is just bringing the call here, begin will
// refuse it. So nothing refers to it any more, however long the running done functions block.
func (b *backlog[ID, R]) remove(c *call[ID, R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.ended = true
	if c.queued {
		b.unlinkLocked(c)
	}
}

// waiting returns how many calls wait for a worker, and how long ago the first of them came
// due; 0 if none waits.
func (b *backlog[ID, R]) waiting() (n int, overdue time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == 0 {
		return 0, 0
	}
	return b.n, now() - b.first.deadline
}

func (b *backlog[ID, R]) pushLocked(c *call[ID, R]) {
	c.queued, c.prev = true, b.last
	if b.last == nil {
		b.first = c
	} else {
		b.last.next = c
	}
	b.last = c
	b.n++
}

func (b *backlog[ID, R]) popLocked() *call[ID, R] {
	c := b.first
	b.unlinkLocked(c)
	return c
}

func (b *backlog[ID, R]) unlinkLocked(c *call[ID, R]) {
	if c.prev == nil {
		b.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		b.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.queued, c.prev, c.next = false, nil, nil
	b.n--
}

// expire is called by the wheel with a call whose timeout has passed, or with nil after a
// worker has left calls in the backlog.
//
// A call that waits for a worker has not ended: a reply can still end it, and then removes it
// from the backlog. Its record is not used again, as its timer could not be stopped, and a
// worker may have just received it.
func (t *Table[ID, R]) expire(c *call[ID, R]) {
	if c != nil && c.done == nil {
		c.expire()
		return
	}
	returned := false
	if c = t.backlog.begin(c); c == nil {
		return
	}
	defer func() {
		// The done function has ended this goroutine, and the wheel starts another. If the
		// wheel is closed, so are all groups, and all remaining calls have ended.
		if !returned && t.backlog.removeWorker() {
			_, _ = t.wheel.Schedule(nil, 0)
		}
	}()
	for ; c != nil; c = t.backlog.next() {
		c.expire()
	}
	returned = true
}

// expire ends a call that has not ended otherwise.
func (c *call[ID, R]) expire() {
	c.handle().end(purgatory.Expired, ErrExpired)
}

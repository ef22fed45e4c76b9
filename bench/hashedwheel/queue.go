package hashedwheel

import "sync/atomic"

// queue is an unbounded queue for many producers and one consumer, in chunks as in JCTools'
// MpscUnboundedArrayQueue, which Netty uses for this. A producer claims a slot by one atomic
// addition. A chunk is used once and then left to the garbage collector, so a slow producer
// never writes to a slot that is reused.
type queue struct {
	tail atomic.Pointer[chunk] // any producer writes
	// The consumer's own:
	head   *chunk
	next   int          // the next slot in head to read
	popped atomic.Int64 // only the consumer writes
}

const chunkSize = 1024

type chunk struct {
	before  int64        // slots in the chunks before this one
	claimed atomic.Int64 // any producer writes; runs past chunkSize when full
	next    atomic.Pointer[chunk]
	slots   [chunkSize]atomic.Pointer[Timeout]
}

func newQueue() *queue {
	q := &queue{head: new(chunk)}
	q.tail.Store(q.head)
	return q
}

// push appends t. Any goroutine may call it.
func (q *queue) push(t *Timeout) {
	for {
		c := q.tail.Load()
		if i := c.claimed.Add(1) - 1; i < chunkSize {
			c.slots[i].Store(t)
			return
		}
		next := c.next.Load()
		if next == nil {
			next = &chunk{before: c.before + chunkSize}
			if !c.next.CompareAndSwap(nil, next) {
				next = c.next.Load()
			}
		}
		q.tail.CompareAndSwap(c, next)
	}
}

// pop removes and returns the first timeout. It returns nil if the queue is empty, or if the
// producer that claimed the slot has not written it yet; the next tick will find it.
func (q *queue) pop() *Timeout {
	if q.next == chunkSize {
		next := q.head.next.Load()
		if next == nil {
			return nil
		}
		q.head, q.next = next, 0
	}
	t := q.head.slots[q.next].Load()
	if t == nil {
		return nil
	}
	q.head.slots[q.next].Store(nil)
	q.next++
	q.popped.Store(q.head.before + int64(q.next))
	return t
}

// len returns the number of timeouts that were pushed and not popped. Any goroutine may call it.
func (q *queue) len() int64 {
	popped := q.popped.Load() // read first, so that the difference is not negative
	c := q.tail.Load()
	return c.before + min(c.claimed.Load(), chunkSize) - popped
}

package delayqueue

import (
	"iter"
	"time"
)

// Handle names one element of the queue that returned it. It is a small comparable value, and
// every method that returns the element's Handle returns the same. The zero Handle names
// nothing. A Handle becomes stale permanently when its element leaves, however that happens:
// ids are 64 bits wide and never reused, so a stale Handle cannot reach a later element. A
// Handle is meaningless to another queue, and must not be passed to one.
type Handle struct {
	id   uint64
	slot uint32 // where Push put the value; see heap.find for its present slot
}

// Element is a value with its deadline and its Handle.
type Element[T any] struct {
	Value T
	// Deadline is the instant that was given to Push or Reset, clamped and converted as
	// documented there, in the local time zone.
	Deadline time.Time
	// Handle is Push's result. If the element has left the queue it is stale, but still
	// distinguishes the element from others.
	Handle Handle
}

// set sets e to the element at position i of h, whose deadlines count from base.
func (e *Element[T]) set(base time.Time, h *heap[T], i int) {
	it := &h.items[i]
	s := &h.slots[it.slot]
	e.Value = s.value
	e.Deadline = base.Add(time.Duration(it.deadline))
	e.Handle = Handle{s.id, s.handle}
}

// chunk is the number of slots that All reads per lock: some hundred nanoseconds, and few
// enough locks.
const chunk = 128

// All returns an iterator over the elements of the queue, due or not, in no particular order;
// slices.SortedFunc sorts them by Deadline.
//
// The loop's body runs without the queue's lock, and may call every method. The iterator is not
// a snapshot: an element that stays in the queue throughout the loop is seen exactly once, with
// its deadline at that time; an element that leaves during the loop is seen at most once, and
// an element pushed after the loop began is not seen. O(n), and O(1) memory: All locks the
// queue for 128 elements at a time. During a loop the table of values does not shrink; an
// iterator obtained by iter.Pull must therefore be stopped.
func (q *Queue[T]) All() iter.Seq[Element[T]] {
	q.mustBeMade()
	return func(yield func(Element[T]) bool) {
		q.mu.Lock()
		end, last := len(q.heap.slots), q.heap.seq
		q.heap.iterating++
		q.mu.Unlock()
		defer func() {
			q.mu.Lock()
			q.heap.iterating--
			q.heap.shrink()
			q.mu.Unlock()
		}()

		buf := make([]Element[T], 0, min(end, chunk))
		for from := 0; from < end; from += chunk {
			buf = q.collect(buf[:0], from, from+chunk, last)
			for _, e := range buf {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// collect appends to dst the elements in the slots from ≤ s < to whose id is at most
// last.
func (q *Queue[T]) collect(dst []Element[T], from, to int, last uint64) []Element[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &q.heap
	for i := from; i < min(to, len(h.slots)); i++ {
		if s := &h.slots[i]; s.id != 0 && s.id <= last {
			dst = append(dst, Element[T]{})
			dst[len(dst)-1].set(q.base, h, int(s.pos))
		}
	}
	return dst
}

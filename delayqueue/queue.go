package delayqueue

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/internal/alarm"
	"github.com/seed-782fa212/limbo/internal/sentinel"
)

var (
	// ErrClosed is returned by Push, Take and TakeElement after Close.
	ErrClosed = sentinel.Closed("delayqueue: closed")

	// ErrFull is returned by Push when the queue holds 4,294,967,295 elements.
	ErrFull = sentinel.Full("delayqueue: full")
)

const (
	never    int64 = math.MaxInt64 // the deadline of an empty queue
	notArmed int64 = math.MinInt64 // no leader sleeps: no deadline is earlier, so no leader is woken
)

// Queue is a blocking priority queue. Its elements can be taken once their deadlines have
// passed, in order of deadline, and in order of arrival where deadlines are equal. Create one
// with New; the zero Queue is not usable, and a Queue must not be copied. All methods are safe
// for concurrent use, and only Take and TakeElement block. The lock is a leaf: no call blocks
// and no user code runs while it is held.
type Queue[T any] struct {
	base time.Time // origin of the int64 deadlines; with a monotonic reading, except in a synctest bubble

	token  chan struct{} // holds the token while there is no leader; capacity 1, see take.go
	closed chan struct{} // closed by Close
	alarm  *alarm.Alarm  // the leader's sleep; all but Sleep is called under mu

	mu    sync.Mutex
	heap  heap[T]
	armed int64 // when the leader's sleep ends; notArmed: no leader sleeps; never: only a signal ends it
	skew  int64 // how far the wall clock has been set ahead since New, for sinceBaseLocked
	done  bool  // closed is closed
	stats Stats
}

// New returns an empty queue. It starts no goroutine, and an unreferenced queue can be
// collected whether or not it was closed. Inside a testing/synctest bubble the queue uses the
// bubble's clock.
func New[T any]() *Queue[T] {
	base := time.Now()
	q := &Queue[T]{
		base:   base,
		token:  make(chan struct{}, 1),
		closed: make(chan struct{}),
		alarm:  alarm.New(base != base.Round(0)), // virtual time has no monotonic reading
		heap:   newHeap[T](),
		armed:  notArmed,
	}
	q.token <- struct{}{}
	return q
}

// mustBeMade panics for a zero Queue, before it fails in a less obvious way.
func (q *Queue[T]) mustBeMade() {
	if q.closed == nil {
		panic("delayqueue: the zero Queue is not usable, make one with New")
	}
}

// Push adds v, which can be taken once deadline has passed. It returns a Handle, with which v
// can be removed or given another deadline until then. The error is ErrClosed after Close,
// ErrFull if there is no capacity, and nil otherwise. Amortised O(log n), O(1) when deadlines
// arrive in order; it allocates only while the queue grows.
//
// Any deadline is accepted. A past one, including the zero time, is due at once; one more than
// 292 years from New is kept as if it were that far. A deadline with a monotonic clock reading
// (made from time.Now and Add) is kept by that clock: setting the wall clock does not change
// it. A deadline without one (time.Date, time.Unix, a decoded time) is converted by the present
// wall clock, to a millisecond, and does not follow that clock afterwards.
func (q *Queue[T]) Push(v T, deadline time.Time) (Handle, error) {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done {
		return Handle{}, ErrClosed
	}
	d := q.sinceBaseLocked(deadline)
	h, ok := q.heap.push(v, d)
	if !ok {
		return Handle{}, ErrFull
	}
	q.wakeLocked(d)
	return h, nil
}

// Remove removes the element named by h. It returns the value and true if and only if the
// element was still in the queue: then no other call returns it. O(log n).
//
// A taker that sleeps until that element's deadline is not woken: it wakes once, at that time,
// finds nothing due (Stats.Stale), and sleeps again. Waking it sooner would cost the same
// wake-up and make Remove slower.
func (q *Queue[T]) Remove(h Handle) (v T, ok bool) {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.heap.find(h)
	if !ok {
		return v, false
	}
	return q.heap.remove(i), true
}

// Reset gives the element named by h another deadline, by the rules of Push, and reports
// whether it was still in the queue. Among equal deadlines it counts as newly added, even if
// the deadline does not change. h stays valid. O(log n).
func (q *Queue[T]) Reset(h Handle, deadline time.Time) bool {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.heap.find(h)
	if !ok {
		return false
	}
	d := q.sinceBaseLocked(deadline)
	q.heap.reset(i, d)
	q.wakeLocked(d)
	return true
}

// Peek returns the element with the earliest deadline, due or not, and leaves it in
// the queue. It reports false if the queue is empty. O(1).
func (q *Queue[T]) Peek() (e Element[T], ok bool) {
	q.mustBeMade()
	q.mu.Lock()
	if ok = len(q.heap.items) > 0; ok {
		e.set(q.base, &q.heap, 0)
	}
	q.mu.Unlock()
	return e, ok
}

// Len returns the number of elements in the queue, due or not. O(1).
func (q *Queue[T]) Len() int {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heap.items)
}

// Poll removes the head if it is due, and reports whether it was. O(log n).
func (q *Queue[T]) Poll() (v T, ok bool) {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pollLocked(nil)
}

// PollElement is Poll with the element's deadline and Handle.
func (q *Queue[T]) PollElement() (e Element[T], ok bool) {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	_, ok = q.pollLocked(&e)
	return e, ok
}

// PollN removes at most n elements that are due by one reading of the clock, appends them to
// dst in order of deadline and returns the extended slice. It removes none if n is zero or
// negative, so that the caller can pass the rest of a budget unchecked.
//
// O(n log len), during which the queue is locked: n bounds how long others wait. Give dst
// enough capacity, so that it does not grow under the lock.
func (q *Queue[T]) PollN(dst []T, n int) []T {
	q.mustBeMade()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap.items) == 0 {
		return dst
	}
	for now := q.now(); n > 0 && len(q.heap.items) > 0 && q.heap.items[0].deadline <= now; n-- {
		dst = append(dst, q.heap.remove(0))
	}
	return dst
}

// PollAll is PollN without a bound: it removes every element that is due. The queue is locked
// all that time; where others must not wait that long, use PollN.
func (q *Queue[T]) PollAll(dst []T) []T { return q.PollN(dst, math.MaxInt) }

// Clear removes every element and returns them, due or not, in order of deadline. Their Handles
// are then stale. The queue stays open, and releases all its memory. Clear returns nil if the
// queue is empty, and after Close. O(n log n), of which the queue is locked for O(1).
//
// As with Remove, a taker that sleeps until the head's deadline is not woken.
func (q *Queue[T]) Clear() []Element[T] {
	q.mustBeMade()
	q.mu.Lock()
	items, slots := q.heap.clear()
	q.mu.Unlock()
	return q.inOrder(items, slots)
}

// Close closes the queue: from now on Push and Take return ErrClosed, also a Take that is
// blocked. Close returns the remaining elements, due or not, in order of deadline; every Handle
// is then stale. Later calls return nil. O(n log n), of which the queue is locked for O(1).
func (q *Queue[T]) Close() []Element[T] {
	q.mustBeMade()
	q.mu.Lock()
	if q.done {
		q.mu.Unlock()
		return nil
	}
	q.done = true
	close(q.closed)
	q.alarm.Close()
	items, slots := q.heap.clear()
	q.mu.Unlock()
	return q.inOrder(items, slots)
}

// inOrder returns the elements of a heap that was cleared. It needs no lock, because no other
// goroutine refers to items and slots any more.
func (q *Queue[T]) inOrder(items []item, slots []slot[T]) []Element[T] {
	if len(items) == 0 {
		return nil
	}
	slices.SortFunc(items, func(a, b item) int {
		if a.before(b) {
			return -1
		}
		return 1 // no two are equal: seq differs
	})
	left := make([]Element[T], len(items))
	cleared := heap[T]{items: items, slots: slots}
	for i := range left {
		left[i].set(q.base, &cleared, i)
	}
	return left
}

// pollLocked removes the head if it is due, and sets e to it unless e is nil. It reads the
// clock once, so no element is taken early.
func (q *Queue[T]) pollLocked(e *Element[T]) (v T, ok bool) {
	if len(q.heap.items) == 0 || q.heap.items[0].deadline > q.now() {
		return v, false
	}
	if e != nil {
		e.set(q.base, &q.heap, 0)
	}
	return q.heap.remove(0), true
}

package delayqueue

import (
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// ErrClosed is returned by Push and Take after Close.
var ErrClosed = errors.New("delayqueue: closed")

const (
	never int64 = math.MaxInt64 // the deadline of an empty queue
	noArm int64 = math.MinInt64 // no leader sleeps: no deadline is earlier, so none is woken

	// maxSkew is how far the wall clock may seem to have moved against the monotonic clock without having been
	// set. The two are read nanoseconds apart unless the thread is preempted in between.
	maxSkew = int64(time.Millisecond)
)

// Queue is a blocking priority queue whose elements come out when their deadlines have passed, earliest first, and in
// the order they went in where deadlines are equal. Create one with New; a Queue must not be copied. All methods are
// safe for concurrent use, and only Take blocks. The lock is a leaf: nothing blocks and no code of the user's runs
// while it is held.
type Queue[T any] struct {
	base time.Time // origin of the int64 deadlines; with a monotonic reading, except in a synctest bubble

	lead   chan struct{} // holds the token while nobody leads; capacity 1, see take.go
	closed chan struct{} // closed by Close
	wake   chan struct{} // a signal to the leader that an earlier deadline came; capacity 1, sent and drained under mu
	timer  *time.Timer   // the leader's sleep; belongs to the holder of the token

	mu    sync.Mutex
	heap  heap[T]
	armed int64 // when the leader will look: noArm if none sleeps, never if it waits for a signal only
	skew  int64 // how far the wall clock has been set ahead since New, for deadlines without a monotonic reading
	done  bool  // closed is closed
	stats Stats
}

// New returns an empty queue. It starts no goroutine, and a queue that is no longer referenced can be collected
// whether or not it was closed. Inside a testing/synctest bubble the queue runs on the bubble's clock.
func New[T any]() *Queue[T] {
	q := &Queue[T]{
		base:   time.Now(),
		lead:   make(chan struct{}, 1),
		closed: make(chan struct{}),
		wake:   make(chan struct{}, 1),
		timer:  time.NewTimer(math.MaxInt64),
		heap:   heap[T]{free: noSlot},
		armed:  noArm,
	}
	q.timer.Stop()
	q.lead <- struct{}{}
	return q
}

// Push adds v, to come out once deadline has passed, and returns a Handle by which it can be removed or moved until
// then. The error is ErrClosed after Close, and nil otherwise. Amortised O(log n), O(1) when deadlines arrive in
// order; it allocates only while the queue grows.
//
// Any deadline is accepted. One that has passed, the zero time included, is due at once; one that is more than 292
// years from New is kept as if it were that far. A deadline with a monotonic clock reading (made from time.Now and
// Add) is kept by that clock: setting the wall clock changes nothing. One without (time.Date, time.Unix, a decoded
// time) is converted by the wall clock as it stands now, to a millisecond, and does not follow it afterwards.
func (q *Queue[T]) Push(v T, deadline time.Time) (Handle, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done {
		return Handle{}, ErrClosed
	}
	d := q.sinceBaseLocked(deadline)
	h := q.heap.push(v, d)
	q.signalLocked(d)
	return h, nil
}

// Remove takes out the element named by h. The value is returned, with true, if and only if the element was still in
// the queue: then no other call returns it. O(log n).
//
// A taker that sleeps until that element's deadline is not woken: it wakes once, at that time, finds nothing
// (Stats.Stale), and sleeps on. Waking it sooner would cost the same wake-up and make Remove slower.
func (q *Queue[T]) Remove(h Handle) (v T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.heap.find(h)
	if !ok {
		return v, false
	}
	return q.heap.remove(i), true
}

// Move gives the element named by h another deadline, by the rules of Push, and says whether it was still in the
// queue. Among equal deadlines it counts as newly put, even if the deadline is the one it had. h stays valid. O(log n).
func (q *Queue[T]) Move(h Handle, deadline time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, ok := q.heap.find(h)
	if !ok {
		return false
	}
	d := q.sinceBaseLocked(deadline)
	q.heap.move(i, d)
	q.signalLocked(d)
	return true
}

// Peek returns the element with the earliest deadline, due or not, and leaves it in the queue. The deadline is the
// instant that was pushed, clamped and converted as Push says, in the local time zone. ok is false if the
// queue is empty. O(1).
func (q *Queue[T]) Peek() (v T, deadline time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap.items) == 0 {
		return v, time.Time{}, false
	}
	head := q.heap.items[0]
	return q.heap.slots[head.slot].value, q.base.Add(time.Duration(head.deadline)), true
}

// Len returns the number of elements in the queue, due or not. O(1).
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heap.items)
}

// Poll takes out the head if it is due, and says whether it was. O(log n).
func (q *Queue[T]) Poll() (v T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pollLocked()
}

// PollAll takes out every element that is due by one reading of the clock, appends them to dst in order of deadline
// and returns the extended slice. O(k log n) for k elements, during which the queue is locked.
func (q *Queue[T]) PollAll(dst []T) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap.items) == 0 {
		return dst
	}
	for now := q.now(); len(q.heap.items) > 0 && q.heap.items[0].deadline <= now; {
		dst = append(dst, q.heap.remove(0))
	}
	return dst
}

// Close refuses what comes later: Push and Take return ErrClosed from now on, blocked takers included. It returns
// what was left, due or not, in order of deadline; every Handle is stale then. Calls after the first return nil.
// O(n log n), most of it after the lock is released.
func (q *Queue[T]) Close() []T {
	q.mu.Lock()
	if q.done {
		q.mu.Unlock()
		return nil
	}
	q.done = true
	close(q.closed)
	items, slots := q.heap.items, q.heap.slots
	q.heap = heap[T]{free: noSlot}
	q.mu.Unlock()

	if len(items) == 0 {
		return nil
	}
	slices.SortFunc(items, func(a, b item) int {
		if a.before(b) {
			return -1
		}
		return 1 // no two are equal: seq differs
	})
	left := make([]T, len(items))
	for i, it := range items {
		left[i] = slots[it.slot].value
	}
	return left
}

// pollLocked takes out the head if it is due. One reading of the clock decides, so nothing comes out early.
func (q *Queue[T]) pollLocked() (v T, ok bool) {
	if len(q.heap.items) == 0 || q.heap.items[0].deadline > q.now() {
		return v, false
	}
	return q.heap.remove(0), true
}

// now reads the clock that deadlines are compared with.
func (q *Queue[T]) now() int64 { return int64(time.Since(q.base)) }

// sinceBaseLocked converts a deadline, saturating at both ends. No clock is read when the deadline carries a
// monotonic reading.
func (q *Queue[T]) sinceBaseLocked(deadline time.Time) int64 {
	d := int64(deadline.Sub(q.base))
	if deadline != deadline.Round(0) { // Round(0) strips the monotonic reading
		return d
	}
	now := time.Now()
	q.skew = adoptSkew(q.skew, int64(now.Round(0).Sub(q.base))-int64(now.Sub(q.base)))
	return subSat(d, q.skew)
}

// adoptSkew decides what to take for the distance between the wall clock and the monotonic clock. The two cannot be
// read at one instant, so what is seen jitters, and converting by it would scatter equal deadlines that must stay
// equal to come out in order. Only a difference that means the clock was set is adopted.
func adoptSkew(kept, seen int64) int64 {
	if diff := seen - kept; diff > maxSkew || diff < -maxSkew {
		return seen
	}
	return kept
}

// subSat is a-b, saturating. The ends of the range stay where they are: they stand for "that far or farther".
func subSat(a, b int64) int64 {
	d := a - b
	switch {
	case a == math.MaxInt64 || a == math.MinInt64:
		return a
	case b < 0 && d < a:
		return math.MaxInt64
	case b > 0 && d > a:
		return math.MinInt64
	}
	return d
}

// Package ring is a first-in first-out queue in an array.
package ring

// Queue is a first-in first-out queue. The zero Queue is empty and ready to use. All
// methods take O(1), amortised over growth and shrinkage; its memory follows the number
// of values, down to 64 places. It is not safe for concurrent use.
type Queue[T any] struct {
	ring []T // length 0 or a power of two
	head int
	n    int
}

// least is the smallest array.
const least = 64

// Len returns the number of values.
func (q *Queue[T]) Len() int { return q.n }

// Cap returns how many values there are places for.
func (q *Queue[T]) Cap() int { return len(q.ring) }

// Push adds x at the back.
func (q *Queue[T]) Push(x T) {
	if q.n == len(q.ring) {
		q.resize(2 * q.n)
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = x
	q.n++
}

// At returns the k-th value from the front, from 0 to below Len.
func (q *Queue[T]) At(k int) T { return q.ring[(q.head+k)&(len(q.ring)-1)] }

// Front returns the oldest value. There must be one.
func (q *Queue[T]) Front() T { return q.At(0) }

// Back returns the newest value. There must be one.
func (q *Queue[T]) Back() T { return q.At(q.n - 1) }

// Pop removes the oldest value, and keeps nothing of it. There must be one.
func (q *Queue[T]) Pop() {
	var none T
	q.ring[q.head] = none
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	q.shrink()
}

// PopBack removes the newest value, and keeps nothing of it. There must be one.
func (q *Queue[T]) PopBack() {
	var none T
	q.n--
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = none
	q.shrink()
}

func (q *Queue[T]) shrink() {
	if len(q.ring) > least && q.n <= len(q.ring)/8 {
		q.resize(len(q.ring) / 4) // a quarter, so that growth and shrinkage do not meet
	}
}

func (q *Queue[T]) resize(size int) {
	ring := make([]T, max(least, size))
	for i := range q.n {
		ring[i] = q.At(i)
	}
	q.ring, q.head = ring, 0
}

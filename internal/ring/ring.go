// Package ring is a first-in first-out queue in an array.
package ring

// Queue is a first-in first-out queue. The zero Queue is empty and ready to use. All methods
// take O(1), amortised over growth and shrinkage. Its memory is proportional to the number of
// values, with a minimum of 64 slots. It is not safe for concurrent use.
type Queue[T any] struct {
	ring []T // length 0 or a power of two
	head int
	n    int
}

// minSize is the minimum length of the array.
const minSize = 64

// Len returns the number of values.
func (q *Queue[T]) Len() int { return q.n }

// Cap returns the number of slots.
func (q *Queue[T]) Cap() int { return len(q.ring) }

// Push adds x at the back.
func (q *Queue[T]) Push(x T) {
	if q.n == len(q.ring) {
		q.resize(2 * q.n)
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = x
	q.n++
}

// At returns the k-th value from the front, for 0 <= k < Len.
func (q *Queue[T]) At(k int) T { return q.ring[(q.head+k)&(len(q.ring)-1)] }

// Front returns the oldest value. There must be one.
func (q *Queue[T]) Front() T { return q.At(0) }

// Back returns the newest value. There must be one.
func (q *Queue[T]) Back() T { return q.At(q.n - 1) }

// Pop removes the oldest value and clears its slot. There must be one.
func (q *Queue[T]) Pop() {
	var none T
	q.ring[q.head] = none
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	q.shrink()
}

// PopBack removes the newest value and clears its slot. There must be one.
func (q *Queue[T]) PopBack() {
	var none T
	q.n--
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = none
	q.shrink()
}

func (q *Queue[T]) shrink() {
	if len(q.ring) > minSize && q.n <= len(q.ring)/8 {
		q.resize(len(q.ring) / 4) // a quarter, so that growth and shrinkage do not alternate
	}
}

func (q *Queue[T]) resize(size int) {
	ring := make([]T, max(minSize, size))
	for i := range q.n {
		ring[i] = q.At(i)
	}
	q.ring, q.head = ring, 0
}

package purgatory

import (
	"cmp"
	"slices"
)

// best keeps those of the items that it is given whose rank is highest, at most n. An item
// takes O(log n).
type best[T any] struct {
	n     int
	items []T
	heap  []ranked // of all items, the lowest first
}

// ranked is an item by its index, so that the heap moves no items.
type ranked struct {
	rank int64
	item int
}

// newBest makes one for n of some items; there may be more than expected.
func newBest[T any](n, expected int) *best[T] {
	room := max(min(n, expected), 0)
	return &best[T]{n: n, items: make([]T, 0, room), heap: make([]ranked, 0, room)}
}

// accepts reports whether an item of a rank would be kept.
func (b *best[T]) accepts(rank int64) bool {
	return len(b.items) < b.n || b.n > 0 && rank > b.heap[0].rank
}

// add adds an item that is accepted.
func (b *best[T]) add(rank int64, item T) {
	if len(b.items) < b.n {
		b.heap = append(b.heap, ranked{rank, len(b.items)})
		b.items = append(b.items, item)
		b.up(len(b.heap) - 1)
		return
	}
	b.heap[0].rank = rank
	b.items[b.heap[0].item] = item
	b.down()
}

func (b *best[T]) up(i int) {
	for h := b.heap; i > 0 && h[i].rank < h[(i-1)/2].rank; i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
}

func (b *best[T]) down() {
	h := b.heap
	for i, child := 0, 1; child < len(h); i, child = child, 2*child+1 {
		if child+1 < len(h) && h[child+1].rank < h[child].rank {
			child++
		}
		if h[i].rank <= h[child].rank {
			return
		}
		h[i], h[child] = h[child], h[i]
	}
}

// sorted returns the items, those with the highest rank first, and of equal ones those that
// were added first. Nothing is added after it.
func (b *best[T]) sorted() []T {
	slices.SortFunc(b.heap, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(y.rank, x.rank), cmp.Compare(x.item, y.item))
	})
	sorted := make([]T, len(b.heap))
	for i, x := range b.heap {
		sorted[i] = b.items[x.item]
	}
	return sorted
}

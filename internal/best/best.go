// Package best finds the n greatest of many items, for Oldest and Hotspots.
package best

import (
	"cmp"
	"slices"
)

// Best keeps the n items with the highest ranks among those added. Adding an item takes O(log
// n), and O(1) until there are n.
type Best[T any] struct {
	n     int
	items []T
	ranks []ranked // of all items; a heap, the lowest first, once there are n
	heap  bool
}

// ranked is an item by its index, so that the heap moves no items.
type ranked struct {
	rank int64
	item int
}

// New makes a Best for n items out of some expected number; there may be more.
func New[T any](n, expected int) *Best[T] {
	capacity := max(min(n, expected), 0)
	return &Best[T]{n: n, items: make([]T, 0, capacity), ranks: make([]ranked, 0, capacity)}
}

// full reports whether a further item would have to replace another. The ranks are a heap then.
func (b *Best[T]) full() bool {
	if len(b.items) < b.n {
		return false
	}
	if !b.heap {
		b.heap = true
		for i := len(b.ranks)/2 - 1; i >= 0; i-- {
			b.down(i)
		}
	}
	return true
}

// Accepts reports whether an item with this rank would be kept.
func (b *Best[T]) Accepts(rank int64) bool {
	return !b.full() || b.n > 0 && rank > b.ranks[0].rank
}

// Add adds an item. Accepts must have returned true for its rank.
func (b *Best[T]) Add(rank int64, item T) {
	if !b.full() {
		b.ranks = append(b.ranks, ranked{rank, len(b.items)})
		b.items = append(b.items, item)
		return
	}
	b.ranks[0].rank = rank
	b.items[b.ranks[0].item] = item
	b.down(0)
}

// down moves an element of the heap down until the heap is valid.
func (b *Best[T]) down(i int) {
	h := b.ranks
	for child := 2*i + 1; child < len(h); i, child = child, 2*child+1 {
		if child+1 < len(h) && h[child+1].rank < h[child].rank {
			child++
		}
		if h[i].rank <= h[child].rank {
			return
		}
		h[i], h[child] = h[child], h[i]
	}
}

// Sorted returns the items, the highest rank first. Do not add items after it.
func (b *Best[T]) Sorted() []T {
	slices.SortFunc(b.ranks, func(x, y ranked) int {
		if x.rank != y.rank {
			return cmp.Compare(y.rank, x.rank)
		}
		return x.item - y.item // mostly in the order of Add: a replacement takes over the index of the item that it replaces
	})
	sorted := make([]T, len(b.ranks))
	for i, x := range b.ranks {
		sorted[i] = b.items[x.item]
	}
	return sorted
}

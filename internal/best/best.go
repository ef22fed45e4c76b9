// Package best finds the n greatest of many, for Oldest and Hotspots.
package best

import (
	"cmp"
	"slices"
)

// Best keeps those of the items that it is given whose rank is highest, at most n. An item
// takes O(log n), and O(1) until there are n.
type Best[T any] struct {
	n     int
	items []T
	ranks []ranked // of all items; from the n-th on a heap, the lowest first
	heap  bool
}

// ranked is an item by its index, so that the heap moves no items.
type ranked struct {
	rank int64
	item int
}

// New makes one for n of some items; there may be more than expected.
func New[T any](n, expected int) *Best[T] {
	room := max(min(n, expected), 0)
	return &Best[T]{n: n, items: make([]T, 0, room), ranks: make([]ranked, 0, room)}
}

// full reports whether an item would have to replace another one. The ranks are a heap then.
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

// Accepts reports whether an item of a rank would be kept.
func (b *Best[T]) Accepts(rank int64) bool {
	return !b.full() || b.n > 0 && rank > b.ranks[0].rank
}

// Add adds an item that is accepted.
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

// down moves an element of the heap to its place.
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

// Sorted returns the items, those with the highest rank first. Nothing is added after it.
func (b *Best[T]) Sorted() []T {
	slices.SortFunc(b.ranks, func(x, y ranked) int {
		if x.rank != y.rank {
			return cmp.Compare(y.rank, x.rank)
		}
		return x.item - y.item // as they were added, mostly: what replaces an item has its index
	})
	sorted := make([]T, len(b.ranks))
	for i, x := range b.ranks {
		sorted[i] = b.items[x.item]
	}
	return sorted
}

package purgatory

import (
	"cmp"
	"iter"
	"time"

	"github.com/seed-782fa212/limbo/internal/best"
)

// WaitingGoal is a goal that is still to be reached, as [Threshold.All] finds it.
type WaitingGoal[K comparable, N cmp.Ordered] struct {
	Goal[K, N]
	Pending  Pending
	Age      time.Duration // since the operation began
	Deadline time.Time     // when it expires, with a monotonic reading; zero: never
}

// All returns an iterator over the goals that are still to be reached. See
// [Purgatory.All].
func (t *Threshold[K, N]) All() iter.Seq[WaitingGoal[K, N]] {
	t.mustBeMade()
	return func(yield func(WaitingGoal[K, N]) bool) {
		clock := time.Now()
		t.table.keys(nil, func(key K, hash uint64) bool {
			return t.allOf(key, hash, clock, yield)
		})
	}
}

// allOf calls yield with the goals of a key. It takes the key's lock once for each batch.
func (t *Threshold[K, N]) allOf(key K, hash uint64, clock time.Time, yield func(WaitingGoal[K, N]) bool) bool {
	var some []WaitingGoal[K, N]
	return t.eachOf(key, hash, func(g *goal[K, N]) { some = append(some, g.waiting(clock)) }, func() bool {
		for _, x := range some {
			if !yield(x) {
				return false
			}
		}
		some = some[:0]
		return true
	})
}

// eachOf calls see with each goal of a key, under the key's lock. It calls then after each
// batch, without the lock, and stops when then returns false.
func (t *Threshold[K, N]) eachOf(key K, hash uint64, visit func(*goal[K, N]), afterBatch func() bool) bool {
	var last N
	var seq uint64 // of the goal that was read last; 0: none
	for remaining := -1; remaining != 0; {
		n := 0
		b := t.table.lock(uint32(hash))
		if e := b.find(key, hash); e != nil {
			g := e.value.first
			if remaining < 0 {
				remaining = e.value.n // without a limit, new goals could prolong the loop for ever
			} else {
				g = e.value.after(last, seq)
			}
			for ; g != nil && remaining > 0 && n < batch; g = g.next() {
				visit(g)
				last, seq = g.number, g.seq
				remaining--
				n++
			}
		}
		b.mu.Unlock()
		if n == 0 {
			break
		}
		if !afterBatch() {
			return false
		}
	}
	return true
}

// Oldest returns the n goals still to be reached whose operations have waited longest, the
// oldest first, or all if there are fewer. It takes O(log n) for each goal, and holds a key's
// lock for 64 of them at most.
func (t *Threshold[K, N]) Oldest(n int) []WaitingGoal[K, N] {
	t.mustBeMade()
	if n < 1 {
		return nil
	}
	clock, top := time.Now(), best.New[WaitingGoal[K, N]](n, t.Watched())
	now := clock.Sub(base)
	visit := func(g *goal[K, N]) {
		if age := int64(now - g.waiter.since); top.Accepts(age) {
			top.Add(age, g.waiting(clock))
		}
	}
	t.table.keys(func(e *entry[K, *tree[K, N]]) (seen bool) {
		if e.value.n > fewFound {
			return false
		}
		for g := e.value.first; g != nil; g = g.next() {
			visit(g)
		}
		return true
	}, func(key K, hash uint64) bool {
		return t.eachOf(key, hash, visit, func() bool { return true })
	})
	return top.Sorted()
}

// waiting describes a goal. The caller holds its key's lock.
func (g *goal[K, N]) waiting(clock time.Time) WaitingGoal[K, N] {
	w := &g.waiter.waiter
	x := WaitingGoal[K, N]{Goal: Goal[K, N]{g.key, g.number}, Pending: w.handle(), Age: max(clock.Sub(base)-w.since, 0)}
	if at := time.Duration(w.deadline.Load()); at != never {
		x.Deadline = instant(at, clock)
	}
	return x
}

// Hotspots returns the n keys with the most goals still to be reached. See
// [Purgatory.Hotspots].
func (t *Threshold[K, N]) Hotspots(n int) []Hotspot[K] {
	t.mustBeMade()
	now, top := now(), best.New[Hotspot[K]](n, t.KeyCount())
	t.table.visit(func(b *bucket[K, *tree[K, N]]) bool {
		b.each(func(e *entry[K, *tree[K, N]]) {
			if g := e.value.first; g != nil && top.Accepts(int64(e.value.n)) {
				top.Add(int64(e.value.n), Hotspot[K]{e.key, e.value.n, max(now-g.waiter.since, 0)})
			}
		})
		return true
	})
	return top.Sorted()
}

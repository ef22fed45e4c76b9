package purgatory

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Waiting is an operation that waits, as [Purgatory.All] finds it.
type Waiting[K comparable] struct {
	Pending  Pending
	Age      time.Duration // since it came
	Deadline time.Time     // when it expires, with a monotonic reading; zero: never

	p      *Purgatory[K]
	hashes []uint32
}

// All returns an iterator over the operations that wait. Each that waits from
// beginning to end is met once; one that comes or ends meanwhile may be met or not.
// It is for a person who wants to know, not for the way of a request: it takes time
// proportional to what waits, and to the table of keys, which neither grows nor
// shrinks meanwhile. No lock is held while the loop's body runs, and none for longer
// than it takes to look at 64 operations.
func (p *Purgatory[K]) All() iter.Seq[Waiting[K]] {
	return func(yield func(Waiting[K]) bool) {
		now := now()
		twice := map[Pending]bool{} // those met that have two keys with one hash
		p.table.keys(func(key K, hash uint64) bool {
			return p.allOf(key, hash, now, twice, yield)
		})
	}
}

// allOf calls yield with the operations of a key that is their first, a batch for each
// turn of its lock.
func (p *Purgatory[K]) allOf(key K, hash uint64, now time.Duration, twice map[Pending]bool, yield func(Waiting[K]) bool) bool {
	w := walk[K]{table: &p.table, key: key, hash: hash}
	defer func() {
		if w.chunk != nil { // the loop was left
			w.left = 0
			w.proceed()
		}
		if w.many != nil {
			founds.Put(w.many)
		}
	}()
	var some []Waiting[K]
	for {
		some = some[:0]
		w.look(func(found []Pending) {
			for _, h := range found {
				hashes := h.w.keyHashes()
				if hashes[0] != uint32(hash) || !h.Waiting() || twice[h] {
					continue
				}
				if slices.Contains(hashes[1:], hashes[0]) {
					twice[h] = true
				}
				some = append(some, p.waiting(h, now))
			}
		})
		for _, x := range some {
			if !yield(x) {
				return false
			}
		}
		if w.chunk == nil {
			return true
		}
	}
}

// waiting describes an operation. A lock of one of its keys is held.
func (p *Purgatory[K]) waiting(h Pending, now time.Duration) Waiting[K] {
	x := Waiting[K]{Pending: h, Age: max(now-h.w.since, 0), p: p, hashes: slices.Clone(h.w.keyHashes())}
	if at := time.Duration(h.w.deadline.Load()); at != never {
		x.Deadline = instant(at)
	}
	return x
}

// Oldest returns the n operations that have waited longest, the oldest first; all if there
// are fewer. It takes time proportional to the keys, and not to what waits for them, whose
// order by key it relies on: they stand there as they began to watch. So an operation is
// missing if its first check took so long that n younger ones were there before it, or if
// it came at the same time as others that are not.
func (p *Purgatory[K]) Oldest(n int) []Waiting[K] {
	if n < 1 {
		return nil
	}
	now := now()
	var top []Waiting[K]
	p.table.visit(func(b *bucket[K, watchlist]) bool {
		b.each(func(e *entry[K, watchlist]) {
			for w := range e.value.all {
				h, age := w.handle(), now-w.since
				if len(top) == n && age <= top[n-1].Age {
					return
				}
				if !h.Waiting() || slices.ContainsFunc(top, func(x Waiting[K]) bool { return x.Pending == h }) {
					continue // it has ended, or was found by another of its keys
				}
				at, _ := slices.BinarySearchFunc(top, age, func(x Waiting[K], age time.Duration) int { return cmp.Compare(age, x.Age) })
				top = slices.Insert(top, at, p.waiting(h, now))
				top = top[:min(len(top), n)]
			}
		})
		return true
	})
	return top
}

// Keys returns the keys that the operation watches, in the order in which they were
// given; none once it has ended. It takes a lock for each.
func (x Waiting[K]) Keys() []K {
	var keys []K
	w := x.Pending.w
	for i, h := range x.hashes {
		if slices.Contains(x.hashes[:i], h) {
			continue
		}
		b := x.p.table.lock(h)
		if x.Pending.Waiting() { // otherwise the record may serve another operation
			b.each(func(e *entry[K, watchlist]) {
				for key, other := range x.hashes {
					if other == h && uint32(e.hash) == h && e.value.holds(w, key) {
						keys = append(keys, e.key)
						return
					}
				}
			})
		}
		b.mu.Unlock()
	}
	return keys
}

// Hotspot is a key that stands out.
type Hotspot[K comparable] struct {
	Key      K
	Watching int           // operations that watch it
	Oldest   time.Duration // for how long the first has waited: that began to watch, or, in a Threshold, that has the lowest goal
}

// Hotspots returns the n keys that most operations watch, those with more of them
// first; all keys if there are fewer. It takes time proportional to the keys.
func (p *Purgatory[K]) Hotspots(n int) []Hotspot[K] {
	now := now()
	var top hotspots[K]
	p.table.visit(func(b *bucket[K, watchlist]) bool {
		b.each(func(e *entry[K, watchlist]) {
			if w := e.value.first(); w != nil {
				top.add(n, Hotspot[K]{e.key, int(e.value.n), max(now-w.since, 0)})
			}
		})
		return true
	})
	return top
}

// hotspots is the best so far, in order.
type hotspots[K comparable] []Hotspot[K]

func (s *hotspots[K]) add(n int, h Hotspot[K]) {
	i, _ := slices.BinarySearchFunc(*s, h.Watching, func(x Hotspot[K], watching int) int { return watching - x.Watching })
	for i < len(*s) && (*s)[i].Watching == h.Watching {
		i++
	}
	if i >= n {
		return
	}
	*s = slices.Insert(*s, i, h)
	*s = (*s)[:min(n, len(*s))]
}

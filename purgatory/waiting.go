package purgatory

import (
	"iter"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/internal/best"
)

// Waiting is a pending operation, as [Purgatory.All] finds it.
type Waiting[K comparable] struct {
	Pending  Pending
	Age      time.Duration // since it began
	Deadline time.Time     // when it expires, with a monotonic reading; zero: never

	p    *Purgatory[K]
	n    int // keys
	few  [inRecord]uint32
	many []uint32 // hashes of the keys, if they are more than inRecord
}

// All returns an iterator over the pending operations. It yields each operation that is pending
// from beginning to end exactly once; operations that begin or end during the iteration may be
// missing. All is for diagnosis, not for the request path: it takes time proportional to the
// number of pending operations and to the size of the table of keys, which neither grows nor
// shrinks during the iteration. No lock is held while the loop's body runs, and none for longer
// than it takes to read 64 operations.
func (p *Purgatory[K]) All() iter.Seq[Waiting[K]] {
	p.mustBeMade()
	return func(yield func(Waiting[K]) bool) {
		clock := time.Now()
		twice := map[Pending]bool{} // operations already found that have two keys with one hash
		p.table.keys(nil, func(key K, hash uint64) bool {
			return p.allOf(key, hash, clock, twice, yield)
		})
	}
}

// allOf calls yield with the operations whose first key is this key. It takes the key's lock
// once for each batch.
func (p *Purgatory[K]) allOf(key K, hash uint64, clock time.Time, twice map[Pending]bool, yield func(Waiting[K]) bool) bool {
	w := walk[K]{table: &p.table, key: key, hash: hash}
	defer w.stop() // the loop may break
	var some []Waiting[K]
	for more := true; more; {
		some = some[:0]
		more = w.readBatch(func(found []Pending) {
			for _, h := range found {
				if isFirst(h, hash, twice) {
					some = append(some, p.waiting(h, clock))
				}
			}
		})
		for _, x := range some {
			if !yield(x) {
				return false
			}
		}
	}
	return true
}

// isFirst reports whether an operation waits and is found for the first time, in the list of
// its first key. Two keys may have the same hash; twice holds the operations already found for
// which that is so. The caller holds the key's lock.
func isFirst(h Pending, hash uint64, twice map[Pending]bool) bool {
	hashes := h.w.keyHashes()
	if hashes[0] != uint32(hash) || !h.Waiting() || twice[h] {
		return false
	}
	if slices.Contains(hashes[1:], hashes[0]) {
		twice[h] = true
	}
	return true
}

// waiting describes an operation. The caller holds the lock of one of its keys.
func (p *Purgatory[K]) waiting(h Pending, clock time.Time) Waiting[K] {
	x := Waiting[K]{Pending: h, Age: max(clock.Sub(base)-h.w.since, 0), p: p, n: int(h.w.n)}
	if x.n <= inRecord {
		x.few = h.w.hashes
	} else {
		x.many = slices.Clone(h.w.keyHashes())
	}
	if at := time.Duration(h.w.deadline.Load()); at != never {
		x.Deadline = instant(at, clock)
	}
	return x
}

// Oldest returns the n operations that have waited longest, the oldest first, or all if there
// are fewer. It takes O(log n) for each operation that it reads. For each key it reads
// at most the operations older than the n found so far and one more, because its list is
// ordered by when operations began to watch. So an operation is missing if its first check took
// so long that n younger ones began to watch before it, or if it began at the same time as
// others that are returned. Oldest holds a key's lock for 64 operations at most.
func (p *Purgatory[K]) Oldest(n int) []Waiting[K] {
	p.mustBeMade()
	if n < 1 {
		return nil
	}
	clock, top, twice := time.Now(), best.New[Waiting[K]](n, p.Len()), map[Pending]bool{}
	now := clock.Sub(base)
	// visit reports whether the operations behind h in its list need to be read.
	visit := func(h Pending, hash uint64) bool {
		age := now - h.w.since
		if !top.Accepts(int64(age)) {
			return false
		}
		if isFirst(h, hash, twice) {
			top.Add(int64(age), p.waiting(h, clock))
		}
		return true
	}
	p.table.keys(func(e *entry[K, watchlist]) (seen bool) {
		if e.value.n > fewFound {
			return false
		}
		for w := range e.value.all {
			if !visit(w.handle(), e.hash) {
				break
			}
		}
		return true
	}, func(key K, hash uint64) bool {
		w := walk[K]{table: &p.table, key: key, hash: hash}
		defer w.stop()
		for more := true; more; {
			more = w.readBatch(func(found []Pending) {
				for _, h := range found {
					if more = visit(h, hash); !more {
						return
					}
				}
			}) && more
		}
		return true
	})
	return top.Sorted()
}

// Keys returns the keys that the operation watches, in the order given, or none once it has
// ended. It takes a lock for each.
func (x Waiting[K]) Keys() []K {
	var keys []K
	w, hashes := x.Pending.w, x.many
	if x.n <= inRecord {
		hashes = x.few[:x.n]
	}
	for i, h := range hashes {
		if slices.Contains(hashes[:i], h) {
			continue
		}
		b := x.p.table.lock(h)
		if x.Pending.Waiting() { // otherwise the record may serve another operation
			b.each(func(e *entry[K, watchlist]) {
				for key, other := range hashes {
					if other == h && uint32(e.hash) == h && e.value.contains(w, key) {
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

// Hotspot is a key with many watchers.
type Hotspot[K comparable] struct {
	Key      K
	Watching int           // number of operations that watch it
	Oldest   time.Duration // age of the first watcher or, in a Threshold, of the lowest goal
}

// Hotspots returns the n keys with the most watchers, in descending order, or all keys if there
// are fewer. It takes O(log n) for each key.
func (p *Purgatory[K]) Hotspots(n int) []Hotspot[K] {
	p.mustBeMade()
	now, top := now(), best.New[Hotspot[K]](n, p.KeyCount())
	p.table.visit(func(b *bucket[K, watchlist]) bool {
		b.each(func(e *entry[K, watchlist]) {
			if w := e.value.first(); w != nil && top.Accepts(int64(e.value.n)) {
				top.Add(int64(e.value.n), Hotspot[K]{e.key, int(e.value.n), max(now-w.since, 0)})
			}
		})
		return true
	})
	return top.Sorted()
}

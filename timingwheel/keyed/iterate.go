package keyed

import (
	"iter"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// All returns an iterator over the keys and their values, in no order. It yields each key that
// stays in the table throughout the iteration once, and a key that is added or removed during
// the iteration at most once. The value is current when it is yielded, so a key that has
// expired by then is not yielded.
//
// The loop's body may call any method. It runs without any lock, and the iterator holds a lock
// only while it copies some hundred handles.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	t.mustBeMade()
	return func(yield func(K, V) bool) {
		var timers []timingwheel.Timer
		for i := range t.parts {
			for from := uint64(0); from != walkEnd; {
				timers, from = t.parts[i].walk(from, timers[:0])
				for _, timer := range timers {
					if e, ok := t.wheel.Value(timer); ok && !yield(e.Key, e.Value) {
						return
					}
				}
			}
		}
	}
}

// Drain removes every key that is in the table when it begins, calls f with each key and its
// value, in no order, and returns their number. The expiry function is not called for those
// keys; a key that expires before its turn goes to the expiry function and not to f. A key that
// f sets stays in the table, unless its turn is still to come: then Drain removes it with its
// new value, if it was not removed in between.
//
// f may call any method, and runs without any lock. Drain removes each key at its turn, so if f
// panics, the remaining keys are still in the table. A nil f panics, and changes nothing. Drain
// takes 8 bytes for each key.
func (t *Table[K, V]) Drain(f func(K, V)) int {
	if f == nil {
		panic("keyed: the function is nil")
	}
	t.mustBeMade()
	var timers []timingwheel.Timer
	for i := range t.parts {
		for from := uint64(0); from != walkEnd; {
			timers, from = t.parts[i].walk(from, timers)
		}
	}
	n := 0
	for _, timer := range timers {
		if e, ok := t.take(timer); ok {
			n++
			f(e.Key, e.Value)
		}
	}
	return n
}

// take removes the key of a timer.
func (t *Table[K, V]) take(timer timingwheel.Timer) (e Entry[K, V], ok bool) {
	e, ok = t.wheel.Value(timer)
	if !ok {
		return e, false
	}
	// Under the part's lock, so that a Set of the key either comes before, and take returns its
	// value, or finds the key removed.
	hash := t.hash(e.Key)
	p := t.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok = t.wheel.Remove(timer); ok {
		p.keys.remove(e.Key, hash)
	}
	return e, ok
}

// walk is [index.appendFrom] under the lock.
func (p *part[K]) walk(from uint64, timers []timingwheel.Timer) ([]timingwheel.Timer, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys.appendFrom(from, timers)
}

package keyed

import (
	"iter"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// All returns an iterator over the keys and their values, in no order. Each key
// that is in the table for as long as the iteration takes is seen, once; one that
// comes or goes meanwhile is seen once or not at all. The value is the one that
// the key has when it is seen, so a key that has expired by then is not seen.
//
// The loop's body may call any method. No lock is held while it runs, and others
// wait for the iterator no longer than it takes to copy some hundred handles.
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

// Drain takes out every key that is in the table when it begins, calls f with
// each and its value, in no order, and returns how many there were. The expiry
// function is not called for those; a key that expires before its turn is its,
// and not f's. A key that f sets stays in the table, unless it is one whose turn
// is yet to come: that is taken out with its new value, if it was not removed in between.
//
// f may call any method, and no lock is held while it runs. Each key is taken
// out when its turn comes, so if f panics, the others are in the table still. A
// nil f panics, and changes nothing. Drain takes 8 bytes for each key.
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

// take takes out the key of a timer.
func (t *Table[K, V]) take(timer timingwheel.Timer) (e Entry[K, V], ok bool) {
	e, ok = t.wheel.Value(timer)
	if !ok {
		return e, false
	}
	// Under the part's lock, so that a Set of the key either comes before, and
	// it is its value that is taken out, or finds the key gone.
	hash := t.hash(e.Key)
	p := t.part(hash)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok = t.wheel.Remove(timer); ok {
		p.keys.remove(e.Key, hash)
	}
	return e, ok
}

// walk is [index.appendFrom], under the lock.
func (p *part[K]) walk(from uint64, timers []timingwheel.Timer) ([]timingwheel.Timer, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys.appendFrom(from, timers)
}

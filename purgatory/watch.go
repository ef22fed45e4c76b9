package purgatory

import (
	"hash/maphash"
	"math/bits"
	"sync"
)

// watch is one operation's place in one key's list. Watches are part of the
// operation's record, which is used again.
type watch[K comparable] struct {
	// Guarded by the shard's lock.
	row  *row[K] // nil: in no list
	slot uint8

	// Only the operation's owner uses these.
	entered bool // false: a place that is not used
	shard   uint16
}

// watchers is the operations that watch a key, in the order they came (P11). It
// is guarded by its shard's lock.
//
// Invariant: a key is in its shard's table if and only if its list has a row: one
// that holds an operation, or that a walk will go on from (P5).
type watchers[K comparable] struct {
	key        K
	hash       uint64
	head, tail *row[K]
	n          int          // operations
	next       *watchers[K] // of the shard's spare lists
}

// row is a link of a key's list: up to twelve operations, in two cache lines. An
// unrolled linked list (Shao, Reppy and Appel, 1994). Operations that watch one
// key lie anywhere, and each is a cache miss when it is checked; linked to one
// another they would be missed one after the other.
type row[K comparable] struct {
	list       *watchers[K]
	next, prev *row[K]
	used       uint16 // a bit for each slot that holds an operation
	end        uint8  // slots from here on are free; those before that are empty stay so
	walks      uint32 // how many will go on from here: until they have, the row stays, and end
	slots      [rowSlots]*record
}

const rowSlots = 12

// shard is the part of the keys that hashes to it.
type shard[K comparable] struct {
	mu sync.Mutex

	// Guarded by mu. What each watch writes stands first, in one cache line.
	keys      table[K]
	spareRows *row[K] // to be used again, linked by next
	rows      uint16  // how many of these,
	lists     uint16  // and of spare
	closed    bool    // refuses watches (P12)
	watched   int     // watches in all lists
	tally
	named int          // keys with watches; keys has those with a mere walk too
	spare *watchers[K] // emptied lists, to be used again, linked by next

	_ [40]byte // keeps the next shard off this one's cache lines, of which there are three
}

// What an empty shard keeps is bounded: by these, to 7 KB.
const (
	maxSpare     = 8      // emptied lists that a shard keeps
	maxSpareRows = 16     // and rows
	keepKeys     = 1 << 8 // a table of more places is given back when few are used
)

// place is a key's hash, and the shard that it belongs to.
func (p *Purgatory[K]) place(key K) (shard uint16, hash uint64) {
	hash = maphash.Comparable(p.seed, key)
	return uint16(hash & uint64(len(p.shards)-1)), hash
}

// addLocked appends h to key's list, as w.
func (s *shard[K]) addLocked(key K, hash uint64, w *watch[K], h *record) {
	l := s.keys.find(key, hash)
	if l == nil {
		l = s.newListLocked()
		l.key, l.hash = key, hash
		s.keys.add(l)
	}
	r := l.tail
	if r == nil || r.end == rowSlots {
		r = s.addRowLocked(l)
	}
	r.slots[r.end] = h
	r.used |= 1 << r.end
	w.row, w.slot = r, r.end
	r.end++
	if l.n++; l.n == 1 {
		s.named++
	}
	s.watched++
}

// removeLocked takes w out of its list, and the list away with its last one.
func (s *shard[K]) removeLocked(w *watch[K]) {
	r := w.row
	w.row = nil
	r.slots[w.slot] = nil
	r.used &^= 1 << w.slot
	l := r.list
	if l.n--; l.n == 0 {
		s.named--
	}
	s.watched--
	if r.walks > 0 {
		return
	}
	if r.used == 0 {
		s.dropRowLocked(r)
	} else if r == l.tail {
		r.end = uint8(bits.Len16(r.used))
	}
}

func (s *shard[K]) newListLocked() *watchers[K] {
	l := s.spare
	if l == nil {
		return new(watchers[K])
	}
	s.spare, l.next = l.next, nil
	s.lists--
	return l
}

func (s *shard[K]) addRowLocked(l *watchers[K]) *row[K] {
	r := s.spareRows
	if r == nil {
		r = new(row[K])
	} else {
		s.spareRows = r.next
		s.rows--
	}
	r.list, r.next, r.prev = l, nil, l.tail
	if l.tail != nil {
		l.tail.next = r
	} else {
		l.head = r
	}
	l.tail = r
	return r
}

// dropRowLocked takes an empty row away, and its list with the last one.
func (s *shard[K]) dropRowLocked(r *row[K]) {
	l := r.list
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.tail = r.prev
	}
	r.list, r.next, r.prev, r.end = nil, nil, nil, 0
	if s.rows < maxSpareRows {
		r.next, s.spareRows = s.spareRows, r
		s.rows++
	}
	if l.head == nil {
		s.dropListLocked(l)
	}
}

func (s *shard[K]) dropListLocked(l *watchers[K]) {
	s.keys.remove(l)
	*l = watchers[K]{}
	if s.lists < maxSpare {
		l.next, s.spare = s.spare, l
		s.lists++
	}
}

// first is the operation that came first; nil if there is none.
func (l *watchers[K]) first() *record {
	for r := l.head; r != nil; r = r.next {
		if r.used != 0 { // and not kept by a walk only
			return r.slots[bits.TrailingZeros16(r.used)]
		}
	}
	return nil
}

// each calls f with each operation, in order.
func (l *watchers[K]) each(f func(*record)) {
	for r := l.head; r != nil; r = r.next {
		for used := r.used; used != 0; used &= used - 1 {
			f(r.slots[bits.TrailingZeros16(used)])
		}
	}
}

// eachListLocked calls f with each key's list.
func (s *shard[K]) eachListLocked(f func(*watchers[K])) {
	for _, p := range s.keys.places {
		if p.list != nil {
			f(p.list)
		}
	}
}

// reflexive is false for a NaN, and for a key that holds one: no map finds it.
func reflexive[K comparable](key K) bool {
	return key == key //nolint:gocritic // that is the question
}

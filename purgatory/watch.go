package purgatory

import (
	"hash/maphash"
	"sync"
)

// watch is one operation's place in one key's list. Watches live inside the
// operation's record, so watching allocates nothing of its own.
type watch[K comparable] struct {
	shard *shard[K]
	// pending is nil for a cursor: the place of a walk that has let the lock go.
	pending *Pending

	// Guarded by shard.mu.
	list       *watchers[K] // nil: in no list
	next, prev *watch[K]
}

// watchers is the list of a key's watches, in the order they came (P11).
// It is guarded by its shard's lock.
//
// Invariant: a key is in its shard's map if and only if its list holds a watch
// or a cursor (P5).
type watchers[K comparable] struct {
	key        K
	head, tail *watch[K]
	n          int // watches, without cursors
}

// shard is the part of the keys that hashes to it.
type shard[K comparable] struct {
	mu sync.Mutex

	// Guarded by mu.
	keys    map[K]*watchers[K]
	peak    int            // the most that keys has held; maps never shrink
	spare   []*watchers[K] // emptied lists, to be used again
	watched int            // watches in all lists
	named   int            // keys with watches; keys has those with a mere cursor too
	closed  bool           // refuses watches (P12)

	tally

	_ [64]byte // keeps the next shard's lock off this one's cache line
}

const (
	maxSpare = 64      // emptied lists that a shard keeps
	keepKeys = 1 << 10 // a map that has held more is given back when it is empty
)

func (p *Purgatory[K]) shardOf(key K) *shard[K] {
	return &p.shards[maphash.Comparable(p.seed, key)&uint64(len(p.shards)-1)]
}

// addLocked appends w to key's list.
func (s *shard[K]) addLocked(key K, w *watch[K]) {
	l := s.keys[key]
	if l == nil {
		if k := len(s.spare); k > 0 {
			l = s.spare[k-1]
			s.spare = s.spare[:k-1]
		} else {
			l = new(watchers[K])
		}
		l.key = key
		s.keys[key] = l
		s.peak = max(s.peak, len(s.keys))
	}
	l.insert(w, nil)
	if l.n++; l.n == 1 {
		s.named++
	}
	s.watched++
}

// removeLocked takes w out of its list, and the list away with its last one.
func (s *shard[K]) removeLocked(w *watch[K]) {
	l := w.list
	l.cut(w)
	if w.pending != nil {
		if l.n--; l.n == 0 {
			s.named--
		}
		s.watched--
	}
	if l.head != nil {
		return
	}
	delete(s.keys, l.key)
	if len(s.keys) == 0 && s.peak > keepKeys {
		s.keys, s.peak = make(map[K]*watchers[K]), 0
	}
	var none K
	l.key = none
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, l)
	}
}

// insert puts w before at; at the end for nil.
func (l *watchers[K]) insert(w, at *watch[K]) {
	prev := l.tail
	if at != nil {
		prev = at.prev
		at.prev = w
	} else {
		l.tail = w
	}
	if prev != nil {
		prev.next = w
	} else {
		l.head = w
	}
	w.list, w.prev, w.next = l, prev, at
}

func (l *watchers[K]) cut(w *watch[K]) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	w.list, w.prev, w.next = nil, nil, nil
}

// reflexive is false for a NaN, and for a key that holds one: no map finds it.
func reflexive[K comparable](key K) bool {
	return key == key //nolint:gocritic // that is the question
}

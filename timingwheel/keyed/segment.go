package keyed

import "github.com/seed-782fa212/limbo/timingwheel"

// segment is a hash table with open addressing and linear probing, of some hundred keys.
//
// A slot's tag is 16 bits of its key's hash; 0 is a free slot. Tags are contiguous, apart from
// the keys, so that probing reads one cache line and rarely a key other than the one wanted.
//
// Invariant: between a key's slot and its home slot, which its tag names, no slot is free. At
// least one of eight slots is free, so a search ends.
type segment[K comparable] struct {
	tags  []uint16
	slots []slot[K]
	used  int
}

type slot[K comparable] struct {
	key   K
	timer timingwheel.Timer
}

// minSlots is the size of the smallest segment.
const minSlots = 8

// capacity is the maximum number of keys in a segment with that many slots.
func capacity(slots int) int { return slots / 8 * 7 }

// slotsFor is the size of the smallest segment for that many keys.
func slotsFor(keys int) int {
	size := minSlots
	for capacity(size) < keys {
		size *= 2
	}
	return size
}

// tagOf is the tag of a key with this hash. The lowest bit is set only so that the tag is not
// 0.
func tagOf(hash uint64) uint16 { return uint16(hash>>48) | 1 }

// home is the slot at which the search for a key with this tag begins.
func (s *segment[K]) home(tag uint16) int { return int(tag>>1) & (len(s.tags) - 1) }

// next is the slot after slot i.
func (s *segment[K]) next(i int) int { return (i + 1) & (len(s.tags) - 1) }

// find returns the slot of key, or -1 if there is none.
func (s *segment[K]) find(key K, tag uint16) int {
	for i := s.home(tag); ; i = s.next(i) {
		switch s.tags[i] {
		case 0:
			return -1
		case tag:
			if s.slots[i].key == key {
				return i
			}
		}
	}
}

// put adds a key that is not in the segment. The segment must have capacity for it.
func (s *segment[K]) put(tag uint16, v slot[K]) {
	i := s.home(tag)
	for s.tags[i] != 0 {
		i = s.next(i)
	}
	s.tags[i], s.slots[i] = tag, v
	s.used++
}

// remove empties slot i. It moves up later keys whose search would otherwise end here.
func (s *segment[K]) remove(i int) {
	mask := len(s.tags) - 1
	for j := s.next(i); s.tags[j] != 0; j = s.next(j) {
		fromHome, fromGap := (j-s.home(s.tags[j]))&mask, (j-i)&mask
		if fromHome >= fromGap {
			s.tags[i], s.slots[i] = s.tags[j], s.slots[j]
			i = j
		}
	}
	s.tags[i], s.slots[i] = 0, slot[K]{}
	s.used--
}

// resize moves the keys into size slots, a power of two.
func (s *segment[K]) resize(size int) {
	old := *s
	*s = segment[K]{tags: make([]uint16, size), slots: make([]slot[K], size)}
	for i, tag := range old.tags {
		if tag != 0 {
			s.put(tag, old.slots[i])
		}
	}
}

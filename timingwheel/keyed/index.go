package keyed

import (
	"hash/maphash"
	"math/bits"
	"unsafe"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// index maps a part's keys to their timers. It is its own hash table because a Go map never
// releases memory, and copying a large map into a smaller one would hold the part's lock for
// milliseconds.
//
// It uses linear hashing (Litwin, VLDB 1980) over small hash tables, the segments: the low bits
// of a key's hash, as many as are needed to number the segments, choose one. When there are
// more than fill keys per segment, one segment is split by the next bit of the hash; when there
// are fewer than merge per segment, the last segment is merged back into its origin. So an add
// or a remove moves the keys of at most one segment, rarely more than 250, and memory follows
// the number of keys both ways.
//
// The caller holds the part's lock for every method, and passes the hash of the key, which it
// has computed to find the part.
type index[K comparable] struct {
	seed     maphash.Seed
	segments []segment[K]
	count    int // keys in all segments
	size     int // slots in all segments
}

const (
	// fill and merge: see index. They differ so that small changes in the number of keys cause
	// few splits and merges.
	fill  = 112
	merge = 84
)

// A hash is divided: bits 0 to 31 choose the segment, the next 16 choose the part of the table,
// and the upper 16 are the tag (see segment).
func partBits(hash uint64) uint64 { return hash >> 32 & 0xFFFF }

// find returns a pointer to the timer of key, or nil if key is not in the index. The pointer is
// valid until the next add or remove.
func (x *index[K]) find(key K, hash uint64) *timingwheel.Timer {
	if x.count == 0 {
		return nil
	}
	i, _ := x.segmentOf(hash)
	s := &x.segments[i]
	if at := s.find(key, tagOf(hash)); at >= 0 {
		return &s.slots[at].timer
	}
	return nil
}

// add adds a key that is not in the index.
func (x *index[K]) add(key K, hash uint64, timer timingwheel.Timer) {
	if len(x.segments) == 0 {
		x.segments = make([]segment[K], 1)
	}
	x.put(tagOf(hash), slot[K]{key, timer}, hash)
	x.count++
	if x.count > fill*len(x.segments) {
		x.split()
	}
}

func (x *index[K]) put(tag uint16, v slot[K], hash uint64) {
	i, _ := x.segmentOf(hash)
	s := &x.segments[i]
	if s.used == capacity(len(s.slots)) {
		x.resize(s, max(2*len(s.slots), minSlots))
	}
	s.put(tag, v)
}

// remove removes a key that is in the index.
func (x *index[K]) remove(key K, hash uint64) {
	i, _ := x.segmentOf(hash)
	s := &x.segments[i]
	s.remove(s.find(key, tagOf(hash)))
	if n := len(s.slots); s.used < n/4 && n > minSlots {
		x.resize(s, n/2)
	}
	x.count--
	if n := len(x.segments) - 1; x.count < merge*n {
		x.mergeLast()
	}
}

// clear removes all keys.
func (x *index[K]) clear() { x.segments, x.count, x.size = nil, 0, 0 }

// segmentOf returns the number of the segment that a hash belongs to, and how many low bits of
// the hash all its keys share.
func (x *index[K]) segmentOf(hash uint64) (i uint32, depth int) {
	n := uint32(len(x.segments))
	depth = bits.Len32(n - 1)
	i = uint32(hash) & (1<<depth - 1)
	if i|1<<depth>>1 >= n { // the segment that would be split off i, or i itself
		depth--
		i &= 1<<depth - 1
	}
	return i, depth
}

// splitFrom returns the segment that segment n was, or would be, split from.
func splitFrom(n int) int { return n - 1<<(bits.Len(uint(n))-1) }

// split adds one segment.
func (x *index[K]) split() {
	n := len(x.segments)
	i := splitFrom(n)
	old := x.segments[i]
	x.segments = append(x.segments, segment[K]{})
	x.size -= len(old.slots)
	x.segments[i] = segment[K]{}
	x.resize(&x.segments[i], slotsFor(old.used/2))
	x.resize(&x.segments[n], slotsFor(old.used/2))
	for at, tag := range old.tags {
		if tag != 0 {
			x.put(tag, old.slots[at], maphash.Comparable(x.seed, old.slots[at].key))
		}
	}
}

// mergeLast removes one segment.
func (x *index[K]) mergeLast() {
	n := len(x.segments) - 1
	last, to := x.segments[n], &x.segments[splitFrom(n)]
	if size := slotsFor(to.used + last.used); size > len(to.slots) {
		x.resize(to, size)
	}
	for at, tag := range last.tags {
		if tag != 0 {
			to.put(tag, last.slots[at])
		}
	}
	x.size -= len(last.slots)
	x.segments[n] = segment[K]{}
	x.segments = x.segments[:n]
	if n <= cap(x.segments)/4 {
		x.segments = append(make([]segment[K], 0, 2*n), x.segments...)
	}
}

func (x *index[K]) resize(s *segment[K], size int) {
	x.size += size - len(s.slots)
	s.resize(size)
}

// A walk over an index visits the keys in the order of their positions: the low half of the
// hash, in reverse bit order. The keys of a segment then fill an interval of positions, and
// splitting or merging segments between two steps of a walk moves no key from one side of the
// walk to the other.
const walkEnd = 1 << 32

func position(hash uint64) uint64 { return uint64(bits.Reverse32(uint32(hash))) }

// appendFrom is one step of a walk: it appends the timers of the keys from position from to the
// end of a segment, and returns the start of the next step.
func (x *index[K]) appendFrom(from uint64, timers []timingwheel.Timer) (_ []timingwheel.Timer, next uint64) {
	if x.count == 0 {
		return timers, walkEnd
	}
	i, depth := x.segmentOf(position(from)) // reversed again
	s, start := &x.segments[i], position(uint64(i))
	for at, tag := range s.tags {
		// The segment begins before from if it was merged after the last step.
		if tag != 0 && (start == from || position(maphash.Comparable(x.seed, s.slots[at].key)) >= from) {
			timers = append(timers, s.slots[at].timer)
		}
	}
	return timers, start + walkEnd>>depth
}

// bytes returns the memory that the index holds.
func (x *index[K]) bytes() int {
	const tagSize = unsafe.Sizeof(uint16(0))
	return cap(x.segments)*int(unsafe.Sizeof(segment[K]{})) + x.size*int(tagSize+unsafe.Sizeof(slot[K]{}))
}

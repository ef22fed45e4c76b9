package purgatory

import (
	"math/bits"
	"slices"
	"sync"
)

// watchlist holds the operations that watch one key, in order of arrival, in which they are
// checked (fair, P11). The lock of its bucket guards it.
//
// The first maxContiguous operations are stored contiguously, beginning in the bucket: a check
// reads them in a few consecutive cache lines, and a leaving operation is found by a scan, so it
// need not record its position. Further operations are put into chunks, and record their
// positions.
//
// The fields that a short list needs come first, so that with string keys they share a cache
// line with the bucket's lock and the key.
//
// Invariant: the contiguous operations arrived before those in the chunks.
type watchlist struct {
	n          int32 // operations
	contiguous int16 // of these, stored contiguously
	hasRest    bool  // rest is in use
	inline     [maxInline]*waiter
	rest       *rest // nil: not in use
}

const (
	maxInline     = 24
	maxContiguous = 64
)

// rest holds the operations that do not fit into the watchlist itself. It does not move when
// the key's entry moves.
type rest struct {
	contiguous [maxContiguous - maxInline]*waiter
	head, tail *chunk
	walks      int // walks that will continue from one of the chunks
}

// chunk is a node of a long list, an unrolled linked list (Shao, Reppy and Appel, 1994).
// Operations that watch one key are scattered in memory, and each is a cache miss when it is
// checked; if they were linked to each other, these misses could not overlap.
type chunk struct {
	list       *rest
	next, prev *chunk
	used       uint32 // a bit for each slot that holds an operation
	end        uint16 // slots from here on are free; empty slots before it are not used again
	walks      uint16 // walks paused here; unless 0, the chunk stays linked and end stays
	slots      [perChunk]*waiter
}

const perChunk = 27 // makes a chunk four cache lines

// position is where an operation is in a long list.
type position struct {
	chunk *chunk // nil: in no chunk
	slot  uint8
}

var (
	chunks = sync.Pool{New: func() any { return new(chunk) }}
	rests  = sync.Pool{New: func() any { return new(rest) }}
)

// empty reports whether the key can be removed.
func (l *watchlist) empty() bool { return l.n == 0 && !l.hasRest }

// add appends an operation; key is the index of this key among the operation's keys.
func (l *watchlist) add(w *waiter, key int) {
	if l.contiguous < maxContiguous && int32(l.contiguous) == l.n {
		l.addContiguous(w)
	} else {
		w.position(key).enter(l.ensureRest(), w)
	}
	l.n++
}

func (l *watchlist) addContiguous(w *waiter) {
	if l.contiguous < maxInline {
		l.inline[l.contiguous] = w
	} else {
		l.ensureRest().contiguous[l.contiguous-maxInline] = w
	}
	l.contiguous++
}

func (l *watchlist) ensureRest() *rest {
	if !l.hasRest {
		l.hasRest, l.rest = true, rests.Get().(*rest)
	}
	return l.rest
}

// enter appends an operation to the chunks.
func (p *position) enter(l *rest, w *waiter) {
	c := l.tail
	if c == nil || c.end == perChunk {
		c = chunks.Get().(*chunk)
		c.list, c.prev = l, l.tail
		if l.tail != nil {
			l.tail.next = c
		} else {
			l.head = c
		}
		l.tail = c
	}
	p.chunk, p.slot = c, uint8(c.end)
	c.slots[c.end] = w
	c.used |= 1 << c.end
	c.end++
}

// remove removes an operation, and reports whether it was in this list.
func (l *watchlist) remove(w *waiter, key int) bool {
	if c := w.chunkOf(key); c != nil {
		if c.list != l.rest {
			return false // another key's, with the same hash
		}
		p := w.position(key)
		c.slots[p.slot] = nil
		c.used &^= 1 << p.slot
		p.chunk = nil
		l.rest.tidy(c)
	} else if !l.removeContiguous(w) {
		return false
	}
	l.n--
	return true
}

// removeContiguous removes an operation from the contiguous ones and closes the gap.
func (l *watchlist) removeContiguous(w *waiter) bool {
	first := l.inline[:min(l.contiguous, maxInline)]
	i := slices.Index(first, w)
	if l.contiguous <= maxInline {
		if i < 0 {
			return false
		}
		copy(first[i:], first[i+1:])
		first[len(first)-1] = nil
	} else {
		others := l.rest.contiguous[:l.contiguous-maxInline]
		at := 0
		if i >= 0 {
			copy(first[i:], first[i+1:])
			first[maxInline-1] = others[0]
		} else if at = slices.Index(others, w); at < 0 {
			return false
		}
		copy(others[at:], others[at+1:])
		others[len(others)-1] = nil
	}
	l.contiguous--
	return true
}

// tidy frees a chunk that is not needed any more.
func (l *rest) tidy(c *chunk) {
	switch {
	case c.walks > 0:
	case c.used != 0:
		if c == l.tail {
			c.end = uint16(bits.Len32(c.used))
		}
	default:
		if c.prev != nil {
			c.prev.next = c.next
		} else {
			l.head = c.next
		}
		if c.next != nil {
			c.next.prev = c.prev
		} else {
			l.tail = c.prev
		}
		c.list, c.next, c.prev, c.end = nil, nil, nil, 0
		chunks.Put(c)
	}
}

// compact moves the operations back into contiguous storage when they are few again, and
// releases memory that is then unused, unless a walk has paused in the list.
func (l *watchlist) compact(hash uint32) {
	if !l.hasRest || l.n > maxContiguous/2 || l.rest.walks > 0 {
		return
	}
	r := l.rest
	for c := r.head; c != nil; c = r.head {
		for used := c.used; used != 0; used &= used - 1 {
			slot := bits.TrailingZeros32(used)
			w := c.slots[slot]
			w.clearPosition(hash, c, slot)
			l.addContiguous(w)
			c.slots[slot] = nil
		}
		c.used = 0
		r.tidy(c)
	}
	if l.n <= maxInline/2 {
		l.hasRest, l.rest = false, nil
		rests.Put(r)
	}
}

func (l *watchlist) all(yield func(*waiter) bool) {
	for _, w := range l.inline[:min(l.contiguous, maxInline)] {
		if !yield(w) {
			return
		}
	}
	if !l.hasRest {
		return
	}
	for _, w := range l.rest.contiguous[:max(l.contiguous-maxInline, 0)] {
		if !yield(w) {
			return
		}
	}
	for c := l.rest.head; c != nil; c = c.next {
		for used := c.used; used != 0; used &= used - 1 {
			if !yield(c.slots[bits.TrailingZeros32(used)]) {
				return
			}
		}
	}
}

// first returns the operation that arrived first; nil if there is none.
func (l *watchlist) first() *waiter {
	if l.contiguous > 0 {
		return l.inline[0]
	}
	if l.hasRest {
		for c := l.rest.head; c != nil; c = c.next {
			if c.used != 0 { // an empty chunk is kept by a walk
				return c.slots[bits.TrailingZeros32(c.used)]
			}
		}
	}
	return nil
}

// contains reports whether the list contains an operation under its key-th key.
func (l *watchlist) contains(w *waiter, key int) bool {
	if c := w.chunkOf(key); c != nil {
		return c.list == l.rest
	}
	for x := range l.all {
		if x == w {
			return true
		}
	}
	return false
}

// position returns the operation's position in the list of a key. The lock of the key's bucket
// guards it. The owner calls position as it enters the list, while other goroutines with the
// locks of other keys may call chunkOf.
func (w *waiter) position(key int) *position {
	x := w.extra.Load()
	if x == nil {
		x = &extra{positions: make([]position, w.n)}
		w.extra.Store(x)
	}
	return &x.positions[key]
}

// chunkOf returns the chunk that holds the operation under a key; nil: none.
func (w *waiter) chunkOf(key int) *chunk {
	x := w.extra.Load()
	if x == nil {
		return nil
	}
	return x.positions[key].chunk
}

// clearPosition clears the position of an operation that has left a chunk, but not its list. It
// reads only positions in lists of that hash, because these have the same lock.
func (w *waiter) clearPosition(hash uint32, c *chunk, slot int) {
	for key, h := range w.keyHashes() {
		if p := w.position(key); h == hash && p.chunk == c && int(p.slot) == slot {
			p.chunk = nil
		}
	}
}

package purgatory

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// table holds a value for each key, in buckets with a lock each. It grows and shrinks with the
// number of keys by 16 buckets at a time: linear hashing (Litwin, "Linear hashing: a new tool
// for file and table addressing", 1980). So no call pauses to move all keys, and goroutines on
// different keys share no lock and no written cache line.
//
// A bucket stores one key and its value in place, where most are found with one cache miss;
// further keys of the bucket are chained.
//
// Lock order: resize, then buckets by ascending number. Only resizing holds two buckets.
type table[K comparable, V any] struct {
	// Read by every call, written by growing.
	size     atomic.Uint32                                   // buckets in use; at least one segment
	segments atomic.Pointer[[]atomic.Pointer[segment[K, V]]] // nil beyond the segments in use
	_        [48]byte

	contended atomic.Uint32 // how often a bucket was found locked, written then by any goroutine
	spare     sync.Pool     // of *chained[K, V]

	resize     sync.Mutex
	minSize    uint32 // guarded by resize; minimum of buckets that shrinking keeps
	recentKeys int    // guarded by resize; a decaying maximum of the number of keys
	visitors   int    // guarded by resize; no key moves while it is not 0
}

const (
	perSegment = 16
	maxBuckets = 1 << 28

	// A table grows when more than growAt tenths of its buckets would be used if each held one
	// key, and shrinks when fewer than shrinkAt tenths would be.
	growAt, shrinkAt = 7, 5
	// A bucket signals that the table may have to grow when it has manyKeys and gets another;
	// one bucket in thirty does at growAt. One call adds at most growBy segments.
	manyKeys, growBy = 3, 4
	// After shrinkEach removed keys for each processor the table checks whether it can shrink,
	// and then drops at most shrinkBy times as many buckets.
	shrinkEach, shrinkBy = 64, 8
	// A table begins with one segment, because a purgatory that is never used should cost
	// little. Once grown it keeps keptSegments: otherwise a table with few short-lived keys
	// would grow and shrink all the time.
	keptSegments = 4

	// With few keys in few buckets goroutines would contend for the same locks, whatever the
	// keys. So after every contendedEach times that a bucket was found locked the table
	// doubles, up to perProc buckets for each processor, and keeps them.
	contendedEach, perProc = 256, 256

	// A visit of all buckets yields the processor after this many, about 20 µs.
	yieldEach = 256
)

type segment[K comparable, V any] [perSegment]bucket[K, V]

type bucket[K comparable, V any] struct {
	mu sync.Mutex

	// mask selects the keys of this bucket by the lowest bits of their hash: those with
	// hash&mask == number. Written under mu; read without mu only to load the bucket into the
	// cache.
	mask   atomic.Uint32
	number uint32

	// Guarded by mu.
	more  *chained[K, V]
	entry entry[K, V]
}

// entry is a key with its value.
type entry[K comparable, V any] struct {
	hash  uint64 // 0: free
	key   K
	value V
}

type chained[K comparable, V any] struct {
	entry[K, V]
	next *chained[K, V]
}

func (t *table[K, V]) init() {
	t.minSize = perSegment
	t.spare.New = func() any { return new(chained[K, V]) }
	first := make([]atomic.Pointer[segment[K, V]], 1)
	first[0].Store(newSegment[K, V](0, perSegment-1))
	t.segments.Store(&first)
	t.size.Store(perSegment)
}

// newSegment makes a segment of unlocked buckets. No hash leads to a bucket with mask 0, except
// number 0.
func newSegment[K comparable, V any](number, mask uint32) *segment[K, V] {
	s := new(segment[K, V])
	for i := range s {
		s[i].number = number + uint32(i)
		s[i].mask.Store(mask)
	}
	return s
}

// at returns the bucket of a hash, as far as can be told without a lock; nil if the table was
// just shrinking.
func (t *table[K, V]) at(hash uint32) *bucket[K, V] {
	size := t.size.Load()
	mask := uint32(1)<<bits.Len32(size-1) - 1
	i := hash & mask
	if i >= size {
		i &= mask >> 1
	}
	all := *t.segments.Load()
	if int(i/perSegment) >= len(all) {
		return nil
	}
	s := all[i/perSegment].Load()
	if s == nil {
		return nil
	}
	return &s[i%perSegment]
}

// touch loads the bucket of a hash into the cache, and returns the same as at.
func (t *table[K, V]) touch(hash uint32) *bucket[K, V] {
	b := t.at(hash)
	if b != nil {
		b.mask.Load() // atomic, so that the compiler keeps it
	}
	return b
}

func (t *table[K, V]) lock(hash uint32) *bucket[K, V] { return t.lockTouched(t.at(hash), hash) }

// lockTouched is lock for a bucket b that touch has returned.
func (t *table[K, V]) lockTouched(b *bucket[K, V], hash uint32) *bucket[K, V] {
	for {
		if b != nil {
			if !b.mu.TryLock() {
				t.countContention()
				b.mu.Lock()
			}
			if hash&b.mask.Load() == b.number {
				return b
			}
			b.mu.Unlock() // the keys of this hash have just moved
		}
		if b = t.at(hash); b == nil {
			runtime.Gosched()
		}
	}
}

// touched holds the buckets of the first keys of an operation. Buckets are scattered in memory:
// touching those of all keys, before the first one is locked, overlaps their cache misses.
type touched[K comparable, V any] [inRecord]*bucket[K, V]

// touch touches the bucket of the i-th key.
func (first *touched[K, V]) touch(t *table[K, V], i int, hash uint32) {
	b := t.touch(hash)
	if i < len(first) {
		first[i] = b
	}
}

// lock locks the bucket of the i-th key, once all have been touched.
func (first *touched[K, V]) lock(t *table[K, V], i int, hash uint32) *bucket[K, V] {
	var b *bucket[K, V]
	if i < len(first) {
		b = first[i]
	}
	return t.lockTouched(b, hash)
}

// find returns the entry of a key, nil if there is none. The caller holds the lock.
func (b *bucket[K, V]) find(key K, hash uint64) *entry[K, V] {
	if b.entry.hash == hash && b.entry.key == key {
		return &b.entry
	}
	for c := b.more; c != nil; c = c.next {
		if c.hash == hash && c.key == key {
			return &c.entry
		}
	}
	return nil
}

// insertLocked returns an entry for a key that has none yet. crowded reports that the bucket
// has so many keys that the table may have to grow.
func (t *table[K, V]) insertLocked(b *bucket[K, V], key K, hash uint64) (e *entry[K, V], crowded bool) {
	if b.entry.hash == 0 {
		e = &b.entry
	} else {
		n := 1
		for c := b.more; c != nil; c = c.next {
			n++
		}
		crowded = n >= manyKeys
		c, _ := t.spare.Get().(*chained[K, V])
		c.next, b.more = b.more, c
		e = &c.entry
	}
	e.key, e.hash = key, hash
	return e, crowded
}

// removeLocked removes an entry, whose value must be the zero value again.
func (t *table[K, V]) removeLocked(b *bucket[K, V], e *entry[K, V]) {
	var none K
	e.key, e.hash = none, 0
	if e == &b.entry {
		return
	}
	for at := &b.more; ; at = &(*at).next {
		if c := *at; &c.entry == e {
			*at, c.next = c.next, nil
			t.spare.Put(c)
			return
		}
	}
}

// next returns the entry after e, or the first if e is nil, whose hash has these lowest bits.
// There must be one. The caller holds the lock.
func (b *bucket[K, V]) next(e *entry[K, V], hash uint32) *entry[K, V] {
	if e == nil && uint32(b.entry.hash) == hash && b.entry.hash != 0 {
		return &b.entry
	}
	passed := e == nil || e == &b.entry
	for c := b.more; ; c = c.next {
		if passed && uint32(c.hash) == hash {
			return &c.entry
		}
		passed = passed || &c.entry == e
	}
}

// each calls f with each entry of a bucket.
func (b *bucket[K, V]) each(f func(*entry[K, V])) {
	if b.entry.hash != 0 {
		f(&b.entry)
	}
	for c := b.more; c != nil; {
		next := c.next
		f(&c.entry)
		c = next
	}
}

// visit calls f with each bucket, locked, one after the other. No key moves during the visit,
// so each key that exists from beginning to end is visited once. f may unlock the bucket and
// lock it again.
func (t *table[K, V]) visit(f func(*bucket[K, V]) bool) {
	t.resize.Lock()
	t.visitors++
	t.resize.Unlock()
	defer func() {
		t.resize.Lock()
		t.visitors--
		t.resize.Unlock()
	}()
	all := *t.segments.Load()
	for i := range t.size.Load() {
		if i%yieldEach == yieldEach-1 {
			runtime.Gosched() // visiting a large table takes milliseconds
		}
		if !all[i/perSegment].Load()[i%perSegment].visit(f) {
			return
		}
	}
}

// keys calls f with each key and its hash, until f returns false. No lock is held during f, and
// no key moves; the key may no longer exist. If handleLocked is not nil, it is called with each
// entry under the lock, and the keys for which it returns true are omitted.
func (t *table[K, V]) keys(handleLocked func(*entry[K, V]) bool, f func(key K, hash uint64) bool) {
	type named struct {
		key  K
		hash uint64
	}
	var some []named
	t.visit(func(b *bucket[K, V]) bool {
		some = some[:0]
		b.each(func(e *entry[K, V]) {
			if handleLocked == nil || !handleLocked(e) {
				some = append(some, named{e.key, e.hash})
			}
		})
		if len(some) == 0 {
			return true
		}
		b.mu.Unlock()
		defer b.mu.Lock()
		for _, k := range some {
			if !f(k.key, k.hash) {
				return false
			}
		}
		return true
	})
}

// visit calls f with the bucket locked. It unlocks the bucket even if f does not return.
func (b *bucket[K, V]) visit(f func(*bucket[K, V]) bool) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f(b)
}

// countContention counts that a bucket was found locked, and grows the table if that was often.
func (t *table[K, V]) countContention() {
	if t.contended.Add(1)%contendedEach != 0 || !t.resize.TryLock() {
		return
	}
	defer t.resize.Unlock()
	limit := uint32(perProc * runtime.GOMAXPROCS(0))
	if size := t.size.Load(); size < limit {
		t.minSize = min(2*size, limit)
		for t.visitors == 0 && t.size.Load() < t.minSize {
			t.addSegment()
		}
	}
}

// grow adds buckets if there are too many keys for the present ones.
func (t *table[K, V]) grow(keys int) {
	if !t.resize.TryLock() {
		return // another goroutine is resizing
	}
	defer t.resize.Unlock()
	t.recentKeys = max(t.recentKeys, keys)
	for range growBy {
		if size := t.size.Load(); t.visitors > 0 || size >= maxBuckets || keys <= int(size)/10*growAt {
			return
		}
		t.addSegment()
		t.minSize = max(t.minSize, keptSegments*perSegment)
	}
}

// shrink removes up to limit buckets if there are too few keys for the present ones.
func (t *table[K, V]) shrink(keys, limit int) {
	if !t.resize.TryLock() {
		return
	}
	defer t.resize.Unlock()
	t.recentKeys = max(keys, t.recentKeys-t.recentKeys/4)
	for ; t.visitors == 0 && limit > 0; limit -= perSegment {
		size := t.size.Load()
		if size < t.minSize+perSegment || t.recentKeys > int(size)/10*shrinkAt {
			return
		}
		t.dropSegment()
	}
}

// addSegment splits as many buckets as a segment has. The caller holds resize.
func (t *table[K, V]) addSegment() {
	size := t.size.Load()
	all := *t.segments.Load()
	at := int(size / perSegment)
	if at == len(all) {
		longer := make([]atomic.Pointer[segment[K, V]], 2*len(all))
		for i := range all {
			longer[i].Store(all[i].Load())
		}
		t.segments.Store(&longer)
		all = longer
	}
	all[at].Store(newSegment[K, V](size, 0))
	level := uint32(1) << (bits.Len32(size) - 1) // the largest power of two up to size
	for i := range uint32(perSegment) {
		number := size + i
		from, to := t.bucketAt(number-level), t.bucketAt(number)
		from.mu.Lock()
		to.mu.Lock()
		from.mask.Store(2*level - 1)
		to.mask.Store(2*level - 1)
		t.move(from, to)
		t.size.Store(number + 1)
		to.mu.Unlock()
		from.mu.Unlock()
	}
}

func (t *table[K, V]) dropSegment() {
	size := t.size.Load() - perSegment
	level := uint32(1) << (bits.Len32(size) - 1)
	for i := uint32(perSegment); i > 0; i-- {
		number := size + i - 1
		to, from := t.bucketAt(number-level), t.bucketAt(number)
		to.mu.Lock()
		from.mu.Lock()
		to.mask.Store(level - 1)
		from.mask.Store(0)
		t.move(from, to)
		t.size.Store(number)
		from.mu.Unlock()
		to.mu.Unlock()
	}
	all := *t.segments.Load()
	all[size/perSegment].Store(nil)
	if n := int(size / perSegment); n <= len(all)/4 {
		shorter := make([]atomic.Pointer[segment[K, V]], len(all)/2)
		for i := range n {
			shorter[i].Store(all[i].Load())
		}
		t.segments.Store(&shorter)
	}
}

// bucketAt returns a bucket by its number. The caller holds resize.
func (t *table[K, V]) bucketAt(number uint32) *bucket[K, V] {
	return &(*t.segments.Load())[number/perSegment].Load()[number%perSegment]
}

// move moves the entries of from that belong into to. Both are locked.
func (t *table[K, V]) move(from, to *bucket[K, V]) {
	mask := to.mask.Load()
	from.each(func(e *entry[K, V]) {
		if uint32(e.hash)&mask != to.number {
			return
		}
		moved, _ := t.insertLocked(to, e.key, e.hash)
		var none V
		moved.value, e.value = e.value, none
		t.removeLocked(from, e)
	})
	if c := from.more; c != nil && from.entry.hash == 0 {
		from.entry, c.entry = c.entry, entry[K, V]{}
		from.more, c.next = c.next, nil
		t.spare.Put(c)
	}
}

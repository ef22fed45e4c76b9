package purgatory

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// table holds a value for each key, in buckets that are locked one by one. It grows
// and shrinks by 16 buckets at a time, with the keys: linear hashing (Litwin,
// "Linear hashing: a new tool for file and table addressing", 1980). So no call
// stops to move all keys, and goroutines on different keys share no lock, and no
// line of memory that any of them writes.
//
// A bucket has room for one key and its value in place, where most are found by
// one miss of the cache; what else hashes there is chained.
//
// Lock order: resize, then buckets by ascending number; otherwise nobody holds two.
type table[K comparable, V any] struct {
	// What every call reads, and growing writes.
	size     atomic.Uint32                                   // buckets in use; at least one segment
	segments atomic.Pointer[[]atomic.Pointer[segment[K, V]]] // nil beyond those in use
	_        [48]byte

	contended atomic.Uint32 // how often a bucket was found locked; any goroutine writes, then
	spare     sync.Pool     // of *chained[K, V]

	resize   sync.Mutex
	least    uint32 // guarded by resize; buckets that shrinking leaves
	lately   int    // guarded by resize; the most keys that there were lately
	visitors int    // guarded by resize; while there are some, nothing is moved
}

const (
	perSegment = 16
	maxBuckets = 1 << 28

	// A table grows when more than growAt tenths of its buckets would have a key, if
	// each had one, and shrinks when fewer than shrinkAt have.
	growAt, shrinkAt = 7, 5
	// That it may have to grow is seen by a bucket that has manyKeys when another comes.
	// At growAt that is one in thirty. Then at most growBy segments are added.
	manyKeys, growBy = 3, 4
	// shrinkEach is how many keys must vanish, for each processor, until it is looked
	// whether it can shrink, and then at most as many times shrinkBy buckets go.
	shrinkEach, shrinkBy = 64, 8
	// It begins with one segment, for a purgatory that is never used should cost little.
	// Once it has grown it keeps a few: else one with few keys that come and go would
	// grow and shrink all the time.
	keptSegments = 4

	// Few keys in few buckets would have goroutines meet at the same locks, whatever
	// the keys. Each contendedEach times that a bucket was found locked the table
	// doubles, up to perProc buckets for each processor, and keeps them.
	contendedEach, perProc = 256, 256

	// A visit of all buckets lets others have the processor after as many: some 20 µs.
	yieldEach = 256
)

type segment[K comparable, V any] [perSegment]bucket[K, V]

type bucket[K comparable, V any] struct {
	mu sync.Mutex

	// mask is by how many of a hash's lowest bits the keys of this bucket are
	// chosen: those with hash&mask == number are here. Written under mu; read
	// without only to have the bucket come into the cache.
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
	t.least = perSegment
	t.spare.New = func() any { return new(chained[K, V]) }
	first := make([]atomic.Pointer[segment[K, V]], 1)
	first[0].Store(newSegment[K, V](0, perSegment-1))
	t.segments.Store(&first)
	t.size.Store(perSegment)
}

// newSegment makes buckets that are locked by nobody. No hash leads to those with a
// mask of 0 but number 0.
func newSegment[K comparable, V any](number, mask uint32) *segment[K, V] {
	s := new(segment[K, V])
	for i := range s {
		s[i].number = number + uint32(i)
		s[i].mask.Store(mask)
	}
	return s
}

// at returns the bucket that a hash leads to, as far as can be told without a lock;
// nil if the table was just getting smaller.
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

// touch has the bucket of a hash come into the cache, and returns it as at does.
func (t *table[K, V]) touch(hash uint32) *bucket[K, V] {
	b := t.at(hash)
	if b != nil {
		b.mask.Load() // atomic, so that it is not left out
	}
	return b
}

// lock locks the bucket of a hash.
func (t *table[K, V]) lock(hash uint32) *bucket[K, V] { return t.lockTouched(t.at(hash), hash) }

// lockTouched is lock where touch has returned b.
func (t *table[K, V]) lockTouched(b *bucket[K, V], hash uint32) *bucket[K, V] {
	for {
		if b != nil {
			if !b.mu.TryLock() {
				t.widen()
				b.mu.Lock()
			}
			if hash&b.mask.Load() == b.number {
				return b
			}
			b.mu.Unlock() // its keys have just been moved
		}
		if b = t.at(hash); b == nil {
			runtime.Gosched()
		}
	}
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

// insertLocked returns an entry for a key that has none yet. crowded: the bucket has
// so many that the table may have to grow.
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

// removeLocked takes an entry out. Its value is the zero value again.
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

// next returns the entry after e, or the first for nil, whose key has a hash with these
// lowest bits. The caller knows that there is one, and holds the lock.
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

// visit calls f with each bucket, locked, one after the other. No key is moved
// meanwhile, so each is met once that is there from beginning to end. f may unlock
// and lock again.
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
			runtime.Gosched() // a way through a large table takes milliseconds
		}
		if !all[i/perSegment].Load()[i%perSegment].visit(f) {
			return
		}
	}
}

// keys calls f with each key and its hash, until that returns false. No lock is held
// meanwhile, and no key is moved; one may be gone. Keys for whose entry see returns true
// are left out: it is called with the lock held, unless it is nil.
func (t *table[K, V]) keys(see func(*entry[K, V]) bool, f func(key K, hash uint64) bool) {
	type named struct {
		key  K
		hash uint64
	}
	var some []named
	t.visit(func(b *bucket[K, V]) bool {
		some = some[:0]
		b.each(func(e *entry[K, V]) {
			if see == nil || !see(e) {
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

// visit calls f with the bucket locked. It is unlocked also if f does not return.
func (b *bucket[K, V]) visit(f func(*bucket[K, V]) bool) (more bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return f(b)
}

// widen counts that a bucket was found locked, and lets the table grow for it.
func (t *table[K, V]) widen() {
	if t.contended.Add(1)%contendedEach != 0 || !t.resize.TryLock() {
		return
	}
	defer t.resize.Unlock()
	most := uint32(perProc * runtime.GOMAXPROCS(0))
	if size := t.size.Load(); size < most {
		t.least = min(2*size, most)
		for t.visitors == 0 && t.size.Load() < t.least {
			t.addSegment()
		}
	}
}

// grow adds buckets if there are more keys than the present ones are for.
func (t *table[K, V]) grow(keys int) {
	if !t.resize.TryLock() {
		return // somebody is at it
	}
	defer t.resize.Unlock()
	t.lately = max(t.lately, keys)
	for range growBy {
		if size := t.size.Load(); t.visitors > 0 || size >= maxBuckets || keys <= int(size)/10*growAt {
			return
		}
		t.addSegment()
		t.least = max(t.least, keptSegments*perSegment)
	}
}

// shrink takes buckets away if there are fewer keys than the present ones are for, at
// most some.
func (t *table[K, V]) shrink(keys, most int) {
	if !t.resize.TryLock() {
		return
	}
	defer t.resize.Unlock()
	t.lately = max(keys, t.lately-t.lately/4)
	for ; t.visitors == 0 && most > 0; most -= perSegment {
		size := t.size.Load()
		if size < t.least+perSegment || t.lately > int(size)/10*shrinkAt {
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

// dropSegment undoes addSegment.
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

// move moves the entries of a bucket that belong into another one, both locked.
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

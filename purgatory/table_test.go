package purgatory

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func newTable() *table[int, int] {
	t := new(table[int, int])
	t.init()
	return t
}

// mixed is a hash whose bits each depend on all bits of the key.
func mixed(key int) uint64 {
	h := uint64(key) * 0x9E3779B97F4A7C15
	h = (h ^ h>>32) * 0xD6E8FEB86659FD93
	return h ^ h>>32 | 1<<63
}

// The table against a map, with hashes that are equal in all or in their lowest bits, while it
// grows and shrinks by its keys, and by explicit calls.
func TestTable(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		hashes := 1 + r.IntN(1<<r.IntN(13))
		hash := func(key int) uint64 {
			h := mixed(key % hashes)
			if seed%3 == 0 {
				h = uint64(key % hashes) // the bucket's number is the hash of its keys
			}
			return h | 1<<63
		}
		tab, oracle := newTable(), map[int]int{}
		most := 1 + r.IntN(1<<r.IntN(13))
		for step := range 8000 {
			key := r.IntN(most)
			fewer := step%2000 > 1400 // less and less
			if fewer {
				for key = range oracle {
					break
				}
			}
			h := hash(key)
			b := tab.lock(uint32(h))
			e := b.find(key, h)
			want, there := oracle[key]
			require.Equal(t, there, e != nil)
			crowded := false
			switch {
			case e == nil && !fewer:
				e, crowded = tab.insertLocked(b, key, h)
				require.Zero(t, e.value, "a new entry has a value of the past")
				e.value = step + 1
				oracle[key] = step + 1
			case e == nil:
			case fewer || r.IntN(2) == 0:
				require.Equal(t, want, e.value)
				e.value = 0
				tab.removeLocked(b, e)
				delete(oracle, key)
			}
			b.mu.Unlock()
			if crowded {
				tab.grow(len(oracle))
			}
			switch r.IntN(100) {
			case 0:
				tab.shrink(len(oracle), 1<<20)
			case 1:
				tab.resize.Lock()
				tab.addSegment()
				tab.resize.Unlock()
			case 2:
				tab.resize.Lock()
				if tab.size.Load() > perSegment {
					tab.dropSegment()
				}
				tab.resize.Unlock()
			}
			if step%100 == 0 {
				found := map[int]int{}
				verifyTable(t, tab, func(e *entry[int, int]) {
					require.Equal(t, hash(e.key), e.hash)
					found[e.key] = e.value
				})
				require.Equal(t, oracle, found)
			}
		}
	}
}

// A table has as many buckets as its keys need, when it grows and when it shrinks, even if some
// keys remain; it does not resize with each key that is added and removed.
func TestTableFollowsItsKeys(t *testing.T) {
	tab := newTable()
	hash := mixed
	n := 0
	insert := func(key int) {
		b := tab.lock(uint32(hash(key)))
		e, crowded := tab.insertLocked(b, key, hash(key))
		e.value = 1
		b.mu.Unlock()
		if n++; crowded {
			tab.grow(n)
		}
	}
	remove := func(key int) {
		b := tab.lock(uint32(hash(key)))
		e := b.find(key, hash(key))
		e.value = 0
		tab.removeLocked(b, e)
		b.mu.Unlock()
		if n--; n%128 == 0 {
			tab.shrink(n, 128*shrinkBy)
		}
	}
	require.EqualValues(t, perSegment, tab.size.Load())
	for key := range 100_000 {
		insert(key)
	}
	grown := int(tab.size.Load())
	require.InDelta(t, 100_000*10/growAt, grown, 45_000)
	for key := range 99_000 {
		remove(key)
	}
	require.LessOrEqual(t, int(tab.size.Load()), 2*1000*10/growAt)
	require.LessOrEqual(t, len(*tab.segments.Load())*perSegment, 8*int(tab.size.Load()))
	for key := 99_000; key < 100_000; key++ {
		remove(key)
	}
	for range 20 {
		tab.shrink(0, 1<<20)
	}
	require.EqualValues(t, keptSegments*perSegment, tab.size.Load())

	for key := range 300 {
		insert(key)
	}
	size := tab.size.Load()
	for key := range 10_000 { // one added, one removed
		insert(300 + key)
		remove(key)
		tab.shrink(n, 128*shrinkBy)
		require.GreaterOrEqual(t, tab.size.Load(), size)
	}
}

// A reader that has read an old size finds no bucket in a dropped segment, and waits for the
// new size.
func TestTableStaleSize(t *testing.T) {
	for _, segments := range []int{1, 2} {
		var x table[int, int]
		x.init()
		all := make([]atomic.Pointer[segment[int, int]], segments)
		all[0].Store((*x.segments.Load())[0].Load())
		x.segments.Store(&all)
		x.size.Store(2 * perSegment)
		require.NotNil(t, x.touch(perSegment-1))
		require.Nil(t, x.touch(perSegment))
		locked := make(chan *bucket[int, int])
		go func() { locked <- x.lockTouched(nil, 2*perSegment-1) }()
		for range 1000 {
			runtime.Gosched()
		}
		x.size.Store(perSegment)
		b := <-locked
		require.Same(t, x.bucketAt(perSegment-1), b)
		require.False(t, b.mu.TryLock())
		b.mu.Unlock()
	}
}

// Goroutines that contend for few locks make the table grow, whatever its keys, up to a bound.
func TestTableGrowsUnderContention(t *testing.T) {
	tab := newTable()
	for range 20 * contendedEach {
		tab.countContention()
	}
	most := uint32(perProc * runtime.GOMAXPROCS(0))
	require.Equal(t, min(most, perSegment<<20), tab.size.Load())
	tab.shrink(0, 1<<20)
	require.Equal(t, most, tab.size.Load(), "it would be contended again")
	verifyTable(t, tab, func(*entry[int, int]) {})
}

// No key moves while a goroutine visits the table, whatever calls for a resize.
func TestTableIsNotResizedWhileVisited(t *testing.T) {
	const segments = 8
	for name, resize := range map[string]func(*table[int, int]){
		"grow":   func(tab *table[int, int]) { tab.grow(100 * perSegment) },
		"shrink": func(tab *table[int, int]) { tab.shrink(0, 1<<20) },
		"widen": func(tab *table[int, int]) {
			for range contendedEach {
				tab.countContention()
			}
		},
	} {
		tab := newTable()
		for range segments - 1 {
			tab.addSegment()
		}
		tab.visit(func(b *bucket[int, int]) bool {
			b.mu.Unlock()
			resize(tab)
			b.mu.Lock()
			return false
		})
		require.EqualValues(t, segments*perSegment, tab.size.Load(), name)
		resize(tab)
		require.NotEqual(t, uint32(segments*perSegment), tab.size.Load(), name)
	}
}

// Keys are found while the table grows and shrinks all the time and a goroutine visits it.
func TestTableHammer(t *testing.T) {
	tab := newTable()
	hash := mixed
	const goroutines, each = 4, 100
	for key := range each {
		b := tab.lock(uint32(hash(-1 - key)))
		e, _ := tab.insertLocked(b, -1-key, hash(-1-key))
		e.value = 1
		b.mu.Unlock()
	}
	var stop atomic.Bool
	var resizing, using sync.WaitGroup
	resizing.Go(func() {
		for i := 0; !stop.Load(); i++ {
			tab.resize.Lock()
			if tab.visitors == 0 {
				if i/40%2 == 0 {
					tab.addSegment()
				} else if tab.size.Load() > perSegment {
					tab.dropSegment()
				}
			}
			tab.resize.Unlock()
		}
	})
	resizing.Go(func() {
		for !stop.Load() {
			seen := map[int]int{}
			tab.visit(func(b *bucket[int, int]) bool {
				b.each(func(e *entry[int, int]) { seen[e.key]++ })
				return true
			})
			for key, n := range seen {
				if n != 1 {
					t.Errorf("%d met %d times", key, n)
				}
			}
			for key := range each { // these keys exist from beginning to end
				if seen[-1-key] != 1 {
					t.Errorf("%d met %d times", -1-key, seen[-1-key])
				}
			}
		}
	})
	for g := range goroutines {
		using.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 5))
			there := [each]int{}
			for i := range 20_000 {
				at := r.IntN(each)
				key := g*each + at
				b := tab.lock(uint32(hash(key)))
				e := b.find(key, hash(key))
				if (e != nil) != (there[at] != 0) || e != nil && e.value != there[at] {
					t.Errorf("key %d: %v, must be %d", key, e, there[at])
				}
				if e == nil {
					e, _ = tab.insertLocked(b, key, hash(key))
					there[at] = i + 1
					e.value = i + 1
				} else {
					e.value, there[at] = 0, 0
					tab.removeLocked(b, e)
				}
				b.mu.Unlock()
			}
		})
	}
	using.Wait()
	stop.Store(true)
	resizing.Wait()
}

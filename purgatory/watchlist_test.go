package purgatory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// P11: lists of a few keys, short, long and short again, against slices: operations with
// several keys arrive, leave from anywhere, and walks pause in the middle.
func TestWatchlist(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		p := open[int](t, Options{})
		const keys = 5
		type watching struct {
			h    Pending
			keys []int
		}
		var all []watching
		lists := [keys][]Pending{}
		type pausing struct {
			walk walk[int]
			left []Pending // operations it must visit, if they still wait
		}
		var walks []*pausing
		// met checks a batch of a walk: the remaining operations that waited when it began, in
		// order, and then, at most, later ones.
		met := func(x *pausing) {
			found := append([]Pending{}, x.walk.found()[:x.walk.n]...)
			there := lists[x.walk.key]
			old := slices.DeleteFunc(append([]Pending{}, x.left...), func(h Pending) bool { return !slices.Contains(there, h) })
			n := min(len(old), len(found))
			if !slices.Equal(old[:n], found[:n]) { // Equal's message would take minutes
				t.Fatalf("P11: a walk of key %d meets operations that are not the oldest, seed %d", x.walk.key, seed)
			}
			for _, h := range found[n:] {
				require.Contains(t, there, h)
			}
			if x.walk.chunk == nil {
				require.Len(t, old, n, "seed %d: the walk ends before all are met", seed)
			}
			x.left = old[n:]
		}
		leave := func(i int) {
			w := all[i]
			require.True(t, w.h.Cancel(nil))
			for _, k := range w.keys {
				lists[k] = slices.DeleteFunc(lists[k], func(h Pending) bool { return h == w.h })
			}
			all = slices.Delete(all, i, i+1)
		}
		growing, longest := true, 0
		most := 20 + int(seed%10)*60 // concurrent operations: lists from 8 to 220
		for step := range 2500 {
			if growing = len(all) < most && (growing || len(all) < most/20); !growing {
				longest = max(longest, len(lists[0]))
			}
			k := rnd.IntN(keys)
			var first Pending
			if e := p.table.at(uint32(p.hash(k))).find(k, p.hash(k)); e != nil {
				if w := e.value.first(); w != nil {
					first = w.handle()
				}
			}
			if len(lists[k]) == 0 {
				require.True(t, first.IsZero(), "seed %d: an empty list has a first operation", seed)
			} else {
				require.True(t, lists[k][0] == first, "P11, seed %d: another operation of key %d is the first", seed, k)
			}
			come := 25
			if growing {
				come = 70
			}
			switch r := rnd.IntN(100); {
			case r < come && len(all) < most:
				w := watching{keys: rnd.Perm(keys)[:1+rnd.IntN(keys)]}
				w.h = mustWatch(t, p, newOp(t), NoTimeout, w.keys...)
				all = append(all, w)
				for _, k := range w.keys {
					lists[k] = append(lists[k], w.h)
				}
			case r < 90 && len(all) > 0:
				leave(rnd.IntN(len(all)))
			case r < 94 && len(walks) < 4:
				key := rnd.IntN(keys)
				x := &pausing{walk: walk[int]{table: &p.table, key: key, hash: p.hash(key)}, left: slices.Clone(lists[key])}
				x.walk.begin()
				met(x)
				if x.walk.chunk != nil {
					walks = append(walks, x)
				}
			case r < 98 && len(walks) > 0:
				i := rnd.IntN(len(walks))
				walks[i].walk.proceed()
				met(walks[i])
				if walks[i].walk.chunk == nil {
					walks = slices.Delete(walks, i, i+1)
				}
			case r == 98:
				for len(all) > 0 && rnd.IntN(10) > 0 {
					leave(rnd.IntN(len(all)))
				}
			}
			for k := range keys {
				require.Equal(t, len(lists[k]), p.Watching(k))
			}
			if len(walks) == 0 && step%4 == 0 {
				verify(t, p)
			}
		}
		for _, x := range walks {
			for x.walk.chunk != nil {
				x.walk.proceed()
				met(x)
			}
		}
		verify(t, p)
		if most > 300 {
			require.Greater(t, longest, maxContiguous+perChunk, "the lists have no chunks")
		}
		for len(all) > 0 {
			leave(len(all) - 1)
		}
		mustShutdown(t, p)
	}
}

// readBatch on a removed key finds nothing.
func TestReadRemovedKey(t *testing.T) {
	p := open[int](t, Options{})
	require.True(t, mustWatch(t, p, newOp(t), NoTimeout, 1).Cancel(nil))
	w := walk[int]{table: &p.table, key: 1, hash: p.hash(1)}
	more := true
	require.NotPanics(t, func() { more = w.readBatch(func([]Pending) { t.Error("a removed key is read") }) })
	require.False(t, more)
	w.stop()
	mustShutdown(t, p)
}

// A long list is stored contiguously in its bucket again when it is short.
func TestWatchlistCompacts(t *testing.T) {
	p := open[int](t, Options{})
	var handles []Pending
	for range 5 * maxContiguous {
		handles = append(handles, mustWatch(t, p, newOp(t), NoTimeout, 1))
	}
	list := func() *watchlist {
		h := p.hash(1)
		return &p.table.at(uint32(h)).find(1, h).value
	}
	leave := func(to int) {
		for len(handles) > to {
			i := rand.IntN(len(handles))
			require.True(t, handles[i].Cancel(nil))
			handles = slices.Delete(handles, i, i+1)
		}
		verify(t, p)
	}
	require.NotNil(t, list().rest.head)
	leave(maxContiguous / 2)
	require.Nil(t, list().rest.head)
	leave(maxInline / 2)
	require.Nil(t, list().rest)
	for i, w := range list().inline[:len(handles)] {
		require.Equal(t, handles[i], w.handle())
	}
	require.Equal(t, len(handles), p.CancelForKey(1, nil))
	mustShutdown(t, p)
}

// Keys with the same lowest bits of their hash are kept apart, in short and long lists, and
// within one operation.
func TestWatchlistSameHash(t *testing.T) {
	p := open[int](t, Options{})
	// Finding keys whose hashes agree in 32 bits would take too long: they are entered by hand.
	const same = 12345
	enter := func(w *waiter, keys ...int) {
		w.begin(&p.core, newOp(t), NoTimeout)
		hashes := make([]uint64, len(keys))
		for i, k := range keys {
			hashes[i] = 1<<63 | uint64(k)<<32 | same
		}
		w.setHashes(hashes)
		part, _, err := p.countIn(w, 1)
		require.NoError(t, err)
		p.enter(w, part, keys, hashes)
		p.putTally(part)
		_, ended := w.yield(false)
		require.False(t, ended)
	}
	all := make([]*waiter, 3*maxContiguous)
	for i := range all {
		all[i] = new(waiter)
		enter(all[i], 1+i%2, 3, 4+i%3)
	}
	require.Equal(t, 6, p.KeyCount())
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, w := range all {
		require.Equal(t, 3*(len(all)-i), p.Watched())
		h := w.handle()
		for range 2 {
			seen := map[Pending]int{}
			for x := range p.All() {
				seen[x.Pending]++
				if x.Pending == h {
					require.Len(t, x.Keys(), 3)
				}
			}
			require.Len(t, seen, len(all)-i)
			require.Equal(t, 1, seen[h], "met by each of its keys")
		}
		require.True(t, h.Cancel(nil))
	}
	requireEmpty(t, p)
	mustShutdown(t, p)
}

// The same for the trees of a Threshold.
func TestTreesSameHash(t *testing.T) {
	r := newThresholdFixture(t, Options{})
	seen := map[uint32]int{}
	a, b := 0, 0
	for key := 1; a == 0; key++ {
		h := uint32(r.hash(key))
		a, b = seen[h], key
		seen[h] = key
	}
	for _, keys := range [][2]int{{a, b}, {b, a}} { // in order of arrival
		for _, removed := range []int{0, 1} { // which one is removed first
			var handles [2]Pending
			for i, key := range keys {
				handles[i] = r.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{key, 1})
			}
			require.Equal(t, 2, r.verify())
			require.True(t, handles[removed].Cancel(nil))
			require.Equal(t, 1, r.verify())
			require.True(t, handles[1-removed].Waiting())
			require.Equal(t, 1, r.Advance(keys[1-removed], 1))
			require.Zero(t, r.verify())
		}
		require.True(t, r.mustWatch(newOp(t), NoTimeout, All, Goal[int, int]{keys[0], 1}, Goal[int, int]{keys[1], 1}).Cancel(nil))
		require.Zero(t, r.verify())
	}
}

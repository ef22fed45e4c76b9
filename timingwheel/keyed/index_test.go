package keyed

import (
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// handles makes n distinct handles; timer 0 is not among them.
func handles(t testing.TB, n int) []timingwheel.Timer {
	t.Helper()
	w, err := timingwheel.New(func(int) {}, timingwheel.Options{})
	require.NoError(t, err)
	all := make([]timingwheel.Timer, n)
	for i := range all {
		all[i], err = w.Schedule(i, time.Hour)
		require.NoError(t, err)
	}
	_, err = w.Shutdown(t.Context(), timingwheel.Discard)
	require.NoError(t, err)
	return all
}

// indexModel makes an index grow and shrink, and compares it with a Go map. Each byte of ops is
// a number of steps: keys added, removed, or searched.
func indexModel(t *testing.T, ops []byte, all []timingwheel.Timer) {
	x := index[int]{seed: maphash.MakeSeed()}
	hash := func(key int) uint64 { return maphash.Comparable(x.seed, key) }
	model := map[int]timingwheel.Timer{}
	var in, out []int // the model's keys, and the others
	for key := range all {
		out = append(out, key)
	}
	r := rand.New(rand.NewPCG(uint64(len(ops)), 1))
	pick := func(from, to *[]int) (int, bool) {
		if len(*from) == 0 {
			return 0, false
		}
		i := r.IntN(len(*from))
		key := (*from)[i]
		(*from)[i] = (*from)[len(*from)-1]
		*from = (*from)[:len(*from)-1]
		*to = append(*to, key)
		return key, true
	}
	for _, op := range ops {
		for range int(op/2) * 8 {
			if op%2 == 0 {
				if key, ok := pick(&out, &in); ok {
					require.Nil(t, x.find(key, hash(key)))
					x.add(key, hash(key), all[key])
					model[key] = all[key]
				}
			} else if key, ok := pick(&in, &out); ok {
				x.remove(key, hash(key))
				require.Nil(t, x.find(key, hash(key)))
				delete(model, key)
			}
		}
		verifyIndex(t, &x)
		for key, timer := range model {
			at := x.find(key, hash(key))
			require.NotNil(t, at)
			require.Equal(t, timer, *at)
		}
		walked := map[timingwheel.Timer]bool{}
		timers, _ := x.timers()
		for _, timer := range timers {
			walked[timer] = true
		}
		require.Len(t, timers, len(model))
		require.Len(t, walked, len(model))
	}
}

func TestIndexModel(t *testing.T) {
	t.Parallel()
	all := handles(t, 3000)
	indexModel(t, []byte{254, 254, 254, 129, 130, 255, 255, 255, 255, 100, 91, 254, 255, 16, 3, 7, 7}, all)
	for seed := range 10 {
		var key [32]byte
		binary.LittleEndian.PutUint64(key[:], uint64(seed))
		ops := make([]byte, 20)
		_, _ = rand.NewChaCha8(key).Read(ops)
		indexModel(t, ops, all)
	}
}

// Each key of a segment is found, in whatever order others are removed, although all keys have
// the same home and some the same tag.
func TestSegmentCollisions(t *testing.T) {
	all := handles(t, 7)
	for _, home := range []uint16{0, 5, 7} { // the last ones go around the end
		for _, tags := range [][]uint16{
			{home, home, home, home, home, home, home},
			{home, home + 1, home, home + 1, home, home + 2, home},
			{home, home + 8, home + 1, home, home + 9, home + 16, home + 1},
		} {
			for first := range tags {
				var s segment[int]
				s.resize(minSlots)
				tag := func(key int) uint16 { return (tags[key]%0x7FFF)<<1 | 1 }
				for key := range tags {
					s.put(tag(key), slot[int]{key, all[key]})
				}
				for n := range tags {
					require.Equal(t, len(tags)-n, s.used)
					removed := (first + n*3) % 7 // 7 is prime: each once
					s.remove(s.find(removed, tag(removed)))
					require.Equal(t, -1, s.find(removed, tag(removed)))
					for k := n + 1; k < len(tags); k++ {
						key := (first + k*3) % 7
						at := s.find(key, tag(key))
						require.GreaterOrEqual(t, at, 0, "key %d is lost", key)
						require.Equal(t, slot[int]{key, all[key]}, s.slots[at])
					}
				}
				require.Equal(t, make([]uint16, minSlots), s.tags)
				require.Equal(t, make([]slot[int], minSlots), s.slots)
			}
		}
	}
}

// Every slot is the home of some hash, and no tag is the free slot's.
func TestTags(t *testing.T) {
	var s segment[int]
	s.resize(minSlots)
	homes := map[int]int{}
	for h := range uint64(1 << 16) {
		tag := tagOf(h << 48)
		require.NotZero(t, tag)
		homes[s.home(tag)]++
	}
	for i := range minSlots {
		require.Equal(t, 1<<16/minSlots, homes[i], "slot %d", i)
	}
}

// A walk yields each key that stays once, although segments are split and merged between its
// steps.
func TestWalkWhileSegmentsChange(t *testing.T) {
	const stay, others = 500, 8000
	all := handles(t, stay+others)
	for _, in := range []int{0, others} { // how many of the others are present at first
		x := index[int]{seed: maphash.MakeSeed()}
		hash := func(key int) uint64 { return maphash.Comparable(x.seed, key) }
		for key := range stay + in {
			x.add(key, hash(key), all[key])
		}
		keyOf := map[timingwheel.Timer]int{}
		for key, timer := range all {
			keyOf[timer] = key
		}
		seen := map[int]int{}
		grow, had := in == 0, len(x.segments)
		sizes := map[int]bool{}
		for from := uint64(0); from != walkEnd; {
			var timers []timingwheel.Timer
			timers, from = x.appendFrom(from, timers)
			for _, timer := range timers {
				seen[keyOf[timer]]++
			}
			for range 1500 {
				switch key := stay + in; {
				case grow && in < others:
					x.add(key, hash(key), all[key])
					in++
				case !grow && in > 0:
					x.remove(key-1, hash(key-1))
					in--
				default:
					grow = !grow
				}
			}
			sizes[len(x.segments)] = true
		}
		require.Greater(t, len(sizes), 3, "the segments were %d, and then %v", had, sizes)
		for key := range stay {
			require.Equal(t, 1, seen[key], "key %d", key)
		}
		for key, n := range seen {
			require.Equal(t, 1, n, "key %d", key) // also if it left and returned
		}
	}
}

// A step that begins in the middle of a segment yields the keys from there on.
func TestWalkFromWithinASegment(t *testing.T) {
	all := handles(t, fill)
	x := index[int]{seed: maphash.MakeSeed()}
	hash := func(key int) uint64 { return maphash.Comparable(x.seed, key) }
	for key, timer := range all {
		x.add(key, hash(key), timer)
	}
	require.Len(t, x.segments, 1)
	for key := range all {
		from := position(hash(key))
		want := 0
		for other := range all {
			if position(hash(other)) >= from {
				want++
			}
		}
		timers, next := x.appendFrom(from, nil)
		require.Len(t, timers, want)
		require.Contains(t, timers, all[key])
		require.Equal(t, uint64(walkEnd), next)
	}
}

// The work of one call is bounded: an add or a remove moves the keys of one or two segments,
// whatever the number of keys, and allocates no memory in proportion to it, except the
// segments' table.
func TestIndexWorkIsBounded(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	x := index[int]{seed: maphash.MakeSeed()}
	hash := func(key int) uint64 { return maphash.Comparable(x.seed, key) }
	largest, step := 0, 0
	watch := func(do func(key int)) {
		for key := range keys {
			before := len(x.segments)
			do(key)
			change := len(x.segments) - before
			step = max(step, change, -change)
			if key%97 == 0 {
				for i := range x.segments {
					largest = max(largest, x.segments[i].used)
				}
			}
		}
	}
	watch(func(key int) { x.add(key, hash(key), timingwheel.Timer{}) })
	watch(func(key int) { x.remove(key, hash(key)) })
	require.Equal(t, 1, step)
	require.Less(t, largest, 4*fill)
	require.Len(t, x.segments, 1)
	require.Equal(t, minSlots, x.size)
}

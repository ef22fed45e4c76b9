package calls

import (
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A walk takes the lock for a bounded number of calls at a time, however many are pending in
// the group: calls that end while the loop's body runs are not yielded, except those of the
// batch already copied.
func TestAllReleasesTheLock(t *testing.T) {
	c := table(t, Options{})
	g := c.Group()
	const n = 10_000
	left := map[int]bool{} // pending and not yet yielded
	for id := range n {
		require.NoError(t, g.Go(id, time.Hour, sendNothing, func(string, error) {}))
		left[id] = true
	}
	seen := 0
	for w := range g.All() {
		seen++
		delete(left, w.ID)
		for id := range left {
			require.True(t, g.Reply(id, ""))
			delete(left, id)
			break
		}
	}
	require.Empty(t, left)
	require.Less(t, seen, n*3/4, "one is yielded for each that ends")
}

// However calls begin and end during a walk, and the map grows and shrinks, each call that is
// pending from beginning to end is yielded once, and none long after it has ended.
func TestAllWhileCallsComeAndGo(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		c := table(t, Options{})
		g := c.Group()
		next := 0
		start := func() {
			require.NoError(t, g.Go(next, time.Hour, sendNothing, func(string, error) {}))
			next++
		}
		const n = 10_000
		for range n {
			start()
		}
		stays := func(id int) bool { return id%16 == 0 }
		seen, leaving, steps, left := map[int]int{}, rng.Perm(n), 0, map[int]int{}
		at := []int{0, 4, 20, 60}[seed%4] // number of calls that end at each step
		for w := range g.All() {
			seen[w.ID]++
			steps++
			if at, ended := left[w.ID]; ended {
				require.Less(t, steps-at, batch)
			}
			for range seed / 4 * 2 {
				start()
			}
			for _, id := range leaving[:min(at, len(leaving))] {
				if !stays(id) {
					require.True(t, g.Reply(id, ""))
					left[id] = steps
				}
			}
			leaving = leaving[min(at, len(leaving)):]
		}
		for id := range next {
			if stays(id) && id < n {
				require.Equal(t, 1, seen[id], "call %d, seed %d", id, seed)
			}
			require.LessOrEqual(t, seen[id], 1, "call %d, seed %d", id, seed)
		}
	}
}

// A walk through a group that closes goes no further.
func TestAllOfAGroupThatCloses(t *testing.T) {
	c := table(t, Options{})
	g := c.Group()
	for id := range 10 * batch {
		require.NoError(t, g.Go(id, time.Hour, sendNothing, func(string, error) {}))
	}
	seen := 0
	for range g.All() {
		if seen++; seen == 1 {
			require.Equal(t, 10*batch, g.CloseWithError(nil))
		}
	}
	require.Equal(t, batch, seen)
}

// A loop that breaks, or panics, leaves no lock held.
func TestAllEndsEarly(t *testing.T) {
	c := table(t, Options{})
	g := c.open(2)
	for id := 0; len(g.parts[0].calls) < 2*batch || len(g.parts[1].calls) == 0; id++ {
		require.NoError(t, g.Go(id, time.Hour, sendNothing, func(string, error) {}))
	}
	for _, all := range []iter.Seq[Waiting[int]]{g.All(), c.All()} {
		for _, last := range []int{1, batch, batch + 1, 2 * batch} {
			seen := 0
			for range all {
				if seen++; seen == last {
					break
				}
			}
			require.Equal(t, last, seen)
			require.PanicsWithValue(t, "no", func() {
				seen := 0
				for range all {
					if seen++; seen == last {
						panic("no")
					}
				}
			})
			require.True(t, g.parts[0].mu.TryLock())
			g.parts[0].mu.Unlock()
		}
	}
}

package best

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Best and a full sort give the same n items, in the same order.
func TestBest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 5))
	for round := range 400 {
		n, count := rnd.IntN(20), rnd.IntN(60)
		b := New[int64](n, rnd.IntN(30)-5)
		var all []int64
		for range count {
			rank := int64(rnd.IntN(1 + round%50)) // often equal
			all = append(all, rank)
			kept := slices.Sorted(slices.Values(b.items))
			better := n > 0 && (len(kept) < n || rank > kept[0])
			require.Equal(t, better, b.Accepts(rank), "%d with %v, at most %d", rank, kept, n)
			if better {
				b.Add(rank, rank)
			}
		}
		slices.SortFunc(all, func(x, y int64) int { return int(y - x) })
		require.Equal(t, append([]int64{}, all[:min(n, count)]...), b.Sorted())
	}
	b := New[string](3, 0)
	for i, s := range []string{"a", "b", "c"} {
		b.Add(int64(i/2), s)
	}
	require.Equal(t, []string{"c", "a", "b"}, b.Sorted(), "equal ones as they were added")
}

package purgatory

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The table against a map, with hashes that are equal, that share a home, and
// that lie at the end, so that searches go around.
func TestTable(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		hashes := 1 + r.IntN(40)
		hash := func(key int) uint64 { return uint64(key%hashes)<<16 - 3<<16 }
		most := 1 << r.IntN(13)
		var tab table[int]
		oracle := map[int]*watchers[int]{}
		for step := range 6000 {
			key := r.IntN(most)
			if step%2000 > 1500 { // less and less
				for key = range oracle {
					break
				}
			}
			l := tab.find(key, hash(key))
			require.Equal(t, oracle[key], l)
			if l == nil {
				l = &watchers[int]{key: key, hash: hash(key)}
				tab.add(l)
				oracle[key] = l
			} else if r.IntN(2) == 0 || step%2000 > 1500 {
				tab.remove(l)
				delete(oracle, key)
			}
			require.Equal(t, len(oracle), tab.n)
			require.LessOrEqual(t, 4*tab.n, 3*len(tab.places))
			if len(tab.places) > keepKeys {
				require.GreaterOrEqual(t, 8*tab.n, len(tab.places))
			}
		}
		for key := range most {
			require.Equal(t, oracle[key], tab.find(key, hash(key)))
		}
		held := 0
		for _, p := range tab.places {
			if p.list != nil {
				held++
				require.Equal(t, p.list.hash, p.hash)
			}
		}
		require.Equal(t, tab.n, held)
	}
}

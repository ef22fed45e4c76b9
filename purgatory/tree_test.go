package purgatory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// verifyTree checks a tree's invariants and returns its goals in order.
func verifyTree[K comparable, N int | int64 | float64 | string](t testing.TB, tr *tree[K, N]) []*goal[K, N] {
	t.Helper()
	var all []*goal[K, N]
	var walk func(g, up *goal[K, N])
	walk = func(g, up *goal[K, N]) {
		if g == nil {
			return
		}
		if g.parent != up || g.tree != tr {
			t.Fatalf("goal %v: parent %p, not %p; tree %p, not %p", g.number, g.parent, up, g.tree, tr)
		}
		if up != nil && g.priority < up.priority {
			t.Fatalf("goal %v: priority %d below its parent's %d", g.number, g.priority, up.priority)
		}
		walk(g.left, g)
		if len(all) > 0 && !all[len(all)-1].before(g) {
			t.Fatalf("goal %v is out of order", g.number)
		}
		all = append(all, g)
		walk(g.right, g)
	}
	walk(tr.root, nil)
	if tr.n != len(all) {
		t.Fatalf("tree counts %d, holds %d", tr.n, len(all))
	}
	if len(all) > 0 && (tr.first != all[0] || tr.last != all[len(all)-1]) {
		t.Fatal("the tree's ends are wrong")
	}
	if len(all) == 0 && (tr.first != nil || tr.last != nil) {
		t.Fatal("an empty tree has ends")
	}
	return all
}

// The tree against a sorted slice: random numbers, many of them equal, goals removed from the
// front, the end and anywhere.
func TestTree(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		var tr tree[int, int]
		var want []*goal[int, int]
		spread := []int{1, 5, 1000}[seed%3]
		for seq := range uint64(600) {
			if len(want) > 0 && r.IntN(100) < 45 {
				i := []int{0, len(want) - 1, r.IntN(len(want))}[r.IntN(3)]
				g := want[i]
				tr.remove(g)
				require.Nil(t, g.tree)
				require.True(t, g.parent == nil && g.left == nil && g.right == nil)
				want = slices.Delete(want, i, i+1)
			} else {
				g := &goal[int, int]{number: r.IntN(spread), seq: seq, priority: r.Uint32() >> (seed % 2 * 28)}
				tr.insert(g)
				i, _ := slices.BinarySearchFunc(want, g, func(a, b *goal[int, int]) int {
					if a.before(b) {
						return -1
					}
					return 1
				})
				want = slices.Insert(want, i, g)
			}
			require.Equal(t, want, append(want[:0:0], verifyTree(t, &tr)...))
			for i, g := range want {
				var next, previous *goal[int, int]
				if i+1 < len(want) {
					next = want[i+1]
				}
				if i > 0 {
					previous = want[i-1]
				}
				require.True(t, g.next() == next && g.previous() == previous)
			}
		}
	}
}

// Goals in ascending order are not searched for from the root, and the tree stays balanced.
func TestTreeIsBalanced(t *testing.T) {
	var tr tree[int, int]
	for i := range 10_000 {
		(&goal[int, int]{number: i}).enterLocked(&tr)
	}
	depth := 0
	for g := tr.first; g != nil; g = g.next() {
		d := 0
		for at := g; at != nil; at = at.parent {
			d++
		}
		depth = max(depth, d)
	}
	require.Less(t, depth, 70, "some 30 are expected") // 2.99 ln n, and a margin
}

package purgatory

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P11: first come, first checked, across the edges of a batch.
func TestP11InOrder(t *testing.T) {
	for _, n := range []int{1, 2, 31, 32, 33, 64, 65, 100, 1000} {
		synctest.Test(t, func(t *testing.T) {
			p := open[string](t, Options{})
			var checked, ended journal[int]
			var want []int
			for i := range n {
				op := newOp(t)
				op.try = func(check int) bool {
					if check > 2 {
						checked.note(i)
					}
					return check == 4 || check == 3 && i%2 == 0
				}
				op.end = func(Outcome) { ended.note(i) }
				park(t, p, op, time.Hour, "k", "other")
				want = append(want, i)
			}
			evens := slices.DeleteFunc(slices.Clone(want), func(i int) bool { return i%2 == 1 })
			odd := slices.DeleteFunc(slices.Clone(want), func(i int) bool { return i%2 == 0 })
			require.Equal(t, len(evens), p.CheckAndComplete("k"))
			require.Equal(t, want, checked.take())
			require.Equal(t, evens, ended.take())
			verify(t, p)
			require.Equal(t, len(odd), p.CancelForKey("other"))
			require.Equal(t, odd, ended.take())
			empty(t, p)
			shut(t, p)
		})
	}
}

// P11: watchers leave and come in the middle of a walk. Those that were there
// and stay are met, in order, once; those that came last are met last if at all.
func TestP11LeavingAndJoining(t *testing.T) {
	for at := range 100 { // where the walk is when it happens
		synctest.Test(t, func(t *testing.T) {
			const n = 100
			p := open[int](t, Options{})
			var met journal[int]
			handles := make([]Pending, n)
			enter := func(i int, meet func()) Pending {
				op := newOp(t)
				op.try = func(check int) bool {
					if check > 2 {
						met.note(i)
						meet()
					}
					return false
				}
				return park(t, p, op, time.Hour, 1)
			}
			gone := func(i int) bool { return i%3 == 0 && i != at }
			for i := range n {
				handles[i] = enter(i, func() {
					if i != at || met.seen[len(met.seen)-1] >= n {
						return
					}
					for j, h := range handles {
						if gone(j) {
							h.Cancel()
						}
					}
					for j := range 50 {
						enter(n+j, func() {})
					}
				})
			}
			require.Zero(t, p.CheckAndComplete(1))
			var want []int
			for i := range n {
				if !gone(i) || i < at {
					want = append(want, i)
				}
			}
			seen := met.take()
			require.GreaterOrEqual(t, len(seen), len(want))
			require.Equal(t, want, seen[:len(want)])
			require.True(t, slices.IsSorted(seen), seen)
			require.LessOrEqual(t, len(seen), n)
			verify(t, p)
			shut(t, p)
		})
	}
}

// P11: two walks of one key at once, one of which empties the list under the
// other: each meets all that is left, in order, and both take their marks away.
func TestP11TwoWalks(t *testing.T) {
	for at := range 100 {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{})
			var met journal[int]
			all := false
			var stopped, goOn = make(chan bool), make(chan bool)
			for i := range 100 {
				op := newOp(t)
				op.try = func(check int) bool {
					if check == 3 {
						met.note(i)
						if i == at {
							close(stopped)
							<-goOn
						}
					}
					return all && i%2 == 0
				}
				park(t, p, op, time.Hour, 1)
			}
			t1 := make(chan int)
			go func() { t1 <- p.CheckAndComplete(1) }()
			<-stopped
			all = true
			n := p.CheckAndComplete(1)
			require.Equal(t, 50-(1-at%2), n, "all that are ready, but for the one that is being checked")
			require.Equal(t, 100-n, p.CancelForKey(1), "all that are left, with the one that is being checked")
			close(goOn)
			require.Zero(t, <-t1)
			seen := met.take()
			require.True(t, slices.Contains(seen, at))
			empty(t, p)
			shut(t, p)
		})
	}
}

// P2, P11: two walks go on from one row, which all operations have left
// meanwhile. It stays for the second when the first has passed it.
func TestP11TwoWalksFromAnEmptyRow(t *testing.T) {
	p := open[int](t, Options{})
	var handles []Pending
	for range 5 * rowSlots {
		handles = append(handles, park(t, p, newOp(t), NoTimeout, 1))
	}
	shard, hash := p.place(1)
	s := &p.shards[shard]
	l := s.keys.find(1, hash)
	fill := func(w *walk[int], r *row[int], from uint8) []Pending {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.fillLocked(r, from)
		return append([]Pending{}, w.found[:w.n]...)
	}
	a, b := walk[int]{shard: s, left: l.n}, walk[int]{shard: s, left: l.n}
	require.Equal(t, handles[:batch], fill(&a, l.head, 0))
	require.Equal(t, handles[:batch], fill(&b, l.head, 0))
	at := batch / rowSlots * rowSlots // the first of the row that holds the next
	require.Same(t, a.row, b.row)
	for _, h := range handles[at : at+rowSlots] {
		require.True(t, h.Cancel())
	}
	rest := handles[at+rowSlots:]
	require.Equal(t, rest, fill(&a, a.row, a.from))
	spare := s.rows
	require.Equal(t, rest, fill(&b, b.row, b.from))
	require.Equal(t, spare+1, s.rows, "the row goes with the last walk")
	verify(t, p)
}

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
			var checked, ended recorder[int]
			var want []int
			for i := range n {
				op := newOp(t)
				op.try = func(check int) bool {
					if check > 2 {
						checked.record(i)
					}
					return check == 4 || check == 3 && i%2 == 0
				}
				op.end = func(Outcome) { ended.record(i) }
				mustWatch(t, p, op, time.Hour, "k", "other")
				want = append(want, i)
			}
			evens := slices.DeleteFunc(slices.Clone(want), func(i int) bool { return i%2 == 1 })
			odd := slices.DeleteFunc(slices.Clone(want), func(i int) bool { return i%2 == 0 })
			require.Equal(t, len(evens), p.CheckAndComplete("k"))
			require.Equal(t, want, checked.take())
			require.Equal(t, evens, ended.take())
			verify(t, p)
			require.Equal(t, len(odd), p.CancelForKey("other", nil))
			require.Equal(t, odd, ended.take())
			requireEmpty(t, p)
			mustShutdown(t, p)
		})
	}
}

// P11: watchers leave and arrive in the middle of a walk. The ones present from beginning to
// end are visited in order, once; later ones are visited last, if at all.
func TestP11LeavingAndJoining(t *testing.T) {
	for at := range 100 { // where the walk is when it happens
		synctest.Test(t, func(t *testing.T) {
			const n = 100
			p := open[int](t, Options{})
			var met recorder[int]
			handles := make([]Pending, n)
			enter := func(i int, meet func()) Pending {
				op := newOp(t)
				op.try = func(check int) bool {
					if check > 2 {
						met.record(i)
						meet()
					}
					return false
				}
				return mustWatch(t, p, op, time.Hour, 1)
			}
			removed := func(i int) bool { return i%3 == 0 && i != at }
			for i := range n {
				handles[i] = enter(i, func() {
					if i != at || met.seen[len(met.seen)-1] >= n {
						return
					}
					for j, h := range handles {
						if removed(j) {
							h.Cancel(nil)
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
				if !removed(i) || i < at {
					want = append(want, i)
				}
			}
			seen := met.take()
			require.GreaterOrEqual(t, len(seen), len(want))
			require.Equal(t, want, seen[:len(want)])
			require.True(t, slices.IsSorted(seen), seen)
			require.LessOrEqual(t, len(seen), n)
			verify(t, p)
			mustShutdown(t, p)
		})
	}
}

// P11: two concurrent walks of one key, one of which empties the list under the other: each
// visits the remaining operations in order, and both remove their marks.
func TestP11TwoWalks(t *testing.T) {
	for at := range 100 {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{})
			var met recorder[int]
			all := false
			var stopped, resume = make(chan bool), make(chan bool)
			for i := range 100 {
				op := newOp(t)
				op.try = func(check int) bool {
					if check == 3 {
						met.record(i)
						if i == at {
							close(stopped)
							<-resume
						}
					}
					return all && i%2 == 0
				}
				mustWatch(t, p, op, time.Hour, 1)
			}
			t1 := make(chan int)
			go func() { t1 <- p.CheckAndComplete(1) }()
			<-stopped
			all = true
			n := p.CheckAndComplete(1)
			require.Equal(t, 50-(1-at%2), n, "all that are ready, but for the one that is being checked")
			require.Equal(t, 100-n, p.CancelForKey(1, nil), "all that are left, with the one that is being checked")
			close(resume)
			require.Zero(t, <-t1)
			seen := met.take()
			require.True(t, slices.Contains(seen, at))
			requireEmpty(t, p)
			mustShutdown(t, p)
		})
	}
}

// P2, P11: two walks continue from one chunk, which all operations have left. It stays for the
// second when the first has passed it.
func TestP11TwoWalksFromAnEmptyChunk(t *testing.T) {
	p := open[int](t, Options{})
	var handles []Pending
	for range maxContiguous + 5*perChunk {
		handles = append(handles, mustWatch(t, p, newOp(t), NoTimeout, 1))
	}
	begin := func(w *walk[int]) []Pending {
		*w = walk[int]{table: &p.table, key: 1, hash: p.hash(1)}
		w.begin()
		return slices.Clone(w.found()[:w.n])
	}
	proceed := func(w *walk[int]) []Pending {
		w.proceed()
		return slices.Clone(w.found()[:w.n])
	}
	var a, b walk[int]
	require.Equal(t, handles[:batch], begin(&a))
	require.Equal(t, handles[:batch], begin(&b))
	require.Same(t, a.chunk, b.chunk)
	for _, h := range handles[maxContiguous : maxContiguous+perChunk] { // the chunk with the next one
		require.True(t, h.Cancel(nil))
	}
	rest := handles[maxContiguous+perChunk:]
	paused := a.chunk
	require.Equal(t, rest[:batch], proceed(&a))
	require.NotNil(t, paused.list, "the chunk goes with the last walk")
	require.Equal(t, rest[:batch], proceed(&b))
	require.Nil(t, paused.list)
	for _, w := range []*walk[int]{&a, &b} {
		for n := batch; n < len(rest); n += batch {
			require.Equal(t, rest[n:min(n+batch, len(rest))], proceed(w))
		}
		require.Nil(t, w.chunk)
	}
	verify(t, p)
}

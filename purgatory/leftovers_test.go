package purgatory

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// P5, purgatory 4: an operation that ends, in whatever way, leaves all lists and the wheel
// before its Complete is called, while others stay on its keys.
func TestP5NothingLeftBehind(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				op := newOp(t)
				var s *endingFixture
				want := [3]int{2, 3, 2} // key 2 has been removed
				if e.outcome == Closed {
					want = [3]int{}
				}
				op.end = func(Outcome) { assert.Equal(t, want, counts(s.p)) }
				s = newEndingFixture(t, op)
				others := []Pending{
					mustWatch(t, s.p, newOp(t), NoTimeout, 1),
					mustWatch(t, s.p, newOp(t), 2*endingTimeout, 3, 1),
				}
				verify(t, s.p)
				require.Equal(t, [3]int{3, 5, 3}, counts(s.p))
				if e.outcome == Closed { // otherwise they may be closed earlier or later
					others[0].Cancel(nil)
					others[1].Cancel(nil)
				}
				e.end(s)
				synctest.Wait()
				require.Equal(t, e.outcome, op.Outcome())
				if e.outcome != Closed {
					verify(t, s.p)
					require.True(t, others[0].Cancel(nil))
					require.Equal(t, [3]int{1, 2, 2}, counts(s.p))
					require.True(t, others[1].Cancel(nil))
				}
				requireEmpty(t, s.p)
				mustShutdown(t, s.p)
			})
		})
	}
}

// counts returns Len, Watched and Keys, and panics unless the methods and Stats agree.
func counts[K comparable](p *Purgatory[K]) [3]int {
	st := p.Stats()
	if st.Pending != p.Len() || st.Watched != p.Watched() || st.Keys != p.KeyCount() {
		panic("the counts do not agree")
	}
	return [3]int{st.Pending, st.Watched, st.Keys}
}

// P5: an operation counts as pending until it has left all its lists. The lock of its second
// key's bucket delays it in between.
func TestP5DelayedUntilItHasLeft(t *testing.T) {
	p := open[int](t, Options{})
	first, last := 0, 1
	for bucketOf(p, last) == bucketOf(p, first) {
		last++
	}
	h := mustWatch(t, p, newOp(t), NoTimeout, first, last)
	gate := bucketOf(p, last)
	gate.mu.Lock()
	done := make(chan bool)
	go func() { done <- h.Cancel(nil) }()
	blockedOnMutex(t, "(*Purgatory[...]).leave")
	delayed := p.pending()
	gate.mu.Unlock()
	require.True(t, <-done)
	require.Equal(t, 1, delayed, "counted out, while a list holds it: Shutdown would be over too soon")
	mustShutdown(t, p)
}

// bucketOf returns the bucket of a key, while the table does not grow.
func bucketOf[K comparable](p *Purgatory[K], key K) *bucket[K, watchlist] {
	return p.table.at(uint32(p.hash(key)))
}

// P5: Keys counts keys with watchers: not a key where a walk has paused and whose watchers have
// left.
func TestP5KeysDuringAWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		for i := range 2 * batch {
			op := newOp(t)
			op.try = func(n int) bool { return n > 2 }
			op.end = func(Outcome) {
				if i == 0 {
					require.Equal(t, 2*batch-1, p.CancelForKey(1, nil))
					require.Equal(t, [3]int{}, counts(p))
					mustWatch(t, p, newOp(t), NoTimeout, 1)
					require.Equal(t, [3]int{1, 1, 1}, counts(p))
					require.Equal(t, 1, p.CancelForKey(1, nil))
					require.Equal(t, [3]int{}, counts(p))
				}
			}
			mustWatch(t, p, op, time.Hour, 1)
		}
		require.Equal(t, 1, p.CheckAndComplete(1))
		mustShutdown(t, p)
	})
}

// P5, purgatory 4: an ended operation can be collected while its handle and the other watchers
// of its keys are kept.
func TestP5PayloadIsCollected(t *testing.T) {
	p := open[int](t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var collectedOps atomic.Int32
	var handles []Pending
	for i := range 3 {
		handles = append(handles, mustWatch(t, p, newOp(t), NoTimeout, i))
	}
	enter := func() Pending {
		op := newOp(t)
		op.try = func(n int) bool { return n > 2 }
		runtime.AddCleanup(op, func(int) { collectedOps.Add(1) }, 0)
		h, err := p.TryCompleteElseWatch(ctx, op, time.Hour, 0, 1, 2)
		require.NoError(t, err)
		return h
	}
	forced, cancelled, byKey, checked := enter(), enter(), enter(), enter()
	for i := range 3 {
		handles = append(handles, mustWatch(t, p, newOp(t), NoTimeout, i))
	}
	require.True(t, forced.ForceComplete())
	require.True(t, cancelled.Cancel(nil))
	require.True(t, byKey.Cancel(nil))
	require.Equal(t, 1, p.CheckAndComplete(1), "checked")
	verify(t, p)
	collected(t, "the operation", func() bool { return collectedOps.Load() == 4 })
	require.Equal(t, [3]int{6, 6, 3}, counts(p))
	runtime.KeepAlive([]any{handles, forced, cancelled, byKey, checked, ctx})
	mustShutdown(t, p)
}

// P5: a stale handle keeps little memory alive: neither the keys of a Threshold's operation,
// nor the positions of an operation with very many keys, nor the purgatory or the Threshold.
func TestP5StaleHandlesPinLittle(t *testing.T) {
	var collectedOps atomic.Int32
	watched := func(key *[1000]byte) { runtime.AddCleanup(key, func(int) { collectedOps.Add(1) }, 0) }
	enter := func() (handles []Pending) {
		th, err := NewThreshold(func(*[1000]byte) int { return 0 }, Options{})
		require.NoError(t, err)
		runtime.AddCleanup(th, func(int) { collectedOps.Add(1) }, 0)
		for keys := 1; keys <= 3; keys++ {
			var goals []Goal[*[1000]byte, int]
			for range keys {
				key := new([1000]byte)
				watched(key)
				goals = append(goals, Goal[*[1000]byte, int]{key, 1})
			}
			h, err := th.TryCompleteElseWatch(context.Background(), newOp(t), time.Hour, All, goals...)
			require.NoError(t, err)
			require.True(t, h.Cancel(nil))
			handles = append(handles, h)
		}
		require.NoError(t, th.Shutdown(context.Background()))
		p := open[int](t, Options{})
		keys := make([]int, maxKeys)
		for i := range keys {
			keys[i] = i
		}
		h := mustWatch(t, p, newOp(t), time.Hour, keys...)
		require.Len(t, h.w.extra.Load().hashes, len(keys))
		require.True(t, h.ForceComplete())
		require.Nil(t, h.w.extra.Load())
		require.Nil(t, h.w.core)
		mustShutdown(t, p)
		return append(handles, h)
	}
	handles := enter()
	collected(t, "a key, or the Threshold", func() bool { return collectedOps.Load() == 7 })
	runtime.KeepAlive(handles)
}

// P5: an ended operation is collected before its context is done, although the context has a
// hook for it.
func TestP5ContextPinsNothing(t *testing.T) {
	p := open[int](t, Options{})
	ctx := &countingContext{Context: context.Background(), done: make(chan struct{})}
	var freed atomic.Int32
	for range 10 {
		op := newOp(t)
		runtime.AddCleanup(op, func(int) { freed.Add(1) }, 0)
		_, err := p.TryCompleteElseWatch(ctx, op, NoTimeout, 1)
		require.NoError(t, err)
	}
	require.EqualValues(t, 10, ctx.hooks.Load())
	require.Equal(t, 10, p.CancelForKey(1, nil))
	require.Zero(t, ctx.hooks.Load(), "hooks are left at the context")
	collected(t, "the operation", func() bool { return freed.Load() == 10 })
	mustShutdown(t, p)
}

// countingContext counts the hooks that context.AfterFunc registers with it.
type countingContext struct {
	context.Context
	done  chan struct{}
	hooks atomic.Int32
}

func (c *countingContext) Done() <-chan struct{} { return c.done }

func (c *countingContext) AfterFunc(func()) func() bool {
	c.hooks.Add(1)
	var once atomic.Bool
	return func() bool {
		if once.CompareAndSwap(false, true) {
			c.hooks.Add(-1)
			return true
		}
		return false
	}
}

// P5, purgatory 4 (KAFKA-2160): after 100,000 keys were used one by one, the map is empty;
// after all were used at once, its memory is released.
func TestP5ManyKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes a second or more")
	}
	const n = 100_000
	p := open[int](t, Options{})
	before := heap()
	op := newOp(t)
	for k := range n {
		require.True(t, mustWatch(t, p, op, time.Hour, k).Cancel(nil))
		op.ends.Store(0)
	}
	require.Equal(t, [3]int{}, counts(p))
	handles := make([]Pending, n)
	for k := range n {
		handles[k] = mustWatch(t, p, &testOp{t: t}, time.Hour, k)
	}
	require.Equal(t, [3]int{n, n, n}, counts(p))
	held := heap() - before
	for k := range n {
		require.True(t, handles[k].ForceComplete())
	}
	handles = nil
	requireEmpty(t, p)
	collected(t, "most of what the keys took", func() bool { return heap()-before < held/10 })
	mustShutdown(t, p)
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// P5: memory follows the load down even while some of it remains. After a burst of operations
// on as many keys, whose timeouts were on the wheel, the remaining ones need no more than twice
// the memory of as many that were added alone. LIMBO_LONG=1 makes it a million, of which one in
// 500 remains.
func TestP5BurstMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes a second or more")
	}
	const left = 2000
	burst := 50 * left
	if os.Getenv("LIMBO_LONG") != "" {
		burst = 500 * left
	}
	kept := func(n int) int {
		p := open[int](t, Options{})
		before := stableHeap()
		for k := range n {
			mustWatch(t, p, nothing{}, time.Hour+time.Duration(k%60)*time.Minute, k)
		}
		require.Eventually(t, func() bool { return timers(&p.core) == n }, time.Minute, 100*time.Millisecond)
		for k := range n {
			if k%(n/left) != 0 {
				require.Equal(t, 1, p.CancelForKey(k, nil))
			}
		}
		for range 50_000 { // memory shrinks as operations end
			mustWatch(t, p, nothing{}, NoTimeout, -1).Cancel(nil)
		}
		require.Equal(t, [3]int{left, left, left}, counts(p))
		n = stableHeap() - before
		mustShutdown(t, p)
		return n
	}
	alone, got := kept(left), kept(burst)
	t.Logf("%d bytes are kept of %d, %d alone", got, burst, alone)
	require.LessOrEqual(t, got, 2*alone)
}

// stableHeap returns heap once it is stable: pools release their memory with a second
// collection, and earlier tests with the end of their goroutines.
func stableHeap() (n int) {
	for same := 0; same < 10; same++ {
		now := heap()
		if d := now - n; d < -4096 || d > 4096 {
			n, same = now, 0
		}
		time.Sleep(5 * time.Millisecond)
	}
	return n
}

// nothing is an operation that never completes.
type nothing struct{}

func (nothing) TryComplete() bool       { return false }
func (nothing) Complete(Outcome, error) {}

package purgatory

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P6: a caller that holds a lock which the check takes can use CheckAndCompleteLater.
func TestP6DeferredUnderALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		var group sync.Mutex
		members := 0
		op := newOp(t)
		worker := false
		op.try = func(int) bool {
			group.Lock()
			defer group.Unlock()
			return members == 2
		}
		op.end = func(Outcome) {
			group.Lock()
			defer group.Unlock()
			worker = onWorker()
		}
		mustWatch(t, p, op, time.Hour, 1)
		for range 2 {
			group.Lock()
			members++
			require.NoError(t, p.CheckAndCompleteLater(1))
			group.Unlock()
			synctest.Wait()
		}
		require.Equal(t, Completed, op.Outcome())
		require.True(t, worker)
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// P6: calls for a key coalesce until its check begins: a thousand while the worker is blocked
// result in one check. That holds for every key, in the order of the first calls.
func TestP6DeferredCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Workers: 1})
		blocked, resume := make(chan bool), make(chan bool)
		busy := newOp(t)
		busy.try = func(n int) bool {
			if n == 3 {
				close(blocked)
				<-resume
			}
			return n >= 3
		}
		mustWatch(t, p, busy, time.Hour, 0)
		var order recorder[int]
		ops := make([]*testOp, 6)
		for key := 1; key <= 5; key++ {
			ops[key] = newOp(t)
			ops[key].try = func(n int) bool {
				if n > 2 {
					order.record(key)
				}
				return false
			}
			mustWatch(t, p, ops[key], time.Hour, key)
		}
		require.NoError(t, p.CheckAndCompleteLater(0))
		<-blocked
		for i := range 1000 {
			require.NoError(t, p.CheckAndCompleteLater(5-i%5))
		}
		require.Equal(t, 5, len(p.deferred.order)-p.deferred.head)
		close(resume)
		synctest.Wait()
		require.Equal(t, []int{5, 4, 3, 2, 1}, order.take())
		require.NoError(t, p.CheckAndCompleteLater(3))
		synctest.Wait()
		require.Equal(t, []int{3}, order.take())
		verify(t, p)
		mustShutdown(t, p)
	})
}

// P2, P6: a key that is added while its check runs is checked again: that check may have read
// the state before the change.
func TestP6DeferredDuringTheCheck(t *testing.T) {
	for _, workers := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{Workers: workers})
			op := newOp(t)
			op.try = func(n int) bool {
				saw := op.ready.Load()
				if n == 3 {
					op.ready.Store(true)
					require.NoError(t, p.CheckAndCompleteLater(1))
				}
				return saw
			}
			mustWatch(t, p, op, NoTimeout, 1)
			require.NoError(t, p.CheckAndCompleteLater(1))
			synctest.Wait()
			require.Equal(t, Completed, op.Outcome())
			mustShutdown(t, p)
		})
	}
}

// P6: a slow key delays no other key while a worker is free.
func TestP6DeferredSlowKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Workers: 2})
		resume := make(chan bool)
		slow := newOp(t)
		slow.try = func(n int) bool {
			if n == 3 {
				<-resume
			}
			return n >= 3
		}
		mustWatch(t, p, slow, NoTimeout, 0)
		require.NoError(t, p.CheckAndCompleteLater(0))
		synctest.Wait()
		for key := range 100 {
			op := newOp(t)
			mustWatch(t, p, op, NoTimeout, key+1)
			op.ready.Store(true)
			require.NoError(t, p.CheckAndCompleteLater(key+1))
			if key%10 == 0 { // one by one, and in bursts
				synctest.Wait()
				require.Equal(t, Completed, op.Outcome())
			}
		}
		synctest.Wait()
		require.Equal(t, 1, p.Len())
		close(resume)
		synctest.Wait()
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// P6, P2: no deferred key is lost: many goroutines, few keys.
func TestP6DeferredHammer(t *testing.T) {
	p := open[int](t, Options{Workers: 3})
	var changes, seen [5]atomic.Int64
	for key := range seen {
		op := newOp(t)
		op.try = func(int) bool {
			seen[key].Store(changes[key].Load())
			return false
		}
		mustWatch(t, p, op, NoTimeout, key)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				key := rand.IntN(len(seen))
				changes[key].Add(1)
				if err := p.CheckAndCompleteLater(key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for key := range seen { // a failure is a timeout of the test
		for seen[key].Load() != changes[key].Load() {
			time.Sleep(0)
		}
	}
	require.Equal(t, 5, p.CancelForKey(0, nil)+p.CancelForKey(1, nil)+p.CancelForKey(2, nil)+p.CancelForKey(3, nil)+p.CancelForKey(4, nil))
	mustShutdown(t, p)
}

// P12: a key that is added during the shutdown is refused, even if the shutdown began after the
// call: the queue's lock delays the call in between.
func TestP12KeyAddedDuringShutdown(t *testing.T) {
	p := open[int](t, Options{})
	p.deferred.mu.Lock()
	said := make(chan error)
	go func() { said <- p.CheckAndCompleteLater(1) }()
	blockedOnMutex(t, "CheckAndCompleteLater")
	go p.Close()
	blockedOnMutex(t, "(*deferred[...]).clear")
	p.deferred.mu.Unlock()
	require.ErrorIs(t, <-said, ErrClosed)
	mustShutdown(t, p)
}

// newBusyOp makes an operation that is never ready. Once it is watched, each of its checks
// waits for a turn.
func newBusyOp(t testing.TB, turn <-chan bool) *testOp {
	op := newOp(t)
	op.try = func(n int) bool {
		if n > 2 {
			<-turn
		}
		return false
	}
	return op
}

// The memory of deferred keys follows the number of waiting keys, even if the queue is never
// empty, and is released after a burst.
func TestDeferredMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Workers: 1})
		turn := make(chan bool)
		op := newBusyOp(t, turn)
		mustWatch(t, p, op, NoTimeout, 0, 1, 2, 3)
		for key := range 3 {
			require.NoError(t, p.CheckAndCompleteLater(key))
			synctest.Wait()
		}
		most := 0
		for i := range 5000 { // one is being checked; two wait, then one
			turn <- true
			synctest.Wait()
			require.Equal(t, 1, len(p.deferred.order)-p.deferred.head)
			require.NoError(t, p.CheckAndCompleteLater((i+3)%4))
			most = max(most, cap(p.deferred.order))
		}
		close(turn)
		synctest.Wait()
		require.LessOrEqual(t, most, 8, "it grows with what has been, not with what is")
		verify(t, p)

		resume := make(chan bool)
		busy := newBusyOp(t, resume)
		h := mustWatch(t, p, busy, NoTimeout, 3)
		require.NoError(t, p.CheckAndCompleteLater(3))
		synctest.Wait()
		for key := range 10 * maxKeptKeys {
			require.NoError(t, p.CheckAndCompleteLater(key+10))
		}
		require.GreaterOrEqual(t, cap(p.deferred.order), 10*maxKeptKeys)
		close(resume)
		synctest.Wait()
		require.LessOrEqual(t, cap(p.deferred.order), maxKeptKeys)
		require.True(t, h.Cancel(nil))
		verify(t, p)
		mustShutdown(t, p)
	})
}

// The turns are released even if their burst ends before the last worker is done.
func TestDeferredMemoryOfStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Workers: 2})
		resume := make(chan bool)
		busy := newBusyOp(t, resume)
		mustWatch(t, p, busy, NoTimeout, 0)
		later := func(keys int) {
			for key := range keys {
				require.NoError(t, p.CheckAndCompleteLater(key))
			}
			synctest.Wait()
		}
		later(10 * maxKeptKeys)
		require.Len(t, p.deferred.states, 1, "the busy one")
		later(2)
		resume <- true
		resume <- true // and once more, because it was queued again
		synctest.Wait()
		require.Nil(t, p.deferred.states)
		later(2)
		resume <- true
		synctest.Wait()
		require.NotNil(t, p.deferred.states, "of a few it is kept")
		require.Empty(t, p.deferred.states)
		verify(t, p)
		mustShutdown(t, p)
	})
}

// The order of keys survives the moves of the queue's memory.
func TestDeferredOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Workers: 1})
		resume := make(chan bool)
		var order recorder[int]
		for key := range 500 {
			op := newOp(t)
			op.try = func(n int) bool {
				if n > 2 {
					order.record(key)
					<-resume
				}
				return false
			}
			mustWatch(t, p, op, NoTimeout, key)
		}
		var want []int
		for range 5 {
			for _, key := range rand.Perm(500) {
				if !slices.Contains(want, key) {
					want = append(want, key)
				}
				if err := p.CheckAndCompleteLater(key); err != nil {
					t.Fatal(err)
				}
			}
			for range 300 {
				resume <- true
				synctest.Wait()
				done := order.take()
				require.LessOrEqual(t, len(done), 2) // the first that began, and the next
				for _, key := range done {
					require.Equal(t, want[0], key)
					want = want[1:]
				}
			}
		}
		close(resume)
		synctest.Wait()
		require.Equal(t, want, order.take())
		verify(t, p)
		mustShutdown(t, p)
	})
}

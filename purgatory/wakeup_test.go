package purgatory

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P2, P6: T1 has seen "no" and is still in its check when T2 makes it "yes" and calls
// CheckAndComplete. T2 returns at once; T1 checks again.
func TestP2NoLostWakeUp(t *testing.T) {
	for _, asks := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			p := open[string](t, Options{})
			sawNo, resume := make(chan bool), make(chan bool)
			op := newOp(t)
			op.try = func(n int) bool {
				saw := op.ready.Load()
				if n == 3 {
					close(sawNo)
					<-resume
				}
				return saw
			}
			mustWatch(t, p, op, NoTimeout, "a", "b")

			t1 := make(chan int)
			go func() { t1 <- p.CheckAndComplete("a") }()
			<-sawNo
			op.ready.Store(true)
			for i := range asks {
				// If it waited, the bubble would deadlock here.
				require.Zero(t, p.CheckAndComplete([]string{"a", "b"}[i%2]))
			}
			require.EqualValues(t, 3, op.checks.Load())
			close(resume)
			require.Equal(t, 1, <-t1, "T1 completed it")
			require.EqualValues(t, 4, op.checks.Load(), "all requests during one check get one more")
			require.Equal(t, Completed, op.Outcome())
			mustShutdown(t, p)
		})
	}
}

// P2, P15: each check that is requested during a check runs, however long that goes on; after
// some a worker takes over from the caller.
func TestP2RepeatedRequests(t *testing.T) {
	for times, want := range map[int]int{1: 1, maxChecksHere - 3: 1, maxChecksHere - 1: 0, 3 * maxChecksHere: 0} {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{})
			checking, resume := make(chan bool), make(chan bool)
			op := newOp(t)
			op.try = func(n int) bool {
				saw := op.ready.Load()
				if n > 2 {
					checking <- true
					<-resume
				}
				return saw
			}
			worker := false
			op.end = func(Outcome) { worker = onWorker() }
			mustWatch(t, p, op, NoTimeout, 1)
			t1 := make(chan int)
			go func() { t1 <- p.CheckAndComplete(1) }()
			for i := range times {
				<-checking
				if i == maxChecksHere {
					require.Zero(t, <-t1, "the caller is still at it")
					close(t1)
				}
				require.Zero(t, p.CheckAndComplete(1))
				resume <- true
			}
			<-checking
			op.ready.Store(true)
			require.Zero(t, p.CheckAndComplete(1))
			resume <- true
			<-checking
			resume <- true
			require.Equal(t, want, <-t1)
			synctest.Wait()
			require.Equal(t, Completed, op.Outcome())
			require.Equal(t, want == 0, worker)
			mustShutdown(t, p)
		})
	}
}

// P2: a change during either check of TryCompleteElseWatch is not lost. During the first, op is
// in no list: the second check sees the change.
func TestP2ChangeDuringRegistration(t *testing.T) {
	for during, checks := range map[int32]int32{1: 2, 2: 3} {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{})
			op := newOp(t)
			op.try = func(n int) bool {
				saw := op.ready.Load()
				if int32(n) == during {
					done := make(chan int)
					op.ready.Store(true)
					go func() { done <- p.CheckAndComplete(2) }()
					require.Zero(t, <-done)
				}
				return saw
			}
			h, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, 1, 2, 3)
			require.NoError(t, err)
			require.Zero(t, h, "it completed within the call")
			require.Equal(t, Completed, op.Outcome())
			require.Equal(t, checks, op.checks.Load())
			mustShutdown(t, p)
		})
	}
}

// P4: two checks, whatever the number of keys, or one if it completes.
func TestP4AtMostTwoChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		for _, n := range []int{1, 2, 4, 5, 16, 17, 1000} {
			keys := make([]int, n)
			for i := range keys {
				keys[i] = i
			}
			for yesAt, want := range map[int]int32{0: 2, 1: 1, 2: 2} {
				op := newOp(t)
				op.try = func(check int) bool { return check == yesAt }
				h, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, keys...)
				require.NoError(t, err)
				require.Equal(t, want, op.checks.Load())
				require.Equal(t, yesAt == 0, !h.IsZero())
				require.Equal(t, yesAt == 0, h.Cancel(nil))
				requireEmpty(t, p)
			}
		}
		mustShutdown(t, p)
	})
}

// P4: a CheckAndComplete that finds the operation between its entry into a list and its second
// check is served by that second check. The lock of a later key's bucket delays the
// registration in between.
func TestP4RequestedBeforeTheSecondCheck(t *testing.T) {
	p := open[int](t, Options{})
	first, last := 0, 1
	for bucketOf(p, last) == bucketOf(p, first) {
		last++
	}
	op := newOp(t)
	gate := bucketOf(p, last)
	gate.mu.Lock()
	registered := make(chan Pending)
	go func() {
		h, _ := p.TryCompleteElseWatch(context.Background(), op, NoTimeout, first, last)
		registered <- h
	}()
	for p.Watching(first) == 0 {
		runtime.Gosched()
	}
	for range 3 {
		require.Zero(t, p.CheckAndComplete(first))
	}
	require.EqualValues(t, 1, op.checks.Load(), "the registering goroutine owns it")
	gate.mu.Unlock()
	require.True(t, (<-registered).Cancel(nil))
	require.EqualValues(t, 2, op.checks.Load())
	mustShutdown(t, p)
}

// P2: a change before the call is ordered before the check that the call requests, by Go's
// memory model, even if another goroutine has already requested it. Only the race detector can
// tell: the change is a plain write, and only the library orders it.
func TestP2ChangeIsOrderedBeforeTheCheck(t *testing.T) {
	p := open[int](t, Options{})
	change := 0
	op := newOp(t)
	op.try = func(n int) bool {
		if n == 3 {
			requested := make(chan bool)
			go func() {
				p.CheckAndComplete(1)
				close(requested)
			}()
			<-requested
			go func() {
				change = 1
				p.CheckAndComplete(1)
			}()
			// Detect by the goroutine's trace that it has ended: that orders nothing.
			made := []byte("TestP2ChangeIsOrderedBeforeTheCheck.func1 in goroutine")
			for buf := make([]byte, 1<<20); bytes.Contains(buf[:runtime.Stack(buf, true)], made); {
				runtime.Gosched()
			}
			return false
		}
		return n > 3 && change == 1
	}
	mustWatch(t, p, op, NoTimeout, 1)
	require.Equal(t, 1, p.CheckAndComplete(1))
	mustShutdown(t, p)
}

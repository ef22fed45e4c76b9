package purgatory

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P6: CheckAndComplete does not wait for a check or a Complete on another goroutine; it
// continues with the watchers behind that one.
func TestP6NeverWaitsForAnother(t *testing.T) {
	for _, inCheck := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{})
			blocked, resume := make(chan bool), make(chan bool)
			slow, behind := newOp(t), newOp(t)
			block := func() {
				close(blocked)
				<-resume
			}
			slow.try = func(n int) bool {
				if n == 3 && inCheck {
					block()
				}
				return n >= 3
			}
			slow.end = func(Outcome) {
				if !inCheck {
					block()
				}
			}
			mustWatch(t, p, slow, NoTimeout, 1)
			mustWatch(t, p, behind, NoTimeout, 1)
			t1 := make(chan int)
			go func() { t1 <- p.CheckAndComplete(1) }()
			<-blocked
			behind.ready.Store(true)
			require.Equal(t, 1, p.CheckAndComplete(1))
			require.Equal(t, Completed, behind.Outcome())
			close(resume)
			require.Equal(t, 1, <-t1)
			mustShutdown(t, p)
		})
	}
}

// everything calls each method of the library, for keys from 100 on.
func everything(t testing.TB, p *Purgatory[int]) {
	now := newOp(t)
	now.ready.Store(true)
	h, err := p.TryCompleteElseWatch(context.Background(), now, 0, 100)
	if !h.IsZero() || err != nil {
		t.Errorf("an operation that can complete: %v, %v", h, err)
	}
	for i, end := range []func(Pending) bool{
		func(h Pending) bool { return h.Cancel(nil) }, Pending.ForceComplete,
		func(Pending) bool { return p.CancelForKey(101, nil) == 1 },
	} {
		h, err := p.TryCompleteElseWatch(t.Context(), newOp(t), time.Hour, 100, 101)
		if err != nil || !end(h) {
			t.Errorf("ending %d: %v", i, err)
		}
	}
	op := newOp(t)
	h, err = p.TryCompleteElseWatch(context.Background(), op, NoTimeout, 100)
	op.ready.Store(true)
	if err != nil || h.IsZero() || p.CheckAndComplete(100) != 1 {
		t.Errorf("a check from user code: %v", err)
	}
	if err := p.CheckAndCompleteLater(102); err != nil {
		t.Error(err)
	}
	_ = fmt.Sprint(p.Stats(), p.Watched(), p.Len(), p.KeyCount())
}

// P6: no lock is held while user code runs: every method may be called from TryComplete (of
// another key), from Complete, and from the panic hook. With one shard and one worker, any held
// lock would be the one needed.
func TestP6ReentrantEverywhere(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p *Purgatory[int]
				calls := 0
				p = open[int](t, Options{Workers: 1, OnPanic: func(Panic) { everything(t, p); calls++ }})
				op := newOp(t)
				op.try = func(int) bool { everything(t, p); calls++; return op.ready.Load() }
				op.end = func(o Outcome) {
					if o != Closed { // a closed purgatory refuses all calls
						everything(t, p)
					}
					calls++
					panic("the hook, too")
				}
				ctx, cancel := context.WithCancel(t.Context())
				h, err := p.TryCompleteElseWatch(ctx, op, endingTimeout, 1, 2)
				require.NoError(t, err)
				if e.outcome == Closed {
					p.options.OnPanic = func(Panic) { calls++ }
				}
				e.end(&endingFixture{p, op, h, cancel})
				synctest.Wait()
				require.Equal(t, e.outcome, op.Outcome())
				require.Greater(t, calls, 3)
				mustShutdown(t, p)
			})
		})
	}
}

// P6: a completion completes the next operation, and so on, to a depth of 100,000.
func TestP6ChainOfCompletions(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes a second or more")
	}
	synctest.Test(t, func(t *testing.T) {
		depth := 100_000
		if testing.Short() {
			depth = 1000
		}
		p := open[int](t, Options{})
		ended := 0
		for i := range depth {
			op := newOp(t)
			op.try = func(n int) bool { return n > 2 }
			op.end = func(Outcome) {
				ended++
				p.CheckAndComplete(i + 1)
			}
			mustWatch(t, p, op, time.Hour, i)
		}
		require.Equal(t, 1, p.CheckAndComplete(0))
		require.Equal(t, depth, ended)
		mustShutdown(t, p)
	})
}

// P6: on two goroutines, completions complete each other's keys, and neither waits for the
// other.
func TestP6CompletingEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		var meet [2]chan bool
		var a [2]*testOp
		for i := range a {
			meet[i] = make(chan bool)
			a[i] = newOp(t)
			a[i].try = func(n int) bool { return n > 2 }
			a[i].end = func(Outcome) {
				close(meet[i])
				<-meet[1-i]
				p.CheckAndComplete(1 - i)
				p.CancelForKey(1-i, nil)
				p.CheckAndComplete(i)
			}
			mustWatch(t, p, a[i], time.Hour, i)
		}
		done := make(chan int)
		for i := range a {
			go func() { done <- p.CheckAndComplete(i) }()
		}
		require.Equal(t, 2, <-done+<-done)
		mustShutdown(t, p)
	})
}

// P6: operations that watch the same key again as they complete do not prolong one
// CheckAndComplete, or one CancelForKey, for ever.
func TestP6WatchingAgainEnds(t *testing.T) {
	for _, n := range []int{1, 31, 32, 33, 64, 65, 100} {
		for _, how := range []string{"check", "cancel", "reluctant"} {
			synctest.Test(t, func(t *testing.T) {
				p := open[int](t, Options{})
				ended := 0
				var enter func(id int)
				enter = func(id int) {
					op := newOp(t)
					op.try = func(n int) bool { return n > 2 && (how == "check" || id%2 == 0) }
					op.end = func(o Outcome) {
						if o == Closed {
							return
						}
						if ended++; ended <= 2*n { // a bound, in case it would go on for ever
							enter(id)
						}
					}
					mustWatch(t, p, op, NoTimeout, 1)
				}
				for id := range n {
					enter(id)
				}
				for round := 1; round <= 3; round++ {
					ended = 0
					switch how {
					case "check":
						require.Equal(t, n, p.CheckAndComplete(1))
						require.Equal(t, n, ended)
					case "cancel":
						require.Equal(t, n, p.CancelForKey(1, nil))
						require.Equal(t, n, ended)
					default:
						require.Equal(t, (n+1)/2, p.CheckAndComplete(1))
						require.Equal(t, (n+1)/2, ended)
					}
					require.Equal(t, n, p.Len())
					verify(t, p)
				}
				mustShutdown(t, p)
			})
		}
	}
}

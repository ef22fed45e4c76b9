package purgatory

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Each test here reproduces a bug that users of Kafka's purgatory met; the number is that of
// docs/lessons.md. Contract tests cover some of the lessons too, or alone: 4
// TestP5PayloadIsCollected and TestP5ManyKeys, 5 TestP7OthersContinue and TestP7ExpiryContinues, 7
// TestP12Shutdown.

// purgatory 1 (KAFKA-6653, 8334): no check follows the last change, because each goroutine that
// made a change found another one checking.
func TestLesson1LostCompletion(t *testing.T) {
	const rounds, goroutines = 3000, 4
	p := open[int](t, Options{})
	for round := range rounds {
		var acks atomic.Int32
		done := make(chan bool)
		op := newOp(t)
		op.try = func(int) bool {
			saw := acks.Load()
			if round%2 == 0 {
				runtime.Gosched() // the gap between the check and the release
			}
			return saw == goroutines
		}
		op.end = func(Outcome) { close(done) }
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				if i == 0 {
					_, _ = p.TryCompleteElseWatch(context.Background(), op, NoTimeout, 1, 2, 3)
				}
				acks.Add(1)
				p.CheckAndComplete(1 + i%3)
			})
		}
		wg.Wait()
		<-done // a failure is a timeout of the test
		require.Equal(t, Completed, op.Outcome())
	}
	requireEmpty(t, p)
	mustShutdown(t, p)
}

// purgatory 2 (KAFKA-17848, 19312): checks that overlap each other or the completion, or follow
// it. testOp detects each of these; the race detector checks the unlocked writes.
func TestLesson2Overlap(t *testing.T) {
	p := open[int](t, Options{Tick: 10 * time.Microsecond})
	for round := range 2000 {
		found := 0
		op := newOp(t)
		done := make(chan bool)
		op.try = func(n int) bool { found++; return n > 6 && round%2 == 0 }
		op.end = func(Outcome) { found++; close(done) }
		var wg sync.WaitGroup
		h, err := p.TryCompleteElseWatch(t.Context(), op, time.Duration(rand.IntN(100))*time.Microsecond, 1, 2)
		require.NoError(t, err)
		for i := range 4 {
			wg.Go(func() {
				for range 3 {
					p.CheckAndComplete(1 + i%2)
				}
				if round%4 > 1 {
					h.Cancel(nil)
				}
			})
		}
		wg.Wait()
		<-done
		require.Equal(t, int(op.checks.Load())+1, found)
	}
	// If the operation ended before its timeout of 0, a worker drops that timer.
	require.Eventually(t, func() bool { return timers(&p.core) == 0 }, time.Minute, time.Millisecond)
	requireEmpty(t, p)
	mustShutdown(t, p)
}

// purgatory 3 (KAFKA-3994, 4399, 5970, 6042, 2253, 18129, 20505): deadlocks. Each of two groups
// has a lock that its operation's methods take. Each completion changes the other group and
// checks its operations, the callers hold their group's lock where they may, and keys are
// watched in every order. A deadlock is a test that does not end.
func TestLesson3Deadlocks(t *testing.T) {
	p := open[int](t, Options{Workers: 2, Tick: 100 * time.Microsecond})
	type group struct {
		sync.Mutex
		n int
	}
	var groups [2]group
	var ended, entered atomic.Int32
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				mine, other := &groups[g%2], &groups[1-g%2]
				key, otherKey := g%2, 1-g%2
				op := newOp(t)
				op.try = func(int) bool {
					mine.Lock()
					defer mine.Unlock()
					return mine.n%3 == 0
				}
				op.end = func(Outcome) {
					ended.Add(1)
					other.Lock()
					other.n++
					other.Unlock()
					p.CheckAndComplete(otherKey)
				}
				entered.Add(1)
				h, err := p.TryCompleteElseWatch(context.Background(), op, time.Duration(i%5)*time.Millisecond, key, otherKey, 2)
				if err != nil {
					t.Error(err)
				}
				mine.Lock()
				mine.n++
				if err := p.CheckAndCompleteLater(key); err != nil { // under the lock
					t.Error(err)
				}
				mine.Unlock()
				switch i % 4 {
				case 0:
					p.CheckAndComplete(2)
				case 1:
					h.Cancel(nil)
				case 2:
					p.CancelForKey(key, nil)
				}
			}
		})
	}
	wg.Wait()
	mustShutdown(t, p)
	require.Equal(t, entered.Load(), ended.Load())
}

// purgatory 4 (KAFKA-19389, 664, 16663): an operation that has completed through one key is in
// no list of its cold keys, nor on the wheel, without a purge.
func TestLesson4ColdKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		guard := mustWatch(t, p, newOp(t), NoTimeout, -1)
		for i := range 10_000 {
			op := newOp(t)
			mustWatch(t, p, op, 24*time.Hour, 0, -1, i+1)
			op.ready.Store(true)
			require.Equal(t, 1, p.CheckAndComplete(0))
		}
		require.Equal(t, [3]int{1, 1, 1}, counts(p))
		verify(t, p)
		require.True(t, guard.ForceComplete())
		mustShutdown(t, p)
	})
}

// purgatory 5: an operation whose registration fails halfway is not watched without a timeout.
// Here the check fails when the operation is in all lists but has no timer yet, and the timer
// cannot be scheduled because the wheel is shut down.
func TestLesson5WatchedWithoutTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{OnPanic: func(Panic) {}})
		op := newOp(t)
		op.try = func(n int) bool {
			if n == 2 {
				require.Equal(t, [3]int{1, 3, 3}, counts(p))
				panic("in all lists, and not in the wheel")
			}
			return false
		}
		_, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, 1, 2, 3)
		require.NoError(t, err)
		require.Equal(t, Failed, op.Outcome())
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// purgatory 6: CancelForKey that removes the timeout of operations without ending them. Here it
// ends them all, and all others keep their timeouts.
func TestLesson6CancelForKeyTakesNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		start := time.Now()
		var ops []*testOp
		var at [100]time.Duration
		for i := range 100 {
			op := newOp(t)
			op.end = func(Outcome) { at[i] = time.Since(start) }
			mustWatch(t, p, op, time.Duration(i+1)*time.Second, i%7, 7+i%5, 100)
			ops = append(ops, op)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		cancelled := p.CancelForKey(3, nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, op := range ops {
			if i%7 == 3 && i >= 10 {
				cancelled--
				require.Equal(t, Cancelled, op.Outcome())
				continue
			}
			require.Equal(t, Expired, op.Outcome())
			require.Equal(t, time.Duration(i+1)*time.Second, at[i])
		}
		require.Zero(t, cancelled)
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// purgatory 8 (KAFKA-1952): a check per key instead of at most two, even when the operation
// completes, by its last keys as well as its first.
func TestLesson8ChecksPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		keys := make([]int, 500)
		for i := range keys {
			keys[i] = i
			mustWatch(t, p, newOp(t), NoTimeout, i) // no key is new
		}
		op := newOp(t)
		mustWatch(t, p, op, NoTimeout, keys...)
		require.EqualValues(t, 2, op.checks.Load())
		require.Zero(t, p.CheckAndComplete(499))
		require.EqualValues(t, 3, op.checks.Load())
		mustShutdown(t, p)
	})
}

// purgatory 8 (KAFKA-1616, 9939): counters that drift. After any use all statistics agree with
// the operations.
func TestLesson8CountersDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var atChecks, atEnds, panics atomic.Uint64
		p := open[int](t, Options{OnPanic: func(Panic) { panics.Add(1) }})
		rnd := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex // expiries run on several workers
		var want [outcomes]uint64
		ended := 0
		for i := range 5000 {
			op := newOp(t)
			yesAt, panicAt := rnd.IntN(6), rnd.IntN(8)
			op.try = func(n int) bool {
				if n == panicAt {
					atChecks.Add(1)
					panic("at a check")
				}
				return n >= yesAt && yesAt > 0
			}
			op.end = func(o Outcome) {
				mu.Lock()
				defer mu.Unlock()
				ended++
				want[o]++
				if i%50 == 0 {
					atEnds.Add(1)
					panic("at the end")
				}
			}
			h, err := p.TryCompleteElseWatch(context.Background(), op, time.Duration(rnd.IntN(20))*time.Millisecond, rnd.IntN(10), rnd.IntN(10))
			require.NoError(t, err)
			switch rnd.IntN(5) {
			case 0:
				p.CheckAndComplete(rnd.IntN(10))
			case 1:
				p.CancelForKey(rnd.IntN(10), nil)
			case 2:
				time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
			case 3:
				h.ForceComplete()
			}
			synctest.Wait()
			require.Equal(t, i+1-ended, p.Len())
			verify(t, p)
		}
		mustShutdown(t, p)
		st := p.Stats()
		require.Equal(t, want, [outcomes]uint64{0, st.Completed, st.Expired, st.Cancelled, st.Closed, st.Failed})
		require.EqualValues(t, 5000/50, atEnds.Load())
		require.LessOrEqual(t, want[Failed], atChecks.Load(), "an operation may expire during the check that panics")
		require.Equal(t, atChecks.Load()+atEnds.Load(), panics.Load())
		require.Equal(t, panics.Load(), st.Panics)
	})
}

// purgatory 9 (KAFKA-1441): a pass over 340,809 watchers of one key stops expiry. Here, half
// through the pass, all timeouts that come due expire in time: of operations on this key, ahead
// of the walk and last of all, and on other keys. The walk skips the expired operations.
func TestLesson9ManyWatchers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes a second or more")
	}
	const n = 340_809
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		start := time.Now()
		var expired recorder[time.Duration]
		timeout := map[int]time.Duration{n - 1: time.Second, n/2 + 1: 2 * time.Second, n/2 + batch: 3 * time.Second}
		ended := 0
		for i := range n {
			op := Operation(endOp(func(Outcome) { ended++ }))
			switch {
			case i == n/2:
				op = endOp(func(Outcome) { time.Sleep(time.Minute) })
			case timeout[i] > 0:
				op = endOp(func(o Outcome) {
					if o != Expired {
						t.Errorf("%d has ended as %v", i, o)
					}
					expired.record(time.Since(start))
				})
			}
			d := NoTimeout
			if timeout[i] > 0 {
				d = timeout[i]
			}
			mustWatch(t, p, op, d, 1)
		}
		mustWatch(t, p, Operation(endOp(func(Outcome) { expired.record(time.Since(start)) })), 4*time.Second, 2)
		require.Equal(t, n-len(timeout), p.CancelForKey(1, nil))
		require.Equal(t, n-len(timeout)-1, ended)
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}, expired.take())
		requireEmpty(t, p)
		mustShutdown(t, p)
	})
}

// endOp is an operation that never can complete.
type endOp func(Outcome)

func (endOp) TryComplete() bool             { return false }
func (e endOp) Complete(o Outcome, _ error) { e(o) }

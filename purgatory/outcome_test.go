package purgatory

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// ending is one way to end a pending operation.
type ending struct {
	name    string
	outcome Outcome
	// end ends the fixture's operation; the outcome is decided once all goroutines are idle.
	end func(*endingFixture)
}

// endingFixture is one operation that waits on the keys 1 and 2, with a timeout and a context,
// ready to be ended in any way.
type endingFixture struct {
	p      *Purgatory[int]
	op     *testOp
	h      Pending
	cancel context.CancelFunc
}

const endingTimeout = 10 * time.Second

var endings = []ending{
	{"check", Completed, func(s *endingFixture) { s.op.ready.Store(true); s.p.CheckAndComplete(1) }},
	{"deferred", Completed, func(s *endingFixture) { s.op.ready.Store(true); s.p.CheckAndCompleteLater(2) }},
	{"force", Completed, func(s *endingFixture) { s.h.ForceComplete() }},
	{"expire", Expired, func(s *endingFixture) { time.Sleep(endingTimeout) }},
	{"cancel", Cancelled, func(s *endingFixture) { s.h.Cancel(nil) }},
	{"key", Cancelled, func(s *endingFixture) { s.p.CancelForKey(2, nil) }},
	{"context", Cancelled, func(s *endingFixture) { s.cancel() }},
	{"close", Closed, func(s *endingFixture) { go s.p.Shutdown(context.Background()) }},
}

// byOwnCheck reports whether the check itself decides the ending: applied before a check, it does
// not decide anything.
func (e ending) byOwnCheck() bool { return e.name == "check" || e.name == "deferred" }

func newEndingFixture(t *testing.T, op *testOp) *endingFixture {
	s := &endingFixture{p: open[int](t, Options{OnPanic: func(Panic) {}}), op: op}
	ctx, cancel := context.WithCancel(t.Context())
	s.cancel = cancel
	var err error
	s.h, err = s.p.TryCompleteElseWatch(ctx, op, endingTimeout, 1, 2)
	require.NoError(t, err)
	require.NotNil(t, s.h)
	return s
}

// close ends the operation once more in every way, and checks that nothing changes.
func (s *endingFixture) close(t *testing.T, want Outcome) {
	t.Helper()
	require.Equal(t, want, s.op.Outcome())
	require.EqualValues(t, 1, s.op.ends.Load())
	for _, e := range endings {
		e.end(s)
		synctest.Wait()
	}
	require.False(t, s.h.ForceComplete())
	require.False(t, s.h.Cancel(nil))
	require.Equal(t, want, s.op.Outcome())
	mustShutdown(t, s.p)
	require.EqualValues(t, 1, s.p.Stats().Ended())
}

// P1: each kind of end gives its outcome, once, and further ends change nothing.
func TestP1EachEnding(t *testing.T) {
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newEndingFixture(t, newOp(t))
				verify(t, s.p)
				e.end(s)
				synctest.Wait()
				s.close(t, e.outcome)
			})
		})
	}
}

// P1, P3: two ends during a check, in every pair and order. The first decides; Complete is
// called once, on the checker's goroutine, after the check, whatever the check returned.
func TestP1PairsDuringCheck(t *testing.T) {
	for _, first := range endings {
		for _, second := range endings {
			for _, says := range []string{"no", "yes", "panic"} {
				t.Run(fmt.Sprintf("%s,%s,%s", first.name, second.name, says), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						checking, resume := make(chan bool), make(chan bool)
						op := newOp(t)
						op.try = func(n int) bool {
							if n == 3 {
								close(checking)
								<-resume
								if says == "panic" {
									panic("no")
								}
								return says == "yes"
							}
							return op.ready.Load()
						}
						s := newEndingFixture(t, op)
						go s.p.CheckAndComplete(1)
						<-checking
						first.end(s)
						synctest.Wait()
						second.end(s)
						synctest.Wait()
						require.Zero(t, op.ends.Load(), "P3: Complete while a check runs")
						close(resume)
						synctest.Wait()
						want := Completed // by the check, or by the further check that was requested
						switch {
						case !first.byOwnCheck():
							want = first.outcome
						case !second.byOwnCheck():
							want = second.outcome
						case says == "panic":
							want = Failed
						}
						s.close(t, want)
					})
				})
			}
		}
	}
}

// P1, P3, P5: any end during Complete changes nothing: the outcome stands, no check follows,
// and the purgatory already holds nothing.
func TestP1PairsDuringComplete(t *testing.T) {
	for _, first := range endings {
		for _, second := range endings {
			t.Run(first.name+","+second.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					completing, resume := make(chan bool), make(chan bool)
					op := newOp(t)
					op.end = func(Outcome) {
						close(completing)
						<-resume
					}
					s := newEndingFixture(t, op)
					go first.end(s)
					<-completing
					held := s.p.Watched() + s.p.Len() + s.p.KeyCount() + timers(&s.p.core)
					require.Zero(t, held, "P5: held while Complete runs")
					checks := op.checks.Load()
					second.end(s)
					synctest.Wait()
					require.Equal(t, checks, op.checks.Load(), "P3: a check of what has ended")
					close(resume)
					synctest.Wait()
					s.close(t, first.outcome)
				})
			})
		}
	}
}

// P1: an operation may be ended by its own check, in any way.
func TestP1EndedByItsOwnCheck(t *testing.T) {
	for _, says := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			op := newOp(t)
			var s *endingFixture
			op.try = func(n int) bool {
				if n < 3 {
					return false
				}
				require.True(t, s.h.Cancel(nil))
				require.False(t, s.h.ForceComplete())
				require.Zero(t, s.p.CancelForKey(1, nil))
				return says
			}
			s = newEndingFixture(t, op)
			require.Zero(t, s.p.CheckAndComplete(1), "it is the cancel that decided")
			s.close(t, Cancelled)
		})
	}
}

// P1: exactly one of many concurrent ends reports that it decided.
func TestP1OneCallReturnsTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checking, resume := make(chan bool), make(chan bool)
		op := newOp(t)
		op.try = func(n int) bool {
			if n == 3 {
				close(checking)
				<-resume
				return true
			}
			return false
		}
		s := newEndingFixture(t, op)
		won := make(chan int)
		go func() { won <- s.p.CheckAndComplete(1) }()
		<-checking
		require.True(t, s.h.ForceComplete())
		require.False(t, s.h.ForceComplete())
		require.False(t, s.h.Cancel(nil))
		require.Zero(t, s.p.CancelForKey(1, nil))
		close(resume)
		require.Zero(t, <-won)
		s.close(t, Completed)
	})
}

// P3: Complete may read what a check wrote without a lock: the race detector verifies that each
// path between them is ordered.
func TestP3NoLockNeeded(t *testing.T) {
	for _, e := range endings {
		synctest.Test(t, func(t *testing.T) {
			found := 0
			op := newOp(t)
			op.try = func(int) bool { found++; return op.ready.Load() }
			op.end = func(Outcome) { found++ }
			s := newEndingFixture(t, op)
			done := make(chan bool)
			for range 4 {
				go func() { s.p.CheckAndComplete(1); done <- true }()
				go func() { s.p.CheckAndComplete(2); done <- true }()
			}
			e.end(s)
			for range 8 {
				<-done
			}
			synctest.Wait()
			s.close(t, e.outcome)
		})
	}
}

func TestOutcomeString(t *testing.T) {
	var names []string
	for o := range outcomes + 1 {
		names = append(names, o.String())
	}
	require.Equal(t, []string{"Outcome(0)", "completed", "expired", "cancelled", "closed", "failed", "Outcome(6)"}, names)
}

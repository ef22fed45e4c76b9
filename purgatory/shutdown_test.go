package purgatory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// P12, purgatory 7: Shutdown ends all pending operations as closed, refuses later ones, and may
// be called again. synctest checks that no goroutine is left.
func TestP12Shutdown(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			p := open[int](t, Options{MaxPending: 2000})
			ops := make([]*testOp, n)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i := range ops {
				ops[i] = newOp(t)
				timeout := NoTimeout
				if i%2 == 0 {
					timeout = time.Duration(i) * time.Second
				}
				_, err := p.TryCompleteElseWatch(ctx, ops[i], timeout+time.Second*time.Duration(1-i%2), i, i/2, i/3)
				require.NoError(t, err)
			}
			require.NoError(t, p.CheckAndCompleteLater(0))
			mustShutdown(t, p)
			for i, op := range ops {
				require.Equal(t, Closed, op.Outcome(), i)
			}
			require.EqualValues(t, n, p.Stats().Closed)

			late := newOp(t)
			late.ready.Store(true)
			for range 3 {
				h, err := p.TryCompleteElseWatch(context.Background(), late, time.Hour, 1)
				require.ErrorIs(t, err, ErrClosed)
				require.Zero(t, h)
				require.ErrorIs(t, p.CheckAndCompleteLater(1), ErrClosed)
				require.Zero(t, p.CheckAndComplete(1))
				require.Zero(t, p.CancelForKey(1, nil))
				mustShutdown(t, p)
			}
			require.Zero(t, late.checks.Load()+late.ends.Load())
			cancel()
			time.Sleep(time.Hour)
			synctest.Wait()
		})
	}
}

// P12: Shutdown from several goroutines at once.
func TestP12Concurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{})
		ops := make([]*testOp, 200)
		for i := range ops {
			ops[i] = newOp(t)
			ops[i].end = func(Outcome) { runtime.Gosched() }
			mustWatch(t, p, ops[i], time.Hour, i, i/2)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := p.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, op := range ops {
			require.Equal(t, Closed, op.Outcome())
		}
		mustShutdown(t, p)
	})
}

// P12: Close from a Complete, on any goroutine, also with one worker, and while others wait.
func TestP12FromComplete(t *testing.T) {
	for _, e := range endings {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprint(e.name, workers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := open[int](t, Options{Workers: workers})
					op := newOp(t)
					returned := false
					op.end = func(Outcome) {
						p.Close()
						returned = true
					}
					ctx, cancel := context.WithCancel(t.Context())
					h, err := p.TryCompleteElseWatch(ctx, op, endingTimeout, 1, 2)
					require.NoError(t, err)
					var others []*testOp
					for i := range 20 {
						others = append(others, newOp(t))
						others[i].end = func(Outcome) {
							p.Close()
						}
						mustWatch(t, p, others[i], 2*endingTimeout, 3, i)
					}
					if e.name == "key" { // 2 is also one of theirs
						others[2].end = nil
					}
					e.end(&endingFixture{p, op, h, cancel})
					synctest.Wait()
					require.True(t, returned)
					require.Equal(t, e.outcome, op.Outcome())
					for _, o := range others {
						require.NotZero(t, o.Outcome())
					}
					mustShutdown(t, p)
				})
			})
		}
	}
}

// P12: a Shutdown whose context ends first still finishes: when the last operation has ended no
// goroutine is left, or the bubble would not end.
func TestP12ShutdownFinishesWithoutItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New[int](Options{})
		require.NoError(t, err)
		th, err := NewThreshold(func(int) int { return 0 }, Options{})
		require.NoError(t, err)
		futures, err := NewFutures[int](Options{})
		require.NoError(t, err)
		resume := make(chan bool)
		op := newOp(t)
		op.end = func(Outcome) { <-resume }
		mustWatch(t, p, op, time.Second, 1)
		time.Sleep(time.Second)
		synctest.Wait() // the operation expires, on a worker
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, shutdown := range []func(context.Context) error{p.Shutdown, th.Shutdown, futures.Shutdown} {
			require.PanicsWithValue(t, "purgatory: the context is nil", func() {
				_ = shutdown(nil)
			})
		}
		require.ErrorIs(t, p.Shutdown(ctx), context.DeadlineExceeded)
		require.NoError(t, th.Shutdown(context.Background()))
		futures.Close()
		close(resume)
	})
}

// P12: the context ends before a blocking Complete or TryComplete has returned. The shutdown
// goes on; another call waits for it again.
func TestP12ContextEnds(t *testing.T) {
	for _, where := range []string{"check", "expiry", "deferred"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := open[int](t, Options{})
				blocked, resume := make(chan bool), make(chan bool)
				block := func() {
					close(blocked)
					<-resume
				}
				op, other := newOp(t), newOp(t)
				op.try = func(n int) bool {
					if n == 3 {
						block()
					}
					return false
				}
				op.end = func(o Outcome) {
					if o == Expired {
						block()
					}
				}
				mustWatch(t, p, op, time.Second, 1)
				mustWatch(t, p, other, time.Hour, 1, 2)
				switch where {
				case "check":
					go p.CheckAndComplete(1)
				case "deferred":
					require.NoError(t, p.CheckAndCompleteLater(1))
				}
				<-blocked
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					start := time.Now()
					require.ErrorIs(t, p.Shutdown(ctx), context.DeadlineExceeded)
					require.Equal(t, time.Minute, time.Since(start))
					require.Equal(t, Closed, other.Outcome())
					_, err := p.TryCompleteElseWatch(context.Background(), newOp(t), time.Hour, 1)
					require.ErrorIs(t, err, ErrClosed)
					cancel()
				}
				done := make(chan error)
				go func() { done <- p.Shutdown(context.Background()) }()
				synctest.Wait()
				close(resume)
				require.NoError(t, <-done)
				synctest.Wait() // Complete on a goroutine of the test's may outlast Shutdown
				require.NotZero(t, op.Outcome())
				mustShutdown(t, p)
			})
		})
	}
}

// P12, P7: a Complete that does not return to Shutdown prevents no other operation's end.
func TestP12CompleteFails(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := open[int](t, Options{OnPanic: func(Panic) {}})
				ended := 0
				for i := range 100 {
					op := newOp(t)
					op.end = func(Outcome) {
						ended++
						if i%3 == 0 {
							fault()
						}
					}
					mustWatch(t, p, op, time.Hour, i)
				}
				onItsOwn(func() { _ = p.Shutdown(context.Background()) })
				require.Equal(t, 100, ended)
				mustShutdown(t, p)
			})
		})
	}
}

// P12: a shutdown begins while an operation is being entered into its lists. If already
// counted, the operation ends as Closed, whether the shutdown found it in one of the lists or
// passed them before; otherwise it is refused.
func TestP12DuringRegistration(t *testing.T) {
	for _, when := range []string{"first check", "between", "second check"} {
		t.Run(when, func(t *testing.T) {
			p := open[int](t, Options{MaxPending: 1})
			first, last := 0, 1
			for bucketOf(p, last) == bucketOf(p, first) {
				last++
			}
			op := newOp(t)
			op.try = func(n int) bool {
				if n == 1 && when == "first check" || n == 2 && when == "second check" {
					p.Close()
				}
				return false
			}
			if when != "between" {
				h, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, first, last)
				if when == "first check" {
					require.ErrorIs(t, err, ErrClosed)
					require.Zero(t, h)
					require.Zero(t, op.ends.Load())
					require.EqualValues(t, 1, p.Stats().RefusedClosed)
					require.Zero(t, p.Stats().Ended()+p.Stats().Checks)
				} else {
					require.NoError(t, err)
					require.Zero(t, h)
					require.Equal(t, Closed, op.Outcome())
				}
				mustShutdown(t, p)
				return
			}
			gate := bucketOf(p, last)
			gate.mu.Lock()
			registered := make(chan error)
			go func() {
				_, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, first, last)
				registered <- err
			}()
			blockedOnMutex(t, "(*Purgatory[...]).enter")
			closed := make(chan bool)
			go func() { p.Close(); close(closed) }()
			for !p.closing.begun.Load() {
				runtime.Gosched()
			}
			gate.mu.Unlock()
			require.NoError(t, <-registered)
			<-closed
			require.NoError(t, p.Shutdown(t.Context()))
			require.Equal(t, Closed, op.Outcome())
			require.ErrorIs(t, op.cause, ErrClosed)
			mustShutdown(t, p)
		})
	}
}

// P12: Shutdown races with TryCompleteElseWatch: an operation gets an error and no Complete, or
// no error and exactly one Complete.
func TestP12RacingWithRegistration(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes a second or more")
	}
	for round := range 100 {
		p := open[int](t, Options{Workers: 2, MaxPending: 1000})
		var accepted, refused, ended atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for refused.Load() == 0 || rand.IntN(4) > 0 {
					op := newOp(t)
					op.end = func(Outcome) { ended.Add(1) }
					switch _, err := p.TryCompleteElseWatch(context.Background(), op, time.Hour, rand.IntN(50), rand.IntN(50), rand.IntN(50)); err {
					case nil:
						accepted.Add(1)
					case ErrFull:
						p.CancelForKey(rand.IntN(50), nil)
					case ErrClosed:
						refused.Add(1)
						if op.ends.Load() != 0 {
							t.Error("refused, and ended")
						}
					default:
						t.Error(err)
					}
				}
			})
		}
		for accepted.Load() < int32(round) {
			runtime.Gosched()
		}
		if err := p.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		wg.Wait()
		require.Equal(t, accepted.Load(), ended.Load())
		require.EqualValues(t, ended.Load(), p.Stats().Ended())
		mustShutdown(t, p)
	}
}

package purgatory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errFailedReplica = errors.New("failed replica")

// P14: a waiting goroutine receives the reason as one error, at the right time.
func TestAwait(t *testing.T) {
	type answer struct {
		err error
		at  time.Duration
	}
	for name, c := range map[string]struct {
		timeout time.Duration
		do      func(p *Purgatory[int], th *thresholdFixture, yes *atomic.Bool, cancel func())
		want    answer
	}{
		"held already": {time.Minute, func(_ *Purgatory[int], th *thresholdFixture, yes *atomic.Bool, _ func()) {
			yes.Store(true)
			th.set(1, 1)
		}, answer{}},
		"comes": {time.Minute, func(p *Purgatory[int], th *thresholdFixture, yes *atomic.Bool, _ func()) {
			time.Sleep(time.Second)
			p.CheckAndComplete(1) // not yet
			th.Advance(1, 0)
			time.Sleep(time.Second)
			yes.Store(true)
			p.CheckAndComplete(1)
			th.setAndAdvance(1, 1)
		}, answer{at: 2 * time.Second}},
		"expires": {time.Minute, func(*Purgatory[int], *thresholdFixture, *atomic.Bool, func()) {}, answer{err: ErrExpired, at: time.Minute}},
		"is over": {-1, func(*Purgatory[int], *thresholdFixture, *atomic.Bool, func()) {}, answer{err: ErrExpired}},
		"is left": {NoTimeout, func(_ *Purgatory[int], _ *thresholdFixture, _ *atomic.Bool, cancel func()) {
			time.Sleep(time.Hour)
			cancel()
		}, answer{err: errFailedReplica, at: time.Hour}},
		"left early": {NoTimeout, func(_ *Purgatory[int], _ *thresholdFixture, _ *atomic.Bool, cancel func()) { cancel() }, answer{err: errFailedReplica}},
		"is closed": {NoTimeout, func(p *Purgatory[int], th *thresholdFixture, _ *atomic.Bool, _ func()) {
			time.Sleep(time.Second)
			_ = p.Shutdown(context.Background())
			_ = th.Shutdown(context.Background())
		}, answer{err: ErrClosed, at: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, th := open[int](t, Options{Tick: time.Millisecond}), newThresholdFixture(t, Options{Tick: time.Millisecond})
				ctx, cancelCause := context.WithCancelCause(t.Context())
				cancel := func() { cancelCause(errFailedReplica) }
				defer cancel()
				var yes atomic.Bool
				if c.want.at == 0 {
					c.do(p, th, &yes, cancel)
				} else {
					go c.do(p, th, &yes, cancel)
				}
				began := time.Now()
				answers := make(chan answer, 2)
				go func() {
					err := p.Await(ctx, c.timeout, yes.Load, 1, 2)
					answers <- answer{err, time.Since(began)}
				}()
				go func() {
					err := th.Await(ctx, c.timeout, Any, Goal[int, int]{1, 1}, Goal[int, int]{2, 1})
					answers <- answer{err, time.Since(began)}
				}()
				require.Equal(t, c.want, <-answers)
				require.Equal(t, c.want, <-answers)
				synctest.Wait()
				require.Zero(t, p.Len()+p.Watched()+th.verify())
			})
		})
	}
}

// P8, P12: the errors of bad input and of a closed purgatory.
func TestAwaitBadInput(t *testing.T) {
	p, th := open[int](t, Options{}), newThresholdFixture(t, Options{})
	yes := func() bool { return true }
	require.PanicsWithValue(t, "purgatory: the condition is nil", func() { _ = p.Await(t.Context(), 1, nil, 1) })
	require.PanicsWithValue(t, "purgatory: the context is nil", func() { _ = p.Await(nil, 1, yes, 1) })
	require.PanicsWithValue(t, "purgatory: the context is nil", func() { _ = th.Await(nil, 1, All, Goal[int, int]{1, 1}) })
	require.EqualError(t, p.Await(t.Context(), 1, yes), "purgatory: the operation has no keys, must have at least 1")
	require.EqualError(t, th.Await(t.Context(), 1, All), "purgatory: the operation has no goals, must have at least 1")
	require.NoError(t, p.Shutdown(t.Context()))
	require.Equal(t, ErrClosed, p.Await(t.Context(), 1, yes, 1))
}

// P7, P14: a condition that panics is reported, and Await returns the panic.
func TestAwaitPanics(t *testing.T) {
	var panics atomic.Int32
	p := open[int](t, Options{OnPanic: func(Panic) { panics.Add(1) }})
	broken := errors.New("broken")
	err := p.Await(t.Context(), time.Minute, func() bool { panic(broken) }, 1)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "purgatory: TryComplete panicked: broken")
	require.EqualValues(t, 1, panics.Load())
}

func TestFutures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewFutures[string](Options{Tick: time.Millisecond})
		require.NoError(t, err)
		a, b := s.Future(), s.Future()
		_, done, _ := a.Result()
		require.False(t, done)

		all, one := newOp(t), newOp(t)
		_, err = s.TryCompleteElseWatch(context.Background(), all, NoTimeout, All, a, b, a)
		require.NoError(t, err)
		_, err = s.TryCompleteElseWatch(context.Background(), one, NoTimeout, Any, a, b)
		require.NoError(t, err)
		require.Equal(t, 5, s.Stats().Watched)

		broken := errors.New("broken")
		require.True(t, b.Set("b", broken))
		require.False(t, b.Set("c", nil))
		require.Equal(t, Completed, one.Outcome())
		require.Zero(t, all.Outcome())
		v, done, err := b.Result()
		require.Equal(t, []any{"b", true, broken}, []any{v, done, err})

		began := time.Now()
		err = s.Await(t.Context(), time.Second, All, a, b)
		require.Equal(t, ErrExpired, err)
		require.Equal(t, time.Second, time.Since(began))
		err = s.Await(t.Context(), time.Second, Any, a, b)
		require.NoError(t, err)

		go func() {
			time.Sleep(time.Minute)
			a.Set("a", nil)
		}()
		err = s.Await(t.Context(), NoTimeout, All, a, b)
		require.NoError(t, err)
		require.Equal(t, Completed, all.Outcome())
		require.Zero(t, s.Stats().Watched+s.Stats().Pending)

		require.PanicsWithValue(t, "purgatory: futures[1] is nil", func() { _ = s.Await(t.Context(), 1, All, a, nil) })
		other, err := NewFutures[string](Options{})
		require.NoError(t, err)
		err = s.Await(t.Context(), 1, All, other.Future())
		require.EqualError(t, err, "purgatory: futures[0] belongs to another Futures")
		_, err = NewFutures[int](Options{MaxPending: -1})
		require.ErrorContains(t, err, "Options.MaxPending is -1")

		late := newOp(t)
		_, err = s.TryCompleteElseWatch(context.Background(), late, NoTimeout, All, s.Future())
		require.NoError(t, err)
		require.NoError(t, s.Shutdown(t.Context()))
		require.NoError(t, other.Shutdown(t.Context()))
		require.Equal(t, Closed, late.Outcome())
		f := s.Future()
		require.True(t, f.Set("after", nil), "its result can still be brought")
	})
}

// Quorum returns exactly when it is decided: with all successes and failures of up to four
// futures, one a second, and every n.
func TestQuorum(t *testing.T) {
	for of := 1; of <= 4; of++ {
		for n := 1; n <= of; n++ {
			for good := range 1 << of {
				synctest.Test(t, func(t *testing.T) {
					s, err := NewFutures[int](Options{})
					require.NoError(t, err)
					futures := make([]*Future[int], of)
					for i := range futures {
						futures[i] = s.Future()
					}
					broken := errors.New("broken")
					var values []int
					failed, decided := 0, 0
					for i := range of {
						switch {
						case len(values) == n || failed > of-n:
						case good>>i&1 == 1:
							values, decided = append(values, i), i
						default:
							failed, decided = failed+1, i
						}
					}
					go func() {
						for i, f := range futures {
							if err := broken; good>>i&1 == 1 {
								f.Set(i, nil)
							} else {
								f.Set(0, err)
							}
							time.Sleep(time.Second)
						}
					}()
					began := time.Now()
					got, err := s.Quorum(t.Context(), time.Minute, n, futures...)
					require.Equal(t, values, got)
					require.Equal(t, time.Duration(decided)*time.Second, time.Since(began), "%d of %d, %b", n, of, good)
					if len(values) == n {
						require.NoError(t, err)
					} else {
						require.ErrorIs(t, err, broken)
						require.ErrorContains(t, err, fmt.Sprintf("purgatory: %d of %d futures have failed, %d must not", failed, of, n))
					}
					time.Sleep(time.Minute)
					require.NoError(t, s.Shutdown(t.Context()))
				})
			}
		}
	}
}

// A timeout of zero or less ends at once. In real time, because the time that passes within the
// call is what used to overflow.
func TestQuorumWithoutTime(t *testing.T) {
	s, err := NewFutures[int](Options{})
	require.NoError(t, err)
	done, open := s.Future(), s.Future()
	done.Set(7, nil)
	for _, timeout := range []time.Duration{math.MinInt64, -time.Hour, 0} {
		ended := make(chan error, 1)
		go func() {
			_, err := s.Quorum(context.Background(), timeout, 2, done, open)
			ended <- err
		}()
		select {
		case err := <-ended:
			require.Equal(t, ErrExpired, err, "timeout %v", timeout)
		case <-time.After(time.Minute):
			t.Fatalf("a timeout of %v does not end", timeout)
		}
	}
	require.NoError(t, s.Shutdown(context.Background()))
}

// One timeout covers the whole call: setting a future does not extend it.
func TestQuorumHasOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewFutures[int](Options{})
		require.NoError(t, err)
		a, b, c := s.Future(), s.Future(), s.Future()
		time.AfterFunc(40*time.Second, func() {
			a.Set(7, nil)
			b.Set(0, errors.New("failed")) // now c decides
		})
		begun := time.Now()
		got, err := s.Quorum(t.Context(), time.Minute, 2, a, b, c)
		require.Equal(t, ErrExpired, err)
		require.Equal(t, []int{7}, got)
		require.InDelta(t, 60, time.Since(begun).Seconds(), 0.1)
		require.NoError(t, s.Shutdown(context.Background()))
	})
}

// Quorum gives up as Await does, and refuses an impossible n.
func TestQuorumGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewFutures[int](Options{})
		require.NoError(t, err)
		a, b := s.Future(), s.Future()
		for n, want := range map[int]string{
			-1: "purgatory: n is -1, must be 1 to 2, the number of futures",
			0:  "purgatory: n is 0, must be 1 to 2, the number of futures",
			3:  "purgatory: n is 3, must be 1 to 2, the number of futures",
		} {
			got, err := s.Quorum(t.Context(), time.Minute, n, a, b)
			require.EqualError(t, err, want)
			require.Empty(t, got)
		}
		_, err = s.Quorum(t.Context(), time.Minute, 1)
		require.EqualError(t, err, "purgatory: n is 1, must be 1 to 0, the number of futures")
		require.PanicsWithValue(t, "purgatory: the context is nil", func() { _, _ = s.Quorum(nil, time.Minute, 1, a) })
		require.PanicsWithValue(t, "purgatory: futures[1] is nil", func() { _, _ = s.Quorum(t.Context(), time.Minute, 1, a, nil) })

		a.Set(7, nil)
		began := time.Now()
		got, err := s.Quorum(t.Context(), time.Second, 2, a, b)
		require.Equal(t, ErrExpired, err)
		require.Equal(t, []int{7}, got)
		require.Equal(t, time.Second, time.Since(began))

		failed := errors.New("failed replica")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(failed)
		got, err = s.Quorum(ctx, NoTimeout, 2, a, b)
		require.Equal(t, failed, err)
		require.Equal(t, []int{7}, got)
		require.NoError(t, s.Shutdown(t.Context()))
		_, err = s.Quorum(t.Context(), time.Second, 2, a, b)
		require.Equal(t, ErrClosed, err)
		got, err = s.Quorum(t.Context(), time.Second, 1, a, b)
		require.NoError(t, err, "what is there needs no waiting")
		require.Equal(t, []int{7}, got)
	})
}

package durable

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Case 21: a worker that stops while a claim is in flight releases its leases, and no attempts
// are spent.
func TestStopInMidBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		for i := range 10 {
			r.schedule(fmt.Sprint("k", i), 0)
		}
		ja := &journal{}
		a := r.prepare(ja.handle, WorkerOptions{})
		a.faults.set(nil, func(ctx context.Context, call string, _ int) error {
			if call == "claim" {
				return late(ctx, 2*time.Second)
			}
			return nil
		})
		a.run()
		pass(time.Second)
		require.Equal(t, 10, r.stats().Leased)
		requireReleased(t, r, a, 10, 1010*time.Millisecond) // the duration of the claim, without grace
		require.Empty(t, ja.all())
		require.Equal(t, 1, a.faults.count("leave"))
	})
}

// requireReleased stops a worker, which must not take longer than most, and runs another one that
// must get the n released timers, each as a first attempt.
func requireReleased(t *testing.T, r *rig, w *member, n int, most time.Duration) {
	t.Helper()
	began := time.Now()
	require.NoError(t, w.stop())
	require.LessOrEqual(t, time.Since(began), most)
	require.Equal(t, n, r.stats().Overdue)
	require.EqualValues(t, n, w.Stats().Released)
	next := &journal{}
	r.worker(next.handle, WorkerOptions{})
	pass(time.Second)
	require.Len(t, next.all(), n)
	for _, f := range next.all() {
		require.Equal(t, 1, f.Attempt)
	}
}

// A worker that stops after or while the reply to a claim was lost repeats the claim and gives
// back its leases, so that no attempts are spent and no worker must wait for the leases to expire.
func TestStopAfterALostReply(t *testing.T) {
	for name, twice := range map[string]bool{"before it is sent again": false, "while it is lost again": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1, store.Limits{}, 0)
			for i := range 10 {
				r.schedule(fmt.Sprint("k", i), 0)
			}
			ja := &journal{}
			a := r.prepare(ja.handle, WorkerOptions{})
			claims := 0
			a.faults.set(nil, func(ctx context.Context, call string, _ int) error {
				if call != "claim" {
					return nil
				}
				claims++
				switch {
				case claims == 1 && !twice:
					return store.ErrUnsure
				case claims <= 2 && twice:
					_ = late(ctx, time.Second)
					return store.ErrUnsure
				}
				return nil
			})
			a.run()
			require.Equal(t, 10, r.stats().Leased, name)
			requireReleased(t, r, a, 10, 4*time.Second) // no grace
			require.Empty(t, ja.all())
		})
	}
}

// An engine that does not answer a claim delays Run's return for exactly the grace; an engine that
// refuses the claim does not.
func TestStopWhileClaimsFail(t *testing.T) {
	for err, most := range map[error]time.Duration{store.ErrUnsure: 6*time.Second + lastWait, errBoom: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, 1, store.Limits{}, 0)
			r.schedule("k", 0)
			w := r.prepare((&journal{}).handle, WorkerOptions{Grace: 6 * time.Second})
			w.faults.fail(err, "claim")
			w.run()
			pass(3 * time.Second)
			began := time.Now()
			require.NoError(t, w.stop())
			require.LessOrEqual(t, time.Since(began), most, err)
		})
	}
}

// Running handlers may continue for the grace, and their results count; then their ctx ends, and
// the results of those that return count too.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var cause error
		took := map[string]time.Duration{"quick": 4 * time.Second, "long": time.Hour}
		j := &journal{then: func(ctx context.Context, f Fired) error {
			select {
			case <-time.After(took[f.Key]):
				return nil
			case <-ctx.Done():
				cause = context.Cause(ctx)
				return cause
			}
		}}
		w := r.worker(j.handle, WorkerOptions{Grace: 5 * time.Second, Lease: time.Second})
		r.schedule("quick", 0)
		r.schedule("long", 0)
		pass(time.Millisecond)
		began := time.Now()
		w.cancel()
		pass(time.Second)
		r.schedule("late", 0) // no claims any more
		require.NoError(t, w.stop())
		require.Less(t, time.Since(began)-5*time.Second, 10*time.Millisecond)
		require.Equal(t, ErrStopped, cause)
		r.requireRemoved("quick")
		require.Equal(t, Waiting, r.get("long").State)
		require.Equal(t, ErrStopped.Error(), r.get("long").LastError)
		require.Len(t, j.all(), 2)
		st := w.Stats()
		require.Equal(t, []uint64{1, 1, 0}, []uint64{st.Done, st.Retried, st.Lost})
	})
}

// Case 24: a handler that ignores its ctx does not delay Run's return. Its timer keeps its lease,
// and runs again after it; the handler's result is then ignored.
func TestHandlerIgnoresTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		free := make(chan struct{})
		o := WorkerOptions{Grace: 3 * time.Second, Lease: 20 * time.Second}
		w := r.worker(func(context.Context, Fired) error { <-free; return nil }, o)
		r.schedule("k", 0)
		pass(time.Second)
		began := time.Now()
		err := w.stop()
		require.EqualError(t, err, "durable: 1 handlers have not returned; their timers run again when their leases expire")
		require.Equal(t, 4*time.Second, time.Since(began))
		require.Equal(t, Leased, r.get("k").State)
		w.faults.countAll()
		j := &journal{}
		r.worker(j.handle, o)
		pass(10 * time.Second)
		require.Empty(t, j.all())
		close(free)
		pass(10 * time.Second)
		require.Len(t, j.all(), 1)
		require.Equal(t, 2, j.last().Attempt)
		require.Empty(t, w.faults.countAll())
		r.requireRemoved("k")
	})
}

// A negative Grace ends the handlers' contexts at once. Failing heartbeats and outcomes do not
// delay Run's return further.
func TestStopWithoutEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		w := r.worker(func(ctx context.Context, _ Fired) error { <-ctx.Done(); return nil }, WorkerOptions{Grace: -1})
		r.schedule("k", 0)
		pass(time.Second)
		w.faults.set(func(ctx context.Context, call string, _ int) error {
			if call == "leave" {
				return nil
			}
			return late(ctx, time.Hour)
		}, nil)
		pass(time.Second)
		began := time.Now()
		require.NoError(t, w.stop()) // the handler has returned
		require.LessOrEqual(t, time.Since(began), 10*time.Second)
		require.Equal(t, Leased, r.get("k").State)
		require.Len(t, r.logs.with("stops before all outcomes are written", "outcomes=1"), 1)
	})
}

// Engine errors: each kind is logged when it begins and when it ends, calls are few in between,
// and the worker continues afterwards.
func TestEngineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{})
		pass(time.Second)
		w.faults.countAll()
		w.faults.fail(errBoom)
		for i := range 20 {
			r.schedule(fmt.Sprint("k", i), 0)
		}
		pass(time.Minute)
		for call, n := range w.faults.countAll() {
			require.LessOrEqual(t, n, 2*62, call)
		}
		require.Empty(t, j.all())
		fails := r.logs.with("calls to the engine fail", "error=boom")
		require.Len(t, fails, 4) // heartbeat, poll, and the claims of each shard
		for shard := range 2 {
			require.Len(t, r.logs.with("calls to the engine fail", "call=claim", fmt.Sprint("shard=", shard)), 1)
		}
		w.faults.fail(nil)
		pass(6 * time.Second)
		require.Len(t, j.all(), 20)
		require.Len(t, r.logs.with("succeed again"), len(fails))
	})
}

// A claim that gets nothing although something is due does not become a busy loop.
func TestEmptyClaimsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		s := &stingy{Store: r.engine}
		w, err := r.on(s).NewWorker((&journal{}).handle, WorkerOptions{})
		require.NoError(t, err)
		m := &member{Worker: w, rig: r, faults: &faults{}, done: make(chan error, 1)}
		r.schedule("k", 0)
		m.run()
		pass(time.Minute)
		require.NoError(t, m.stop())
		require.Less(t, s.claims, 620)
	})
}

// stingy grants no leases.
type stingy struct {
	store.Store
	claims int
}

func (s *stingy) Claim(ctx context.Context, shard int, _ store.Claim) (store.Claimed, store.Horizon, error) {
	s.claims++
	h, err := s.Horizons(ctx, []int{shard})
	return store.Claimed{}, h[0], err
}

// A store that closes itself, because it cannot write, ends the worker.
func TestStoreCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		w := r.worker(func(context.Context, Fired) error { time.Sleep(3 * time.Second); return nil }, WorkerOptions{})
		r.schedule("k", 0)
		pass(time.Second)
		began := time.Now()
		require.NoError(t, r.engine.Close())
		require.Equal(t, ErrClosed, <-w.done)
		w.once.Do(func() {})
		require.Less(t, time.Since(began), 3*time.Second) // the handler's duration, at most
		require.Equal(t, uint64(1), w.Stats().Unwritten)
	})
}

// A call of OnDead that does not return delays Run's return as long as a handler would, and Run
// reports OnDead. Calls that had not begun do not begin afterwards.
func TestOnDeadDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		free, calls := make(chan struct{}), 0
		release := sync.OnceFunc(func() { close(free) })
		defer release()
		w := r.worker(func(context.Context, Fired) error { return Discard(errBoom) }, WorkerOptions{
			Concurrency: 1, Grace: 3 * time.Second, OnDead: func(Fired, error) { calls++; <-free },
		})
		r.schedule("a", 0)
		r.schedule("b", 0)
		pass(time.Second)
		require.Equal(t, 2, r.stats().Dead)
		began := time.Now()
		require.EqualError(t, w.stop(), "durable: OnDead has not returned for 2 dead letters")
		require.Equal(t, 3*time.Second+lastWait, time.Since(began))
		require.Empty(t, r.logs.with("outcomes"), "all outcomes were written")
		release()
		pass(time.Second)
		require.Equal(t, 1, calls)
	})
}

// A stopping worker does not repeat a claim that the engine refuses: it has leased nothing.
func TestStopDuringARefusedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		r.schedule("k", 0)
		w := r.prepare((&journal{}).handle, WorkerOptions{})
		w.faults.set(func(ctx context.Context, call string, _ int) error {
			if call == "claim" {
				_ = late(ctx, time.Second)
				return errBoom
			}
			return nil
		}, nil)
		w.run()
		pass(500 * time.Millisecond)
		require.Equal(t, 1, w.faults.count("claim"))
		require.NoError(t, w.stop())
		require.Equal(t, 1, w.faults.count("claim"))
	})
}

// After the store has closed itself there is nothing to wait for: neither a claim whose reply was
// lost nor an outcome is retried until Grace has passed. The store may close before or after Run's
// ctx ends.
func TestStoreClosesWithoutAReply(t *testing.T) {
	for _, call := range []string{"claim", "end"} {
		for name, stops := range map[string]bool{"first the store": false, "first the ctx": true} {
			t.Run(call+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, 1, store.Limits{}, 0)
					w := r.prepare((&journal{}).handle, WorkerOptions{Grace: time.Hour, Lease: time.Hour})
					var lost, closed atomic.Bool
					w.faults.set(func(_ context.Context, c string, _ int) error {
						switch {
						case closed.Load():
							return fmt.Errorf("%w: %w", ErrClosed, errBoom)
						case c == call:
							lost.Store(true)
							closed.Store(!stops)
							return fmt.Errorf("%w: %w", ErrUnsure, errBoom)
						}
						return nil
					}, nil)
					w.run()
					r.schedule("k", 0)
					pass(time.Millisecond)
					if stops {
						w.cancel()
						pass(10 * time.Second)
						closed.Store(true)
					}
					began := time.Now()
					err := <-w.done
					w.once.Do(func() {})
					require.Less(t, time.Since(began), time.Minute)
					require.True(t, lost.Load())
					require.Equal(t, ErrClosed, err)
				})
			})
		}
	}
}

package durable

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// A handler may run much longer than its lease, which is extended when half of it has passed, with
// one call for all leases of a shard, until the outcome is written.
func TestLeasesAreExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, -time.Hour)
		j := &journal{then: func(ctx context.Context, _ Fired) error {
			time.Sleep(95 * time.Second)
			return ctx.Err()
		}}
		var timers []Timer
		for i := range 40 {
			timers = append(timers, Timer{Key: fmt.Sprint(i)})
		}
		_, err := r.timers.ScheduleMany(context.Background(), timers)
		require.NoError(t, err)
		w := r.worker(j.handle, WorkerOptions{Lease: 10 * time.Second, Concurrency: 1000})
		r.worker(j.handle, WorkerOptions{Lease: 10 * time.Second})
		pass(94 * time.Second)
		require.Equal(t, 18, w.faults.count("extend"))
		// Outcomes cannot be written for three more leases.
		w.faults.fail(errBoom, "end")
		pass(30 * time.Second)
		require.Equal(t, 40, r.stats().Leased)
		w.faults.fail(nil)
		pass(10 * time.Second)
		require.Len(t, j.all(), 40)
		require.Zero(t, r.stats().Leased)
		require.NoError(t, w.stop())
		require.Equal(t, uint64(40), w.Stats().Done)
	})
}

// The worker's clock counts from before the claim was sent: when extensions fail, the handler's
// ctx ends before another worker can get the timer, even if the reply to the claim was slow.
// Outcomes are retried exactly as long as the lease holds.
func TestLeaseRunsOutByTheOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var ended time.Time
		cause := make(chan error, 1)
		w := r.prepare(func(ctx context.Context, f Fired) error {
			if f.Key == "quick" {
				return nil
			}
			<-ctx.Done()
			ended = time.Now()
			cause <- context.Cause(ctx)
			time.Sleep(time.Second)
			return nil
		}, WorkerOptions{Lease: 10 * time.Second})
		first := make(chan time.Time, 1)
		w.faults.set(func(ctx context.Context, call string, _ int) error {
			switch call {
			case "claim":
				select {
				case first <- time.Now():
				default:
				}
				return late(ctx, time.Second) // the request is in flight
			case "extend", "end":
				return errBoom
			}
			return nil
		}, func(ctx context.Context, call string, _ int) error {
			if call == "claim" {
				return late(ctx, time.Second) // and the reply
			}
			return nil
		})
		r.schedule("slow", 0)
		r.schedule("quick", 0)
		w.run()
		require.Equal(t, ErrLeaseLost, <-cause)
		require.Equal(t, (<-first).Add(10*time.Second), ended)
		require.True(t, r.get("slow").LeaseEnd.After(ended))
		pass(700 * time.Millisecond) // the last wait between two retries
		n := w.faults.count("end")
		require.Greater(t, n, 5)
		require.Less(t, n, 200)
		st := w.Stats()
		require.Equal(t, uint64(1), st.Unwritten)
		require.Equal(t, uint64(1), st.Lost)
		require.Len(t, r.logs.with("outcomes could not be written", "shard=0", "outcomes=1"), 1)
		w.faults.set(nil, nil)
		require.NoError(t, w.stop())
	})
}

// D5, case 13 and D8: a worker that was paused past its lease is fenced; its outcomes change
// nothing.
func TestPausedWorkerIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		a := &journal{}
		frozen := make(chan struct{})
		a.then = func(context.Context, Fired) error { <-frozen; return nil }
		b := &journal{then: func(context.Context, Fired) error { time.Sleep(time.Minute); return nil }}
		o := WorkerOptions{Lease: 10 * time.Second}
		first := r.worker(a.handle, o)
		r.schedule("k", 0)
		pass(time.Second)
		freeze(first, frozen)
		second := r.worker(b.handle, o)
		pass(12 * time.Second) // lease + 1 s, and the duration of a claim
		require.Len(t, b.all(), 1)
		require.Equal(t, 2, b.last().Attempt)
		require.Equal(t, a.last().ID, b.last().ID)
		require.Greater(t, b.last().Fence, a.last().Fence)
		close(frozen)
		pass(5 * time.Second)
		require.Equal(t, Leased, r.get("k").State) // the first worker's outcome changed nothing
		require.Equal(t, b.last().Fence, r.get("k").Fence)
		pass(time.Minute)
		r.requireRemoved("k")
		require.NoError(t, first.stop())
		require.NoError(t, second.stop())
		require.Zero(t, first.Stats().Done)
		require.Equal(t, uint64(1), first.Stats().Lost)
		require.Equal(t, uint64(1), second.Stats().Done)
	})
}

// freeze stops a worker's calls until thawed is closed, as if the process was paused.
func freeze(m *member, thawed chan struct{}) {
	m.faults.dropEvents.Store(true)
	m.faults.set(func(context.Context, string, int) error { <-thawed; return nil }, nil)
}

// Case 22: the old holder of a key does not affect the key's next timer.
func TestOldHolderOfAKeyThatIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		frozen := make(chan struct{})
		o := WorkerOptions{Lease: 10 * time.Second}
		first := r.worker(func(context.Context, Fired) error { <-frozen; return nil }, o)
		r.schedule("k", 0)
		pass(time.Second)
		freeze(first, frozen)
		j := &journal{}
		r.worker(j.handle, o)
		pass(15 * time.Second)
		require.Len(t, j.all(), 1)
		r.requireRemoved("k")
		r.schedule("k", time.Hour)
		id := r.get("k").ID
		close(frozen)
		pass(time.Minute)
		require.Equal(t, Waiting, r.get("k").State)
		require.Equal(t, id, r.get("k").ID)
		require.Zero(t, r.get("k").Attempts)
	})
}

// Another worker has the lease, which an extension reveals: the ctx ends, and no outcome is
// written.
func TestExtensionFindsTheLeaseLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		var cause error
		w := r.worker(func(ctx context.Context, _ Fired) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		}, WorkerOptions{Lease: 10 * time.Second})
		r.schedule("k", 0)
		pass(time.Second)
		// As in an engine that has lost writes, after a fail-over.
		info := r.get("k")
		holder := store.Holder{Key: "k", Fence: info.Fence, Token: w.faults.claims[0].Token}
		_, _, err := r.engine.End(context.Background(), 0, []store.Outcome{{Holder: holder, Kind: store.Done}})
		require.NoError(t, err)
		ends := w.faults.count("end")
		pass(5 * time.Second)
		require.Equal(t, ErrLeaseLost, cause)
		require.NoError(t, w.stop())
		require.Equal(t, ends, w.faults.count("end"))
		require.Equal(t, uint64(1), w.Stats().Lost)
		require.Zero(t, w.Stats().Done)
	})
}

// D6 and D7: the timers of a killed worker run again within lease + 1 s, each once.
func TestCrashedWorkersTimersRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 0)
		var keys []string
		var timers []Timer
		for i := range 100 {
			keys = append(keys, fmt.Sprintf("k%02d", i))
			timers = append(timers, Timer{Key: keys[i]})
		}
		_, err := r.timers.ScheduleMany(context.Background(), timers)
		require.NoError(t, err)
		o := WorkerOptions{Lease: 10 * time.Second, Grace: -1, Concurrency: 100}
		first := r.worker(func(ctx context.Context, _ Fired) error { <-ctx.Done(); return ctx.Err() }, o)
		pass(7 * time.Second) // extended once
		require.Equal(t, 100, r.stats().Leased)
		killed := time.Now()
		crash(first)
		j := &journal{}
		r.worker(j.handle, o)
		pass(30 * time.Second)
		got := j.keys()
		slices.Sort(got)
		require.Equal(t, keys, got)
		for i, f := range j.all() {
			require.Equal(t, 2, f.Attempt)
			require.LessOrEqual(t, j.times()[i].Sub(killed), 11*time.Second)
		}
		require.Zero(t, r.stats().Leased+r.stats().Waiting+r.stats().Dead)
	})
}

// D9: a timer that kills its worker becomes a dead letter, with its body.
func TestPoisonThatKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		o := WorkerOptions{Lease: time.Second, MaxAttempts: 3, Grace: -1}
		r.add(Timer{Key: "k", Body: []byte("poison")})
		for i := range 3 {
			j := &journal{then: func(ctx context.Context, _ Fired) error { <-ctx.Done(); return nil }}
			w := r.worker(j.handle, o)
			pass(5 * time.Second)
			require.Equal(t, i+1, j.last().Attempt)
			crash(w)
		}
		j := &journal{}
		w := r.worker(j.handle, o)
		pass(10 * time.Second)
		require.Empty(t, j.all())
		require.Equal(t, Dead, r.get("k").State)
		require.Equal(t, []byte("poison"), r.get("k").Body)
		require.Equal(t, uint64(1), w.Stats().DeadLetteredLost)
	})
}

// Case 16: the reply to a claim is lost. The claim is repeated with its token and gets the same
// leases; no attempt is spent.
func TestReplyOfAClaimIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		w := r.prepare(j.handle, WorkerOptions{})
		cuts := 0
		w.faults.set(nil, func(_ context.Context, call string, _ int) error {
			if call == "claim" && cuts < 2 {
				cuts++
				return store.ErrUnsure
			}
			return nil
		})
		for i := range 5 {
			r.schedule(fmt.Sprint("k", i), 0)
		}
		w.run()
		pass(time.Second)
		require.Len(t, j.all(), 5)
		for _, f := range j.all() {
			require.Equal(t, 1, f.Attempt)
		}
		require.Equal(t, w.faults.claims[0], w.faults.claims[1])
		require.Equal(t, w.faults.claims[0], w.faults.claims[2])
		require.Zero(t, r.stats().Leased)
		require.NoError(t, w.stop())
		require.Equal(t, uint64(5), w.Stats().Done)
	})
}

// The reply to an outcome is lost: the second answer is that the lease is lost, which does not
// mean that another worker had it.
func TestReplyOfAnEndIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		w := r.prepare(j.handle, WorkerOptions{})
		cut := false
		w.faults.set(nil, func(_ context.Context, call string, _ int) error {
			if call == "end" && !cut {
				cut = true
				return store.ErrUnsure
			}
			return nil
		})
		r.schedule("k", 0)
		w.run()
		pass(time.Minute)
		require.Len(t, j.all(), 1)
		r.requireRemoved("k")
		require.NoError(t, w.stop())
		require.Equal(t, uint64(1), w.Stats().Done)
		require.Zero(t, w.Stats().Lost)
		require.Equal(t, 2, w.faults.count("end"))
	})
}

// If too few replicas confirm a change, it is made all the same.
func TestUnconfirmedIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		s := &unconfirmed{Store: r.engine}
		w, err := r.on(s).NewWorker(j.handle, WorkerOptions{})
		require.NoError(t, err)
		m := &member{Worker: w, rig: r, faults: &faults{}, done: make(chan error, 1)}
		r.schedule("k", 0)
		m.run()
		pass(time.Second)
		require.Len(t, j.all(), 1)
		r.requireRemoved("k")
		require.NoError(t, m.stop())
		require.Equal(t, uint64(1), w.Stats().Done)
		require.Len(t, r.logs.with("calls to the engine fail", "call=claim", "too few replicas"), 1)
	})
}

type unconfirmed struct{ store.Store }

func (s *unconfirmed) Claim(ctx context.Context, shard int, c store.Claim) (store.Claimed, store.Horizon, error) {
	r, h, err := s.Store.Claim(ctx, shard, c)
	if err == nil {
		err = store.ErrUnconfirmed
	}
	return r, h, err
}

func (s *unconfirmed) End(ctx context.Context, shard int, outcomes []store.Outcome) ([]store.EndResult, store.Horizon, error) {
	r, h, err := s.Store.End(ctx, shard, outcomes)
	if err == nil {
		err = store.ErrUnconfirmed
	}
	return r, h, err
}

// An extension counts from before it was sent, because its reply may be slow.
func TestExtensionCountsFromBeforeItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ended := make(chan time.Time, 1)
		w := r.worker(func(ctx context.Context, _ Fired) error {
			<-ctx.Done()
			ended <- time.Now()
			return nil
		}, WorkerOptions{Lease: 10 * time.Second})
		sent := make(chan time.Time, 1)
		w.faults.set(func(_ context.Context, call string, _ int) error {
			if call != "extend" {
				return nil
			}
			select {
			case sent <- time.Now():
				return nil
			default:
				return errBoom
			}
		}, func(ctx context.Context, call string, _ int) error {
			if call == "extend" {
				return late(ctx, 2*time.Second)
			}
			return nil
		})
		r.schedule("k", 0)
		require.Equal(t, (<-ended).Add(-10*time.Second), <-sent)
		require.NoError(t, w.stop())
	})
}

// While the reply to an outcome is in flight, an extension finds no lease, because of that
// outcome: nothing was lost.
func TestExtensionOvertakesTheReplyOfAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		w := r.worker(func(context.Context, Fired) error { time.Sleep(4500 * time.Millisecond); return nil },
			WorkerOptions{Lease: 10 * time.Second})
		w.faults.set(nil, func(ctx context.Context, call string, _ int) error {
			if call == "end" {
				return late(ctx, 2*time.Second)
			}
			return nil
		})
		r.schedule("k", 0)
		pass(10 * time.Second)
		require.Equal(t, 1, w.faults.count("extend"))
		require.NoError(t, w.stop())
		require.Equal(t, uint64(1), w.Stats().Done)
		require.Zero(t, w.Stats().Lost)
	})
}

// The reply to an extension arrives after that to the outcome: there is nothing left to extend.
func TestEndOvertakesTheReplyOfAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		w := r.worker(func(context.Context, Fired) error { time.Sleep(5500 * time.Millisecond); return nil },
			WorkerOptions{Lease: 10 * time.Second})
		w.faults.set(nil, func(ctx context.Context, call string, _ int) error {
			if call == "extend" {
				return late(ctx, 2*time.Second)
			}
			return nil
		})
		r.schedule("k", 0)
		pass(time.Minute)
		require.Equal(t, 1, w.faults.count("extend"))
		require.NoError(t, w.stop())
		require.Equal(t, uint64(1), w.Stats().Done)
		require.Zero(t, w.Stats().Lost)
	})
}

// Much time may pass between the claim and the handler's first step, because the process was
// paused or overloaded. If the lease has expired, the handler is not called, because another
// worker may have called it. If the lease was extended in time, the handler is called, unless
// another worker has the lease.
func TestLeaseExpiresBeforeItBegins(t *testing.T) {
	for name, c := range map[string]struct{ extended, lost, runs bool }{
		"expired":                             {},
		"extended":                            {extended: true, runs: true},
		"lost":                                {extended: true, lost: true},
		"expired, and the release fails once": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, store.Limits{}, 0)
				j := &journal{}
				w := r.worker(j.handle, WorkerOptions{Lease: 10 * time.Second, MaxAttempts: 2})
				pass(time.Second)
				refused := false
				w.faults.set(func(_ context.Context, call string, _ int) error {
					if call == "end" && name == "expired, and the release fails once" && !refused { // it is released all the same
						refused = true
						return errBoom
					}
					if call == "claim" { // the test claims the timer itself
						return errBoom
					}
					return nil
				}, nil)
				r.schedule("k", 0)
				ctx := context.Background()
				got, _, err := w.faults.Store.Claim(ctx, 0, store.Claim{
					Worker: w.name, Token: store.NewToken(w.name), Max: 1, MaxBytes: store.MaxClaim, Lease: 10 * time.Second, MaxAttempts: 3,
				})
				require.NoError(t, err)
				require.Len(t, got.Leases, 1)
				w.mu.Lock()
				x := &run{shard: &w.shards[0], lease: got.Leases[0], deadline: w.now()}
				w.held++
				_ = w.leases.Set(x.lease.Holder, x, time.Minute)
				w.startLocked(x)
				if c.extended {
					x.deadline += 10 * time.Second
				}
				x.lost = c.lost
				w.mu.Unlock()
				synctest.Wait()
				require.Equal(t, c.runs, len(j.all()) == 1)
				pass(time.Second)
				w.faults.fail(nil)
				pass(30 * time.Second)
				require.Len(t, j.all(), 1, "it is claimed again")
				require.Equal(t, map[bool]int{false: 1, true: 2}[c.lost], j.last().Attempt)
				require.NoError(t, w.stop())
				st := w.Stats()
				require.Equal(t, !c.runs && !c.lost, st.Released == 1)
				require.EqualValues(t, 1, st.Done)
				r.requireRemoved("k")
			})
		})
	}
}

// Nothing is allocated between the check of the lease and the handler's first step: the garbage
// collector can delay a goroutine there for longer than a lease.
func TestBeginningAllocatesNothing(t *testing.T) {
	h := func(context.Context, Fired) error { return nil }
	ctx, f, done := context.Background(), Fired{Key: "k"}, func(error) {}
	require.Zero(t, testing.AllocsPerRun(100, func() { invoke(ctx, h, f, done) }))
}

// Attempts are calls of the handler. However late the engine answers a claim, and however often
// its replies are lost, an attempt whose handler was not called is not spent.
func TestAttemptsAreCalls(t *testing.T) {
	const lease = 12 * time.Second
	for name, c := range map[string]struct {
		slow     time.Duration // the duration of each reply
		until    time.Duration // the end of lost replies
		fail     string        // a call that fails once, after that
		released uint64        // leases
	}{
		"later than a quarter of a lease":      {slow: lease/4 + time.Second},
		"later than half a lease":              {slow: lease/2 + time.Second, released: 1},
		"lost for half a lease":                {until: lease/2 + time.Second},
		"lost for a lease":                     {until: lease + time.Second, released: 1},
		"lost, and cannot be released at once": {until: lease + time.Second, fail: "end", released: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, store.Limits{}, 0)
				j := &journal{}
				w := r.prepare(j.handle, WorkerOptions{Lease: lease, MaxAttempts: 1})
				began, failed := time.Now(), false
				w.faults.set(func(_ context.Context, call string, _ int) error {
					if call == c.fail && !failed {
						failed = true
						return errBoom
					}
					return nil
				}, func(ctx context.Context, call string, _ int) error {
					switch {
					case call != "claim":
						return nil
					case time.Since(began) < c.until:
						return late(ctx, time.Hour)
					}
					return late(ctx, c.slow)
				})
				r.schedule("k", 0)
				w.run()
				pass(5 * time.Minute)
				require.Len(t, j.all(), 1)
				require.Equal(t, 1, j.last().Attempt)
				r.requireRemoved("k")
				require.NoError(t, w.stop())
				require.Equal(t, c.released, w.Stats().Released)
				require.Equal(t, c.fail != "", failed)
			})
		})
	}
}

// A stopping worker releases the leases of a claim, however old that is.
func TestStopAfterALeaseOfLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		r.schedule("k", 0)
		w := r.prepare((&journal{}).handle, WorkerOptions{Lease: time.Second})
		w.faults.set(nil, func(_ context.Context, call string, _ int) error {
			if call == "claim" {
				return store.ErrUnsure
			}
			return nil
		})
		w.run()
		pass(3 * time.Second)
		require.Equal(t, Leased, r.get("k").State)
		w.faults.set(nil, nil)
		require.NoError(t, w.stop())
		require.Equal(t, Waiting, r.get("k").State)
		require.Zero(t, r.get("k").Attempts)
	})
}

// A refused claim has leased nothing: the next claim is a new one, and its timers get a whole
// lease.
func TestClaimAfterARefusedOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		w := r.prepare(j.handle, WorkerOptions{Lease: time.Second})
		w.faults.fail(errBoom, "claim")
		r.schedule("k", 0)
		w.run()
		pass(10 * time.Second)
		require.Empty(t, j.all())
		w.faults.fail(nil)
		pass(10 * time.Second)
		require.Len(t, j.all(), 1)
		require.NotEqual(t, w.faults.claims[0].Token, w.faults.claims[1].Token)
		require.NoError(t, w.stop())
		require.Zero(t, w.Stats().Released)
	})
}

// A claim whose replies are lost repeatedly takes no slots between two retries: other shards can
// use them.
func TestLostRepliesTakeNoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		j := &journal{}
		w := r.prepare(j.handle, WorkerOptions{Concurrency: 1})
		w.faults.set(nil, func(_ context.Context, call string, shard int) error {
			if call == "claim" && shard == 0 {
				return store.ErrUnsure
			}
			return nil
		})
		r.schedule(keysOf(0, 2, 1)[0], 0)
		w.run()
		pass(time.Minute)
		r.schedule(keysOf(1, 2, 1)[0], 0)
		pass(10 * time.Second)
		require.Equal(t, keysOf(1, 2, 1), j.keys())
	})
}

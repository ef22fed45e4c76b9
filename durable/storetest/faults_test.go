package storetest

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rigged is an oracle whose calls can be replaced, one by one.
type rigged struct {
	*oracle.Store
	schedule   func(context.Context, int, []store.Entry) ([]store.Receipt, store.Horizon, error)
	cancel     func(context.Context, int, []string) ([]store.CancelResult, store.Horizon, error)
	reschedule func(context.Context, int, []store.Move) ([]store.MoveResult, store.Horizon, error)
	get        func(context.Context, int, string) (store.Record, error)
	list       func(context.Context, int, store.Query) (store.Page, error)
	requeue    func(context.Context, int, []string) ([]store.RequeueResult, store.Horizon, error)
	purge      func(context.Context, int, []string) (int, error)
	claim      func(context.Context, int, store.Claim) (store.Claimed, store.Horizon, error)
	extend     func(context.Context, int, []store.Holder, time.Duration) ([]store.ExtendResult, store.Millis, error)
	end        func(context.Context, int, []store.Outcome) ([]store.EndResult, store.Horizon, error)
	swapPlans  func(context.Context, int, []store.PlanSwap, store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error)
	plans      func(context.Context, int, string, int) ([]store.Record, error)
	horizons   func(context.Context, []int) ([]store.Horizon, error)
	stats      func(context.Context, int) (store.Stats, error)
	countDue   func(context.Context, int, []store.Millis) (store.DueCounts, error)
	heartbeat  func(context.Context, store.Heartbeat) ([]string, error)
	workers    func(context.Context) ([]store.Worker, error)
	subscribe  func(context.Context, func(store.Event)) error
	reopen     func()
	left       func() []string
}

func newRigged(t testing.TB, options Options, now func() time.Time) *rigged {
	o, err := oracle.New(options.Shards, options.Limits, now)
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.Close() })
	return &rigged{
		Store: o, schedule: o.Schedule, reschedule: o.Reschedule, get: o.Get, list: o.List, requeue: o.Requeue,
		purge: o.Purge, claim: o.Claim, extend: o.Extend, end: o.End, horizons: o.Horizons, stats: o.Stats, subscribe: o.Subscribe,
		countDue: o.CountDue, heartbeat: o.Heartbeat, workers: o.Workers,
		swapPlans: o.SwapPlans, plans: o.Plans,
		cancel: func(ctx context.Context, n int, keys []string) ([]store.CancelResult, store.Horizon, error) {
			results, err := o.Cancel(ctx, n, keys)
			return results, store.Horizon{}, err
		},
		reopen: func() {}, left: func() []string { return nil },
	}
}

func (r *rigged) Schedule(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	return r.schedule(ctx, n, entries)
}

func (r *rigged) Cancel(ctx context.Context, n int, keys []string) ([]store.CancelResult, error) {
	results, _, err := r.cancel(ctx, n, keys)
	return results, err
}

func (r *rigged) Reschedule(ctx context.Context, n int, moves []store.Move) ([]store.MoveResult, store.Horizon, error) {
	return r.reschedule(ctx, n, moves)
}

func (r *rigged) Get(ctx context.Context, n int, key string) (store.Record, error) {
	return r.get(ctx, n, key)
}

func (r *rigged) List(ctx context.Context, n int, q store.Query) (store.Page, error) {
	return r.list(ctx, n, q)
}

func (r *rigged) Requeue(ctx context.Context, n int, keys []string) ([]store.RequeueResult, store.Horizon, error) {
	return r.requeue(ctx, n, keys)
}

func (r *rigged) Purge(ctx context.Context, n int, keys []string) (int, error) {
	return r.purge(ctx, n, keys)
}

func (r *rigged) Claim(ctx context.Context, n int, c store.Claim) (store.Claimed, store.Horizon, error) {
	return r.claim(ctx, n, c)
}

func (r *rigged) Extend(ctx context.Context, n int, hs []store.Holder, lease time.Duration) ([]store.ExtendResult, store.Millis, error) {
	return r.extend(ctx, n, hs, lease)
}

func (r *rigged) End(ctx context.Context, n int, outcomes []store.Outcome) ([]store.EndResult, store.Horizon, error) {
	return r.end(ctx, n, outcomes)
}

func (r *rigged) SwapPlans(ctx context.Context, n int, swaps []store.PlanSwap, c store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
	return r.swapPlans(ctx, n, swaps, c)
}

func (r *rigged) Plans(ctx context.Context, n int, after string, limit int) ([]store.Record, error) {
	return r.plans(ctx, n, after, limit)
}

func (r *rigged) Horizons(ctx context.Context, shards []int) ([]store.Horizon, error) {
	return r.horizons(ctx, shards)
}

func (r *rigged) Stats(ctx context.Context, n int) (store.Stats, error) { return r.stats(ctx, n) }

func (r *rigged) CountDue(ctx context.Context, n int, edges []store.Millis) (store.DueCounts, error) {
	return r.countDue(ctx, n, edges)
}

func (r *rigged) Heartbeat(ctx context.Context, h store.Heartbeat) ([]string, error) {
	return r.heartbeat(ctx, h)
}

func (r *rigged) Workers(ctx context.Context) ([]store.Worker, error) { return r.workers(ctx) }

func (r *rigged) Subscribe(ctx context.Context, f func(store.Event)) error {
	return r.subscribe(ctx, f)
}

// timersOf calls f with each timer of a shard that is in a state, under the lock.
func (r *rigged) timersOf(n int, state store.State, f func(*oracle.Timer)) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, t := range r.Parts[n].Timers {
		if t.State == state {
			f(t)
		}
	}
}

// timer calls f with the timer of a key, if there is one, under the lock.
func (r *rigged) timer(key string, f func(s *oracle.Shard, t *oracle.Timer)) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	s := &r.Parts[store.ShardOf(key, len(r.Parts))]
	if t := s.Timers[key]; t != nil {
		f(s, t)
	}
}

// horizonOf is a shard's present horizon.
func (r *rigged) horizonOf(n int) store.Horizon {
	h, _ := r.Store.Horizons(context.Background(), []int{n})
	return h[0]
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	ctx context.Context

	mu              sync.Mutex
	failed, skipped bool
	log             []string
	cleanups        []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.log = append(r.log, fmt.Sprintf(format, args...))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Error(args ...any)            { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fail()                        { r.Errorf("failed") }
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)            { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) Skip(...any)                  { r.skipped = true; runtime.Goexit() }
func (r *recorder) Log(...any)                   {}
func (r *recorder) Logf(string, ...any)          {}
func (r *recorder) Helper()                      {}
func (r *recorder) Context() context.Context     { return r.ctx }
func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }

// fails reports whether a test of the suite fails on an engine.
func fails(t testing.TB, c test, e Engine) bool {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				r.Errorf("panic: %v", v) // one answer too few, mostly
			}
			cancel()
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		c.f(newFixture(r, e))
	}()
	<-done
	return r.failed
}

// contractFails is fails in a synctest bubble, so that waiting for an event that never comes takes
// no time.
func contractFails(t *testing.T, c test, e Engine) (failed bool) {
	synctest.Test(t, func(t *testing.T) { failed = fails(t, c, e) })
	return failed
}

// Each fault is found by the tests that it names, by their first words, and by the model, unless it
// sets noModel. Together, the faults make each test fail at least once, and a model that makes fewer
// kinds of calls, or reads less, misses at least one of them.
func TestEachFaultIsFound(t *testing.T) {
	t.Parallel()
	faults := slices.Concat(scheduleFaults, runFaults, readFaults, swapFaults, noteFaults, planFaults, swapClaimFaults)
	var mu sync.Mutex
	found := map[string]bool{}
	ran := 0
	t.Run("faults", func(t *testing.T) { // it ends when all subtests have ended
		for _, fault := range faults {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				e := rigs(fault.leasesEnd, fault.rig)
				for _, words := range fault.found {
					i := slices.IndexFunc(contract, func(c test) bool { return strings.HasPrefix(c.name, words) })
					require.True(t, contractFails(t, contract[i], e), "the test %q passes", contract[i].name)
					mu.Lock()
					found[contract[i].name] = true
					mu.Unlock()
				}
				require.True(t, fault.noModel || fails(t, test{"model", modelTest}, e), "the model does not find it")
				mu.Lock()
				ran++
				mu.Unlock()
			})
		}
	})
	if t.Failed() || ran < len(faults) {
		return
	}
	for _, c := range contract {
		if !strings.HasPrefix(c.name, "D2 never early by a part") { // TestEarlyByLessIsFound
			assert.True(t, found[c.name], "no fault makes %q fail", c.name)
		}
	}
}

// The hour finds timers that are early or late by a millisecond.
func TestHourFindsFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range scheduleFaults[:2] {
		e := rigs(fault.leasesEnd, fault.rig)
		open := e.Open
		e.Open = func(t testing.TB, o Options) *Instance {
			in := open(t, o)
			in.Store = &oneAtATime{Store: in.Store}
			return in
		}
		require.True(t, fails(t, hourTest, e), "%s is not found", fault.name)
	}
}

// oneAtATime serializes the calls of hour, for faults that are not safe for concurrent use.
type oneAtATime struct {
	store.Store
	mu sync.Mutex
}

func (s *oneAtATime) Schedule(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Schedule(ctx, n, entries)
}

func (s *oneAtATime) Claim(ctx context.Context, n int, c store.Claim) (store.Claimed, store.Horizon, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.Claim(ctx, n, c)
}

func (s *oneAtATime) End(ctx context.Context, n int, outcomes []store.Outcome) ([]store.EndResult, store.Horizon, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.End(ctx, n, outcomes)
}

// clock is a clock that stands unless a test moves it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// rigs is the engine of rigged oracles. Reopening changes nothing, except that leases have expired
// if leasesEnd is set.
func rigs(leasesEnd bool, rig func(*rigged)) Engine {
	return Engine{Open: func(t testing.TB, o Options) *Instance {
		c := &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		r := newRigged(t, o, c.read)
		rig(r)
		return &Instance{
			Store: r, Advance: c.advance, Frozen: true, LeasesEnd: leasesEnd,
			Reopen: func(testing.TB) store.Store {
				if leasesEnd {
					r.Restart()
				}
				r.reopen()
				return r
			},
			Left: func(testing.TB) []string {
				left := r.left()
				for _, s := range r.Parts {
					left = slices.AppendSeq(left, maps.Keys(s.Timers))
				}
				return left
			},
		}
	}}
}

// A clock that loses parts of a millisecond makes timers early, and ends leases early, in any call.
func TestEarlyByLessIsFound(t *testing.T) {
	t.Parallel()
	for name, rig := range map[string]func(r *rigged, floored func(func())){
		"schedule": func(r *rigged, floored func(func())) {
			r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) (receipt store.Receipt) {
				floored(func() { receipt = do(e) })
				return receipt
			})
		},
		"reschedule": func(r *rigged, floored func(func())) {
			r.moves(func(m store.Move, do func(store.Move) store.MoveResult) (result store.MoveResult) {
				floored(func() { result = do(m) })
				return result
			})
		},
		"claim": func(r *rigged, floored func(func())) {
			r.claims(func(_ int, c store.Claim, do func(store.Claim) store.Claimed) (claimed store.Claimed) {
				floored(func() { claimed = do(c) })
				return claimed
			})
		},
		"extend": func(r *rigged, floored func(func())) {
			r.extends(func(h store.Holder, _ time.Duration, do func(store.Holder) store.ExtendResult) (result store.ExtendResult) {
				floored(func() { result = do(h) })
				return result
			})
		},
		"end": func(r *rigged, floored func(func())) {
			r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) (result store.EndResult) {
				floored(func() { result = do(e) })
				return result
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := Engine{Open: func(t testing.TB, o Options) *Instance {
				c := &clock{}
				now := func() time.Time { return time.Now().Add(c.read().Sub(time.Time{})) }
				r := newRigged(t, o, now)
				rig(r, func(f func()) {
					r.Now = func() time.Time { return now().Truncate(time.Millisecond) }
					defer func() { r.Now = now }()
					f()
				})
				return &Instance{Store: r, Advance: c.advance}
			}}
			require.True(t, fails(t, test{"early", check(neverEarlyByLess)}, e))
		})
	}
}

// yieldUntil yields to other goroutines until they have changed the state that a call has read. It
// returns without a change after 100 yields.
func yieldUntil(changed func() bool) {
	for range 100 {
		if changed() {
			return
		}
		runtime.Gosched()
	}
}

// Histories and the hammer find calls that are not atomic.
func TestRacesAreFound(t *testing.T) {
	t.Parallel()
	// Cancel reads, and acts on the old state.
	cancelInTwo := func(r *rigged) {
		cancel := r.cancel
		r.cancel = func(ctx context.Context, n int, keys []string) ([]store.CancelResult, store.Horizon, error) {
			record, err := r.Store.Get(ctx, n, keys[0])
			if err != nil || record.State != store.Waiting || len(keys) > 1 {
				return cancel(ctx, n, keys)
			}
			yieldUntil(func() bool {
				now, err := r.Store.Get(ctx, n, keys[0])
				return err != nil || now.State != store.Waiting
			})
			r.timer(keys[0], func(s *oracle.Shard, t *oracle.Timer) { delete(s.Timers, t.Key) })
			return []store.CancelResult{store.Cancelled}, store.Horizon{}, nil
		}
	}
	// Claim reads which timers are due, and leases them even if another has leased them since.
	claimInTwo := func(r *rigged) {
		r.claim = func(ctx context.Context, n int, c store.Claim) (store.Claimed, store.Horizon, error) {
			seen := map[string]bool{}
			r.timersOf(n, store.Waiting, func(t *oracle.Timer) { seen[t.Key] = t.Due < store.MaxMillis })
			others := func(f func(*oracle.Timer)) {
				r.timersOf(n, store.Leased, func(t *oracle.Timer) {
					if seen[t.Key] {
						f(t)
					}
				})
			}
			yieldUntil(func() (leased bool) {
				others(func(*oracle.Timer) { leased = true })
				return leased || len(seen) == 0
			})
			others(func(t *oracle.Timer) { t.LeaseEnd = 1 })
			defer runtime.Gosched() // another worker can claim before this one has the answer
			return r.Store.Claim(ctx, n, c)
		}
	}
	for name, rig := range map[string]func(*rigged){"cancel": cancelInTwo, "claim": claimInTwo} {
		for _, c := range longTests[1:] {
			t.Run(name+" "+c.name, func(t *testing.T) {
				e := rigs(false, rig)
				// The few calls of one run may not overlap.
				for range 100 {
					if fails(t, c, e) {
						return
					}
				}
				t.Fatal("not found")
			})
		}
	}
}

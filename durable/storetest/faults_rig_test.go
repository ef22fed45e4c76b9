package storetest

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

// fault breaks one rule.
type fault struct {
	name      string
	found     []string // the first words of tests that find it
	rig       func(*rigged)
	leasesEnd bool // the engine's leases expire when it is reopened
	noModel   bool // the model does not make the calls that would find it
}

// each replaces the treatment of each item of a call; do is the original.
func each[A, R any](r *rigged, call *func(context.Context, int, []A) ([]R, store.Horizon, error), f func(a A, do func(A) R) R) {
	whole := *call
	*call = func(ctx context.Context, n int, items []A) (results []R, _ store.Horizon, err error) {
		for _, a := range items {
			results = append(results, f(a, func(a A) (result R) {
				var got []R
				if got, _, err = whole(ctx, n, []A{a}); err == nil {
					result = got[0]
				}
				return result
			}))
		}
		return results, r.horizonOf(n), err
	}
}

func (r *rigged) schedules(f func(store.Entry, func(store.Entry) store.Receipt) store.Receipt) {
	each(r, &r.schedule, f)
}
func (r *rigged) cancels(f func(string, func(string) store.CancelResult) store.CancelResult) {
	each(r, &r.cancel, f)
}
func (r *rigged) moves(f func(store.Move, func(store.Move) store.MoveResult) store.MoveResult) {
	each(r, &r.reschedule, f)
}
func (r *rigged) requeues(f func(string, func(string) store.RequeueResult) store.RequeueResult) {
	each(r, &r.requeue, f)
}
func (r *rigged) ends(f func(store.Outcome, func(store.Outcome) store.EndResult) store.EndResult) {
	each(r, &r.end, f)
}
func (r *rigged) swaps(f func(store.PlanSwap, func(store.PlanSwap) store.SwapResult) store.SwapResult) {
	r.swapPlans = func(ctx context.Context, n int, swaps []store.PlanSwap, c store.SwapClaim) (results []store.SwapResult, leases []store.Lease, _ store.Horizon, err error) {
		for _, p := range swaps {
			results = append(results, f(p, func(p store.PlanSwap) (result store.SwapResult) {
				got, some, _, failed := r.Store.SwapPlans(ctx, n, []store.PlanSwap{p}, c)
				if err = failed; err == nil {
					result, leases = got[0], append(leases, some...)
				}
				return result
			}))
		}
		return results, leases, r.horizonOf(n), err
	}
}

// claims replaces the treatment of a claim.
func (r *rigged) claims(f func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed) {
	r.claim = func(ctx context.Context, n int, c store.Claim) (claimed store.Claimed, _ store.Horizon, err error) {
		claimed = f(n, c, func(c store.Claim) (claimed store.Claimed) {
			claimed, _, err = r.Store.Claim(ctx, n, c)
			return claimed
		})
		return claimed, r.horizonOf(n), err
	}
}

// extends replaces the treatment of each holder.
func (r *rigged) extends(f func(h store.Holder, lease time.Duration, do func(store.Holder) store.ExtendResult) store.ExtendResult) {
	r.extend = func(ctx context.Context, n int, hs []store.Holder, lease time.Duration) (results []store.ExtendResult, end store.Millis, err error) {
		for _, h := range hs {
			results = append(results, f(h, lease, func(h store.Holder) (result store.ExtendResult) {
				var got []store.ExtendResult
				if got, end, err = r.Store.Extend(ctx, n, []store.Holder{h}, lease); err == nil {
					result = got[0]
				}
				return result
			}))
		}
		return results, end, err
	}
}

// shifted calls f while the clock is d ahead.
func (r *rigged) shifted(d time.Duration, f func()) {
	real := r.Now
	r.Now = func() time.Time { return real().Add(d) }
	defer func() { r.Now = real }()
	f()
}

// during changes timers while f is called: set changes a timer and returns a function that restores
// it, or nil.
func (r *rigged) during(n int, state store.State, set func(*oracle.Timer) func(), f func()) {
	var restore []func()
	r.timersOf(n, state, func(t *oracle.Timer) {
		if undo := set(t); undo != nil {
			restore = append(restore, undo)
		}
	})
	f()
	r.Mu.Lock()
	defer r.Mu.Unlock()
	for _, undo := range restore {
		undo()
	}
}

// ms is the oracle's time.
func (r *rigged) ms() store.Millis { return store.Millis(r.Now().UnixMilli()) }

// record is the record of a key, the zero one if there is none.
func (r *rigged) record(key string) (record store.Record) {
	r.timer(key, func(_ *oracle.Shard, t *oracle.Timer) { record = t.Record })
	return record
}

// holderNow is the present holder of a key.
func (r *rigged) holderNow(key string) (h store.Holder) {
	r.timer(key, func(_ *oracle.Shard, t *oracle.Timer) { h = t.Holder() })
	return h
}

// quietly calls f while events are lost.
func (r *rigged) quietly(f func()) {
	quiet := func(on bool) {
		r.Mu.Lock()
		defer r.Mu.Unlock()
		r.Quiet = on
	}
	quiet(true)
	defer quiet(false)
	f()
}

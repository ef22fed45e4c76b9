package storetest

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// fault breaks one rule.
type fault struct {
	name      string
	found     []string // the first words of tests that find it
	rig       func(*rigged)
	leasesEnd bool // the engine's leases run out when it is reopened
	noModel   bool // the model does not do what would show it
}

// schedules replaces what is done with each entry; do is what would be done.
func (r *rigged) schedules(f func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt) {
	r.schedule = func(ctx context.Context, n int, entries []store.Entry) (receipts []store.Receipt, _ store.Horizon, err error) {
		for _, e := range entries {
			receipts = append(receipts, f(e, func(e store.Entry) (receipt store.Receipt) {
				var got []store.Receipt
				if got, _, err = r.Oracle.Schedule(ctx, n, []store.Entry{e}); err == nil {
					receipt = got[0]
				}
				return receipt
			}))
		}
		return receipts, r.horizonOf(n), err
	}
}

// cancels replaces what is done with each key.
func (r *rigged) cancels(f func(key string, do func() store.CancelResult) store.CancelResult) {
	r.cancel = func(ctx context.Context, n int, keys []string) (results []store.CancelResult, err error) {
		for _, key := range keys {
			results = append(results, f(key, func() (result store.CancelResult) {
				var got []store.CancelResult
				if got, err = r.Oracle.Cancel(ctx, n, []string{key}); err == nil {
					result = got[0]
				}
				return result
			}))
		}
		return results, err
	}
}

// moves replaces what is done with each move.
func (r *rigged) moves(f func(m store.Move, do func() store.MoveResult) store.MoveResult) {
	r.reschedule = func(ctx context.Context, n int, moves []store.Move) (results []store.MoveResult, _ store.Horizon, err error) {
		for _, m := range moves {
			results = append(results, f(m, func() (result store.MoveResult) {
				var got []store.MoveResult
				if got, _, err = r.Oracle.Reschedule(ctx, n, []store.Move{m}); err == nil {
					result = got[0]
				}
				return result
			}))
		}
		return results, r.horizonOf(n), err
	}
}

// requeues replaces what is done with each key.
func (r *rigged) requeues(f func(key string, do func() store.RequeueResult) store.RequeueResult) {
	r.requeue = func(ctx context.Context, n int, keys []string) (results []store.RequeueResult, _ store.Horizon, err error) {
		for _, key := range keys {
			results = append(results, f(key, func() (result store.RequeueResult) {
				var got []store.RequeueResult
				if got, _, err = r.Oracle.Requeue(ctx, n, []string{key}); err == nil {
					result = got[0]
				}
				return result
			}))
		}
		return results, r.horizonOf(n), err
	}
}

// claims replaces what is done with a claim.
func (r *rigged) claims(f func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed) {
	r.claim = func(ctx context.Context, n int, c store.Claim) (claimed store.Claimed, _ store.Horizon, err error) {
		claimed = f(n, c, func(c store.Claim) (claimed store.Claimed) {
			claimed, _, err = r.Oracle.Claim(ctx, n, c)
			return claimed
		})
		return claimed, r.horizonOf(n), err
	}
}

// extends replaces what is done with each holder.
func (r *rigged) extends(f func(h store.Holder, lease time.Duration, do func(store.Holder) store.ExtendResult) store.ExtendResult) {
	r.extend = func(ctx context.Context, n int, hs []store.Holder, lease time.Duration) (results []store.ExtendResult, end store.Millis, err error) {
		for _, h := range hs {
			results = append(results, f(h, lease, func(h store.Holder) (result store.ExtendResult) {
				var got []store.ExtendResult
				if got, end, err = r.Oracle.Extend(ctx, n, []store.Holder{h}, lease); err == nil {
					result = got[0]
				}
				return result
			}))
		}
		return results, end, err
	}
}

// ends replaces what is done with each end.
func (r *rigged) ends(f func(e store.End, do func(store.End) store.EndResult) store.EndResult) {
	r.end = func(ctx context.Context, n int, ends []store.End) (results []store.EndResult, _ store.Horizon, err error) {
		for _, e := range ends {
			results = append(results, f(e, func(e store.End) (result store.EndResult) {
				var got []store.EndResult
				if got, _, err = r.Oracle.End(ctx, n, []store.End{e}); err == nil {
					result = got[0]
				}
				return result
			}))
		}
		return results, r.horizonOf(n), err
	}
}

// shifted calls f while the clock is d ahead.
func (r *rigged) shifted(d time.Duration, f func()) {
	real := r.now
	r.now = func() time.Time { return real().Add(d) }
	defer func() { r.now = real }()
	f()
}

// during changes timers while f is called: set changes one and returns what restores
// it, or nil.
func (r *rigged) during(n int, state store.State, set func(*timer) func(), f func()) {
	var restore []func()
	r.timersOf(n, state, func(t *timer) {
		if undo := set(t); undo != nil {
			restore = append(restore, undo)
		}
	})
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, undo := range restore {
		undo()
	}
}

// ms is the present.
func (r *rigged) ms() store.Millis { return store.Millis(r.now().UnixMilli()) }

// record is what a key has, the zero one if it has none.
func (r *rigged) record(key string) (record store.Record) {
	r.timer(key, func(_ *shard, t *timer) { record = t.Record })
	return record
}

// holderNow is what the holder of a key would show.
func (r *rigged) holderNow(key string) (h store.Holder) {
	r.timer(key, func(_ *shard, t *timer) { h = t.holder() })
	return h
}

// quietly calls f while nobody subscribes.
func (r *rigged) quietly(f func()) {
	r.mu.Lock()
	subs := r.subs
	r.subs = nil
	r.mu.Unlock()
	f()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs = subs
}

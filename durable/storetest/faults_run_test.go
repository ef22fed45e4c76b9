package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

// forExpired changes how claims treat expired leases: set changes such a timer before the claim,
// and returns a function that undoes the change, or nil.
func forExpired(set func(*oracle.Timer) func()) func(*rigged) {
	return func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			now := r.ms()
			r.during(n, store.Leased, func(t *oracle.Timer) func() {
				if t.LeaseEnd > now {
					return nil
				}
				return set(t)
			}, func() { got = do(c) })
			return got
		})
	}
}

// hide makes a lease appear not expired, unless the timer is leased again.
func hide(t *oracle.Timer) func() {
	end, token := t.LeaseEnd, t.Token
	t.LeaseEnd = store.MaxMillis
	return func() {
		if t.State == store.Leased && t.Token == token {
			t.LeaseEnd = end
		}
	}
}

// afterEnd changes the state of a timer after its run has ended by some kind.
func afterEnd(kind store.OutcomeKind, set func(t *oracle.Timer, e store.Outcome, old store.Record)) func(*rigged) {
	return func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			old := r.record(e.Key)
			result := do(e)
			if result == store.Ended && e.Kind == kind {
				r.timer(e.Key, func(_ *oracle.Shard, t *oracle.Timer) {
					if t.ID == old.ID {
						set(t, e, old)
					}
				})
			}
			return result
		})
	}
}

// endedAs answers Ended instead of another result.
func endedAs(instead store.EndResult) func(*rigged) {
	return func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			if result := do(e); result != instead {
				return result
			}
			return store.Ended
		})
	}
}

// afterSucceeds changes a timer that got a successor; first is the earlier successor.
func afterSucceeds(set func(s *oracle.Shard, t, first *oracle.Timer)) func(*rigged) {
	return func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) store.Receipt {
			var first *oracle.Timer
			r.timer(e.Key, func(_ *oracle.Shard, t *oracle.Timer) { first = t.Successor })
			receipt := do(e)
			if receipt.Kind == store.Succeeds {
				r.timer(e.Key, func(s *oracle.Shard, t *oracle.Timer) { set(s, t, first) })
			}
			return receipt
		})
	}
}

// holders replaces the holders of Extend and End.
func holders(as func(h, now store.Holder) store.Holder) func(*rigged) {
	return func(r *rigged) {
		r.extends(func(h store.Holder, _ time.Duration, do func(store.Holder) store.ExtendResult) store.ExtendResult {
			return do(as(h, r.holderNow(h.Key)))
		})
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			e.Holder = as(e.Holder, r.holderNow(e.Key))
			return do(e)
		})
	}
}

var runFaults = []fault{
	// Cancel.
	{name: "cancel of a run says Cancelled", found: []string{"D4 Running: no retry", "D4 one call"}, rig: func(r *rigged) {
		r.cancels(func(key string, do func(string) store.CancelResult) store.CancelResult {
			if result := do(key); result != store.Running {
				return result
			}
			return store.Cancelled
		})
	}},
	{name: "cancel does not find timers that are due in the far future", found: []string{"D4 case 5"}, noModel: true, rig: func(r *rigged) {
		r.cancels(func(key string, do func(string) store.CancelResult) store.CancelResult {
			if old := r.record(key); old.State == store.Waiting && old.Due == store.MaxMillis {
				return store.NotFound
			}
			return do(key)
		})
	}},
	{name: "cancel removes a dead letter", found: []string{"D4 NotFound"}, rig: func(r *rigged) {
		r.cancels(func(key string, do func(string) store.CancelResult) store.CancelResult {
			r.timer(key, func(s *oracle.Shard, t *oracle.Timer) {
				if t.State == store.Dead {
					delete(s.Timers, key)
				}
			})
			return do(key)
		})
	}},
	{name: "a lease after Running", found: []string{"D4 Running: an expired lease"}, rig: forExpired(func(t *oracle.Timer) func() {
		t.Cancelled = false
		return nil
	})},
	{name: "an extension revives a cancelled timer", found: []string{"D4 case 14"}, rig: func(r *rigged) {
		r.extends(func(h store.Holder, _ time.Duration, do func(store.Holder) store.ExtendResult) store.ExtendResult {
			result := do(h)
			if result == store.ExtendCancelled {
				r.timer(h.Key, func(_ *oracle.Shard, t *oracle.Timer) { t.Cancelled = false })
			}
			return result
		})
	}},
	{name: "a key that occurs twice in a cancel gets the same answer twice", found: []string{"D4 one call"}, rig: func(r *rigged) {
		cancel := r.cancel
		r.cancel = func(ctx context.Context, n int, keys []string) ([]store.CancelResult, store.Horizon, error) {
			results, h, err := cancel(ctx, n, keys)
			for i := range results {
				results[i] = results[slices.Index(keys, keys[i])]
			}
			return results, h, err
		}
	}},

	// Successors.
	{name: "forgets the successor", found: []string{"D8 a successor waits"}, rig: afterSucceeds(func(_ *oracle.Shard, t, _ *oracle.Timer) { t.Successor = nil })},
	{name: "the successor runs concurrently", found: []string{"D8 it never"}, rig: afterSucceeds(func(s *oracle.Shard, t, _ *oracle.Timer) { s.Timers[t.Key] = t.Successor })},
	{name: "the successor's body replaces the run's", found: []string{"D8 it never", "D8 a successor waits"}, rig: afterSucceeds(func(_ *oracle.Shard, t, _ *oracle.Timer) { t.Body = t.Successor.Body })},
	{name: "the first of several successors stays", found: []string{"D8 the last"}, rig: afterSucceeds(func(_ *oracle.Shard, t, first *oracle.Timer) {
		if first != nil {
			t.Successor = first
		}
	})},
	{name: "a retry goes before the successor", found: []string{"D8 a successor waits", "D8 a timer that"}, rig: func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			r.timer(e.Key, func(_ *oracle.Shard, t *oracle.Timer) {
				if e.Kind == store.Retry && t.State == store.Leased && t.Holder() == e.Holder {
					t.Successor = nil
				}
			})
			return do(e)
		})
	}},
	{name: "the successor inherits attempts", found: []string{"D8 a timer that"}, rig: afterSucceeds(func(_ *oracle.Shard, t, _ *oracle.Timer) { t.Successor.Attempts = t.Attempts })},
	{name: "a lease instead of the successor", found: []string{"D8 a successor waits"}, rig: forExpired(func(t *oracle.Timer) func() {
		t.Successor = nil
		return nil
	})},

	// Leases.
	{name: "tokens are not compared", found: []string{"D5 case 23"}, rig: holders(func(h, now store.Holder) store.Holder {
		h.Token = now.Token
		return h
	})},
	{name: "fences are not compared", found: []string{"D5 case 23"}, rig: holders(func(h, now store.Holder) store.Holder {
		h.Fence = now.Fence
		return h
	})},
	{name: "holders are not compared", found: []string{"D5 case 13", "D5 case 22"}, rig: holders(func(_, now store.Holder) store.Holder { return now })},
	{name: "an expired lease is lost", found: []string{"D5 an expired"}, rig: func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			if old := r.record(e.Key); old.State == store.Leased && old.LeaseEnd < r.ms() {
				return store.EndLost
			}
			return do(e)
		})
	}},
	{name: "a requeued timer keeps its holder", found: []string{"D5 requeued"}, rig: func(r *rigged) {
		last := map[string]store.Holder{}
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			if r.record(e.Key).State == store.Waiting && last[e.Key] == e.Holder {
				r.timer(e.Key, func(s *oracle.Shard, t *oracle.Timer) { delete(s.Timers, t.Key) })
				return store.Ended
			}
			last[e.Key] = e.Holder
			return do(e)
		})
	}},
	{name: "an attempt is lost with its lease", found: []string{"D6 D7", "D9 without"}, rig: forExpired(func(t *oracle.Timer) func() {
		t.Attempts--
		return nil
	})},
	{name: "a lease ends a millisecond early", found: []string{"D6 a lease holds"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			r.timersOf(n, store.Leased, func(t *oracle.Timer) {
				if t.LeaseEnd == r.ms()+1 {
					t.LeaseEnd--
				}
			})
			return do(c)
		})
	}},
	{name: "a lease never expires", found: []string{"D6 a lease holds", "D6 D7"}, rig: forExpired(hide)},
	{name: "a claim sent again gets other leases", found: []string{"D7 case 16"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (got store.Claimed) {
			r.during(n, store.Leased, func(t *oracle.Timer) func() {
				token, fence := t.Token, t.Fence
				t.Token = store.NewToken("worker")
				return func() {
					if t.Fence == fence {
						t.Token = token
					}
				}
			}, func() { got = do(c) })
			return got
		})
	}},
	{name: "poison loses its error", found: []string{"D9 without"}, rig: forExpired(func(t *oracle.Timer) func() {
		return func() {
			if t.State == store.Dead {
				t.LastError = ""
			}
		}
	})},
	{name: "one attempt more than MaxAttempts", found: []string{"D9 without"}, rig: func(r *rigged) {
		r.claims(func(_ int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			c.MaxAttempts++
			return do(c)
		})
	}},
	{name: "a claim dead-letters a timer that waits for a retry", found: []string{"D9 the claim"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			r.timersOf(n, store.Waiting, func(t *oracle.Timer) {
				if t.Attempts > 0 && t.Attempts >= c.MaxAttempts-1 {
					t.State, t.Died = store.Dead, r.ms()
				}
			})
			return do(c)
		})
	}},

	// Ends.
	{name: "a retry loses the attempts", found: []string{"case 8"}, rig: afterEnd(store.Retry, func(t *oracle.Timer, _ store.Outcome, _ store.Record) { t.Attempts = 0 })},
	{name: "a retry is at once", found: []string{"case 8", "outcomes of all"}, rig: afterEnd(store.Retry, func(t *oracle.Timer, _ store.Outcome, old store.Record) { t.Due = old.Due })},
	{name: "a snooze counts", found: []string{"Snooze"}, rig: afterEnd(store.Snooze, func(t *oracle.Timer, _ store.Outcome, old store.Record) { t.Attempts = old.Attempts })},
	{name: "a release counts", found: []string{"case 21"}, rig: afterEnd(store.Release, func(t *oracle.Timer, _ store.Outcome, old store.Record) { t.Attempts = old.Attempts })},
	{name: "a release waits for its delay", found: []string{"case 21"}, rig: afterEnd(store.Release, func(t *oracle.Timer, e store.Outcome, _ store.Record) {
		t.Due = max(t.Due, store.After(t.Due, e.Delay))
	})},
	{name: "a dead letter has the error before", found: []string{"D9 DeadLetter"}, rig: afterEnd(store.DeadLetter, func(t *oracle.Timer, _ store.Outcome, old store.Record) { t.LastError = old.LastError })},
	{name: "End does not report that the run was cancelled", found: []string{"D4 Running", "D4 D8", "outcomes of all"}, rig: endedAs(store.EndCancelled)},
	{name: "End does not report that a successor waits", found: []string{"D8 a successor", "outcomes of all"}, rig: endedAs(store.EndReplaced)},
}

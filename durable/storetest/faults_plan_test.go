package storetest

import (
	"context"
	"math"
	"slices"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

// ofSwap changes the parameters of swaps; was is the key's record.
func ofSwap(set func(r *rigged, p *store.PlanSwap, was store.Record)) func(*rigged) {
	return func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			set(r, &p, r.record(p.Key))
			return do(p)
		})
	}
}

// afterSwap changes a plan that was created or replaced; was is the timer before.
func afterSwap(set func(r *rigged, p store.PlanSwap, t *oracle.Timer, was oracle.Timer)) func(*rigged) {
	return func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			var was oracle.Timer
			r.timer(p.Key, func(_ *oracle.Shard, t *oracle.Timer) { was = *t })
			result := do(p)
			if result == store.Swapped {
				r.timer(p.Key, func(_ *oracle.Shard, t *oracle.Timer) { set(r, p, t, was) })
			}
			return result
		})
	}
}

var swapFaults = []fault{
	{name: "Expected is not compared", found: []string{"S2 a swap creates,", "S2 of two"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, was store.Record) {
		if p.ID != was.ID {
			p.Expected = was.ID
		}
	})},
	{name: "a swap leaves the attempts", found: []string{"S2 a swap ends"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) { t.Attempts = was.Attempts })},
	{name: "a swap leaves the error", found: []string{"S2 a plan that is retried"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) { t.LastError = was.LastError })},
	{name: "a leased plan is not swapped", found: []string{"S2 a swap ends"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			if r.record(p.Key).State == store.Leased {
				return store.SwapLost
			}
			return do(p)
		})
	}},
	{name: "a plan whose lease has expired is not swapped", found: []string{"S2 a plan whose leases"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			if was := r.record(p.Key); was.State == store.Leased && was.LeaseEnd <= r.ms() {
				return store.SwapLost
			}
			return do(p)
		})
	}},
	{name: "an occurrence that exists ends the list", found: []string{"S2 a swap creates its"}, rig: ofSwap(func(r *rigged, p *store.PlanSwap, _ store.Record) {
		exists := func(e store.Entry) bool { return r.record(e.Key).State != 0 }
		if i := slices.IndexFunc(p.Entries, exists); i >= 0 {
			p.Entries = p.Entries[:i]
		}
	})},
	{name: "a swap that removes creates", found: []string{"S2 a swap creates its"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			result := do(p)
			if result == store.Swapped && p.ID == (store.ID{}) && len(p.Entries) > 0 {
				_, _, _ = r.Store.Schedule(context.Background(), store.ShardOf(p.Key, r.Shards()), p.Entries)
			}
			return result
		})
	}},

	// MaxPending.
	{name: "MaxPending does not count plans", found: []string{"S2 a swap that MaxPending"}, rig: func(r *rigged) {
		r.schedules(func(e store.Entry, do func(store.Entry) store.Receipt) (receipt store.Receipt) {
			limit := r.Limits.MaxPending
			if limit > 0 {
				for key := range r.Parts[store.ShardOf(e.Key, r.Shards())].Timers {
					if store.IsPlan(key) {
						r.Limits.MaxPending++
					}
				}
			}
			defer func() { r.Limits.MaxPending = limit }()
			return do(e)
		})
	}},

	// The history.
	{name: "a swap empties the history", found: []string{"S9 the history counts"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, _ oracle.Timer) {
		t.History = &store.History{}
	})},

	// Seen.
	{name: "a swap ignores Seen", found: []string{"S4 a plan is awake at once"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) { p.Seen = math.MaxUint64 })},
	{name: "an end that was seen wakes", found: []string{"S4 a plan is awake at once"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) { p.Seen = max(p.Seen, 1) - 1 })},
	{name: "a plan that wakes at once wakes again", found: []string{"S4 a plan is awake at once"}, rig: afterSwap(func(_ *rigged, p store.PlanSwap, t *oracle.Timer, _ oracle.Timer) { t.Wake = p.Wake })},

	{name: "SwapPlans announces nothing", found: []string{"a plan that is due earlier"}, noModel: true, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) (result store.SwapResult) {
			r.quietly(func() { result = do(p) })
			return result
		})
	}},
	{name: "reopening loses plans", found: []string{"S2 a plan and its occurrences survive"}, leasesEnd: true, rig: reopenedPlans(func(s *oracle.Shard, t *oracle.Timer) { delete(s.Timers, t.Key) })},
	{name: "reopening loses histories", found: []string{"S2 a plan and its occurrences survive"}, leasesEnd: true, rig: reopenedPlans(func(_ *oracle.Shard, t *oracle.Timer) { t.History = &store.History{} })},
	{name: "reopening loses Wake", found: []string{"S2 a plan and its occurrences survive"}, leasesEnd: true, rig: reopenedPlans(func(_ *oracle.Shard, t *oracle.Timer) { t.Wake = store.WakeNever })},
}

// reopenedPlans changes the plans when the store is reopened.
func reopenedPlans(set func(*oracle.Shard, *oracle.Timer)) func(*rigged) {
	return func(r *rigged) {
		r.reopen = func() {
			for n := range r.Parts {
				s := &r.Parts[n]
				for _, t := range s.Timers {
					if store.IsPlan(t.Key) {
						set(s, t)
					}
				}
			}
		}
	}
}

// The calls that end occurrences.
const (
	inEnd    = "End"
	inCancel = "Cancel"
	inClaim  = "Claim"
)

// around calls f instead of each call that ends occurrences; do makes it.
func around(f func(r *rigged, n int, call string, do func())) func(*rigged) {
	return func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) (result store.EndResult) {
			f(r, store.ShardOf(e.Key, r.Shards()), inEnd, func() { result = do(e) })
			return result
		})
		r.cancels(func(key string, do func(string) store.CancelResult) (result store.CancelResult) {
			f(r, store.ShardOf(key, r.Shards()), inCancel, func() { result = do(key) })
			return result
		})
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (claimed store.Claimed) {
			f(r, n, inClaim, func() { claimed = do(c) })
			for i, l := range claimed.Leases {
				if store.IsPlan(l.Key) {
					got, _ := r.Store.Get(context.Background(), n, l.Key)
					claimed.Leases[i].History = got.History
				}
			}
			return claimed
		})
	}
}

// plansOf copies the plans of a shard.
func (r *rigged) plansOf(n int) map[string]oracle.Timer {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	plans := map[string]oracle.Timer{}
	for key, t := range r.Parts[n].Timers {
		if store.IsPlan(key) {
			plan := *t
			h := *t.History
			h.Last = slices.Clone(h.Last)
			plan.History = &h
			plans[key] = plan
		}
	}
	return plans
}

// notes changes the notes of ends: f changes a note, or returns false to remove it.
func notes(f func(r *rigged, call string, n *store.Note) bool) func(*rigged) {
	return around(func(r *rigged, n int, call string, do func()) {
		before := r.plansOf(n)
		do()
		for key, was := range before {
			r.timer(key, func(_ *oracle.Shard, t *oracle.Timer) {
				h := was.History
				added := min(int(t.History.Ended()-h.Ended()), store.MaxNotes)
				for _, note := range t.History.Last[len(t.History.Last)-added:] {
					if f(r, call, &note) {
						h.Add(note)
					}
				}
				t.History = h
			})
		}
	})
}

// noNote removes the notes of some ends.
func noNote(call string, outcome store.OccurrenceOutcome, ran bool) func(*rigged) {
	return notes(func(_ *rigged, in string, n *store.Note) bool {
		return in != call || n.Outcome != outcome || (n.Begun != 0) != ran
	})
}

// lastNotes changes the list of a history to which notes were added.
func lastNotes(f func(before, after []store.Note) []store.Note) func(*rigged) {
	return around(func(r *rigged, n int, _ string, do func()) {
		before := r.plansOf(n)
		do()
		for key, was := range before {
			r.timer(key, func(_ *oracle.Shard, t *oracle.Timer) {
				if t.History.Ended() > was.History.Ended() {
					t.History.Last = f(was.History.Last, t.History.Last)
				}
			})
		}
	})
}

// wakes changes a plan of which occurrences have ended; was is the plan before.
func wakes(f func(r *rigged, was oracle.Timer, t *oracle.Timer, last store.Note)) func(*rigged) {
	return around(func(r *rigged, n int, _ string, do func()) {
		before := r.plansOf(n)
		do()
		for key, was := range before {
			r.timer(key, func(_ *oracle.Shard, t *oracle.Timer) {
				if t.History.Ended() > was.History.Ended() {
					f(r, was, t, t.History.Last[len(t.History.Last)-1])
				}
			})
		}
	})
}

var noteFaults = []fault{
	{name: "Done is not noted", found: []string{"S9 the history counts", "S9 the history lists"}, rig: noNote(inEnd, store.OccurrenceDone, true)},
	{name: "DeadLetter is not noted", found: []string{"S9 the history counts"}, rig: noNote(inEnd, store.OccurrenceDead, true)},
	{name: "the end of a cancelled run is not noted", found: []string{"S9 the history counts"}, rig: noNote(inEnd, store.OccurrenceCancelled, true)},
	{name: "a cancel is not noted", found: []string{"S9 the history counts"}, rig: noNote(inCancel, store.OccurrenceCancelled, false)},
	{name: "a lost lease in the last attempt is not noted", found: []string{"S9 an occurrence that ends"}, rig: noNote(inClaim, store.OccurrenceDead, true)},
	{name: "a lost lease of a cancelled occurrence is not noted", found: []string{"S9 an occurrence that ends"}, rig: noNote(inClaim, store.OccurrenceCancelled, true)},
	{name: "a note counts no attempts", found: []string{"S9 the history counts", "S9 an occurrence that ends"}, rig: notes(func(_ *rigged, _ string, n *store.Note) bool {
		n.Attempts = 0
		return true
	})},
	{name: "a note tells when the first run began", found: []string{"S9 the history counts"}, noModel: true, rig: func(r *rigged) {
		first := map[string]store.Millis{}
		notes(func(_ *rigged, _ string, n *store.Note) bool {
			n.Begun = min(n.Begun, first[n.Key])
			return true
		})(r)
		see := func(leases []store.Lease) {
			for _, l := range leases {
				if l.Attempt == 1 {
					first[l.Key] = store.Begun(l.Fence)
				}
			}
		}
		swap, claim := r.swapPlans, r.claim
		r.swapPlans = func(ctx context.Context, n int, swaps []store.PlanSwap, c store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
			results, leases, h, err := swap(ctx, n, swaps, c)
			see(leases)
			return results, leases, h, err
		}
		r.claim = func(ctx context.Context, n int, c store.Claim) (store.Claimed, store.Horizon, error) {
			claimed, h, err := claim(ctx, n, c)
			see(claimed.Leases)
			return claimed, h, err
		}
	}},
	{name: "the list has eleven", found: []string{"S9 the history lists"}, rig: lastNotes(func(before, after []store.Note) []store.Note {
		if len(before) == store.MaxNotes {
			after = append([]store.Note{before[0]}, after...)
		}
		return after
	})},
	{name: "the counts end with the list", found: []string{"S9 the history lists"}, noModel: true, rig: wakes(func(_ *rigged, _ oracle.Timer, t *oracle.Timer, _ store.Note) {
		t.History.Done = min(t.History.Done, store.MaxNotes)
	})},

	// Wake.
	{name: "a plan wakes twice", found: []string{"S4 the end"}, rig: wakes(func(_ *rigged, was oracle.Timer, t *oracle.Timer, _ store.Note) { t.Wake = was.Wake })},
	{name: "an end makes a leased plan forget to wake", found: []string{"S4 the end"}, noModel: true, rig: wakes(func(_ *rigged, _ oracle.Timer, t *oracle.Timer, _ store.Note) {
		if t.State == store.Leased {
			t.Wake = store.WakeNever
		}
	})},
	{name: "a plan that wakes in End is not announced", found: []string{"a plan that is due earlier"}, noModel: true, rig: func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) (result store.EndResult) {
			r.quietly(func() { result = do(e) })
			return result
		})
	}},
	{name: "a plan that wakes in Cancel is not announced", found: []string{"a plan that is due earlier"}, noModel: true, rig: func(r *rigged) {
		r.cancels(func(key string, do func(string) store.CancelResult) (result store.CancelResult) {
			r.quietly(func() { result = do(key) })
			return result
		})
	}},
}

// statsOf changes how statistics count plans.
func statsOf(set func(st *store.Stats, t *oracle.Timer, now store.Millis)) func(*rigged) {
	return func(r *rigged) {
		r.stats = func(ctx context.Context, n int) (store.Stats, error) {
			st, err := r.Store.Stats(ctx, n)
			for _, t := range r.plansOf(n) {
				set(&st, &t, r.ms())
			}
			return st, err
		}
	}
}

// pages replaces Plans.
func pages(f func(list func(after string, limit int) ([]store.Record, error), after string, limit int) ([]store.Record, error)) func(*rigged) {
	return func(r *rigged) {
		r.plans = func(ctx context.Context, n int, after string, limit int) ([]store.Record, error) {
			return f(func(after string, limit int) ([]store.Record, error) { return r.Store.Plans(ctx, n, after, limit) }, after, limit)
		}
	}
}

var planFaults = []fault{
	// Claims.
	{name: "a claim leases no plans", found: []string{"S3 a claim leases", "S2 a claim that is sent again"}, rig: ofClaim(func(c *store.Claim) { c.Plans = 0 })},
	{name: "a claim leases a plan that it did not request", found: []string{"S3 a claim leases"}, rig: ofClaim(func(c *store.Claim) { c.Plans = max(c.Plans, 1) })},

	// Reads.
	{name: "Stats does not count plans", found: []string{"S1"}, rig: statsOf(func(st *store.Stats, _ *oracle.Timer, _ store.Millis) { st.Plans = 0 })},
	{name: "Stats does not count overdue plans", found: []string{"S1"}, rig: statsOf(func(st *store.Stats, _ *oracle.Timer, _ store.Millis) { st.PlansOverdue = 0 })},
	{name: "the horizon has no plans", found: []string{"S3 a plan is claimed"}, rig: func(r *rigged) {
		horizon := func(n int, h store.Horizon) store.Horizon {
			h.NextDue = 0
			r.timersOf(n, store.Waiting, func(t *oracle.Timer) {
				if !store.IsPlan(t.Key) {
					h.NextDue = oracle.Earlier(h.NextDue, t.Due)
				}
			})
			return h
		}
		r.horizons = func(ctx context.Context, shards []int) ([]store.Horizon, error) {
			horizons, err := r.Store.Horizons(ctx, shards)
			for i := range horizons {
				horizons[i] = horizon(shards[i], horizons[i])
			}
			return horizons, err
		}
		r.swapPlans = func(ctx context.Context, n int, swaps []store.PlanSwap, c store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
			results, leases, h, err := r.Store.SwapPlans(ctx, n, swaps, c)
			return results, leases, horizon(n, h), err
		}
	}},
	{name: "a plan's body is lost", found: []string{"S1", "S10"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) { p.Body = nil })},
	{name: "Get has no history", found: []string{"S1", "S9 the history counts"}, rig: func(r *rigged) {
		r.get = func(ctx context.Context, n int, key string) (store.Record, error) {
			record, err := r.Store.Get(ctx, n, key)
			record.History = nil
			return record, err
		}
	}},
	{name: "Plans compares keys without their ends", found: []string{"S9 plans are listed"}, noModel: true, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) ([]store.Record, error) {
		if after != "" {
			after = after[:len(after)-1] + "\x02"
		}
		return list(after, limit)
	})},
	{name: "Plans has one too many", found: []string{"S9 plans are listed"}, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) ([]store.Record, error) {
		return list(after, min(limit+1, store.MaxItems))
	})},
	{name: "Plans' bytes are not counted", found: []string{"S10"}, noModel: true, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) (records []store.Record, err error) {
		for len(records) < limit && err == nil {
			var page []store.Record
			if page, err = list(after, limit-len(records)); len(page) == 0 {
				break
			}
			records = append(records, page...)
			after = page[len(page)-1].Key
		}
		return records, err
	})},
}

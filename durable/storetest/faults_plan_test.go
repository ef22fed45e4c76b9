package storetest

import (
	"cmp"
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

// entriesReplace makes the entries of swaps replace timers in a state.
func entriesReplace(state store.State) func(*rigged) {
	return func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			var replace []store.Entry
			for _, e := range p.Entries {
				if r.record(e.Key).State == state {
					replace = append(replace, e)
				}
			}
			result := do(p)
			if result == store.Swapped && p.ID != (store.ID{}) && len(replace) > 0 {
				_, _, _ = r.Store.Schedule(context.Background(), store.ShardOf(p.Key, r.Shards()), replace)
			}
			return result
		})
	}
}

// refused replaces the swaps that MaxPending refuses.
func refused(f func(r *rigged, p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult) func(*rigged) {
	return func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			if result := do(p); result != store.SwapRefused {
				return result
			}
			return f(r, p, do)
		})
	}
}

// exceedsMaxPending reports whether a swap that adds timers would exceed MaxPending.
func (r *rigged) exceedsMaxPending(p store.PlanSwap, added int) bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Limits.MaxPending > 0 && r.Parts[store.ShardOf(p.Key, len(r.Parts))].Pending()+added > r.Limits.MaxPending
}

// withoutMaxPending calls f while MaxPending is not set.
func (r *rigged) withoutMaxPending(f func()) {
	limit := r.Limits.MaxPending
	r.Limits.MaxPending = 0
	defer func() { r.Limits.MaxPending = limit }()
	f()
}

var swapFaults = []fault{
	{name: "Expected is not compared", found: []string{"S2 a swap creates,", "S2 of two"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, was store.Record) {
		if p.ID != was.ID {
			p.Expected = was.ID
		}
	})},
	{name: "Expected is compared with nothing only", found: []string{"S2 a swap creates,", "S2 of two"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, was store.Record) {
		if p.ID != was.ID && p.Expected != (store.ID{}) && was.State != 0 {
			p.Expected = was.ID
		}
	})},
	{name: "a plan is created although one exists", found: []string{"S2 a swap creates,"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, was store.Record) {
		if p.Expected == (store.ID{}) {
			p.Expected = was.ID
		}
	})},
	{name: "a plan is replaced that does not exist", found: []string{"S2 a swap creates,"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, was store.Record) {
		if was.State == 0 && p.ID != (store.ID{}) {
			p.Expected = store.ID{}
		}
	})},
	{name: "a swap that is lost creates its occurrences", found: []string{"S2 of two"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			result := do(p)
			if result == store.SwapLost {
				for i := range p.Entries {
					p.Entries[i].IfAbsent = true
				}
				_, _, _ = r.Store.Schedule(context.Background(), store.ShardOf(p.Key, r.Shards()), p.Entries)
			}
			return result
		})
	}},
	{name: "only the first swap of a call is made", found: []string{"S2 of two"}, rig: func(r *rigged) {
		r.swapPlans = func(ctx context.Context, n int, swaps []store.PlanSwap, c store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
			results, leases, h, err := r.Store.SwapPlans(ctx, n, swaps[:1], c)
			for len(results) > 0 && len(results) < len(swaps) {
				results = append(results, store.Swapped)
			}
			return results, leases, h, err
		}
	}},
	{name: "a swap leaves the ID", found: []string{"S2 a swap creates,"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) {
		if was.State != 0 {
			t.ID = was.ID
		}
	})},
	{name: "a swap leaves the body", found: []string{"S2 a swap creates,"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) {
		if was.State != 0 {
			t.Body = was.Body
		}
	})},
	{name: "a swap leaves the due time", found: []string{"S2 a swap ends"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) {
		if was.State != 0 {
			t.Due = was.Due
		}
	})},
	{name: "a swap leaves the attempts", found: []string{"S2 a swap ends"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) { t.Attempts = was.Attempts })},
	{name: "a swap leaves the error", found: []string{"S2 a plan that is retried"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) { t.LastError = was.LastError })},
	{name: "a swap leaves the lease", found: []string{"S2 a swap ends", "S2 a claim that is sent again"}, rig: afterSwap(func(_ *rigged, _ store.PlanSwap, t *oracle.Timer, was oracle.Timer) {
		if was.State == store.Leased {
			t.State, t.Fence, t.Token, t.LeaseEnd = was.State, was.Fence, was.Token, was.LeaseEnd
		}
	})},
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
	{name: "an occurrence replaces one that waits", found: []string{"S2 a swap creates its"}, rig: entriesReplace(store.Waiting)},
	{name: "an occurrence succeeds one that runs", found: []string{"S2 a swap creates its"}, rig: entriesReplace(store.Leased)},
	{name: "an occurrence replaces a dead letter", found: []string{"S2 a swap creates its"}, rig: entriesReplace(store.Dead)},
	{name: "an occurrence that exists ends the list", found: []string{"S2 a swap creates its"}, rig: ofSwap(func(r *rigged, p *store.PlanSwap, _ store.Record) {
		exists := func(e store.Entry) bool { return r.record(e.Key).State != 0 }
		if i := slices.IndexFunc(p.Entries, exists); i >= 0 {
			p.Entries = p.Entries[:i]
		}
	})},
	{name: "an occurrence loses its body", found: []string{"S2 a swap creates its"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) {
		p.Entries = slices.Clone(p.Entries)
		for i := range p.Entries {
			p.Entries[i].Body = nil
		}
	})},
	{name: "an occurrence loses its topic", found: []string{"S2 a swap creates its"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) {
		p.Entries = slices.Clone(p.Entries)
		for i := range p.Entries {
			p.Entries[i].Topic = ""
		}
	})},
	{name: "an occurrence is due with its plan", found: []string{"S2 a swap creates its"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) {
		p.Entries = slices.Clone(p.Entries)
		for i := range p.Entries {
			p.Entries[i].At = p.Due
		}
	})},
	{name: "a plan is removed with its occurrences", found: []string{"S2 a swap creates its"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			result := do(p)
			if result == store.Swapped && p.ID == (store.ID{}) {
				n := store.ShardOf(p.Key, r.Shards())
				for key := range r.Parts[n].Timers {
					if store.PlanOf(key) == p.Key {
						delete(r.Parts[n].Timers, key)
					}
				}
			}
			return result
		})
	}},
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
	{name: "MaxPending does not bound swaps", found: []string{"S2 a swap that MaxPending"}, rig: refused(func(r *rigged, p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) (result store.SwapResult) {
		r.withoutMaxPending(func() { result = do(p) })
		return result
	})},
	{name: "MaxPending refuses the entries only", found: []string{"S2 a swap that MaxPending"}, rig: refused(func(_ *rigged, p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
		p.Entries = nil
		_ = do(p)
		return store.SwapRefused
	})},
	{name: "MaxPending refuses the plan only", found: []string{"S2 a swap that MaxPending"}, rig: refused(func(r *rigged, p store.PlanSwap, _ func(store.PlanSwap) store.SwapResult) store.SwapResult {
		for i := range p.Entries {
			p.Entries[i].IfAbsent = true
		}
		_, _, _ = r.Store.Schedule(context.Background(), store.ShardOf(p.Key, r.Shards()), p.Entries)
		return store.SwapRefused
	})},
	{name: "a swap that is refused ends the lease", found: []string{"S2 a swap that MaxPending"}, rig: refused(func(r *rigged, p store.PlanSwap, _ func(store.PlanSwap) store.SwapResult) store.SwapResult {
		r.timer(p.Key, func(_ *oracle.Shard, t *oracle.Timer) {
			t.State, t.Fence, t.Token, t.LeaseEnd = store.Waiting, 0, store.Token{}, 0
		})
		return store.SwapRefused
	})},
	{name: "MaxPending counts entries that exist", found: []string{"S2 a swap that MaxPending"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			added := p.Added(func(string) bool { return false })
			if r.record(p.Key).ID == p.Expected && added > 0 && r.exceedsMaxPending(p, added) {
				return store.SwapRefused
			}
			return do(p)
		})
	}},
	{name: "MaxPending counts a plan that is replaced", found: []string{"S2 a swap that MaxPending"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			if p.ID != (store.ID{}) && r.record(p.Key).ID == p.Expected && r.exceedsMaxPending(p, 1) {
				return store.SwapRefused
			}
			return do(p)
		})
	}},
	{name: "MaxPending refuses a removal", found: []string{"S2 a swap that MaxPending"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			if p.ID == (store.ID{}) && r.record(p.Key).ID == p.Expected && r.exceedsMaxPending(p, len(p.Entries)) {
				return store.SwapRefused
			}
			return do(p)
		})
	}},
	{name: "MaxPending refuses before Expected is compared", found: []string{"S2 a swap that MaxPending"}, rig: func(r *rigged) {
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			added := p.Added(func(key string) bool { return r.record(key).State != 0 })
			if added > 0 && r.exceedsMaxPending(p, added) {
				return store.SwapRefused
			}
			return do(p)
		})
	}},
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
	{name: "the history outlives its plan", found: []string{"S9 the history counts"}, rig: func(r *rigged) {
		kept := map[string]*store.History{}
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			was := r.record(p.Key)
			result := do(p)
			if result == store.Swapped && p.ID == (store.ID{}) {
				kept[p.Key] = was.History
			}
			if h := kept[p.Key]; result == store.Swapped && h != nil {
				r.timer(p.Key, func(_ *oracle.Shard, t *oracle.Timer) { t.History = h; delete(kept, p.Key) })
			}
			return result
		})
	}},
	{name: "the ends before a plan are in its history", found: []string{"S9 the history counts"}, rig: func(r *rigged) {
		before := map[string]*store.History{}
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			result := do(e)
			plan := store.PlanOf(e.Key)
			if e.Kind == store.Done && result == store.Ended && plan != "" && r.record(plan).State == 0 {
				if before[plan] == nil {
					before[plan] = &store.History{}
				}
				before[plan].Add(store.Note{Key: e.Key, Outcome: store.OccurrenceDone, Ended: r.ms()})
			}
			return result
		})
		r.swaps(func(p store.PlanSwap, do func(store.PlanSwap) store.SwapResult) store.SwapResult {
			result := do(p)
			if h := before[p.Key]; h != nil {
				r.timer(p.Key, func(_ *oracle.Shard, t *oracle.Timer) { t.History = h; delete(before, p.Key) })
			}
			return result
		})
	}},

	// Seen.
	{name: "a swap ignores Seen", found: []string{"S4 a plan is awake at once"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) { p.Seen = math.MaxUint64 })},
	{name: "an end that was seen wakes", found: []string{"S4 a plan is awake at once"}, rig: ofSwap(func(_ *rigged, p *store.PlanSwap, _ store.Record) { p.Seen = max(p.Seen, 1) - 1 })},
	{name: "Seen is of all ends", found: []string{"S4 a plan is awake at once"}, rig: afterSwap(func(r *rigged, p store.PlanSwap, t *oracle.Timer, _ oracle.Timer) {
		if p.Wake == store.WakeOnDead && t.History.Ended() > p.Seen {
			t.Due = r.ms()
		}
	})},
	{name: "Seen is of dead letters", found: []string{"S4 a plan is awake at once"}, rig: afterSwap(func(_ *rigged, p store.PlanSwap, t *oracle.Timer, _ oracle.Timer) {
		if p.Wake == store.WakeOnEnd && t.History.Dead <= p.Seen {
			t.Due = p.Due
		}
	})},
	{name: "a plan that wakes at once wakes again", found: []string{"S4 a plan is awake at once"}, rig: afterSwap(func(_ *rigged, p store.PlanSwap, t *oracle.Timer, _ oracle.Timer) { t.Wake = p.Wake })},
	{name: "a swap leaves Wake", found: []string{"S4 the end"}, rig: afterSwap(func(_ *rigged, p store.PlanSwap, t *oracle.Timer, was oracle.Timer) {
		if p.Wake == store.WakeNever {
			t.Wake = was.Wake
		}
	})},

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

// noteOfEnd adds notes of calls to End that do not end an occurrence.
func noteOfEnd(outcome store.OccurrenceOutcome, when func(e store.Outcome, result store.EndResult) bool) func(*rigged) {
	return func(r *rigged) {
		r.ends(func(e store.Outcome, do func(store.Outcome) store.EndResult) store.EndResult {
			result := do(e)
			if when(e, result) {
				r.timer(store.PlanOf(e.Key), func(_ *oracle.Shard, t *oracle.Timer) {
					t.History.Add(store.Note{Key: e.Key, Outcome: outcome, Ended: r.ms()})
				})
			}
			return result
		})
	}
}

func endedBy(kind store.OutcomeKind) func(store.Outcome, store.EndResult) bool {
	return func(e store.Outcome, result store.EndResult) bool { return result == store.Ended && e.Kind == kind }
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

// asleep keeps plans from waking when some ends are noted.
func asleep(when func(was oracle.Timer, last store.Note) bool) func(*rigged) {
	return wakes(func(_ *rigged, was oracle.Timer, t *oracle.Timer, last store.Note) {
		if when(was, last) && t.State == store.Waiting {
			t.Due, t.Wake = was.Due, was.Wake
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
	{name: "a requeued occurrence is noted once", found: []string{"S9 the history counts"}, rig: func(r *rigged) {
		requeued := map[string]bool{}
		notes(func(_ *rigged, _ string, n *store.Note) bool { return !requeued[n.Key] })(r)
		r.requeues(func(key string, do func(string) store.RequeueResult) store.RequeueResult {
			result := do(key)
			requeued[key] = requeued[key] || result == store.Requeued
			return result
		})
	}},
	{name: "Retry is noted", found: []string{"S9 the history counts"}, rig: noteOfEnd(store.OccurrenceDead, endedBy(store.Retry))},
	{name: "Snooze is noted", found: []string{"S9 the history counts"}, rig: noteOfEnd(store.OccurrenceDone, endedBy(store.Snooze))},
	{name: "Release is noted", found: []string{"S9 the history counts"}, rig: noteOfEnd(store.OccurrenceDone, endedBy(store.Release))},
	{name: "a run that has a successor is noted", found: []string{"S9 the history counts"}, rig: noteOfEnd(store.OccurrenceDone, func(_ store.Outcome, result store.EndResult) bool { return result == store.EndReplaced })},
	{name: "an end that is lost is noted", found: []string{"S9 the history counts"}, rig: noteOfEnd(store.OccurrenceDone, func(_ store.Outcome, result store.EndResult) bool { return result == store.EndLost })},
	{name: "a lost lease of an occurrence with a successor is noted", found: []string{"S9 an occurrence that ends"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			r.timersOf(n, store.Leased, func(t *oracle.Timer) {
				if plan := r.Parts[n].Timers[store.PlanOf(t.Key)]; plan != nil && t.LeaseEnd <= r.ms() && t.Successor != nil {
					plan.History.Add(store.Note{Key: t.Key, Outcome: store.OccurrenceDone, Ended: r.ms()})
				}
			})
			return do(c)
		})
	}},
	{name: "a lost lease is noted though an attempt is left", found: []string{"S9 an occurrence that ends"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			r.timersOf(n, store.Leased, func(t *oracle.Timer) {
				if plan := r.Parts[n].Timers[store.PlanOf(t.Key)]; plan != nil && t.LeaseEnd <= r.ms() && !t.Cancelled && t.Attempts < c.MaxAttempts {
					plan.History.Add(store.Note{Key: t.Key, Outcome: store.OccurrenceDead, Ended: r.ms()})
				}
			})
			return do(c)
		})
	}},
	{name: "a cancel of a run is noted at once", found: []string{"S9 the history counts"}, rig: func(r *rigged) {
		r.cancels(func(key string, do func(string) store.CancelResult) store.CancelResult {
			result := do(key)
			if result == store.Running {
				r.timer(store.PlanOf(key), func(_ *oracle.Shard, t *oracle.Timer) {
					t.History.Add(store.Note{Key: key, Outcome: store.OccurrenceCancelled, Ended: r.ms()})
				})
			}
			return result
		})
	}},
	{name: "a purge is noted", found: []string{"S9 the history counts"}, rig: func(r *rigged) {
		r.purge = func(ctx context.Context, n int, keys []string) (int, error) {
			for _, key := range keys {
				if r.record(key).State == store.Dead {
					r.timer(store.PlanOf(key), func(_ *oracle.Shard, t *oracle.Timer) {
						t.History.Add(store.Note{Key: key, Outcome: store.OccurrenceDead, Ended: r.ms()})
					})
				}
			}
			return r.Store.Purge(ctx, n, keys)
		}
	}},
	{name: "a dead letter is noted as cancelled", found: []string{"S9 the history counts", "S9 an occurrence that ends"}, rig: notes(func(_ *rigged, _ string, n *store.Note) bool {
		if n.Outcome == store.OccurrenceDead {
			n.Outcome = store.OccurrenceCancelled
		}
		return true
	})},
	{name: "a cancelled run is noted as done", found: []string{"S9 the history counts"}, rig: notes(func(_ *rigged, call string, n *store.Note) bool {
		if call == inEnd && n.Outcome == store.OccurrenceCancelled {
			n.Outcome = store.OccurrenceDone
		}
		return true
	})},
	{name: "a note's error is not cut", found: []string{"S9 the history counts"}, rig: notes(func(r *rigged, call string, n *store.Note) bool {
		if t := r.Parts[store.ShardOf(n.Key, len(r.Parts))].Timers[n.Key]; t != nil && call == inEnd {
			n.Error = t.LastError
		}
		return true
	})},
	{name: "a note has no error", found: []string{"S9 the history counts"}, rig: notes(func(_ *rigged, _ string, n *store.Note) bool {
		n.Error = ""
		return true
	})},
	{name: "a note counts no attempts", found: []string{"S9 the history counts", "S9 an occurrence that ends"}, rig: notes(func(_ *rigged, _ string, n *store.Note) bool {
		n.Attempts = 0
		return true
	})},
	{name: "a note does not tell when the run began", found: []string{"S9 the history counts", "S9 an occurrence that ends"}, rig: notes(func(_ *rigged, _ string, n *store.Note) bool {
		n.Begun = 0
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
	{name: "one that waits for a retry is noted with its last run", found: []string{"S9 the history counts"}, rig: notes(func(_ *rigged, call string, n *store.Note) bool {
		if call == inCancel && n.Attempts > 0 {
			n.Begun = n.Ended
		}
		return true
	})},
	{name: "a note ends at the claim of the lost lease", found: []string{"S9 an occurrence that ends"}, rig: notes(func(_ *rigged, call string, n *store.Note) bool {
		if call == inClaim {
			n.Ended = n.Begun
		}
		return true
	})},
	{name: "the list has eleven", found: []string{"S9 the history lists"}, rig: lastNotes(func(before, after []store.Note) []store.Note {
		if len(before) == store.MaxNotes {
			after = append([]store.Note{before[0]}, after...)
		}
		return after
	})},
	{name: "the list has the first ten", found: []string{"S9 the history lists"}, rig: lastNotes(func(before, after []store.Note) []store.Note {
		if len(before) == store.MaxNotes {
			return before
		}
		return after
	})},
	{name: "the list has the latest first", found: []string{"S9 the history counts", "S9 the history lists"}, rig: lastNotes(func(before, after []store.Note) []store.Note {
		last := after[len(after)-1]
		return append([]store.Note{last}, before[:min(len(before), store.MaxNotes-1)]...)
	})},
	{name: "the counts end with the list", found: []string{"S9 the history lists"}, noModel: true, rig: wakes(func(_ *rigged, _ oracle.Timer, t *oracle.Timer, _ store.Note) {
		t.History.Done = min(t.History.Done, store.MaxNotes)
	})},

	// Wake.
	{name: "WakeOnDead wakes on any end", found: []string{"S4 the end"}, rig: wakes(func(r *rigged, was oracle.Timer, t *oracle.Timer, _ store.Note) {
		if was.Wake == store.WakeOnDead && t.State == store.Waiting {
			t.Due, t.Wake = r.ms(), store.WakeNever
		}
	})},
	{name: "WakeNever wakes", found: []string{"S4 the end"}, rig: wakes(func(r *rigged, was oracle.Timer, t *oracle.Timer, _ store.Note) {
		if was.Wake == store.WakeNever && t.State == store.Waiting {
			t.Due = r.ms()
		}
	})},
	{name: "WakeOnDead does not wake", found: []string{"S4 the end"}, rig: asleep(func(was oracle.Timer, _ store.Note) bool { return was.Wake == store.WakeOnDead })},
	{name: "WakeOnEnd does not wake on a dead letter", found: []string{"S4 the end"}, rig: asleep(func(was oracle.Timer, last store.Note) bool {
		return was.Wake == store.WakeOnEnd && last.Outcome == store.OccurrenceDead
	})},
	{name: "WakeOnEnd does not wake on a cancel", found: []string{"S4 the end"}, rig: asleep(func(was oracle.Timer, last store.Note) bool {
		return was.Wake == store.WakeOnEnd && last.Outcome == store.OccurrenceCancelled && last.Begun == 0
	})},
	{name: "WakeOnEnd does not wake on a cancelled run", found: []string{"S4 the end"}, rig: asleep(func(was oracle.Timer, last store.Note) bool {
		return was.Wake == store.WakeOnEnd && last.Outcome == store.OccurrenceCancelled && last.Begun != 0
	})},
	{name: "WakeOnEnd does not wake on Done", found: []string{"S4 the end"}, rig: asleep(func(was oracle.Timer, last store.Note) bool {
		return was.Wake == store.WakeOnEnd && last.Outcome == store.OccurrenceDone
	})},
	{name: "a lost lease does not wake", found: []string{"S9 an occurrence that ends"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (claimed store.Claimed) {
			r.during(n, store.Waiting, func(t *oracle.Timer) func() {
				wake := t.Wake
				t.Wake = store.WakeNever
				return func() { t.Wake = wake }
			}, func() { claimed = do(c) })
			return claimed
		})
	}},
	{name: "a plan wakes twice", found: []string{"S4 the end"}, rig: wakes(func(_ *rigged, was oracle.Timer, t *oracle.Timer, _ store.Note) { t.Wake = was.Wake })},
	{name: "a leased plan wakes", found: []string{"S4 the end"}, rig: wakes(func(r *rigged, was oracle.Timer, t *oracle.Timer, _ store.Note) {
		if was.Wake == store.WakeOnEnd && t.State == store.Leased {
			t.Due, t.Wake = r.ms(), store.WakeNever
		}
	})},
	{name: "an end makes a leased plan forget to wake", found: []string{"S4 the end"}, noModel: true, rig: wakes(func(_ *rigged, _ oracle.Timer, t *oracle.Timer, _ store.Note) {
		if t.State == store.Leased {
			t.Wake = store.WakeNever
		}
	})},
	{name: "a plan that wakes is due in a millisecond", found: []string{"S4 the end"}, rig: wakes(func(_ *rigged, was oracle.Timer, t *oracle.Timer, _ store.Note) {
		if t.Wake != was.Wake {
			t.Due++
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

// planClaims changes how claims treat plans: set changes a plan that the claim may lease, and
// returns a function that undoes the change, or nil.
func planClaims(state store.State, set func(r *rigged, c store.Claim, t *oracle.Timer) func()) func(*rigged) {
	return func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (claimed store.Claimed) {
			was := r.plansOf(n)
			r.during(n, state, func(t *oracle.Timer) func() {
				if !store.IsPlan(t.Key) {
					return nil
				}
				return set(r, c, t)
			}, func() { claimed = do(c) })
			for i, l := range claimed.Leases {
				if old, ok := was[l.Key]; ok {
					claimed.Leases[i].Due, claimed.Leases[i].Body = old.Due, old.Body
				}
			}
			return claimed
		})
	}
}

// planLeases changes the leases of plans that a claim returns.
func planLeases(set func(*store.Lease)) func(*rigged) {
	return func(r *rigged) {
		r.claims(func(_ int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			claimed := do(c)
			for i := range claimed.Leases {
				if store.IsPlan(claimed.Leases[i].Key) {
					set(&claimed.Leases[i])
				}
			}
			return claimed
		})
	}
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

// listed changes each plan that Plans lists, and removes the plans for which keep returns false.
func listed(keep func(*store.Record) bool) func(*rigged) {
	return pages(func(list func(string, int) ([]store.Record, error), after string, limit int) (records []store.Record, _ error) {
		page, err := list(after, limit)
		for _, r := range page {
			if keep(&r) {
				records = append(records, r)
			}
		}
		return records, err
	})
}

var planFaults = []fault{
	// Claims.
	{name: "a claim leases no plans", found: []string{"S3 a claim leases", "S2 a claim that is sent again"}, rig: ofClaim(func(c *store.Claim) { c.Plans = 0 })},
	{name: "a claim leases a plan that it did not request", found: []string{"S3 a claim leases"}, rig: ofClaim(func(c *store.Claim) { c.Plans = max(c.Plans, 1) })},
	{name: "a claim has a plan too many", found: []string{"S3 a claim leases"}, rig: ofClaim(func(c *store.Claim) {
		if c.Plans > 0 && c.Plans < store.MaxItems {
			c.Plans++
		}
	})},
	{name: "plans count among the timers of a claim", found: []string{"S3 a claim leases"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (claimed store.Claimed) {
			due := 0
			for _, t := range r.plansOf(n) {
				if t.State == store.Waiting && t.Due <= r.ms() || t.State == store.Leased && t.LeaseEnd <= r.ms() {
					due++
				}
			}
			if min(due, c.Plans) < c.Max {
				return do(c)
			}
			r.during(n, store.Waiting, func(t *oracle.Timer) func() {
				if due := t.Due; !store.IsPlan(t.Key) {
					t.Due = store.MaxMillis
					return func() { t.Due = due }
				}
				return nil
			}, func() { claimed = do(c) })
			return claimed
		})
	}},
	{name: "a claim's bytes of plans are not counted", found: []string{"S3 a claim leases", "S10"}, rig: planClaims(store.Waiting, func(_ *rigged, _ store.Claim, t *oracle.Timer) func() {
		body := t.Body
		t.Body = nil
		return func() { t.Body = body }
	})},
	{name: "plans are claimed in order of keys", found: []string{"S3 a claim leases"}, rig: planClaims(store.Waiting, func(r *rigged, _ store.Claim, t *oracle.Timer) func() {
		due := t.Due
		if due > r.ms() {
			return nil
		}
		t.Due = 1
		return func() { t.Due = due }
	})},
	{name: "due plans go before plans with expired leases", found: []string{"S2 a plan whose leases"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) (claimed store.Claimed) {
			due := 0
			for _, t := range r.plansOf(n) {
				if t.State == store.Waiting && t.Due <= r.ms() {
					due++
				}
			}
			r.during(n, store.Leased, func(t *oracle.Timer) func() {
				if !store.IsPlan(t.Key) || t.LeaseEnd > r.ms() || due < c.Plans {
					return nil
				}
				return hide(t)
			}, func() { claimed = do(c) })
			return claimed
		})
	}},
	{name: "plans are early by a millisecond", found: []string{"S3 a plan is claimed"}, rig: planClaims(store.Waiting, func(r *rigged, _ store.Claim, t *oracle.Timer) func() {
		due := t.Due
		if due != r.ms()+1 {
			return nil
		}
		t.Due--
		return func() { t.Due = due }
	})},
	{name: "plans are late by a millisecond", found: []string{"S3 a plan is claimed"}, rig: planClaims(store.Waiting, func(r *rigged, _ store.Claim, t *oracle.Timer) func() {
		due := t.Due
		if due != r.ms() {
			return nil
		}
		t.Due++
		return func() { t.Due = due }
	})},
	{name: "a lease on a plan never expires", found: []string{"S2 a plan whose leases"}, rig: planClaims(store.Leased, func(r *rigged, _ store.Claim, t *oracle.Timer) func() {
		if t.LeaseEnd > r.ms() {
			return nil
		}
		return hide(t)
	})},
	{name: "a plan becomes a dead letter", found: []string{"S2 a plan whose leases"}, rig: planClaims(store.Leased, func(r *rigged, c store.Claim, t *oracle.Timer) func() {
		if t.LeaseEnd <= r.ms() && t.Attempts >= c.MaxAttempts {
			t.State, t.Died = store.Dead, r.ms()
		}
		return nil
	})},
	{name: "a plan whose lease has expired is leased as a timer", found: []string{"S2 a plan whose leases"}, rig: func(r *rigged) {
		r.claims(func(n int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			if c.Plans == 0 {
				for _, t := range r.plansOf(n) {
					if t.State == store.Leased && t.LeaseEnd <= r.ms() {
						c.Plans = 1
					}
				}
			}
			return do(c)
		})
	}},
	{name: "a lease on a plan has no body", found: []string{"S2 a swap ends", "S10"}, rig: planLeases(func(l *store.Lease) { l.Body = nil })},
	{name: "a lease on a plan has no history", found: []string{"S2 a swap ends"}, rig: planLeases(func(l *store.Lease) { l.History = nil })},
	{name: "a lease on a plan has an empty history", found: []string{"S9 the history counts"}, rig: planLeases(func(l *store.Lease) { l.History = &store.History{} })},
	{name: "a claim that is sent again gets no plans", found: []string{"S2 a claim that is sent again"}, rig: func(r *rigged) {
		tokens := map[store.Token]bool{}
		r.claims(func(_ int, c store.Claim, do func(store.Claim) store.Claimed) store.Claimed {
			claimed := do(c)
			if tokens[c.Token] {
				claimed.Leases = slices.DeleteFunc(claimed.Leases, func(l store.Lease) bool { return store.IsPlan(l.Key) })
			}
			tokens[c.Token] = true
			return claimed
		})
	}},
	{name: "a plan that is retried waits for no delay", found: []string{"S2 a plan that is retried"}, rig: afterEnd(store.Retry, func(t *oracle.Timer, _ store.Outcome, old store.Record) {
		if store.IsPlan(t.Key) {
			t.Due = old.Due
		}
	})},
	{name: "a plan that is retried gets another ID", found: []string{"S2 a plan that is retried"}, rig: afterEnd(store.Retry, func(t *oracle.Timer, _ store.Outcome, _ store.Record) {
		if store.IsPlan(t.Key) {
			t.ID = store.NewID()
		}
	})},
	{name: "a plan that is retried loses its error", found: []string{"S2 a plan that is retried"}, rig: afterEnd(store.Retry, func(t *oracle.Timer, _ store.Outcome, _ store.Record) {
		if store.IsPlan(t.Key) {
			t.LastError = ""
		}
	})},

	// Reads.
	{name: "List lists plans", found: []string{"S1"}, rig: func(r *rigged) {
		r.list = func(ctx context.Context, n int, q store.Query) (store.Page, error) {
			page, err := r.Store.List(ctx, n, q)
			for _, t := range r.plansOf(n) {
				if t.State == q.State && q.After == (store.Cursor{}) && len(page.Records) < q.Limit {
					t.Body = nil
					page.Records = append(page.Records, t.Record)
				}
			}
			return page, err
		}
	}},
	{name: "Stats counts plans among waiting timers", found: []string{"S1"}, rig: statsOf(func(st *store.Stats, t *oracle.Timer, _ store.Millis) {
		if t.State == store.Waiting {
			st.Waiting++
		}
	})},
	{name: "Stats counts plans among overdue timers", found: []string{"S1"}, rig: statsOf(func(st *store.Stats, t *oracle.Timer, now store.Millis) {
		if t.State == store.Waiting && t.Due <= now {
			st.Overdue++
		}
	})},
	{name: "Stats does not count plans", found: []string{"S1"}, rig: statsOf(func(st *store.Stats, _ *oracle.Timer, _ store.Millis) { st.Plans = 0 })},
	{name: "Stats does not count overdue plans", found: []string{"S1"}, rig: statsOf(func(st *store.Stats, _ *oracle.Timer, _ store.Millis) { st.PlansOverdue = 0 })},
	{name: "Stats does not count leased plans", found: []string{"S2 a swap ends"}, rig: statsOf(func(st *store.Stats, t *oracle.Timer, _ store.Millis) {
		if t.State == store.Leased {
			st.Plans--
		}
	})},
	{name: "a leased plan is not leased", found: []string{"S2 a swap ends"}, rig: statsOf(func(st *store.Stats, t *oracle.Timer, _ store.Millis) {
		if t.State == store.Leased {
			st.Leased--
		}
	})},
	{name: "a leased plan is overdue", found: []string{"S2 a swap ends"}, rig: statsOf(func(st *store.Stats, t *oracle.Timer, now store.Millis) {
		if t.State == store.Leased && t.Due <= now {
			st.PlansOverdue++
		}
	})},
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
	{name: "Plans has no bodies", found: []string{"S1", "S9 plans are listed"}, rig: listed(func(r *store.Record) bool { r.Body = nil; return true })},
	{name: "Plans has no histories", found: []string{"S1"}, rig: listed(func(r *store.Record) bool { r.History = nil; return true })},
	{name: "Plans has no leased plans", found: []string{"S2 a swap ends"}, rig: listed(func(r *store.Record) bool { return r.State != store.Leased })},
	{name: "Plans is in order of due times", found: []string{"S9 plans are listed"}, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) ([]store.Record, error) {
		records, err := list(after, limit)
		slices.SortFunc(records, func(a, b store.Record) int { return cmp.Compare(a.Due, b.Due) })
		return records, err
	})},
	{name: "Plans is backwards", found: []string{"S9 plans are listed"}, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) ([]store.Record, error) {
		records, err := list(after, limit)
		slices.Reverse(records)
		return records, err
	})},
	{name: "Plans compares keys without their ends", found: []string{"S9 plans are listed"}, noModel: true, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) ([]store.Record, error) {
		if after != "" {
			after = after[:len(after)-1] + "\x02"
		}
		return list(after, limit)
	})},
	{name: "Plans begins with the key of its cursor", found: []string{"S9 plans are listed"}, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) ([]store.Record, error) {
		if after != "" {
			after = after[:len(after)-1]
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
	{name: "Plans ends with a page", found: []string{"S9 plans are listed"}, rig: pages(func(list func(string, int) ([]store.Record, error), after string, limit int) ([]store.Record, error) {
		if after != "" {
			return nil, nil
		}
		return list(after, limit)
	})},
}

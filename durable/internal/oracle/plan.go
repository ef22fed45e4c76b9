package oracle

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/seed-782fa212/limbo/durable/store"
)

// SwapPlans changes plans.
func (o *Store) SwapPlans(ctx context.Context, n int, swaps []store.PlanSwap, c store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
	err := c.Check()
	keys := make([]string, len(swaps))
	for i, p := range swaps {
		err = cmp.Or(err, p.Check())
		keys[i] = p.Key
	}
	if err != nil {
		return nil, nil, store.Horizon{}, err
	}
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, nil, store.Horizon{}, err
	}
	defer o.Mu.Unlock()
	before := s.horizon(now)
	results := make([]store.SwapResult, len(swaps))
	var leases []store.Lease
	for i, p := range swaps {
		exist := map[string]bool{}
		for _, e := range p.Entries {
			exist[e.Key] = s.Timers[e.Key] != nil
		}
		results[i] = o.swap(s, now, p)
		for _, e := range p.Entries {
			t := s.Timers[e.Key]
			switch {
			case t == nil || c.Max == 0 || p.ID == store.ID{}:
			case t.State == store.Leased && t.Token == c.Token:
				if !slices.ContainsFunc(leases, func(l store.Lease) bool { return l.Key == t.Key }) {
					leases = append(leases, t.lease())
				}
			case !exist[e.Key] && t.Due <= now.ms && len(leases) < c.Max:
				leases = append(leases, s.lease(t, now, c.Token, c.Lease))
			}
		}
	}
	return results, leases, o.announceEarlier(n, before, now), nil
}

func (o *Store) swap(s *Shard, now moment, p store.PlanSwap) store.SwapResult {
	var was store.ID
	old := s.Timers[p.Key]
	if old != nil {
		was = old.ID
	}
	if was != p.Expected {
		return store.SwapLost
	}
	added := p.Added(func(key string) bool { return s.Timers[key] != nil })
	if o.Limits.MaxPending > 0 && added > 0 && s.Pending()+added > o.Limits.MaxPending {
		return store.SwapRefused
	}
	delete(s.Timers, p.Key)
	if p.ID == (store.ID{}) {
		return store.Swapped
	}
	t := &Timer{Wake: p.Wake, Record: store.Record{
		Key: p.Key, ID: p.ID, Body: bytes.Clone(p.Body), State: store.Waiting, Due: p.Due, History: &store.History{},
	}}
	if old != nil {
		t.History = old.History
	}
	if p.Wake != store.WakeNever && selectedEnds(t) > p.Seen {
		t.wake(now)
	}
	s.Timers[p.Key] = t
	for _, e := range p.Entries {
		e.IfAbsent = true
		o.schedule(s, now, e)
	}
	return store.Swapped
}

// selectedEnds returns the number of ends that a plan's Wake selects.
func selectedEnds(t *Timer) uint64 {
	if t.Wake == store.WakeOnDead {
		return t.History.Dead
	}
	return t.History.Ended()
}

func (t *Timer) wake(now moment) { t.Due, t.Wake = now.ms, store.WakeNever }

// note adds an ended occurrence to the history of its plan.
func (s *Shard) note(t *Timer, outcome store.OccurrenceOutcome, now moment) {
	plan := s.Timers[store.PlanOf(t.Key)]
	if plan == nil {
		return
	}
	plan.History.Add(store.Note{
		Key: t.Key, Outcome: outcome, Begun: store.Begun(t.Fence), Ended: now.ms,
		Attempts: t.Attempts, Error: store.CutNote(t.LastError),
	})
	if plan.State == store.Waiting && (plan.Wake == store.WakeOnEnd || plan.Wake == store.WakeOnDead && outcome == store.OccurrenceDead) {
		plan.wake(now)
	}
}

// Plans returns plans in order of their keys.
func (o *Store) Plans(ctx context.Context, n int, after string, limit int) ([]store.Record, error) {
	if limit < 1 || limit > store.MaxItems {
		return nil, fmt.Errorf("durable: limit is %d, must be 1 to %d", limit, store.MaxItems)
	}
	s, _, err := o.begin(ctx, n)
	if err != nil {
		return nil, err
	}
	defer o.Mu.Unlock()
	var records []store.Record
	for _, t := range s.Timers {
		if store.IsPlan(t.Key) && t.Key > after {
			records = append(records, t.record())
		}
	}
	slices.SortFunc(records, func(a, b store.Record) int { return cmp.Compare(a.Key, b.Key) })
	size := 0
	for i, r := range records[:min(limit, len(records))] {
		if size += len(r.Body); size > store.MaxClaim && i > 0 {
			return records[:i], nil
		}
	}
	return records[:min(limit, len(records))], nil
}

// record returns a copy of t for Get and Plans.
func (t *Timer) record() store.Record {
	r := t.Record
	r.Body = bytes.Clone(r.Body)
	r.History = t.history()
	if t.Successor != nil {
		r.SuccessorDue = t.Successor.Due
	}
	return r
}

func (t *Timer) history() *store.History {
	if t.History == nil {
		return nil
	}
	h := *t.History
	h.Last = slices.Clone(h.Last)
	return &h
}

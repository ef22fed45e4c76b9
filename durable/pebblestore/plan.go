package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// plan is the value under kindPlan of each plan, in addition to its timer. It is separate from the
// timer so that the end of an occurrence, which adds to the history, does not rewrite the plan's
// body, and so that Plans finds the plans in order of their keys.
type plan struct {
	key     string
	wake    store.Wake
	history store.History
	changed bool // by this call, and not written yet
}

// appendPlan encodes p. A note's key begins with its plan's key, so only the rest is kept.
func appendPlan(b []byte, p *plan) []byte {
	b = append(b, byte(p.wake))
	b = binary.AppendUvarint(b, p.history.Done)
	b = binary.AppendUvarint(b, p.history.Dead)
	b = binary.AppendUvarint(b, p.history.Cancelled)
	b = binary.AppendUvarint(b, uint64(len(p.history.Last)))
	for _, n := range p.history.Last {
		b = append(b, byte(n.Outcome))
		b = binary.AppendUvarint(b, uint64(n.Begun))
		b = binary.AppendUvarint(b, uint64(n.Ended))
		b = binary.AppendUvarint(b, uint64(n.Attempts))
		b = appendString(b, strings.TrimPrefix(n.Key, p.key))
		b = appendString(b, n.Error)
	}
	return b
}

// decodePlan decodes the output of appendPlan; it does not keep v.
func decodePlan(key string, v []byte) (*plan, error) {
	r := reader{left: v}
	p := &plan{key: key, wake: store.Wake(r.byte())}
	p.history.Done = r.uvarint()
	p.history.Dead = r.uvarint()
	p.history.Cancelled = r.uvarint()
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		p.history.Last = append(p.history.Last, store.Note{
			Outcome:  store.OccurrenceOutcome(r.byte()),
			Begun:    store.Millis(r.uvarint()),
			Ended:    store.Millis(r.uvarint()),
			Attempts: int(r.uvarint()),
			Key:      key + string(r.take(int(r.uvarint()))),
			Error:    string(r.take(int(r.uvarint()))),
		})
	}
	if r.bad || len(r.left) > 0 {
		return nil, errRecord
	}
	return p, nil
}

// cloneHistory returns a copy of the history, which the caller may change.
func (p *plan) cloneHistory() *store.History {
	if p == nil {
		return &store.History{}
	}
	h := p.history
	h.Last = slices.Clone(h.Last)
	return &h
}

// wakes returns how many ends that trigger the wake the history counts.
func (p *plan) wakes(wake store.Wake) uint64 {
	switch wake {
	case store.WakeOnDead:
		return p.history.Dead
	case store.WakeOnEnd:
		return p.history.Ended()
	}
	return 0
}

// wakesBy reports whether an end makes the plan due, if the plan waits.
func (p *plan) wakesBy(o store.OccurrenceOutcome) bool {
	return p.wake == store.WakeOnEnd || p.wake == store.WakeOnDead && o == store.OccurrenceDead
}

// readPlan fetches the plan of a key. It belongs to the first part.
func (c *change) readPlan(key string) (*plan, error) {
	if p, ok := c.plans[key]; ok {
		return p, nil
	}
	var p *plan
	if l := c.sh.leases.byKey[key]; l != nil && l.plan != nil {
		p = l.plan
	} else {
		v, err := c.sh.read(timerKey(nil, c.sh.index, kindPlan, key))
		if err != nil {
			return nil, err
		}
		if v != nil {
			if p, err = decodePlan(key, v); err != nil {
				return nil, fmt.Errorf("durable: shard %d, plan %q: %w", c.sh.index, key, err)
			}
		}
	}
	if c.plans == nil {
		c.plans = map[string]*plan{}
	}
	c.plans[key] = p
	return p, nil
}

// readForNote reads the input of note: the plan of an occurrence that is going to end, and, if the
// end wakes the plan, the plan's timer, which readForNote returns. It belongs to the first part. It
// reads nothing for a timer that is not an occurrence.
func (c *change) readForNote(key string, o store.OccurrenceOutcome) (*timer, error) {
	planKey := store.PlanOf(key)
	if planKey == "" || o == 0 {
		return nil, nil
	}
	p, err := c.readPlan(planKey)
	if p == nil || err != nil || !p.wakesBy(o) || c.sh.leases.byKey[planKey] != nil {
		return nil, err
	}
	return c.read(planKey)
}

// outcome returns the outcome of a run, 0 if the timer or its successor continues.
func (l *lease) outcome(k store.OutcomeKind) store.OccurrenceOutcome {
	switch {
	case l.cancelled:
		return store.OccurrenceCancelled
	case l.successor != nil:
		return 0
	case k == store.Done:
		return store.OccurrenceDone
	case k == store.DeadLetter:
		return store.OccurrenceDead
	}
	return 0
}

// note adds an end to the history of an occurrence's plan, and wakes the plan if it waits for that.
// The caller has called readForNote; note does nothing for a timer that has no plan.
func (c *change) note(n store.Note) {
	if c.plans == nil || n.Outcome == 0 {
		return
	}
	p := c.plans[store.PlanOf(n.Key)]
	if p == nil {
		return
	}
	n.Ended, n.Error = c.at.now, store.CutNote(n.Error)
	p.history.Add(n)
	if t := c.timers[p.key]; t != nil && p.wakesBy(n.Outcome) { // c.timers has no leased timers
		p.wake = store.WakeNever
		c.removeWaiting(t)
		t.due = c.at.now
		c.rewrite(t)
		c.wait(t)
	}
	if !p.changed {
		p.changed = true
		c.noted = append(c.noted, p)
	}
}

// noteRun notes the end of a run.
func (c *change) noteRun(l *lease, o store.OccurrenceOutcome, lastError string) {
	c.note(store.Note{Key: l.t.key, Outcome: o, Begun: store.Begun(l.fence), Attempts: l.attempt, Error: lastError})
}

// writeNoted writes the plans that note has changed, each once.
func (c *change) writeNoted() {
	for _, p := range c.noted {
		if p.changed {
			c.erasePlan(p)
			c.writePlan(p)
		}
	}
}

func (c *change) writePlan(p *plan) {
	c.key = timerKey(c.key[:0], c.sh.index, kindPlan, p.key)
	c.value = appendPlan(c.value[:0], p)
	c.set(c.key, c.value)
}

// erasePlan removes the record of a plan, so writeNoted does not write this call's notes to it.
func (c *change) erasePlan(p *plan) {
	c.key = timerKey(c.key[:0], c.sh.index, kindPlan, p.key)
	c.remove(c.key)
	p.changed = false
}

// SwapPlans changes plans; see [store.Store]. With less free disk space than Options.MinFree, a
// call that adds a plan, or has entries, changes nothing and returns store.ErrFull.
func (s *Store) SwapPlans(ctx context.Context, shard int, swaps []store.PlanSwap, take store.SwapClaim) ([]store.SwapResult, []store.Lease, store.Horizon, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := take.Check(); err != nil {
		return nil, nil, store.Horizon{}, err
	}
	if slices.ContainsFunc(swaps, adds) {
		if err := s.checkFreeSpace(ctx); err != nil {
			return nil, nil, store.Horizon{}, err
		}
	}
	for _, p := range swaps {
		if !store.IsPlan(p.Key) {
			return nil, nil, store.Horizon{}, fmt.Errorf("durable: %.64q is not the key of a plan", p.Key)
		}
		for _, e := range p.Entries {
			if store.PlanOf(e.Key) != p.Key {
				return nil, nil, store.Horizon{}, fmt.Errorf("durable: %.64q is not the key of an occurrence of %.64q", e.Key, p.Key)
			}
		}
	}
	swaps = slices.Clone(swaps)
	for i := range swaps {
		swaps[i].Body, swaps[i].Entries = bytes.Clone(swaps[i].Body), cloneEntries(swaps[i].Entries)
	}
	t := &taker{SwapClaim: take} // an abandoned call may still write to it
	results, h, err := changeAll(ctx, s, shard, swaps, func(p store.PlanSwap) string { return p.Key }, (*change).readSwap, t.swap)
	if err != nil {
		return nil, nil, h, err
	}
	return results, t.leases, h, nil
}

// taker makes swaps, and leases occurrences.
type taker struct {
	store.SwapClaim
	leases []store.Lease
}

func (t *taker) swap(c *change, p store.PlanSwap) store.SwapResult {
	result := c.swap(p)
	if p.ID == (store.ID{}) {
		return result
	}
	for _, e := range p.Entries {
		switch l := c.sh.leases.byKey[e.Key]; {
		case l != nil && t.Max > 0 && l.token == t.Token:
			if !slices.ContainsFunc(t.leases, func(l store.Lease) bool { return l.Key == e.Key }) {
				t.leases = append(t.leases, c.answer(l, e.Body))
			}
		case l == nil && c.timers[e.Key] == nil && result == store.Swapped:
			t.create(c, e)
		}
	}
	return result
}

// create creates an occurrence, and leases it if it is due.
func (t *taker) create(c *change, e store.Entry) {
	due := e.Due(c.at.base(e.After))
	if due > c.at.now || len(t.leases) >= t.Max {
		c.schedule(e)
		return
	}
	c.sh.scheduled++
	l := &lease{t: c.create(e, due), fence: c.sh.take(c.at.micros), token: t.Token, attempt: 1, end: c.at.after(t.Lease)}
	c.write(kindRecord, l.t)
	c.lease(l)
	t.leases = append(t.leases, c.answer(l, e.Body))
}

// adds reports whether a swap makes a plan or occurrences, so that the disk needs capacity for it.
func adds(p store.PlanSwap) bool {
	return p.ID != (store.ID{}) && (p.Expected == (store.ID{}) || len(p.Entries) > 0)
}

func (c *change) readSwap(p store.PlanSwap) error {
	if err := c.readWaiting(p.Key); err != nil {
		return err
	}
	if _, err := c.readPlan(p.Key); err != nil {
		return err
	}
	for _, e := range p.Entries {
		if err := c.readWaiting(e.Key); err != nil {
			return err
		}
	}
	return nil
}

// swap changes a plan; the caller creates its occurrences afterwards.
func (c *change) swap(s store.PlanSwap) store.SwapResult {
	l, old := c.sh.leases.byKey[s.Key], c.timers[s.Key]
	if l != nil {
		old = l.t
	}
	var was store.ID
	if old != nil {
		was = old.id
	}
	if was != s.Expected {
		return store.SwapLost
	}
	added := s.Added(func(key string) bool { return c.sh.leases.byKey[key] != nil || c.timers[key] != nil })
	if c.limits.MaxPending > 0 && added > 0 && c.sh.pending()+added > c.limits.MaxPending {
		return store.SwapRefused
	}
	switch {
	case l != nil:
		c.sh.leases.remove(l)
		c.eraseLease(l)
		c.discard(kindRecord, old)
	case old != nil:
		c.displace(old)
	}
	c.timers[s.Key] = nil
	p := c.plans[s.Key]
	if s.ID == (store.ID{}) {
		if p != nil {
			c.erasePlan(p)
			c.plans[s.Key] = nil
		}
		return store.Swapped
	}
	wake, due := s.Wake, s.Due
	if p != nil && p.wakes(wake) > s.Seen {
		wake, due = store.WakeNever, c.at.now
	}
	c.setWake(s.Key, p, wake)
	t := c.create(store.Entry{Key: s.Key, ID: s.ID, Body: s.Body}, due)
	c.timers[s.Key] = t
	c.write(kindRecord, t)
	c.wait(t)
	return store.Swapped
}

// setWake writes the record of a plan, unless the disk has it already.
func (c *change) setWake(key string, p *plan, wake store.Wake) {
	switch {
	case p == nil:
		p = &plan{key: key}
		c.plans[key] = p
	case p.wake == wake:
		return
	default:
		c.erasePlan(p)
	}
	p.wake = wake
	c.writePlan(p)
}

// Plans returns plans in order of their keys; see [store.Store].
func (s *Store) Plans(ctx context.Context, shard int, after string, limit int) ([]store.Record, error) {
	if limit < 1 || limit > store.MaxItems {
		return nil, fmt.Errorf("durable: the limit is %d, must be 1 to %d", limit, store.MaxItems)
	}
	page, _, err := call(ctx, s, shard, reads, func(c *change) (*[]store.Record, error) {
		page := new([]store.Record)
		v := &planView{shard: shard, leased: map[string]store.Record{}, snapshot: c.sh.db.NewSnapshot()}
		for _, l := range c.sh.leases.plans {
			v.leased[l.t.key] = l.record()
		}
		c.then = func() (err error) {
			*page, err = v.page(ctx, after, limit)
			if closed := v.snapshot.Close(); err == nil {
				err = closed
			}
			return err
		}
		return page, nil
	})
	if err != nil {
		return nil, err
	}
	return *page, nil
}

// planView holds the plans of a shard at one moment.
type planView struct {
	shard    int
	leased   map[string]store.Record // without bodies and histories
	snapshot *pebble.Snapshot
}

func (v *planView) page(ctx context.Context, from string, limit int) (page []store.Record, err error) {
	lower := prefix(nil, v.shard, kindPlan)
	it, err := v.snapshot.NewIter(&pebble.IterOptions{
		LowerBound: append(slices.Concat(lower, []byte(from)), 0), UpperBound: after(lower),
	})
	if err != nil {
		return nil, fmt.Errorf("durable: reading shard %d: %w", v.shard, err)
	}
	defer func() { err = closeAll([]*pebble.Iterator{it}, err) }()
	size := 0
	for it.First(); it.Valid() && len(page) < limit && ctx.Err() == nil; it.Next() {
		key := string(it.Key()[len(lower):])
		p, err := decodePlan(key, it.Value())
		if err != nil {
			return nil, fmt.Errorf("durable: shard %d, plan %q: %w", v.shard, key, err)
		}
		t, err := readTimer(v.snapshot, v.shard, kindRecord, key)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		if size += t.body.length; size > store.MaxClaim && len(page) > 0 {
			break
		}
		r, leased := v.leased[key]
		if !leased {
			r = t.record()
		}
		r.History = &p.history
		if r.Body, err = readBody(v.snapshot, v.shard, t); err != nil {
			return nil, err
		}
		page = append(page, r)
	}
	return page, context.Cause(ctx)
}

package pebblestore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Extend makes leases end later; see [store.Store]. It writes nothing: after a crash all leases
// have expired anyway.
func (s *Store) Extend(ctx context.Context, shard int, holders []store.Holder, lease time.Duration) ([]store.ExtendResult, store.Millis, error) {
	if lease < store.MinLease || lease > store.MaxLease {
		return nil, 0, fmt.Errorf("durable: the lease is %v, must be %v to %v", lease, store.MinLease, store.MaxLease)
	}
	if err := s.checkKeys(shard, len(holders), func(i int) string { return holders[i].Key }); err != nil {
		return nil, 0, err
	}
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return nil, 0, err
	}
	defer s.leave()
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.lock(ctx, sh); err != nil {
		return nil, 0, err
	}
	defer sh.unlock()
	end := momentOf(s.now()).after(lease)
	results := make([]store.ExtendResult, len(holders))
	for i, h := range holders {
		switch l := sh.leases.heldBy(h); {
		case l == nil:
			results[i] = store.ExtendLost
		case l.cancelled:
			results[i] = store.ExtendCancelled
		default:
			sh.leases.extend(l, end)
			results[i] = store.Extended
		}
	}
	return results, end, nil
}

// End ends runs, each with its outcome; see [store.Store].
func (s *Store) End(ctx context.Context, shard int, ends []store.Outcome) ([]store.EndResult, store.Horizon, error) {
	for _, e := range ends {
		if e.Kind < store.Done || e.Kind > store.DeadLetter {
			return nil, store.Horizon{}, fmt.Errorf("durable: Outcome.Kind is %d, must be %d to %d", e.Kind, store.Done, store.DeadLetter)
		}
		if e.Kind == store.DeadLetter && store.IsPlan(e.Key) {
			return nil, store.Horizon{}, fmt.Errorf("durable: %.64q is the key of a plan, which does not become a dead letter", e.Key)
		}
	}
	return changeAll(ctx, s, shard, slices.Clone(ends), func(e store.Outcome) string { return e.Key }, (*change).readEnd, (*change).end)
}

func (c *change) readEnd(e store.Outcome) error {
	l := c.sh.leases.heldBy(e.Holder)
	if l == nil {
		return nil
	}
	if store.IsPlan(e.Key) {
		_, err := c.readPlan(e.Key)
		return err
	}
	_, err := c.readForNote(e.Key, l.outcome(e.Kind))
	return err
}

func (c *change) end(e store.Outcome) store.EndResult {
	l := c.sh.leases.heldBy(e.Holder)
	if l == nil {
		return store.EndLost
	}
	if !c.release(l) {
		if l.cancelled {
			c.noteRun(l, store.OccurrenceCancelled, l.t.lastError)
			return store.EndCancelled
		}
		return store.EndReplaced
	}
	t, before := l.t, l.t.attempts
	switch e.Kind {
	case store.Done:
		c.discard(kindRecord, t)
		if p := c.plans[t.key]; p != nil {
			c.erasePlan(p)
			c.plans[t.key] = nil
		}
		c.noteRun(l, store.OccurrenceDone, t.lastError)
	case store.DeadLetter:
		t.attempts, t.lastError = l.attempt, store.CutError(e.Error)
		c.deadLetter(t)
		c.noteRun(l, store.OccurrenceDead, t.lastError)
	case store.Retry:
		t.attempts, t.lastError, t.due = l.attempt, store.CutError(e.Error), c.at.after(e.Delay)
		c.rewrite(t)
		c.wait(t)
	case store.Snooze:
		t.attempts, t.due = l.attempt-1, c.at.after(e.Delay)
		c.rewrite(t)
		c.wait(t)
	case store.Release:
		if t.attempts = l.attempt - 1; t.attempts != before {
			c.rewrite(t)
		}
		c.wait(t)
	}
	if c.plans[t.key] != nil {
		c.timers[t.key] = t // so that note can wake it
	}
	return store.Ended
}

package pebblestore

import (
	"bytes"
	"context"
	"slices"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Schedule adds timers; see [store.Store]. With less free disk space than Options.MinFree it
// changes nothing and returns store.ErrFull.
func (s *Store) Schedule(ctx context.Context, shard int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.checkFreeSpace(ctx); err != nil {
		return nil, store.Horizon{}, err
	}
	return each(ctx, s, shard, cloneEntries(entries), func(e store.Entry) string { return e.Key }, (*change).schedule)
}

// cloneEntries copies entries, with their bodies in one allocation.
func cloneEntries(entries []store.Entry) []store.Entry {
	size := 0
	for _, e := range entries {
		size += len(e.Body)
	}
	bodies := bytes.NewBuffer(make([]byte, 0, size))
	entries = slices.Clone(entries)
	for i := range entries {
		at := bodies.Len()
		bodies.Write(entries[i].Body)
		entries[i].Body = bodies.Bytes()[at:bodies.Len():bodies.Len()]
	}
	return entries
}

func (c *change) schedule(e store.Entry) store.Receipt {
	l, old := c.sh.leases.byKey[e.Key], c.timers[e.Key]
	if (l != nil || old != nil) && e.IfAbsent {
		return store.Receipt{Kind: store.Exists}
	}
	due := e.Due(c.at.base(e.After))
	if l != nil {
		c.sh.scheduled++
		c.succeed(l, c.create(e, due))
		return store.Receipt{Kind: store.Succeeds, Due: due}
	}
	receipt := store.Receipt{Kind: store.Created, Due: due}
	if old == nil || old.dead {
		if c.limits.MaxPending > 0 && c.sh.pending() >= c.limits.MaxPending {
			return store.Receipt{Kind: store.Refused}
		}
	}
	if old != nil {
		receipt.Kind = c.displace(old)
	}
	t := c.create(e, due)
	c.sh.scheduled++
	c.timers[e.Key] = t
	c.write(kindRecord, t)
	c.wait(t)
	return receipt
}

// displace removes the timer that a new one replaces.
func (c *change) displace(old *timer) store.ReceiptKind {
	c.discard(kindRecord, old)
	if old.dead {
		c.removeDead(old)
		return store.ReplacedDead
	}
	c.removeWaiting(old)
	return store.Replaced
}

// Cancel removes waiting timers and marks leased ones; see [store.Store].
func (s *Store) Cancel(ctx context.Context, shard int, keys []string) ([]store.CancelResult, error) {
	keys = slices.Clone(keys)
	if err := noPlans(keys, identity); err != nil {
		return nil, err
	}
	results, _, err := changeAll(ctx, s, shard, keys, identity, (*change).readCancel, (*change).cancel)
	return results, err
}

func (c *change) readCancel(key string) error {
	if err := c.readWaiting(key); err != nil {
		return err
	}
	if t := c.timers[key]; t != nil && !t.dead {
		_, err := c.readForNote(key, store.OccurrenceCancelled)
		return err
	}
	return nil
}

func (c *change) cancel(key string) store.CancelResult {
	if l := c.sh.leases.byKey[key]; l != nil {
		if l.successor != nil {
			c.succeed(l, nil)
		}
		if !l.cancelled {
			l.cancelled = true
			c.eraseLease(l)
			c.writeLease(l)
		}
		c.events = append(c.events, store.Event{Kind: store.CancelRun, Shard: c.sh.index, Holder: l.holder()})
		return store.Running
	}
	t := c.timers[key]
	if t == nil || t.dead {
		return store.NotFound
	}
	c.discard(kindRecord, t)
	c.removeWaiting(t)
	c.timers[key] = nil
	c.note(store.Note{Key: key, Outcome: store.OccurrenceCancelled, Attempts: t.attempts, Error: t.lastError})
	return store.Cancelled
}

// Reschedule moves waiting timers; see [store.Store].
func (s *Store) Reschedule(ctx context.Context, shard int, moves []store.Move) ([]store.MoveResult, store.Horizon, error) {
	return each(ctx, s, shard, slices.Clone(moves), func(m store.Move) string { return m.Key }, (*change).move)
}

func (c *change) move(m store.Move) store.MoveResult {
	t := c.timers[m.Key]
	switch {
	case c.sh.leases.byKey[m.Key] != nil:
		return store.MoveRunning
	case t == nil || t.dead:
		return store.MoveAbsent
	}
	if due := m.Due(c.at.base(m.After)); due != t.due {
		c.removeWaiting(t)
		t.due = due
		c.rewrite(t)
		c.wait(t)
	}
	return store.Moved
}

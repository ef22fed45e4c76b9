package pebblestore

import (
	"bytes"
	"context"
	"slices"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Schedule adds timers.
func (s *Store) Schedule(ctx context.Context, shard int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	key := func(i int) string { return entries[i].Key }
	if err := s.checkKeys(shard, len(entries), key); err != nil {
		return nil, store.Horizon{}, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.checkRoom(ctx); err != nil {
		return nil, store.Horizon{}, err
	}
	entries = cloneEntries(entries)
	return call(ctx, s, shard, writes, func(c *change) ([]store.Receipt, error) {
		if err := c.readAll(len(entries), key); err != nil {
			return nil, err
		}
		receipts := make([]store.Receipt, len(entries))
		for i, e := range entries {
			receipts[i] = c.schedule(e)
		}
		return receipts, nil
	})
}

// cloneEntries copies entries, with their bodies in one piece.
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
	c.timers[e.Key] = t
	c.write(kindRecord, t)
	c.wait(t)
	return receipt
}

// displace removes the timer in whose place another is scheduled.
func (c *change) displace(old *timer) store.ReceiptKind {
	c.discard(kindRecord, old)
	if old.dead {
		c.exhume(old)
		return store.ReplacedDead
	}
	c.unwait(old)
	return store.Replaced
}

// Cancel removes waiting timers and marks leased ones.
func (s *Store) Cancel(ctx context.Context, shard int, keys []string) ([]store.CancelResult, error) {
	keys = slices.Clone(keys)
	key := func(i int) string { return keys[i] }
	if err := s.checkKeys(shard, len(keys), key); err != nil {
		return nil, err
	}
	results, _, err := call(ctx, s, shard, writes, func(c *change) ([]store.CancelResult, error) {
		if err := c.readAll(len(keys), key); err != nil {
			return nil, err
		}
		results := make([]store.CancelResult, len(keys))
		for i, k := range keys {
			results[i] = c.cancel(k)
		}
		return results, nil
	})
	return results, err
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
	c.unwait(t)
	c.timers[key] = nil
	return store.Cancelled
}

// Reschedule moves waiting timers.
func (s *Store) Reschedule(ctx context.Context, shard int, moves []store.Move) ([]store.MoveResult, store.Horizon, error) {
	moves = slices.Clone(moves)
	key := func(i int) string { return moves[i].Key }
	if err := s.checkKeys(shard, len(moves), key); err != nil {
		return nil, store.Horizon{}, err
	}
	return call(ctx, s, shard, writes, func(c *change) ([]store.MoveResult, error) {
		if err := c.readAll(len(moves), key); err != nil {
			return nil, err
		}
		results := make([]store.MoveResult, len(moves))
		for i, m := range moves {
			results[i] = c.move(m)
		}
		return results, nil
	})
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
		c.unwait(t)
		t.due = due
		c.rewrite(t)
		c.wait(t)
	}
	return store.Moved
}

package pebblestore

import (
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Requeue makes dead letters wait again; see [store.Store].
func (s *Store) Requeue(ctx context.Context, shard int, keys []string) ([]store.RequeueResult, store.Horizon, error) {
	return each(ctx, s, shard, slices.Clone(keys), identity, (*change).requeue)
}

func (c *change) requeue(key string) store.RequeueResult {
	t := c.timers[key]
	switch {
	case c.sh.leases.byKey[key] != nil || t != nil && !t.dead:
		return store.RequeueExists
	case t == nil:
		return store.RequeueAbsent
	}
	c.removeDead(t)
	t.dead, t.died, t.attempts, t.due = false, 0, 0, c.at.now
	c.rewrite(t)
	c.wait(t)
	return store.Requeued
}

// Purge removes dead letters; see [store.Store].
func (s *Store) Purge(ctx context.Context, shard int, keys []string) (int, error) {
	purged, _, err := each(ctx, s, shard, slices.Clone(keys), identity, (*change).purge)
	sum := 0
	for _, n := range purged {
		sum += n
	}
	return sum, err
}

// purge returns how many dead letters it has removed.
func (c *change) purge(key string) int {
	t := c.timers[key]
	if t == nil || !t.dead {
		return 0
	}
	c.discard(kindRecord, t)
	c.removeDead(t)
	c.timers[key] = nil
	return 1
}

// findDropped finds the dead letters that MaxDead and MaxDeadAge remove, oldest first, at most
// store.MaxItems. The timers that this claim dead-letters count too.
func (d *draft) findDropped() error {
	c, limits := d.c, d.c.limits
	excess := min(max(int(c.sh.dead)+d.deadLettered-limits.MaxDead, 0), store.MaxItems)
	if excess == 0 && (limits.MaxDeadAge == 0 || c.sh.dead == 0) {
		return nil
	}
	prefix := prefix(nil, c.sh.index, kindDead)
	it, err := c.sh.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return fmt.Errorf("durable: reading shard %d: %w", c.sh.index, err)
	}
	defer it.Close()
	for it.First(); it.Valid() && len(d.dropped) < store.MaxItems; it.Next() {
		pos := positionOf(it, deadPrefixLen)
		died, key := positionTime(pos), positionKey(pos)
		tooOld := limits.MaxDeadAge > 0 && store.After(died, limits.MaxDeadAge) < c.at.now
		if len(d.dropped) >= excess && !tooOld {
			break
		}
		t, err := c.read(key)
		if err != nil {
			return err
		}
		if t == nil || !t.dead || t.died != died {
			d.lost = append(d.lost, slices.Clone(it.Key()))
			excess = max(excess-1, 0) // it was counted
			continue
		}
		d.dropped = append(d.dropped, t)
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("durable: reading shard %d: %w", c.sh.index, err)
	}
	// The timers that this claim dead-letters are the youngest, unless the clock has been set back
	// since others died.
	for _, l := range d.ended {
		if len(d.dropped) < excess && !l.final() {
			d.dropped = append(d.dropped, l.t)
		}
	}
	return nil
}

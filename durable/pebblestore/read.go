package pebblestore

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Get returns one timer; see [store.Store].
func (s *Store) Get(ctx context.Context, shard int, key string) (store.Record, error) {
	if err := s.checkKeys(shard, 1, func(int) string { return key }); err != nil {
		return store.Record{}, err
	}
	found, _, err := call(ctx, s, shard, reads, func(c *change) (*store.Record, error) {
		return c.get(key)
	})
	switch {
	case err != nil:
		return store.Record{}, err
	case found == nil:
		return store.Record{}, store.ErrNotFound
	}
	return *found, nil
}

func (c *change) get(key string) (*store.Record, error) {
	var t *timer
	var r store.Record
	if l := c.sh.leases.byKey[key]; l != nil {
		t, r = l.t, l.record()
	} else {
		var err error
		if t, err = c.read(key); t == nil || err != nil {
			return nil, err
		}
		r = t.record()
	}
	if store.IsPlan(key) {
		p, err := c.readPlan(key)
		if err != nil {
			return nil, err
		}
		r.History = p.cloneHistory()
	}
	var err error
	r.Body, err = c.sh.readBody(t)
	return &r, err
}

// record returns the record of a leased timer, for Get and List.
func (l *lease) record() store.Record {
	r := l.t.record()
	r.State, r.Attempts, r.LeaseEnd, r.Cancelled = store.Leased, l.attempt, l.end, l.cancelled
	r.Fence, r.Token = l.fence, l.token
	if l.successor != nil {
		r.SuccessorDue = l.successor.due
	}
	return r
}

// pollTimeout is how long Horizons waits for locked shards once it has read one.
const pollTimeout = time.Second

// Horizons returns the horizons of shards, from memory; see [store.Store]. It reads locked shards
// last, for example those that a call holds while the disk hangs. If it has read others, it waits
// at most a second for the locked ones.
func (s *Store) Horizons(ctx context.Context, shards []int) ([]store.Horizon, error) {
	horizons := make([]store.Horizon, len(shards))
	var locked []int // indexes in shards
	for i, n := range shards {
		sh, err := s.enter(ctx, n)
		if err != nil {
			return nil, err
		}
		select {
		case sh.lock <- struct{}{}:
			horizons[i] = s.horizonOf(sh)
			sh.unlock()
		default:
			locked = append(locked, i)
		}
		s.leave()
	}
	if len(locked) == 0 {
		return horizons, nil
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if len(locked) < len(shards) {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, pollTimeout, fmt.Errorf("shard %d was locked for %v", shards[locked[0]], pollTimeout))
		defer stop()
	}
	for at, i := range locked {
		h, err := s.waitHorizon(ctx, shards[i])
		switch {
		case err == nil:
			horizons[i] = h
		case at == 0 && len(locked) == len(shards):
			return nil, err
		default:
			return horizons, err
		}
	}
	return horizons, nil
}

// waitHorizon returns a shard's horizon once the shard is not locked.
func (s *Store) waitHorizon(ctx context.Context, n int) (store.Horizon, error) {
	sh, err := s.enter(ctx, n)
	if err != nil {
		return store.Horizon{}, err
	}
	defer s.leave()
	if err := s.lock(ctx, sh); err != nil {
		return store.Horizon{}, err
	}
	defer sh.unlock()
	return s.horizonOf(sh), nil
}

// horizonOf returns a shard's horizon; the caller has locked the shard.
func (s *Store) horizonOf(sh *shard) store.Horizon {
	return store.Horizon{Now: momentOf(s.now()).now, NextDue: sh.next, NextLeaseEnd: sh.leases.nextEnd()}
}

// Stats returns the counts of a shard; see [store.Store]. It reads the keys of all overdue timers.
func (s *Store) Stats(ctx context.Context, shard int) (store.Stats, error) {
	st, h, err := call(ctx, s, shard, reads, func(c *change) (*store.Stats, error) {
		st := &store.Stats{
			Leased: len(c.sh.leases.byKey), Dead: int(c.sh.dead), Plans: len(c.sh.leases.plans),
			Dropped: c.sh.dropped, Scheduled: c.sh.scheduled,
		}
		var its []*pebble.Iterator // a view of the present
		var overdue []*int         // the counter of each iterator
		for i := range c.sh.lanes {
			count, late := &st.Waiting, &st.Overdue
			if i == store.PlanLane {
				count, late = &st.Plans, &st.PlansOverdue
			}
			*count += int(c.sh.lanes[i].count)
			if c.sh.lanes[i].count == 0 || c.sh.lanes[i].bound() > c.at.now {
				continue
			}
			it, err := c.sh.laneIter(i)
			if err != nil {
				return nil, closeAll(its, err)
			}
			its, overdue = append(its, it), append(overdue, late)
		}
		c.then = func() error {
			for i, it := range its {
				for it.Valid() && positionTime(positionOf(it, lanePrefixLen)) <= c.at.now && ctx.Err() == nil {
					*overdue[i]++
					it.Next()
				}
			}
			return closeAll(its, context.Cause(ctx))
		}
		return st, nil
	})
	if err != nil {
		return store.Stats{}, err
	}
	st.Horizon = h
	return *st, nil
}

// closeAll closes iterators, and returns err or else their first error.
func closeAll(its []*pebble.Iterator, err error) error {
	for _, it := range its {
		if closed := it.Close(); err == nil && closed != nil {
			err = fmt.Errorf("durable: reading: %w", closed)
		}
	}
	return err
}

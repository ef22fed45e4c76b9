package oracle

import (
	"cmp"
	"context"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Get returns one timer.
func (o *Store) Get(ctx context.Context, n int, key string) (store.Record, error) {
	s, _, err := o.begin(ctx, n, key)
	if err != nil {
		return store.Record{}, err
	}
	defer o.Mu.Unlock()
	t := s.Timers[key]
	if t == nil {
		return store.Record{}, store.ErrNotFound
	}
	return t.record(), nil
}

// List returns a page of timers.
func (o *Store) List(ctx context.Context, n int, q store.Query) (store.Page, error) {
	if err := q.Check(); err != nil {
		return store.Page{}, err
	}
	s, _, err := o.begin(ctx, n)
	if err != nil {
		return store.Page{}, err
	}
	defer o.Mu.Unlock()
	at := func(t *Timer) store.Millis { return t.At() }
	rest := s.sorted(q.State, at, func(t *Timer) bool {
		return !store.IsPlan(t.Key) && cmp.Or(cmp.Compare(at(t), q.After.At), cmp.Compare(t.Key, q.After.Key)) > 0
	})
	page := store.Page{Next: q.After}
	for i, t := range rest {
		if i == q.ScanLimit() || len(page.Records) == q.Limit {
			page.More = true
			break
		}
		page.Next = store.Cursor{At: at(t), Key: t.Key}
		if q.Matches(t.Key, t.Topic, t.LastError) {
			r := t.record()
			r.Body = nil
			page.Records = append(page.Records, r)
		}
	}
	return page, nil
}

func (s *Shard) horizon(now moment) store.Horizon {
	h := store.Horizon{Now: now.ms}
	for _, t := range s.Timers {
		switch t.State {
		case store.Waiting:
			h.NextDue = Earlier(h.NextDue, t.Due)
		case store.Leased:
			h.NextLeaseEnd = Earlier(h.NextLeaseEnd, t.LeaseEnd)
		}
	}
	return h
}

// Earlier returns the earlier of two times, where 0 means none.
func Earlier(a, b store.Millis) store.Millis {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Horizons returns the horizons of shards.
func (o *Store) Horizons(ctx context.Context, shards []int) ([]store.Horizon, error) {
	horizons := make([]store.Horizon, len(shards))
	for i, n := range shards {
		s, now, err := o.begin(ctx, n)
		if err != nil {
			return nil, err
		}
		horizons[i] = s.horizon(now)
		o.Mu.Unlock()
	}
	return horizons, nil
}

// Stats counts a shard.
func (o *Store) Stats(ctx context.Context, n int) (store.Stats, error) {
	s, now, err := o.begin(ctx, n)
	if err != nil {
		return store.Stats{}, err
	}
	defer o.Mu.Unlock()
	st := store.Stats{Horizon: s.horizon(now), Dropped: s.Dropped, Scheduled: s.Scheduled}
	for _, t := range s.Timers {
		if store.IsPlan(t.Key) {
			st.Plans++
			if t.State == store.Waiting {
				if t.Due <= now.ms {
					st.PlansOverdue++
				}
				continue
			}
		}
		switch t.State {
		case store.Waiting:
			st.Waiting++
			if t.Due <= now.ms {
				st.Overdue++
			}
		case store.Leased:
			st.Leased++
		case store.Dead:
			st.Dead++
		}
	}
	return st, nil
}

// CountDue counts waiting timers by due time.
func (o *Store) CountDue(ctx context.Context, n int, edges []store.Millis) (store.DueCounts, error) {
	if err := store.CheckEdges(edges); err != nil {
		return store.DueCounts{}, err
	}
	s, _, err := o.begin(ctx, n)
	if err != nil {
		return store.DueCounts{}, err
	}
	defer o.Mu.Unlock()
	counts := make([]int, len(edges)-1)
	for _, t := range s.Timers {
		for i := range counts {
			if t.State == store.Waiting && !store.IsPlan(t.Key) && t.Due >= edges[i] && t.Due < edges[i+1] {
				counts[i]++
			}
		}
	}
	return store.DueCounts{Counts: counts}, nil
}

// Heartbeat marks a worker as live, and returns the names of the live workers.
func (o *Store) Heartbeat(ctx context.Context, h store.Heartbeat) ([]string, error) {
	if err := h.Check(); err != nil {
		return nil, err
	}
	_, now, err := o.begin(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer o.Mu.Unlock()
	return o.roster.Heartbeat(now.exact, h), nil
}

// Workers lists the workers.
func (o *Store) Workers(ctx context.Context) ([]store.Worker, error) {
	_, now, err := o.begin(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer o.Mu.Unlock()
	return o.roster.Workers(now.exact), nil
}

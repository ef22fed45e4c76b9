package pebblestore

import (
	"context"

	"github.com/seed-782fa212/limbo/durable/store"
)

// CountDue counts the waiting timers by due time; see [store.Store]. It reads the keys of the
// timers that it counts, at most store.MaxCounted of them, while the shard is not locked.
func (s *Store) CountDue(ctx context.Context, n int, edges []store.Millis) (store.DueCounts, error) {
	if err := store.CheckEdges(edges); err != nil {
		return store.DueCounts{}, err
	}
	counted, _, err := call(ctx, s, n, reads, func(c *change) (*store.DueCounts, error) {
		counted := new(store.DueCounts)
		v := c.sh.view(store.Query{State: store.Waiting})
		c.then = func() (err error) {
			*counted, err = v.countDue(ctx, edges, s.maxCounted)
			if closed := v.snapshot.Close(); err == nil {
				err = closed
			}
			return err
		}
		return counted, nil
	})
	if err != nil {
		return store.DueCounts{}, err
	}
	return *counted, nil
}

// countDue counts by due time, over all lanes in order, up to most timers.
func (v *view) countDue(ctx context.Context, edges []store.Millis, most int) (_ store.DueCounts, err error) {
	m, err := v.merge(appendPosition(nil, edges[0], ""))
	defer func() { err = closeAll(m.its, err) }()
	if err != nil {
		return store.DueCounts{}, err
	}
	d := store.DueCounts{Counts: make([]int, len(edges)-1)}
	bin, last, together := 0, store.Millis(0), 0 // how many timers of the bin are due at last
	for counted := 0; ctx.Err() == nil; counted++ {
		pos := m.first()
		if pos == nil {
			break
		}
		at := positionTime(pos)
		if at >= edges[len(edges)-1] {
			break
		}
		if counted == most {
			if d.Through = at; at == last {
				d.Counts[bin] -= together
			}
			break
		}
		for at >= edges[bin+1] {
			bin++
		}
		if at != last {
			last, together = at, 0
		}
		d.Counts[bin]++
		together++
		m.next()
	}
	return d, context.Cause(ctx)
}

package durable

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// DueCounts is the result of a CountDue: Counts[i] waiting timers are due from edges[i] until
// edges[i+1].
//
// If Through is zero, all are counted. Otherwise all timers that are due before Through are
// counted. The count of the bin that contains Through may include later ones and is a lower bound;
// bins that begin at or after Through are not counted, and are 0.
type DueCounts struct {
	Counts  []int
	Through time.Time
}

// CountDue counts waiting timers by due time: from each edge, by the engine's clock, until the
// next. It does not count schedules, leased timers or dead letters. There are 2 to 200 edges, in
// ascending order; an edge out of range is an error that names it.
//
// CountDue counts the shards one after the other, each at one moment. Redis counts without reading
// timers, with four commands for each bin and shard. The embedded store reads the keys of the
// timers that it counts, at most 100,000 in each shard, and blocks no other call while it does.
func (t *Timers) CountDue(ctx context.Context, edges []time.Time) (DueCounts, error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return DueCounts{}, err
	}
	defer cancel()
	bounds := make([]store.Millis, len(edges))
	for i, at := range edges {
		bounds[i] = store.MillisAt(at)
	}
	if err := store.CheckEdges(bounds); err != nil {
		return DueCounts{}, err
	}
	counts := make([]int, len(edges)-1)
	var through store.Millis
	for shard := range t.schedules {
		got, err := t.store.CountDue(ctx, shard, bounds)
		if err != nil {
			return DueCounts{}, err
		}
		for i, n := range got.Counts {
			counts[i] += n
		}
		through = earlier(through, got.Through)
		if through == 0 {
			continue
		}
		// The other shards need not count bins that the result cannot include.
		for len(bounds) > 1 && bounds[len(bounds)-2] >= through {
			bounds = bounds[:len(bounds)-1]
			counts[len(bounds)-1] = 0
		}
		if len(bounds) < 2 {
			break
		}
	}
	return DueCounts{Counts: counts, Through: timeOf(through)}, nil
}

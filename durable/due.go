package durable

import (
	"context"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// DueCounts answers a CountDue: Counts[i] timers wait and are due from edges[i] until edges[i+1].
//
// If Through is zero, all are counted. Otherwise the timers that are due before Through are, in all
// bins; a bin that Through is in may have counted later ones, too, so its count is a lower bound;
// and bins that begin at Through or after it are not counted, and are 0.
type DueCounts struct {
	Counts  []int
	Through time.Time
}

// CountDue counts the timers that wait, by when they are due: from each edge, by the engine's
// clock, until the next. Schedules do not count, nor does what is leased or dead. There are 2 to
// 200 edges, in ascending order; what is out of range is an error that names it.
//
// The shards are counted one after the other, each at one moment. Redis counts without reading
// timers, in four commands for each bin and shard. The embedded store reads the keys of what it
// counts, at most 100,000 in each shard, and holds up no other call meanwhile.
func (t *Timers) CountDue(ctx context.Context, edges []time.Time) (DueCounts, error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return DueCounts{}, err
	}
	defer cancel()
	asked := make([]store.Millis, len(edges))
	for i, at := range edges {
		asked[i] = store.MillisAt(at)
	}
	if err := store.CheckEdges(asked); err != nil {
		return DueCounts{}, err
	}
	counts := make([]int, len(edges)-1)
	var through store.Millis
	for shard := range t.schedules {
		got, err := t.store.CountDue(ctx, shard, asked)
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
		// The other shards need not count what would not be told.
		for len(asked) > 1 && asked[len(asked)-2] >= through {
			asked = asked[:len(asked)-1]
			counts[len(asked)-1] = 0
		}
		if len(asked) < 2 {
			break
		}
	}
	return DueCounts{Counts: counts, Through: timeOf(through)}, nil
}

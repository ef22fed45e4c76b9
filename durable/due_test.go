package durable

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// All shards are counted, with the edges rounded up as due times are.
func TestCountDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, time.Hour)
		now := r.now()
		var timers []Timer
		for i := range 100 {
			timers = append(timers, Timer{Key: fmt.Sprint(i), At: now.Add(time.Duration(i) * time.Minute)})
		}
		_, err := r.timers.ScheduleMany(context.Background(), timers)
		require.NoError(t, err)
		got, err := r.timers.CountDue(context.Background(), []time.Time{now, now.Add(1), now.Add(10 * time.Minute), now.Add(50 * time.Minute), now.Add(time.Hour)})
		require.NoError(t, err)
		require.Equal(t, DueCounts{Counts: []int{1, 9, 40, 10}}, got)

		for want, edges := range map[string][]time.Time{
			"durable: there are 1 edges, must be 2 to 200": {now},
			"durable: edges[1] is ":                        {now, now.Add(-time.Second)},
			"durable: edges[0] is -62135596800000 ms":      {{}, now},
		} {
			_, err := r.timers.CountDue(context.Background(), edges)
			require.ErrorContains(t, err, want)
		}
		r.faults.fail(errBoom, "count")
		_, err = r.timers.CountDue(context.Background(), []time.Time{now, now.Add(1)})
		require.ErrorIs(t, err, errBoom)
		_, err = r.timers.CountDue(cancelled(), []time.Time{now, now.Add(1)})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// countsInPart is an engine whose shards count up to a given time, or all for 0: each shard has a
// timer in each millisecond.
type countsInPart struct {
	store.Store
	through []store.Millis
	asked   []int // edges, of each call
}

func (p *countsInPart) CountDue(_ context.Context, shard int, edges []store.Millis) (store.DueCounts, error) {
	p.asked = append(p.asked, len(edges))
	through := p.through[shard]
	d := store.DueCounts{}
	if through != 0 && through < edges[len(edges)-1] {
		d.Through = through
	} else {
		through = math.MaxInt64
	}
	for i := range len(edges) - 1 {
		d.Counts = append(d.Counts, int(max(0, min(edges[i+1], through)-edges[i])))
	}
	return d, nil
}

// The result is complete up to the earliest of the times up to which the shards have counted; later
// timers of other shards count only in its bin.
func TestCountDueInPart(t *testing.T) {
	edges := []time.Time{time.UnixMilli(10), time.UnixMilli(20), time.UnixMilli(30), time.UnixMilli(40)}
	for _, c := range []struct {
		through []store.Millis
		want    []int
		until   store.Millis
		asked   []int
	}{
		{[]store.Millis{0, 0, 0}, []int{30, 30, 30}, 0, []int{4, 4, 4}},
		{[]store.Millis{0, 0, 25}, []int{30, 25, 0}, 25, []int{4, 4, 4}},
		{[]store.Millis{25, 0, 0}, []int{30, 25, 0}, 25, []int{4, 3, 3}},
		{[]store.Millis{35, 0, 15}, []int{25, 0, 0}, 15, []int{4, 4, 4}},
		{[]store.Millis{0, 20, 0}, []int{30, 0, 0}, 20, []int{4, 4, 2}},
		{[]store.Millis{15, 35, 0}, []int{25, 0, 0}, 15, []int{4, 2, 2}},
		{[]store.Millis{10, 0, 0}, []int{0, 0, 0}, 10, []int{4}},
	} {
		r := newRig(t, 3, store.Limits{}, 0)
		p := &countsInPart{Store: r.engine, through: c.through}
		got, err := r.on(p).CountDue(t.Context(), edges)
		require.NoError(t, err)
		require.Equal(t, DueCounts{Counts: c.want, Through: timeOf(c.until)}, got, c.through)
		require.Equal(t, c.asked, p.asked, c.through)
	}
}

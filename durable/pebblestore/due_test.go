package pebblestore

import (
	"fmt"
	"testing"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// CountDue counts a bounded number of timers, and reports exactly the counts before the first timer
// that it has not counted.
func TestCountDueIsBounded(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, store.MaxCounted, f.maxCounted)
	f.maxCounted = 10
	due := []store.Millis{5, 11, 12, 13, 21, 22, 22, 22, 23, 31, 32, 32, 41}
	var entries []store.Entry
	for i, at := range due {
		entries = append(entries, store.Entry{Key: keyIn(0, i), ID: store.NewID(), Topic: fmt.Sprint(i), At: at})
	}
	_, _, err := f.Schedule(f.ctx, 0, entries)
	f.NoError(err)
	for _, c := range []struct {
		edges []store.Millis
		most  int
		want  []int
		due   store.Millis
	}{
		{[]store.Millis{10, 20, 30, 40, 50}, 20, []int{3, 5, 3, 1}, 0},
		{[]store.Millis{10, 20, 30, 40, 50}, 12, []int{3, 5, 3, 1}, 0},
		{[]store.Millis{10, 20, 30, 40, 50}, 11, []int{3, 5, 3, 0}, 41},
		{[]store.Millis{10, 20, 30, 40, 50}, 10, []int{3, 5, 1, 0}, 32}, // only one of the two due then was read
		{[]store.Millis{10, 20, 30, 40, 50}, 9, []int{3, 5, 1, 0}, 32},
		{[]store.Millis{10, 20, 30, 40, 50}, 8, []int{3, 5, 0, 0}, 31},
		{[]store.Millis{10, 20, 30, 40, 50}, 7, []int{3, 4, 0, 0}, 23},
		{[]store.Millis{10, 20, 30, 40, 50}, 6, []int{3, 1, 0, 0}, 22},
		{[]store.Millis{22, 23, 24}, 3, []int{3, 0}, 23},
		{[]store.Millis{22, 23, 24}, 2, []int{0, 0}, 22},
		{[]store.Millis{10, 20}, 3, []int{3}, 0}, // the result ignores timers due after the last edge
	} {
		f.maxCounted = c.most
		got, err := f.CountDue(f.ctx, 0, c.edges)
		f.NoError(err)
		f.Equal(store.DueCounts{Counts: c.want, Through: c.due}, got, "%v, at most %d", c.edges, c.most)
	}
}

package calls

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The memory of calls and groups is as documented.
func TestMemoryOfCallsAndGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes a second or more")
	}
	if strconv.IntSize < 64 {
		t.Skip("the machine has no 64-bit words, whose sizes are documented")
	}
	c := table(t, Options{})
	// each returns how much the heap grows in make, for each of n.
	each := func(n int, make func()) float64 {
		used := func() int {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := used()
		make()
		return float64(used()-before) / float64(n)
	}
	done := func(string, error) {}

	const calls = 100_000
	g := c.Group()
	require.InEpsilon(t, 170, each(calls, func() {
		for id := range calls {
			require.NoError(t, g.Go(id, time.Hour, sendNothing, done))
		}
	}), 0.1)
	g.CloseWithError(context.Canceled)

	groups := make([]*Group[int, string], 10_000)
	fresh := each(len(groups), func() {
		for i := range groups {
			groups[i] = c.Group()
		}
	})
	require.InEpsilon(t, 310, fresh, 0.1)
	require.InEpsilon(t, 140+290, each(len(groups), func() { // one way to end: a reply
		for i, g := range groups {
			require.NoError(t, g.Go(i, time.Hour, sendNothing, done))
			require.True(t, g.Reply(i, ""))
		}
	}), 0.1)
	runtime.KeepAlive(groups)
}

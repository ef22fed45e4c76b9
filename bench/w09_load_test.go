package main

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/stretchr/testify/require"
)

// The drawn requests have the requested rate and latencies. The seed is fixed, so the values are
// the same on every machine.
func TestDrawnArrivals(t *testing.T) {
	for _, c := range []struct{ p50, p75 int }{{20, 60}, {200, 400}} {
		a := drawArrivals(rng(1), Params{"p50_ms": c.p50, "p75_ms": c.p75}, 100_000, 2*time.Second)
		n := len(a.at)
		require.Equal(t, 200_000, n)
		require.InDelta(t, 2, (a.at[n-1] - a.at[0]).Seconds(), .02)
		below50, below75, expire := 0, 0, 0
		require.True(t, slices.IsSorted(a.at))
		var largest uint16
		for i := range n {
			switch latency := a.trigger[i] - a.at[i]; {
			case latency < time.Duration(c.p50)*time.Millisecond:
				below50++
				below75++
			case latency < time.Duration(c.p75)*time.Millisecond:
				below75++
			}
			if a.expires(i) {
				expire++
			}
			largest = max(largest, slices.Max(a.keys[i][:]))
		}
		require.EqualValues(t, manyKeys-1, largest)
		require.InDelta(t, .50, float64(below50)/float64(n), .005)
		require.InDelta(t, .75, float64(below75)/float64(n), .005)
		// The log-normal distribution's share beyond the timeout: 7.9 % and 50 %.
		sigma := math.Log(float64(c.p75)/float64(c.p50)) / .67449
		beyond := math.Erfc(math.Log(200/float64(c.p50))/sigma/math.Sqrt2) / 2
		require.InDelta(t, beyond, float64(expire)/float64(n), .003)
	}
}

// In virtual time no machine is too slow: each request with a latency within its timeout is
// completed at its trigger, and all others expire. (Purgatory 11 of docs/lessons.md: a latency
// completes an operation and is not a timeout.)
func TestLoadInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := purgatory.New[string](purgatory.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
		a := drawArrivals(rng(3), Params{"p50_ms": 20, "p75_ms": 60}, firstRate, 200*time.Millisecond)
		expire := 0
		for i := range a.at {
			if a.expires(i) {
				expire++
			}
		}
		m, err := offerRate(heldRequests{p}, a, time.Sleep)
		require.NoError(t, err)
		require.EqualValues(t, firstRate, m["rate"])
		require.EqualValues(t, firstRate, m["held"])
		require.Equal(t, float64(expire)/float64(len(a.at))*100, m["expired_pct"])
		require.Zero(t, m["trigger_p99_us"])
		st := p.Stats()
		require.EqualValues(t, expire, st.Expired)
		require.EqualValues(t, len(a.at)-expire, st.Completed)
	})
}

package histogram

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Compares each class with the powers of two as fractions, at its bounds and next to them.
func TestHistogramClasses(t *testing.T) {
	class := func(d time.Duration) int {
		i, bound := 0, big.NewRat(int64(time.Second), 1<<20)
		for i < classes-1 && new(big.Rat).SetInt64(int64(d)).Cmp(bound) > 0 {
			i++
			bound.Mul(bound, big.NewRat(2, 1))
		}
		return i
	}
	var h Durations
	durations := []time.Duration{math.MinInt64, -1, 0, 1, time.Hour, 1 << 52, 1<<53 + 1, math.MaxInt64}
	for i := range classes - 1 {
		durations = append(durations, h.Bound(i)-1, h.Bound(i), h.Bound(i)+1)
	}
	for _, d := range durations {
		var one Durations
		one.Add(d)
		require.EqualValues(t, 1, one.Counts[class(d)], d)
		require.Equal(t, Durations{Counts: one.Counts, Count: 1, Sum: max(d, 0).Seconds()}, one)
	}
	require.Equal(t, 953*time.Nanosecond, h.Bound(0))
	require.Equal(t, time.Second, h.Bound(20))
	require.Equal(t, time.Duration(math.MaxInt64), h.Bound(classes-1))
	require.Zero(t, h.Bound(-1))
}

func TestHistogram(t *testing.T) {
	var h Durations
	require.Zero(t, h.Quantile(.5))
	require.Zero(t, h.Mean())
	h.Counts[3], h.Counts[20], h.Count = 99, 1, 100
	require.Equal(t, h.Bound(3), h.Quantile(0))
	require.Equal(t, h.Bound(3), h.Quantile(.5))
	require.Equal(t, h.Bound(3), h.Quantile(.99))
	require.Equal(t, time.Second, h.Quantile(1))
	h.Counts[3], h.Count = 49, 50
	require.Equal(t, time.Second, h.Quantile(.99), "more than 98 of 100 are below no bound before")

	for n := range uint64(101) { // as a float64 the product may be more than the rank
		h = Durations{Count: 100}
		h.Counts[3], h.Counts[20] = n, 100-n
		if q := float64(n) / 100; n > 0 {
			require.Equal(t, h.Bound(3), h.Quantile(q), q)
		}
		if q := float64(n+1) / 100; n < 100 {
			require.Equal(t, time.Second, h.Quantile(q), q)
		}
	}

	var a, b Durations
	a.Add(time.Second)
	b.Add(time.Hour)
	a.Merge(&b)
	require.Equal(t, (time.Second+time.Hour)/2, a.Mean())
	require.EqualValues(t, 2, a.Count)
	require.EqualValues(t, 1, a.Counts[20])
	require.EqualValues(t, 1, a.Counts[classes-1])
	require.Equal(t, 1024*time.Second, a.Quantile(1))
}

// Sum can exceed a Duration, for example after a million operations have waited for a day.
func TestHistogramOfMuchTime(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	var h Durations
	for range 30 {
		var one Durations
		one.Add(century)
		h.Merge(&one)
	}
	require.InEpsilon(t, 30*century.Seconds(), h.Sum, 1e-12)
	require.InDelta(t, century, h.Mean(), float64(time.Hour))
	var longest Durations
	longest.Add(math.MaxInt64)
	require.Equal(t, time.Duration(math.MaxInt64), longest.Mean())
}

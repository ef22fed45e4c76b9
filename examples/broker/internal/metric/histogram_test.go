package metric

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogram(t *testing.T) {
	t.Parallel()
	last := -1
	for ns := uint64(0); ns < 1<<40; ns += 1 + ns/50 {
		b := bucketOf(ns)
		require.GreaterOrEqual(t, b, last)
		require.LessOrEqual(t, ns, bucketTop(b))
		if b > 0 {
			require.Greater(t, ns, bucketTop(b-1))
		}
		last = b
	}
	require.Less(t, bucketOf(1<<63), 64*8)
	var h Histogram
	for i := range time.Duration(1000) {
		h.Add(i + 1)
	}
	s := h.Counts()
	require.InEpsilon(t, 500, s.Quantile(0.5).Nanoseconds(), 0.125)
	require.InEpsilon(t, 990, s.Quantile(0.99).Nanoseconds(), 0.125)
	require.Zero(t, new(Counts).Quantile(0.5))
}

package log

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProducersAreBounded(t *testing.T) {
	t.Parallel()
	states := Producers{}
	now := time.Now()
	for i := range int64(10) {
		states.Add(i, 3, time.Hour, now.Add(time.Duration(i))).UsedAt = now.Add(time.Duration(i))
		require.LessOrEqual(t, len(states), 3)
		require.Contains(t, states, i)
	}
	require.Contains(t, states, int64(7), "the quietest went first")
	later := now.Add(2 * time.Hour)
	states.Add(100, 3, time.Hour, later).UsedAt = later
	require.Len(t, states, 1, "the idle ones are gone")
}

package cron

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEveryCheck(t *testing.T) {
	t.Parallel()
	const decade = 3650 * 24 * time.Hour
	for e, want := range map[Every]string{
		{Period: time.Second}:                               "",
		{Period: decade, Offset: decade - time.Millisecond}: "",
		{}:                                          "cron: Every.Period is 0s, must be 1s to 87600h0m0s (3650 days)",
		{Period: time.Second - time.Millisecond}:    "cron: Every.Period is 999ms, must be 1s to 87600h0m0s (3650 days)",
		{Period: decade + time.Millisecond}:         "cron: Every.Period is 87600h0m0.001s, must be 1s to 87600h0m0s (3650 days)",
		{Period: time.Second + time.Microsecond}:    "cron: Every.Period is 1.000001s, must be whole milliseconds",
		{Period: time.Minute, Offset: -time.Second}: "cron: Every.Offset is -1s, must be 0 to below the period, 1m0s",
		{Period: time.Minute, Offset: time.Minute}:  "cron: Every.Offset is 1m0s, must be 0 to below the period, 1m0s",
		{Period: time.Minute, Offset: time.Second + time.Microsecond}: "cron: Every.Offset is 1.000001s, must be whole milliseconds",
	} {
		err := e.Check()
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
		require.Zero(t, e.Next(time.Now()))
	}
}

// The times are the epoch, plus the offset, plus multiples of the period, also before the epoch.
func TestEveryNext(t *testing.T) {
	t.Parallel()
	e := Every{Period: 90 * time.Second, Offset: 10 * time.Second}
	for after, want := range map[time.Duration]time.Duration{
		0:                     10 * time.Second,
		10*time.Second - 1:    10 * time.Second,
		10 * time.Second:      100 * time.Second,
		10*time.Second + 1:    100 * time.Second,
		-80 * time.Second:     10 * time.Second,
		-80*time.Second - 1:   -80 * time.Second,
		-170*time.Second - 1:  -170 * time.Second,
		-170*time.Second + 1:  -80 * time.Second,
		100*time.Second - 1e6: 100 * time.Second,
	} {
		require.Equal(t, want, e.Next(time.Unix(0, int64(after))).Sub(time.Unix(0, 0)), "after %v", after)
	}
}

// A time is planned if and only if it is whole periods from the first one, regardless of earlier
// calls.
func TestEveryAgrees(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 2000 {
		var e Every
		e.Period = time.Second + time.Duration(rnd.Int64N(int64(maxPeriod-time.Second))).Truncate(time.Millisecond)
		e.Offset = time.Duration(rnd.Int64N(int64(e.Period))).Truncate(time.Millisecond)
		require.NoError(t, e.Check())
		after := time.Unix(rnd.Int64N(1<<33)-1<<32, rnd.Int64N(1e9))
		next := e.Next(after)
		require.True(t, next.After(after))
		require.False(t, next.Add(-e.Period).After(after))
		require.Zero(t, (next.UnixNano()-int64(e.Offset))%int64(e.Period))
	}
}

func TestEveryLocation(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	daily := Every{Period: 24 * time.Hour}
	require.Equal(t, time.Date(2026, 7, 2, 2, 0, 0, 0, berlin), daily.Next(time.Date(2026, 7, 1, 12, 0, 0, 0, berlin)))
	require.Zero(t, daily.Next(time.Date(2262, 12, 31, 0, 0, 0, 0, time.UTC)))
	require.False(t, daily.Next(time.Time{}).IsZero())
}

package planning

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/cron"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Passed counts as many times as After returns one by one, in both of its ways.
func TestPassed(t *testing.T) {
	for _, times := range []Times{
		cronTimes(t, "*/7 * * * *"), every(90 * second),
		{Series: cron.Every{Period: time.Minute, Offset: 10 * time.Second}, Start: begin + 70*second, End: begin + 8*minute + 10*second},
	} {
		for after := begin - 2*minute; after < begin+3*minute; after += 10 * second {
			for until := after - minute; until < begin+15*minute; until += 10*second + 1 {
				var want []store.Millis
				for at := times.After(after); at != 0 && at <= until; at = times.After(at) {
					want = append(want, at)
				}
				for _, keep := range []int{1, 3, 100} {
					n, last := times.Passed(after, until, keep)
					require.Equal(t, len(want), n)
					require.Equal(t, append([]store.Millis{}, want[max(len(want)-keep, 0):]...), append([]store.Millis{}, last...))
				}
			}
		}
	}
}

// The first planned time is in 1970, even if the offset is longer than the time until then.
func TestPassedAtTheEpoch(t *testing.T) {
	times := Times{Series: cron.Every{Period: time.Hour, Offset: 10 * time.Minute}}
	n, last := times.Passed(-1, 0, 10)
	require.Zero(t, n)
	require.Empty(t, last)
	n, last = times.Passed(-1, 70*minute, 10)
	require.Equal(t, 2, n)
	require.Equal(t, []store.Millis{10 * minute, 70 * minute}, last)
}

func TestBounds(t *testing.T) {
	times := every(hour)
	times.Start, times.End = begin, begin+2*hour
	require.Equal(t, begin, times.After(0))
	require.Equal(t, begin+2*hour, times.After(begin+hour))
	require.Zero(t, times.After(begin+2*hour))
	require.Len(t, times.Upcoming(0, 10), 3)
	require.Equal(t, store.Millis(0), (&Times{Series: cron.Every{Period: time.Hour}}).After(store.MaxMillis))
}

func TestShortest(t *testing.T) {
	times := cronTimes(t, "0 1,2,9 * * *")
	require.Equal(t, time.Hour, times.Shortest(begin, 100))
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	daily := Times{Series: cronTimes(t, "0 12 * * *").Series, Zone: berlin}
	require.Equal(t, 23*time.Hour, daily.Shortest(begin, 1000), "in spring")
	require.Equal(t, "2000-01-02 12:00:00 +0100 CET", daily.Upcoming(begin+24*hour, 1)[0].String())
	period := every(hour)
	require.Equal(t, time.Hour, period.Shortest(begin, 1))
}

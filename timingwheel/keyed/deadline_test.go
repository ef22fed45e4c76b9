package keyed

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Timers 8 of lessons.md: a deadline that is shortened, to less than a tick, or extended.
func TestReset(t *testing.T) {
	for _, c := range []struct {
		from, to, due time.Duration
	}{
		{8 * milli, 4 * milli, 4 * milli}, // go-zero fires at 14
		{8 * milli, milli / 2, milli},     // go-zero fires twice
		{8 * milli, 1, milli},
		{8 * milli, 0, 0},
		{8 * milli, -1, 0},
		{8 * milli, math.MinInt64, 0},
		{8 * milli, 8 * milli, 8 * milli},
		{8 * milli, 9 * milli, 9 * milli},
		{8 * milli, 11 * milli, 11 * milli},
		{8 * milli, 300 * milli, 300 * milli},
		{milli, 8 * milli, 8 * milli},
		{300 * milli, 2 * milli, 2 * milli},
		{math.MaxInt64, 2 * milli, 2 * milli},
	} {
		t.Run(fmt.Sprintf("%v to %v", c.from, c.to), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, timingwheel.Options{})
				f.set("k", 1, c.from)
				require.NoError(t, f.Reset("k", c.to))
				require.Equal(t, []expiry{{"k", 1, c.due}}, f.advance(time.Hour))
				require.ErrorIs(t, f.Reset("k", c.to), ErrAbsent) // and arms nothing
				require.Empty(t, f.advance(time.Hour))
			})
		})
	}
}

func TestResetFromNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		f.set("k", 1, 8*milli)
		require.Empty(t, f.advance(3*milli))
		require.NoError(t, f.Reset("k", 4*milli)) // ttl counts from now
		require.Equal(t, []expiry{{"k", 1, 7 * milli}}, f.advance(time.Hour))
	})
}

// A key that was given another deadline and then removed does not expire (timers 8).
func TestResetThenRemoved(t *testing.T) {
	for _, to := range []time.Duration{milli / 2, 4 * milli, 11 * milli, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, timingwheel.Options{})
			f.set("k", 1, 8*milli)
			require.NoError(t, f.Reset("k", to))
			value, ok := f.Remove("k")
			require.True(t, ok)
			require.Equal(t, 1, value)
			f.lacks("k")
			require.Empty(t, f.advance(time.Hour))
		})
	}
}

func TestTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		f.lacks("k")
		require.Zero(t, f.Len())
		f.set("k", 1, 8*milli)
		for _, sooner := range []time.Duration{math.MinInt64, -1, 0, 1, 4 * milli, 8 * milli} {
			require.NoError(t, f.Touch("k", sooner)) // never shortens a deadline
		}
		require.Empty(t, f.advance(7*milli))
		require.NoError(t, f.Touch("k", 20*milli))
		require.Empty(t, f.advance(20*milli-1))
		f.holds("k", 1)
		require.Equal(t, []expiry{{"k", 1, 27 * milli}}, f.advance(1))
		f.lacks("k")
		require.Empty(t, f.advance(time.Hour))

		f.set("k", 2, milli)
		require.NoError(t, f.Touch("k", math.MaxInt64)) // saturates
		require.Empty(t, f.advance(10000*time.Hour))
		_, ok := f.Remove("k")
		require.True(t, ok)
	})
}

// A touched key moves when its old deadline arrives, once, however often it was touched.
func TestTouchMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{WheelSize: 256, Shards: 1})
		f.set("k", 1, 100*milli)
		f.advance(0)
		before := f.Stats()
		for range 999 {
			time.Sleep(99 * time.Microsecond)
			require.NoError(t, f.Touch("k", 100*milli))
		}
		require.Equal(t, before, f.Stats())
		require.Equal(t, []expiry{{"k", 1, 199 * milli}}, f.advance(time.Hour)) // 98.901 ms + 100 ms, the tick after
		require.Equal(t, before.Cascaded+1, f.Stats().Cascaded)
	})
}

// T17.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, timingwheel.Options{})
		due := func(d time.Duration) {
			t.Helper()
			deadline, ok := f.Deadline("k")
			require.True(t, ok)
			require.Equal(t, d, deadline.Sub(f.created))
		}
		f.set("k", 1, 5*milli/2)
		due(3 * milli)
		require.NoError(t, f.Touch("k", 10*milli))
		due(10 * milli)
		require.NoError(t, f.Reset("k", 4*milli))
		due(4 * milli)
		f.advance(milli)
		require.NoError(t, f.SetAt("k", 2, f.created.Add(20*milli)))
		due(20 * milli)
		require.Equal(t, []expiry{{"k", 2, 20 * milli}}, f.advance(time.Hour))
	})
}

// A ttl of zero or less changes nothing, also if the key is due and waits for a worker: it
// keeps its position.
func TestTouchOfDueTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		resume := make(chan struct{})
		table, err := New(func(key string, _ int) {
			if key == "busy" {
				<-resume
			}
			order = append(order, key)
		}, timingwheel.Options{Workers: 1, Tick: milli})
		require.NoError(t, err)
		require.NoError(t, table.Set("busy", 0, 0))
		synctest.Wait()
		require.NoError(t, table.Set("a", 0, time.Second))
		require.NoError(t, table.Set("b", 0, 2*time.Second))
		before, ok := table.Deadline("a")
		require.True(t, ok)
		time.Sleep(10 * time.Second)
		for _, ttl := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
			require.NoError(t, table.Touch("a", ttl))
			after, ok := table.Deadline("a")
			require.True(t, ok)
			require.Equal(t, before, after)
		}
		close(resume)
		_, err = table.Shutdown(t.Context(), timingwheel.Await)
		require.NoError(t, err)
		require.Equal(t, []string{"busy", "a", "b"}, order)
	})
}

// The deadline has a monotonic reading, except at the end of time. A reading shows in a time's
// text.
func TestDeadlineIsMonotonic(t *testing.T) {
	table, err := New(func(string, int) {}, timingwheel.Options{})
	require.NoError(t, err)
	defer func() { _, _ = table.Close(timingwheel.Discard) }()
	for ttl, monotonic := range map[time.Duration]bool{time.Hour: true, math.MaxInt64: false} {
		require.NoError(t, table.Set("k", 1, ttl))
		deadline, ok := table.Deadline("k")
		require.True(t, ok)
		require.Equal(t, monotonic, strings.Contains(deadline.String(), " m=+"), deadline)
	}
}

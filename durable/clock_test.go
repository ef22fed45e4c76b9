package durable

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// engineAt is the reading of an engine's clock that is ahead by skew.
func engineAt(own, skew time.Duration) store.Millis {
	return store.Millis((own + skew) / time.Millisecond)
}

// Case 6 and D2: whatever the clocks differ by, and however long replies take, a wait is never too
// short, and too long by at most the duration of the quickest reply and rounding.
func TestWaitsAreNeverTooShort(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, skew := range []time.Duration{100 * time.Hour, 400_000 * time.Hour, 30*time.Hour + 999*time.Microsecond} {
		for range 200 {
			var c engineClock
			own, quickest := time.Hour, time.Duration(1<<62)
			for range 20 {
				sent := own
				reaches := sent + rand.N(50*time.Millisecond)
				arrived := reaches + time.Duration(rnd.Int64N(int64(50*time.Millisecond)))
				quickest = min(quickest, arrived-reaches)
				c.observe(sent, arrived, engineAt(reaches, skew))
				own = arrived + time.Duration(rnd.Int64N(int64(time.Second)))

				at := engineAt(own, skew) + store.Millis(rnd.IntN(10_000))
				wake := c.own(at)
				require.GreaterOrEqual(t, engineAt(wake, skew), at)
				reads := time.Duration(at)*time.Millisecond - skew // own time when the engine's clock reads at
				require.LessOrEqual(t, wake-reads, quickest+time.Millisecond)
			}
		}
	}
}

// Case 17: the estimate follows an engine's clock that falls back or jumps ahead.
func TestClockFollowsJumps(t *testing.T) {
	var c engineClock
	c.observe(0, time.Millisecond, 1_000_000)
	require.Equal(t, 6*time.Millisecond, c.own(1_000_005))
	c.observe(time.Second, time.Second+time.Millisecond, 500_000) // behind
	require.Equal(t, time.Second+6*time.Millisecond, c.own(500_005))
	c.observe(2*time.Second, 2*time.Second+time.Millisecond, 900_000) // ahead
	require.Equal(t, 2*time.Second+6*time.Millisecond, c.own(900_005))
	// A slow reply is less precise than the known estimate.
	c.observe(3*time.Second, 3*time.Second+time.Millisecond+500*time.Millisecond, 901_000)
	require.Equal(t, 2*time.Second+6*time.Millisecond, c.own(900_005))
}

func TestWaitsDoNotOverflow(t *testing.T) {
	var c engineClock
	c.observe(0, 0, 1)
	require.Equal(t, maxSpan, c.own(store.MaxMillis))
	c.observe(time.Second, time.Second, store.MaxMillis)
	require.Equal(t, time.Second-maxSpan, c.own(1))
}

// When replies overtake each other, the newest by the engine's clock counts. A reply that was
// requested before an event does not hide the event.
func TestHorizonOfOverlappingReplies(t *testing.T) {
	ms := time.Millisecond
	reply := func(now, due store.Millis) store.Horizon { return store.Horizon{Now: now, NextDue: due} }
	var h horizon
	h.reply(reply(100, 500), 0, 4*ms)
	h.reply(reply(99, 300), 1*ms, 5*ms) // older, but arrives later
	require.Equal(t, store.Millis(500), h.next)
	h.reply(reply(100, 400), 1*ms, 5*ms) // of the same millisecond: the earlier due time wins
	require.Equal(t, store.Millis(400), h.next)
	h.reply(reply(103, 700), 2*ms, 6*ms) // newer
	require.Equal(t, store.Millis(700), h.next)
	h.reply(reply(50, 60), 7*ms, 8*ms) // requested later: the clock fell back
	require.Equal(t, store.Millis(60), h.next)

	h = horizon{}
	h.reply(reply(100, 500), 0, 1*ms)
	h.event(200, 3*ms)
	require.Equal(t, store.Millis(200), h.next)
	h.event(300, 3*ms)
	h.reply(reply(102, 500), 2*ms, 4*ms) // requested before the event came
	require.Equal(t, store.Millis(200), h.next)
	h.reply(store.Horizon{Now: 104}, 5*ms, 6*ms)
	require.Zero(t, h.next)
	h.reply(store.Horizon{Now: 105, NextDue: 900, NextLeaseEnd: 800}, 7*ms, 8*ms)
	require.Equal(t, store.Millis(800), h.next)
}

// Backoff doubles up to its bound; random waits are between 0 and it.
func TestBackoff(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 3, 1: 3, 2: 6, 3: 12, 4: 20, 5: 20, math.MaxInt: 20} {
		require.Equal(t, want, double(3, 20, n))
	}
	require.Equal(t, maxBackoff, double(maxBackoff/2+1, maxBackoff, 2))
	low, high := time.Hour, time.Duration(0)
	for range 10_000 {
		d := backoff(time.Second, time.Minute, 3)
		low, high = min(low, d), max(high, d)
	}
	require.GreaterOrEqual(t, low, time.Duration(0))
	require.Less(t, low, 100*time.Millisecond) // full jitter: fails with probability 0.975^10000
	require.Greater(t, high, 3900*time.Millisecond)
	require.LessOrEqual(t, high, 4*time.Second)
	for range 1000 {
		d := pause(1)
		require.GreaterOrEqual(t, d, minPause/2)
		require.LessOrEqual(t, d, minPause)
	}
	require.GreaterOrEqual(t, pause(100), maxPause/2)
}

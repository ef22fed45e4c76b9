package calls

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Unit tests of parts: a fault shows here first, and not as a goroutine that waits for ever.

func TestTally(t *testing.T) {
	y := tally{duplicates: 1, refusedFull: 2, refusedClosed: 3, unmatched: 4}
	for _, o := range []purgatory.Outcome{purgatory.Completed, purgatory.Expired, purgatory.Completed} {
		y.countOutcome(o, time.Second)
	}
	y.countLate(time.Millisecond)
	require.NotPanics(t, func() {
		sum := y.clone()
		require.Equal(t, y, sum)
		sum.add(&y)
		require.Equal(t, []uint64{4, 2, 0}, []uint64{sum.ended(purgatory.Completed), sum.ended(purgatory.Expired), sum.ended(purgatory.Failed)})
		require.InDelta(t, 4, sum.waited[purgatory.Completed].Sum, 0)
		require.Equal(t, uint64(2), sum.late.Count)
		require.Equal(t, []uint64{2, 4, 6, 8}, []uint64{sum.duplicates, sum.refusedFull, sum.refusedClosed, sum.unmatched})
	}, "what nothing was counted in is nil")
	require.Equal(t, uint64(2), y.ended(purgatory.Completed), "a clone shares nothing")
}

// One for each processor, at least four.
func TestDefaultWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for processors, want := range map[int]int{1: 4, 4: 4, 6: 6} {
		runtime.GOMAXPROCS(processors)
		synctest.Test(t, func(t *testing.T) {
			c := table(t, Options{})
			for id := range 10 {
				require.NoError(t, c.Go(id, time.Second, sendNothing, func(string, error) { time.Sleep(time.Hour) }))
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.Equal(t, 10-want, c.Stats().GoWheel.Ready)
		})
	}
}

// A power of two, at least eight for each processor up to 1,024.
func TestUngroupedParts(t *testing.T) {
	for processors, want := range map[int]int{1: 8, 2: 16, 3: 32, 127: 1024, 128: 1024, 129: 1024, 1000: 1024} {
		require.Equal(t, want, ungroupedParts(processors), "%d processors", processors)
	}
}

// A call for which the wheel has no capacity is not counted.
func TestWheelIsFull(t *testing.T) {
	table, err := New[int, string](Options{MaxPending: 1})
	require.NoError(t, err)
	defer table.Close()
	_, err = table.doWheel.Close(timingwheel.Discard) // refuses as a full wheel does
	require.NoError(t, err)
	send := func() error { return nil }
	for range 2 {
		_, err = table.Do(t.Context(), 1, time.Hour, send)
		require.ErrorIs(t, err, ErrFull)
	}
	require.Zero(t, table.limit.Held())
	require.NoError(t, table.Go(1, NoTimeout, send, func(string, error) {}), "the capacity was not freed")
}

// A record whose timer a worker has taken serves no other call: the worker is about to expire it.
func TestTakenRecordIsNotReused(t *testing.T) {
	table := table(t, Options{})
	g := table.Group()
	reply := func() error { require.True(t, g.Reply(1, "")); return nil }
	done := func(_ string, err error) { require.NoError(t, err) }
	for range 100 { // a record comes back from the pool most of the time
		for _, begin := range []func(send func() error) error{
			func(send func() error) error { _, err := g.Do(t.Context(), 1, time.Hour, send); return err },
			func(send func() error) error { return g.Go(1, time.Hour, send, done) },
		} {
			var taken *call[int, string]
			require.NoError(t, begin(func() error {
				p := g.part(1)
				p.mu.Lock()
				taken = p.calls[1]
				p.mu.Unlock()
				require.True(t, table.wheel(taken).Stop(taken.timer)) // as if a worker had taken it
				return reply()
			}))
			require.NoError(t, g.Go(1, time.Hour, sendNothing, done))
			taken.expire()
			require.NoError(t, reply())
		}
	}
}

// The record of an expired call can be used again like others: its timer will not call it.
func TestExpiredRecordIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, err := New[int, string](Options{})
		require.NoError(t, err)
		defer table.Close()
		g := table.Group()
		require.NoError(t, g.Go(1, time.Second, func() error { return nil }, func(string, error) {}))
		p := g.part(1)
		p.mu.Lock()
		c := p.calls[1]
		p.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait() // for the worker, which uses the record until then
		require.True(t, c.stop())
	})
}

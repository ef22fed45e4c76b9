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

// A call that ends just before its worker would queue it does not enter the backlog.
func TestBacklogRefusesEndedCalls(t *testing.T) {
	b := backlog[int, string]{limit: 1}
	first, ended, waits, last := new(call[int, string]), new(call[int, string]), new(call[int, string]), new(call[int, string])
	b.remove(ended)
	require.Nil(t, b.begin(ended), "although there is capacity for it")
	require.Zero(t, b.running)
	require.Same(t, first, b.begin(first))
	require.Nil(t, b.begin(ended))
	require.Zero(t, b.n)
	for _, c := range []*call[int, string]{waits, last} {
		require.Nil(t, b.begin(c))
	}
	require.Equal(t, 2, b.n)
	require.Same(t, waits, b.next())
	b.remove(waits) // begin, called by its worker, will find that it has ended
	require.Equal(t, 1, b.n)
	b.remove(last)
	require.Nil(t, b.next())
	require.Zero(t, b.running)
}

// A worker that arrives while others wait begins with the first of them, even if a goroutine
// that has ended freed its capacity.
func TestBacklogIsFirstInFirstOut(t *testing.T) {
	b := backlog[int, string]{limit: 1}
	first, second, third := new(call[int, string]), new(call[int, string]), new(call[int, string])
	require.Same(t, first, b.begin(first))
	require.False(t, b.removeWorker(), "no call is left")
	require.Same(t, first, b.begin(first))
	require.Nil(t, b.begin(second))
	require.True(t, b.removeWorker(), "a call is left")
	require.Same(t, second, b.begin(third), "it overtakes an older one")
	require.Same(t, third, b.next())
	require.Nil(t, b.next())
	require.Zero(t, b.running)
	require.Nil(t, b.begin(nil))
	require.Zero(t, b.running, "a worker without a call is in no done function")
	n, overdue := b.waiting()
	require.Zero(t, n)
	require.Zero(t, overdue)
}

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
		require.Equal(t, want, table(t, Options{}).backlog.limit)
		require.Equal(t, processors, runtime.GOMAXPROCS(0))
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
	_, err = table.wheel.Close(timingwheel.Discard) // refuses as a full wheel does
	require.NoError(t, err)
	send := func() error { return nil }
	for range 2 {
		require.ErrorIs(t, table.Go(1, time.Hour, send, func(string, error) {}), ErrFull)
	}
	require.Zero(t, table.pending.Load())
	require.NoError(t, table.Go(1, NoTimeout, send, func(string, error) {}), "the capacity was not freed")
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

package purgatory

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/stretchr/testify/require"
)

// Checks counts the checks of operations that have ended.
func TestStatsChecks(t *testing.T) {
	p := open[string](t, Options{})
	made := 0
	count := func(op *testOp) { made += int(op.checks.Load()) }

	now := newOp(t)
	now.ready.Store(true)
	_, err := p.TryCompleteElseWatch(context.Background(), now, time.Minute, "a")
	require.NoError(t, err)
	count(now)
	require.EqualValues(t, 1, made)
	require.EqualValues(t, 1, p.Stats().Checks)

	op := newOp(t)
	mustWatch(t, p, op, time.Minute, "a", "b", "c")
	for range 5 {
		p.CheckAndComplete("b")
	}
	require.EqualValues(t, made, p.Stats().Checks, "one that waits is not counted yet")
	op.ready.Store(true)
	require.Equal(t, 1, p.CheckAndComplete("c"))
	count(op)
	require.EqualValues(t, 1+2+5+1, made)
	st := p.Stats()
	require.EqualValues(t, made, st.Checks)
	require.EqualValues(t, 2, st.Ended())
	require.EqualValues(t, 2, st.Completed)

	cancelled := newOp(t)
	mustWatch(t, p, cancelled, NoTimeout, "a").Cancel(nil)
	count(cancelled)
	require.EqualValues(t, made, p.Stats().Checks)
}

// Late is exact to the histogram bucket: in virtual time an operation expires at the next tick,
// so it is late by the time from its deadline to that tick.
func TestStatsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Tick: time.Millisecond})
		var want histogram.Durations
		mustWatch(t, p, newOp(t), -time.Second, 0)
		want.Add(0)
		for i := range 40 {
			timeout := time.Duration(i*i) * 37 * time.Microsecond
			late := (timeout+time.Millisecond-1)/time.Millisecond*time.Millisecond - timeout
			want.Add(late)
			mustWatch(t, p, newOp(t), timeout, i)
		}
		completed := newOp(t)
		completed.ready.Store(true)
		_, err := p.TryCompleteElseWatch(context.Background(), completed, time.Nanosecond, 0)
		require.NoError(t, err)
		mustWatch(t, p, newOp(t), time.Nanosecond, 0).Cancel(nil)
		time.Sleep(time.Second)
		st := p.Stats()
		require.EqualValues(t, 41, st.Expired)
		require.Equal(t, want.Counts, st.Late.Counts)
		require.Equal(t, want.Count, st.Late.Count)
		require.InDelta(t, want.Sum, st.Late.Sum, 1e-12, "floats, in the order of expiry")
		require.NoError(t, p.Shutdown(context.Background()))
	})
}

// P5: Len, Watched and the number of ended operations are of one moment. At any time each
// goroutine has one or two operations with two keys each, in whatever shards; adding up shard
// after shard would count more, or fewer.
func TestStatsOfOneMoment(t *testing.T) {
	const goroutines = 4
	p := open[int](t, Options{})
	r := newThresholdFixture(t, Options{})
	var stop atomic.Bool
	var coming, came atomic.Int64
	var ready, wg sync.WaitGroup
	ready.Add(goroutines)
	for g := range goroutines {
		wg.Go(func() {
			key := g << 28
			next := func() func() {
				key += 2
				op := newOp(t)
				coming.Add(1)
				h := mustWatch(t, p, op, NoTimeout, key, key+1)
				came.Add(1)
				g, err := r.TryCompleteElseWatch(context.Background(), newOp(t), NoTimeout, All, Goal[int, int]{key, 1}, Goal[int, int]{key + 1, 1})
				if err != nil {
					t.Error(err)
				}
				return func() {
					h.Cancel(nil)
					g.Cancel(nil)
				}
			}
			end := next()
			ready.Done()
			for !stop.Load() {
				another := next()
				end()
				end = another
			}
			end()
		})
	}
	ready.Wait()
	within := func(what string, n, low, high int) {
		t.Helper()
		if n < low || n > high {
			t.Errorf("P5: %s is %d, must be %d to %d", what, n, low, high)
		}
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) && !t.Failed(); {
		within("Len", p.Len(), goroutines, 2*goroutines)
		within("Watched", p.Watched(), 2*goroutines, 4*goroutines)
		within("Threshold.Pending", r.Len(), goroutines, 2*goroutines)
		low := int(came.Load())
		st, st2 := p.Stats(), r.Stats()
		within("Len and ended", st.Pending+int(st.Ended()), low, int(coming.Load()))
		within("2 × Len - Watched", 2*st.Pending-st.Watched, 0, 0)
		within("Stats.Pending", st.Pending, goroutines, 2*goroutines)
		within("Threshold.Stats.Watched", st2.Watched, 2*goroutines, 4*goroutines)
	}
	stop.Store(true)
	wg.Wait()
}

// P16: no counter decreases, whenever it is read.
func TestCountersOnlyGrow(t *testing.T) {
	var p *Purgatory[int]
	var seen []uint64 // completed operations
	read := func() {
		st := p.Stats()
		require.Zero(t, st.Failed)
		seen = append(seen, st.Completed)
	}
	p = open[int](t, Options{
		OnPanic: func(Panic) { read() },
		OnEnd:   func(Outcome, time.Duration, error) { read(); panic("hook") },
	})
	op := newOp(t)
	op.end = func(Outcome) {
		read()
		panic("complete")
	}
	h := mustWatch(t, p, op, NoTimeout, 1)
	read()
	require.True(t, h.ForceComplete())
	read()
	require.Equal(t, []uint64{0, 1, 1, 1, 1, 1}, seen)
	require.EqualValues(t, 2, p.Stats().Panics)
	mustShutdown(t, p)
}

// P16: the hottest keys in order, with the age of their oldest operation, even where a walk has
// left empty chunks.
func TestHotspots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[string](t, Options{})
		r := newThresholdFixture(t, Options{})
		defer func() { require.NoError(t, r.Shutdown(context.Background())) }()
		require.Empty(t, p.Hotspots(3))
		require.Empty(t, r.Hotspots(3))

		first := mustWatch(t, p, newOp(t), NoTimeout, "old")
		_, err := r.TryCompleteElseWatch(context.Background(), newOp(t), NoTimeout, Any, Goal[int, int]{7, 9})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		for i := range 5 {
			mustWatch(t, p, newOp(t), NoTimeout, "hot", "old")
			_, err := r.TryCompleteElseWatch(context.Background(), newOp(t), NoTimeout, Any, Goal[int, int]{1, i + 1})
			require.NoError(t, err)
		}
		mustWatch(t, p, newOp(t), NoTimeout, "hot")
		mustWatch(t, p, newOp(t), NoTimeout, "hot")
		time.Sleep(time.Second)
		hot, old := Hotspot[string]{"hot", 7, time.Second}, Hotspot[string]{"old", 6, time.Minute + time.Second}
		require.Equal(t, []Hotspot[string]{hot, old}, p.Hotspots(3))
		require.Equal(t, []Hotspot[string]{hot}, p.Hotspots(1))
		require.Empty(t, p.Hotspots(0))
		require.Equal(t, []Hotspot[int]{{1, 5, time.Second}, {7, 1, time.Minute + time.Second}}, r.Hotspots(3))

		first.Cancel(nil)
		require.Equal(t, []Hotspot[string]{hot, {"old", 5, time.Second}}, p.Hotspots(3))
		for i := range 100 {
			for range i % 10 {
				mustWatch(t, p, newOp(t), NoTimeout, "k"+string(rune('a'+i)))
			}
		}
		counts := []int{}
		for _, h := range p.Hotspots(30) {
			counts = append(counts, h.Watching)
		}
		require.Equal(t, []int{9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}, counts)
		require.NoError(t, p.Shutdown(context.Background()))
		require.Empty(t, p.Hotspots(1))
	})
}

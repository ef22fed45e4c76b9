package purgatory

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Checks are those that were made, by operations that have ended.
func TestStatsChecks(t *testing.T) {
	p := open[string](t, Options{})
	made := 0
	count := func(op *testOp) { made += int(op.checks.Load()) }

	now := newOp(t)
	now.ready.Store(true)
	_, err := p.TryCompleteElseWatch(now, time.Minute, "a")
	require.NoError(t, err)
	count(now)
	require.EqualValues(t, 1, made)
	require.EqualValues(t, 1, p.Stats().Checks)

	op := newOp(t)
	park(t, p, op, time.Minute, "a", "b", "c")
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
	park(t, p, cancelled, NoTimeout, "a").Cancel()
	count(cancelled)
	require.EqualValues(t, made, p.Stats().Checks)
}

// Late is to the class: in virtual time an operation expires at the tick, so it
// is late by what its deadline lacks to that.
func TestStatsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[int](t, Options{Tick: time.Millisecond})
		var want Lateness
		park(t, p, newOp(t), -time.Second, 0)
		want[0]++
		for i := range 40 {
			timeout := time.Duration(i*i) * 37 * time.Microsecond
			late := (timeout+time.Millisecond-1)/time.Millisecond*time.Millisecond - timeout
			class := 0
			for time.Microsecond<<class <= late {
				class++
			}
			want[class]++
			park(t, p, newOp(t), timeout, i)
		}
		completed := newOp(t)
		completed.ready.Store(true)
		_, err := p.TryCompleteElseWatch(completed, time.Nanosecond, 0)
		require.NoError(t, err)
		park(t, p, newOp(t), time.Nanosecond, 0).Cancel()
		time.Sleep(time.Second)
		st := p.Stats()
		require.EqualValues(t, 41, st.Expired)
		require.Equal(t, want, st.Late)
		require.NoError(t, p.Shutdown(context.Background()))
	})
}

func TestLatenessQuantile(t *testing.T) {
	var l Lateness
	require.Zero(t, l.Quantile(.5))
	l[3], l[10] = 99, 1
	require.Equal(t, 8*time.Microsecond, l.Quantile(0))
	require.Equal(t, 8*time.Microsecond, l.Quantile(.5))
	require.Equal(t, 8*time.Microsecond, l.Quantile(.99))
	require.Equal(t, 1024*time.Microsecond, l.Quantile(.995+.005))
	var counted lateness
	for _, d := range []time.Duration{-1, 0, 999, 1000, 1999, 2000, time.Hour} {
		counted.add(d)
	}
	for class, n := range map[int]uint64{0: 3, 1: 2, 2: 1, len(l) - 1: 1} {
		require.Equal(t, n, counted[class].Load(), class)
	}
}

// P5: Delayed, Watched and Keys are those of one moment. Each goroutine has one
// or two operations at any time, with two keys each, whatever shards those are
// in; adding up shard after shard would see more, or fewer.
func TestStatsOfOneMoment(t *testing.T) {
	const goroutines = 4
	p := open[int](t, Options{Shards: 64})
	r := openThreshold(t, Options{Shards: 64})
	var stop atomic.Bool
	var ready, wg sync.WaitGroup
	ready.Add(goroutines)
	for g := range goroutines {
		wg.Go(func() {
			key := g << 28
			next := func() func() {
				key += 2
				op := newOp(t)
				h := park(t, p, op, NoTimeout, key, key+1)
				g, err := r.TryCompleteElseWatch(newOp(t), NoTimeout, All, Goal[int, int]{key, 1}, Goal[int, int]{key + 1, 1})
				if err != nil {
					t.Error(err)
				}
				return func() {
					h.Cancel()
					g.Cancel()
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
		within("Delayed", p.Delayed(), goroutines, 2*goroutines)
		within("Keys", p.Keys(), 2*goroutines, 4*goroutines)
		within("Watched", p.Watched(), 2*goroutines, 4*goroutines)
		within("Threshold.Delayed", r.Delayed(), goroutines, 2*goroutines)
		st, st2 := p.Stats(), r.Stats()
		within("Stats.Delayed", st.Delayed, goroutines, 2*goroutines)
		within("Threshold.Stats.Watched", st2.Watched, 2*goroutines, 4*goroutines)
	}
	stop.Store(true)
	wg.Wait()
}

// The survey finds the longest list and the oldest operation, whatever a walk
// has left in between.
func TestSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open[string](t, Options{})
		r := openThreshold(t, Options{})
		defer func() { require.NoError(t, r.Shutdown(context.Background())) }()
		require.Zero(t, p.Survey())
		require.Zero(t, r.Survey())

		first := park(t, p, newOp(t), NoTimeout, "old")
		_, err := r.TryCompleteElseWatch(newOp(t), NoTimeout, Any, Goal[int, int]{7, 9})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		for i := range 5 {
			park(t, p, newOp(t), NoTimeout, "hot", "old")
			_, err := r.TryCompleteElseWatch(newOp(t), NoTimeout, Any, Goal[int, int]{1, i + 1})
			require.NoError(t, err)
		}
		park(t, p, newOp(t), NoTimeout, "hot")
		park(t, p, newOp(t), NoTimeout, "hot")
		time.Sleep(time.Second)
		require.Equal(t, Survey[string]{"hot", 7, time.Minute + time.Second, "old"}, p.Survey())
		require.Equal(t, Survey[int]{1, 5, time.Minute + time.Second, 7}, r.Survey())

		first.Cancel()
		v := p.Survey()
		require.Equal(t, time.Second, v.Oldest)
		require.Equal(t, 7, v.Watchers)

		// A row without operations, that a walk will go on from, may stand first.
		last := park(t, p, newOp(t), NoTimeout, "walked")
		at, hash := p.place("walked")
		s := &p.shards[at]
		s.mu.Lock()
		walked := s.keys.find("walked", hash).head
		walked.walks++
		s.mu.Unlock()
		last.Cancel()
		require.Equal(t, v, p.Survey())
		s.mu.Lock()
		walked.walks--
		s.dropRowLocked(walked)
		s.mu.Unlock()
		require.NoError(t, p.Shutdown(context.Background()))
		require.Zero(t, p.Survey())
	})
}

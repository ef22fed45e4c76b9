package timingwheel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/stretchr/testify/require"
)

// Timers are in the slots of their deadlines, and move down as these approach.
func TestLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Tick: time.Millisecond, WheelSize: 4, Shards: 2})
		require.Empty(t, f.Levels())
		require.Zero(t, f.Stats().Next)
		born := f.created
		at := func(ms int) Timer {
			timer, err := f.ScheduleAt(ms, born.Add(time.Duration(ms)*time.Millisecond))
			require.NoError(t, err)
			return timer
		}
		at(2)
		at(2)
		at(6)
		stopped := at(7)
		at(30)
		at(100)
		require.Equal(t, []Level{
			{Span: time.Millisecond, Pending: 4, Slots: []int{0, 0, 2, 0, 0, 0, 1, 1}},
			{Span: 4 * time.Millisecond, Pending: 1, Slots: []int{0, 0, 0, 0, 0, 0, 0, 1}},
			{Span: 16 * time.Millisecond, Pending: 1, Slots: []int{0, 0, 0, 0, 0, 0, 1, 0}},
		}, f.Levels())
		require.Equal(t, born.Add(2*time.Millisecond), f.Stats().Next)

		require.True(t, f.Stop(stopped))
		time.Sleep(27 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []Level{
			{Span: time.Millisecond, Now: 3, Pending: 1, Slots: []int{0, 0, 0, 0, 0, 0, 1, 0}},
			{Span: 4 * time.Millisecond, Now: 6, Slots: make([]int, 8)},
			{Span: 16 * time.Millisecond, Now: 1, Pending: 1, Slots: []int{0, 0, 0, 0, 0, 0, 1, 0}},
		}, f.Levels())
		require.Equal(t, born.Add(30*time.Millisecond), f.Stats().Next)
	})
}

// Levels shows the timers of both shards, except stopped ones, although a shard clears their
// positions later.
func TestLevelsOfAllShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 4})
		var timers []Timer
		for i := range 1000 {
			f.useShard(i % 4)
			timer, err := f.Schedule(i, time.Duration(i+1)*time.Second)
			require.NoError(t, err)
			timers = append(timers, timer)
		}
		for _, timer := range timers[:700] {
			require.True(t, f.Stop(timer))
		}
		sum, inSlots := 0, 0
		for _, l := range f.Levels() {
			sum += l.Pending
			for _, n := range l.Slots {
				inSlots += n
			}
		}
		require.Equal(t, 300, sum)
		require.Equal(t, 300, inSlots)
	})
}

// The longest possible delay is on the highest level of the smallest wheel.
func TestLevelsOfTheFarFuture(t *testing.T) {
	f := start(t, Options{Tick: time.Nanosecond, WheelSize: 2, Shards: 1})
	_, err := f.Schedule(0, 1<<63-1)
	require.NoError(t, err)
	all := f.Levels()
	require.Len(t, all, 62)
	for l, level := range all {
		require.Equal(t, time.Duration(1)<<l, level.Span, l)
		require.Len(t, level.Slots, 4)
		if l < 61 {
			require.Zero(t, level.Pending)
		}
	}
	require.Equal(t, 1, all[61].Pending)
}

// useShard makes the next timer go to that shard.
func (f *fixture) useShard(i int) {
	f.affinity = new(shardAffinity)
	for k := range f.affinity {
		f.affinity[k].Store(uint32(i - k))
	}
}

// requireHistogram ignores the sum's last bits: floats are added up here in the order in which
// timers ran.
func requireHistogram(t *testing.T, want, got histogram.Durations) {
	t.Helper()
	require.Equal(t, want.Counts, got.Counts)
	require.Equal(t, want.Count, got.Count)
	require.InDelta(t, want.Sum, got.Sum, 1e-12)
}

// Late counts from the deadline, which is a tick, until a worker is free.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		f := start(t, Options{Workers: 1, Shards: 2}, func(v int) {
			if v < 0 {
				<-slow
			}
		})
		_, err := f.Schedule(-1, 2500*time.Microsecond) // runs at 3 ms
		require.NoError(t, err)
		for i, d := range []time.Duration{4, 4, 10, 1003} {
			f.useShard(i % 2)
			_, err := f.Schedule(int(d), d*time.Millisecond)
			require.NoError(t, err)
		}
		stopped, err := f.Schedule(0, 4*time.Millisecond)
		require.NoError(t, err)
		time.Sleep(1003 * time.Millisecond)
		require.True(t, f.Stop(stopped))
		close(slow)
		synctest.Wait()
		var want histogram.Durations
		for _, ms := range []time.Duration{0, 999, 999, 993, 0} {
			want.Add(ms * time.Millisecond)
		}
		requireHistogram(t, want, f.Stats().Late)

		// A timer that a shutdown ran early is not late.
		_, err = f.Schedule(1, time.Hour)
		require.NoError(t, err)
		_, err = f.Shutdown(context.Background(), RunNow)
		require.NoError(t, err)
		want.Add(0)
		requireHistogram(t, want, f.Stats().Late)
	})
}

package timingwheel

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Bad configuration is an error that names the field, the value and the range. timers 11: wheel
// size 1 and sub-second ticks, among others.
func TestBadOptions(t *testing.T) {
	expire := func(int) {}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Tick: -1}, "timingwheel: Options.Tick is -1ns, must be at least 1ns"},
		{Options{Tick: math.MinInt64}, "timingwheel: Options.Tick is -2562047h47m16.854775808s, must be at least 1ns"},
		{Options{WheelSize: 1}, "timingwheel: Options.WheelSize is 1, must be 2 to 65536"},
		{Options{WheelSize: -2}, "timingwheel: Options.WheelSize is -2, must be 2 to 65536"},
		{Options{WheelSize: 65537}, "timingwheel: Options.WheelSize is 65537, must be 2 to 65536"},
		{Options{Shards: -1}, "timingwheel: Options.Shards is -1, must be 1 to 256"},
		{Options{Shards: 257}, "timingwheel: Options.Shards is 257, must be 1 to 256"},
		{Options{Workers: -1}, "timingwheel: Options.Workers is -1, must be 1 to 65536"},
		{Options{Workers: 65537}, "timingwheel: Options.Workers is 65537, must be 1 to 65536"},
		{Options{MaxPending: -1}, "timingwheel: Options.MaxPending is -1, must be 0 (no bound) or more"},
	} {
		w, err := New(expire, c.o)
		require.EqualError(t, err, c.want)
		require.Nil(t, w)
	}
	w, err := New[int](nil, Options{})
	require.EqualError(t, err, "timingwheel: the expiry function is nil")
	require.Nil(t, w)
}

// Values in range are accepted, and rounded as the fields document.
func TestGoodOptions(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	for _, c := range []struct{ o, want Options }{
		{Options{}, Options{Tick: 500 * time.Microsecond, WheelSize: 2048, Shards: ceilPow2(2 * procs), Workers: max(4, procs)}},
		{Options{Tick: 1, WheelSize: 2, Shards: 1, Workers: 1, MaxPending: 1}, Options{Tick: 1, WheelSize: 2, Shards: 1, Workers: 1, MaxPending: 1}},
		{Options{Tick: math.MaxInt64, WheelSize: 3, Shards: 129, Workers: 65536, MaxPending: math.MaxInt}, Options{Tick: math.MaxInt64, WheelSize: 4, Shards: 256, Workers: 65536, MaxPending: math.MaxInt}},
		{Options{WheelSize: 32769, Shards: 256, Workers: 3}, Options{Tick: 500 * time.Microsecond, WheelSize: 65536, Shards: 256, Workers: 3}},
	} {
		w, err := New(func(int) {}, c.o)
		require.NoError(t, err)
		defer w.Shutdown(t.Context(), Discard)
		got := w.options
		require.NotNil(t, got.OnPanic)
		got.OnPanic = nil
		require.Equal(t, c.want, got)
		require.Len(t, w.shards, c.want.Shards)
		h, err := w.Schedule(1, time.Hour)
		require.NoError(t, err)
		require.True(t, w.Stop(h))
	}
}

func TestZeroWheel(t *testing.T) {
	var w Wheel[int]
	const want = "timingwheel: the zero Wheel is not usable, make one with New"
	for _, do := range []func(){
		func() { _, _ = w.Schedule(1, time.Second) },
		func() { _, _ = w.ScheduleAt(1, time.Now()) },
		func() { w.Len() },
		func() { w.Stats() },
		func() { w.Levels() },
		func() { _, _ = w.Close(Discard) },
		func() { _, _ = w.Shutdown(t.Context(), Return) },
		func() { w.Stop(Timer{}) },
		func() { w.Reset(Timer{}, time.Second) },
	} {
		require.PanicsWithValue(t, want, do)
	}
}

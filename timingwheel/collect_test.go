package timingwheel

import (
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"
)

// T13, timers 17: what is over is collected. These tests run on the real clock
// and wait for events only.

// payload is big enough not to share a block of the tiny allocator.
type payload [64]byte

// gcUntil collects until done says true; the test's timeout is its limit.
func gcUntil(done func() bool) {
	for !done() {
		runtime.GC()
		runtime.Gosched()
	}
}

// timers 17: the value of a timer that was stopped or has run can be collected
// at once, while the wheel, its slab and its workers live on.
func TestValuesAreCollected(t *testing.T) {
	ran := make(chan struct{}, 3)
	w, err := New(func(*payload) { ran <- struct{}{} }, Options{Tick: time.Microsecond, Workers: 1, Shards: 1})
	require.NoError(t, err)
	neighbour, err := w.Schedule(nil, time.Hour) // keeps the slab
	require.NoError(t, err)
	schedule := func(d time.Duration) (Timer, weak.Pointer[payload]) {
		p := new(payload)
		h, err := w.Schedule(p, d)
		require.NoError(t, err)
		return h, weak.Make(p)
	}
	stopped, stoppedValue := schedule(time.Hour)
	_, ranValue := schedule(10 * time.Microsecond)
	_, atOnceValue := schedule(0)
	kept, keptValue := schedule(time.Hour)
	<-ran
	<-ran
	require.True(t, w.Stop(stopped))
	gcUntil(func() bool { return stoppedValue.Value() == nil })
	gcUntil(func() bool { return atOnceValue.Value() == nil && ranValue.Value() == nil })
	require.NotNil(t, keptValue.Value())
	require.True(t, w.Reset(kept, 0))
	<-ran
	gcUntil(func() bool { return keptValue.Value() == nil })
	require.True(t, w.Stop(neighbour))
	_, err = w.Shutdown(context.Background(), Discard)
	require.NoError(t, err)
}

// T13, timers 17: after Shutdown the values can be collected though the wheel
// is held, and the wheel though handles are.
func TestWheelIsCollected(t *testing.T) {
	for _, policy := range policies {
		gone := make(chan struct{})
		var value weak.Pointer[payload]
		var handle Timer
		func() {
			w, err := New(func(*payload) {}, Options{Workers: 2})
			require.NoError(t, err)
			runtime.AddCleanup(w, func(c chan struct{}) { close(c) }, gone)
			p := new(payload)
			value = weak.Make(p)
			delay := time.Hour
			if policy == Await {
				delay = time.Millisecond
			}
			handle, err = w.Schedule(p, delay)
			require.NoError(t, err)
			_, err = w.Schedule(p, 0)
			require.NoError(t, err)
			_, err = w.Shutdown(context.Background(), policy)
			require.NoError(t, err)
			gcUntil(func() bool { return value.Value() == nil })
			require.False(t, w.Stop(handle))
		}()
		gcUntil(func() bool {
			select {
			case <-gone:
				return true
			default:
				return false
			}
		})
	}
}

// T13: Shutdown returns when the wheel's goroutines have nothing left to do but
// to end; soon there are none.
func TestNoGoroutineLeft(t *testing.T) {
	for _, policy := range policies {
		w, err := New(func(int) {}, Options{Tick: time.Microsecond, Workers: 3})
		require.NoError(t, err)
		for i := range 1000 {
			_, err := w.Schedule(i, time.Duration(i)*time.Microsecond)
			require.NoError(t, err)
		}
		_, err = w.Shutdown(context.Background(), policy)
		require.NoError(t, err)
	}
	left := ""
	for range 1_000_000 { // they are past their last statement, most likely
		var b strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&b, 1))
		left = b.String()
		if !strings.Contains(left, "timingwheel.(*workers") && !strings.Contains(left, "timingwheel.(*Wheel") {
			return
		}
		runtime.Gosched()
	}
	t.Fatal(left)
}

// Memory follows the load: a burst's slabs are given back, but for one a
// shard, and a steady load allocates nothing.
func TestMemoryFollowsTheLoad(t *testing.T) {
	f := start(t, Options{Shards: 1})
	f.Stop(f.in(1, time.Hour))
	one := f.Stats().Bytes
	require.Equal(t, int(unsafe.Sizeof(block[int]{})+unsafe.Sizeof(block[row]{})), one)
	var hs []Timer
	for i := range 100_000 {
		hs = append(hs, f.in(i, time.Hour))
	}
	slabs := func(n int) int { return (n + slabNodes - 2) / (slabNodes - 1) }
	rows := (100_000 + rowSlots - 1) / rowSlots
	require.Equal(t, slabs(100_000)*int(unsafe.Sizeof(block[int]{}))+slabs(rows)*int(unsafe.Sizeof(block[row]{})), f.Stats().Bytes)
	for _, h := range hs {
		f.Stop(h)
	}
	require.Equal(t, one, f.Stats().Bytes)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		h, _ := f.Schedule(1, time.Minute)
		f.Reset(h, time.Second)
		f.Reset(h, time.Hour)
		f.Stop(h)
	}))
	f.verifyHeld()
}

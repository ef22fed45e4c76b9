package timingwheel

import (
	"context"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/require"
)

// T13, timers 17: ended values, wheels and goroutines are released. These tests run on the real
// clock and wait only for events.

// payload is big enough not to share a block of the tiny allocator.
type payload [64]byte

// gcUntil collects until done returns true; the test's timeout is its limit.
func gcUntil(done func() bool) {
	for !done() {
		runtime.GC()
		runtime.Gosched()
	}
}

// timers 17: the value of a timer that was stopped or has run can be collected at once, while
// the wheel, its slab and its workers still exist; also if its unlinking is deferred.
func TestValuesAreCollected(t *testing.T) {
	for _, eager := range []bool{false, true} {
		valuesAreCollected(t, eager)
	}
}

func valuesAreCollected(t *testing.T, eager bool) {
	ran := make(chan struct{}, 3)
	w, err := New(func(*payload) { ran <- struct{}{} }, Options{Tick: time.Microsecond, Workers: 1, Shards: 1})
	require.NoError(t, err)
	w.forceBatching(eager)
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
	kept, keptValue := schedule(2 * time.Hour) // in another chunk, or stopped would not be deferred
	<-ran
	<-ran
	require.True(t, w.Stop(stopped))
	require.Equal(t, eager, w.shards[0].lists.unlinkedLen > 0)
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

// T13, timers 17: after Shutdown the values can be collected although the wheel is referenced,
// and the wheel although handles are.
func TestWheelIsCollected(t *testing.T) {
	for _, policy := range policies {
		collected := make(chan struct{})
		var value weak.Pointer[payload]
		var handle Timer
		func() {
			w, err := New(func(*payload) {}, Options{Workers: 2})
			require.NoError(t, err)
			runtime.AddCleanup(w, func(c chan struct{}) { close(c) }, collected)
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
			case <-collected:
				return true
			default:
				return false
			}
		})
	}
}

// T13: Shutdown returns when the wheel's goroutines only have to exit; soon there are none.
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

// All the wheel's goroutines have the label Options.Name, also that of a shutdown: the caller's
// labels are not the wheel's.
func TestLabels(t *testing.T) {
	w, err := New(func(int) {}, Options{Name: "mine"})
	require.NoError(t, err)
	pprof.Do(t.Context(), pprof.Labels("request", "42"), func(context.Context) {
		for i := range 2 {
			_, err := w.Schedule(1, time.Duration(i)*time.Hour)
			require.NoError(t, err)
		}
		_, err := w.Close(Await)
		require.NoError(t, err)
	})
	found := map[string]bool{}
	for len(found) < 3 { // until all have begun
		runtime.Gosched()
		var b strings.Builder
		require.NoError(t, pprof.Lookup("goroutine").WriteTo(&b, 1))
		for g := range strings.SplitSeq(b.String(), "\n\n") {
			for _, f := range []string{"finishInBackground", "(*workers[...]).loop", "(*advancer[...]).run"} {
				if strings.Contains(g, f) && strings.Contains(g, "# labels:") {
					require.Contains(t, g, `"limbo":"mine"`)
					require.NotContains(t, g, `"request"`)
					found[f] = true
				}
			}
		}
	}
	_, err = w.Shutdown(t.Context(), Discard)
	require.NoError(t, err)
}

// T18: a timer that was due and waited for a worker takes no memory once it was stopped or
// touched, at any position of the ready queue.
func TestReadyMemoryFollowsTheLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 1, Workers: 1}, g.wait)
		defer close(g)
		f.blockWorkers(1)
		q := &f.shared.ready
		bytes := f.Stats().Bytes
		live := make([]Timer, 64) // one is due after another, and some stay for long
		due := func(i int) {
			k := (i * 37) % len(live)
			if i%3 == 0 {
				f.Stop(live[k])
				live[k] = f.schedule(i, time.Millisecond)
			} else if !f.Touch(live[k], time.Millisecond) {
				live[k] = f.schedule(i, time.Millisecond)
			}
			time.Sleep(2 * time.Millisecond) // not advance: verifying each step takes seconds
			synctest.Wait()
		}
		for i := range 10_000 {
			due(i)
			if i%1000 == 0 {
				verify(t, f.Wheel)
			}
		}
		q.mu.Lock()
		require.LessOrEqual(t, q.refs.Len(), 2*len(live))
		q.mu.Unlock()
		require.LessOrEqual(t, f.Stats().Bytes, bytes+32<<10)
		for i := range 10_000 { // all leave, in a different order
			due(i)
			for k := range live {
				f.Stop(live[(k*29)%len(live)])
			}
		}
		q.mu.Lock()
		require.Zero(t, q.refs.Len())
		require.Empty(t, q.freed)
		q.mu.Unlock()
	})
}

// T18: a burst's slabs are released, except one of each kind per shard, and a steady load
// allocates nothing.
func TestMemoryFollowsTheLoad(t *testing.T) {
	f := start(t, Options{Shards: 1})
	f.Stop(f.schedule(1, time.Hour))
	one := f.Stats().Bytes
	require.Less(t, one, 32<<10)
	var hs []Timer
	for i := range 100_000 {
		hs = append(hs, f.schedule(i, time.Hour))
	}
	each := int(unsafe.Sizeof(node[int]{})) + int(unsafe.Sizeof(node[chunk]{}))/chunkSlots
	require.Greater(t, f.Stats().Bytes, 100_000*each)
	require.Less(t, f.Stats().Bytes, 100_000*(each+1)+one)
	for _, h := range hs {
		f.Stop(h)
	}
	kept := slabNodes * int(unsafe.Sizeof(node[int]{})+unsafe.Sizeof(node[chunk]{})+unsafe.Sizeof(slab[int]{}))
	require.LessOrEqual(t, f.Stats().Bytes, one+kept)
	require.LessOrEqual(t, f.shards[0].lists.chunks.size, slabNodes, "the spare chunk keeps no slab of its own")
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		h, _ := f.Schedule(1, time.Minute)
		f.Reset(h, time.Second)
		f.Reset(h, time.Hour)
		f.Stop(h)
	}))
	f.verifyStopped()
}

// T18: when nine tenths have left, at random, the wheel keeps at most twice the memory of a
// wheel that never held more, plus a slab of each kind that is being filled. The handles of the
// others stay valid.
func TestMemoryFollowsTheLoadDown(t *testing.T) {
	t.Parallel()
	for _, n := range []int{20_000, 200_000} {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		delays := make([]time.Duration, n)
		for i := range delays {
			delays[i] = time.Minute + rand.N(59*time.Minute)
		}
		f, fresh := start(t, Options{Shards: 1, Tick: time.Minute}), start(t, Options{Shards: 1, Tick: time.Minute})
		hs := make([]Timer, n)
		for i := range hs {
			hs[i] = f.schedule(i, delays[i])
		}
		order := r.Perm(n)
		for k, i := range order[:n*9/10] {
			require.True(t, f.Stop(hs[i]))
			if k%(n/4) == 0 {
				f.verifyStopped()
			}
		}
		for _, i := range order[n*9/10:] {
			fresh.schedule(i, delays[i])
		}
		f.verifyStopped()
		filled := slabNodes * int(unsafe.Sizeof(node[int]{})+unsafe.Sizeof(node[chunk]{}))
		require.LessOrEqual(t, f.Stats().Bytes, 2*fresh.Stats().Bytes+filled, "%d timers", n)
		for _, i := range order[:n*9/10] {
			require.False(t, f.Stop(hs[i]), "T6")
		}
		again := make([]Timer, n) // and up again: packed slabs are reused
		for i := range again {
			again[i] = f.schedule(i, delays[i])
		}
		f.verifyStopped()
		require.Less(t, f.Stats().Bytes, (n+n/10)*48)
		for _, i := range order[n*9/10:] {
			v, ok := f.Remove(hs[i])
			require.True(t, ok)
			require.Equal(t, i, v)
		}
		for i := range again {
			require.True(t, f.Stop(again[i]))
		}
		f.verifyStopped()
	}
}

// T18: a backlog's bucket records are released although one timer stays.
func TestBucketRecordsFollowTheLoadDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Workers: 1, Shards: 1}, g.wait)
		f.blockWorkers(1)
		const n = 50_000
		for i := range n {
			f.schedule(i, time.Duration(i+1)*time.Millisecond)
		}
		last := f.schedule(n, 24*time.Hour)
		time.Sleep(n * time.Millisecond)
		synctest.Wait()
		require.Equal(t, n, f.Stats().Ready)
		require.Greater(t, f.shards[0].lists.buckets.size, n)
		close(g)
		f.waitIdle()
		require.Equal(t, 1, f.Len())
		require.LessOrEqual(t, f.shards[0].lists.buckets.size, 3*slabNodes)
		require.True(t, f.Stop(last))
	})
}

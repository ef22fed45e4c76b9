package timingwheel

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contracts about the workers: T10, T11, T12.

// T10, timers 15: a slow callback delays no other timer while a worker is free, whether that
// timer is in the same bucket, before, or after.
func TestSlowCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 1, Workers: 3}, func(v int) {
			if v < 0 {
				time.Sleep(time.Second)
			}
		})
		for i := range 50 {
			if i == 10 || i == 20 {
				f.schedule(-1, 20*time.Millisecond)
			}
			f.schedule(i, 20*time.Millisecond)
		}
		f.schedule(50, 21*time.Millisecond)
		f.schedule(51, 900*time.Millisecond)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want := map[int]time.Duration{50: 21 * time.Millisecond, 51: 900 * time.Millisecond}
		ran := f.fired()
		require.Len(t, ran, 54)
		for _, r := range ran {
			if at, ok := want[r.v]; ok {
				require.Equal(t, at, r.at)
			} else {
				require.Equal(t, 20*time.Millisecond, r.at)
			}
		}
	})
}

// T10: the free workers take everything, whether they were busy, idle or not yet started: at
// most one worker is on its way at a time, and each that finds more wakes the next.
func TestBurstWakesAllWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 8
		g := make(gate)
		f := start(t, Options{WheelSize: 2, Shards: 2, Workers: workers}, g.wait)
		for round := range 4 {
			for busy := range workers {
				f.blockWorkers(busy) // the others are idle, or were never started
				for i := busy; i < workers; i++ {
					f.scheduleOn(i%2, -1, time.Millisecond*time.Duration(1+(i*round)%3))
				}
				f.advance(3 * time.Millisecond)
				require.Len(t, f.fired(), workers-busy, "round %d, %d busy", round, busy)
				require.Equal(t, workers, f.Stats().Workers)
				for range workers {
					g <- struct{}{}
				}
				f.waitIdle()
				require.Equal(t, workers, f.Stats().Idle)
			}
		}
	})
}

// T3, T7: a timer that is due at once joins the last ready bucket only if that is its own
// shard's. It does not join a bucket of its own shard that has the same number by chance.
func TestReadyOfTwoShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Shards: 4, Workers: 1}, g.wait)
		f.scheduleOn(2, -1, 0)
		f.waitIdle()
		f.scheduleOn(0, 1, 0)
		far := f.scheduleOn(1, 2, time.Hour)
		due := f.scheduleOn(1, 3, 0)
		require.Equal(t, f.shards[0].lists.bucket(1).seq, f.shards[1].lists.bucket(1).seq)
		require.NotEqual(t, f.bucketOf(far), f.bucketOf(due))
		f.waitIdle()
		close(g)
		f.waitIdle()
		require.Equal(t, []int{-1, 1, 3}, f.values())
	})
}

// T11: a trickle starts one worker, and timers start no goroutines.
func TestGoroutinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Workers: 2}, g.wait)
		for range 100 {
			f.schedule(1, time.Millisecond)
			f.advance(time.Millisecond)
		}
		require.Equal(t, 1, f.Stats().Workers, "one after the other needs one worker")
		before := runtime.NumGoroutine()
		for i := range 10_000 {
			f.schedule(-1, time.Duration(i)*time.Microsecond)
		}
		f.advance(time.Minute)
		require.Equal(t, 2, f.Stats().Workers)
		// Goroutines of earlier tests may still be ending, and the runtime's count too.
		require.Less(t, runtime.NumGoroutine(), before+100)
		require.Equal(t, 10_000-2, f.Stats().Ready)
		close(g)
		f.waitIdle()
		require.Zero(t, f.Len())
		require.Equal(t, 2, f.Stats().Workers)
	})
}

// T11: timers that are due and wait for a worker are visible, and so is the wait of the oldest,
// whatever other timers were stopped or moved.
func TestReadyAndOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		g := make(gate)
		f := start(t, Options{Shards: 2, Workers: 1}, g.wait)
		defer close(g)
		f.blockWorkers(1)
		expect := func(pending, ready int, overdue time.Duration) {
			t.Helper()
			f.waitIdle()
			st := f.Stats()
			require.Equal(t, []any{pending, ready, overdue}, []any{st.Pending, st.Ready, st.Overdue})
			require.Equal(t, pending, f.Len())
		}
		expect(0, 0, 0)
		a, b, c, d := f.scheduleOn(0, 1, 10*ms), f.scheduleOn(1, 2, 20*ms), f.scheduleOn(0, 3, 20*ms), f.scheduleOn(0, 4, 25*ms)
		expect(4, 0, 0)
		f.advance(9 * ms)
		expect(4, 0, 0)
		f.advance(6 * ms)
		expect(4, 1, 5*ms)
		f.advance(15 * ms)
		expect(4, 4, 20*ms)
		f.Stop(a)
		expect(3, 3, 10*ms)
		f.Reset(c, 0) // joins the last bucket, which is older
		expect(3, 3, 10*ms)
		f.Stop(b)
		expect(2, 2, 5*ms)
		f.advance(ms)
		f.Stop(d)
		expect(1, 1, ms)
		f.Reset(c, 5*ms)
		expect(1, 0, 0)
		f.stopAdvancer()
		f.advanceStopped(8 * ms) // due, but the advancer has not seen it
		st := f.Stats()
		require.Equal(t, 3*ms, st.Overdue)
		f.startAdvancer()
		expect(1, 1, 3*ms)
		f.Stop(c)
		expect(0, 0, 0)
	})
}

// T10: a panic is recovered, reported with its stack and counted, and affects nothing else; nor
// does an OnPanic that panics or ends the goroutine.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []Panic
		f := start(t, Options{Workers: 1, Shards: 1, OnPanic: func(p Panic) {
			reported = append(reported, p)
			switch len(reported) {
			case 2:
				panic("hook")
			case 3:
				runtime.Goexit()
			}
		}}, explode)
		log := logs(t)
		for i := range 10 {
			f.schedule(-i, time.Second)
		}
		f.advance(time.Minute)
		require.Equal(t, []int{0, -1, -2, -3, -4, -5, -6, -7, -8, -9}, f.values())
		require.Len(t, reported, 9)
		for i, p := range reported {
			require.Equal(t, -i-1, p.Value)
			require.Contains(t, string(p.Stack), "timingwheel.explode")
		}
		st := f.Stats()
		require.Equal(t, []any{uint64(9), 1, 1, 0}, []any{st.Panics, st.Workers, st.Idle, st.Pending})
		require.Equal(t, 2, strings.Count(log.String(), "level=ERROR"), "the hook's panic and the one it was told of: %s", log)
		require.Contains(t, log.String(), "panic=hook")
		require.Contains(t, log.String(), "panic=-2")
	})
}

func explode(v int) {
	if v < 0 {
		panic(v)
	}
}

// logs catches the default logger's output until the test ends.
func logs(t *testing.T) *bytes.Buffer {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return &log
}

// T10: the default hook is slog.
func TestPanicIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logs(t)
		f := start(t, Options{}, explode)
		f.schedule(-7, 0)
		f.waitIdle()
		require.Contains(t, log.String(), "timingwheel: expiry function panicked")
		require.Contains(t, log.String(), "panic=-7")
		require.Contains(t, log.String(), "timingwheel.explode")
	})
}

// panickingHandler is a log handler that panics.
type panickingHandler struct{ slog.Handler }

func (panickingHandler) Handle(context.Context, slog.Record) error { panic("the disk is full") }

// T10: a logger that panics ends neither the process nor the worker.
func TestLoggerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := slog.Default()
		slog.SetDefault(slog.New(panickingHandler{old.Handler()}))
		defer slog.SetDefault(old)
		for _, hook := range []func(Panic){nil, func(Panic) { panic("the hook") }} {
			f := start(t, Options{Workers: 1, OnPanic: hook}, explode)
			f.schedule(-7, 0)
			f.schedule(7, 0)
			f.waitIdle()
			require.Len(t, f.fired(), 2)
			require.EqualValues(t, 1, f.Stats().Panics)
		}
	})
}

// T10: runtime.Goexit in a callback (t.FailNow, for one) ends that worker; another takes its
// place, also when the others are busy or the wheel closes.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Workers: 1, Shards: 1}, func(v int) {
			if v%2 == 1 {
				runtime.Goexit()
			}
		})
		for i := range 100 {
			f.schedule(i, time.Millisecond)
		}
		f.advance(time.Second)
		require.Len(t, f.fired(), 100)
		st := f.Stats()
		require.Equal(t, []any{0, 1, 1, uint64(0)}, []any{st.Pending, st.Workers, st.Idle, st.Panics})
	})
}

// T11, timers 5: MaxPending is exact: each way to end frees capacity at once, and an add from a
// callback at the limit succeeds, because its own timer has left.
func TestMaxPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		var inCallback error
		f = start(t, Options{MaxPending: 3, Shards: 2, Workers: 1}, func(v int) {
			if v == 1 {
				_, inCallback = f.Schedule(4, time.Hour)
				_, err := f.Schedule(5, time.Hour)
				require.ErrorIs(t, err, ErrFull)
			}
		})
		full := func() {
			t.Helper()
			require.Equal(t, 3, f.Len())
			for _, d := range []time.Duration{0, time.Hour} {
				h, err := f.Schedule(9, d)
				require.ErrorIs(t, err, ErrFull)
				require.Zero(t, h)
			}
			f.waitIdle()
		}
		f.scheduleOn(0, 1, time.Second)
		a, b := f.scheduleOn(1, 2, time.Hour), f.scheduleOn(0, 3, time.Hour)
		full()
		f.Stop(a)
		f.Stop(a)
		require.Equal(t, 2, f.Len())
		a = f.schedule(2, time.Hour)
		full()
		f.advance(time.Second)
		require.NoError(t, inCallback)
		full()
		f.Reset(b, 0)
		f.waitIdle()
		require.Equal(t, 2, f.Len())
		f.schedule(3, 2*time.Hour)
		full()
	})
}

// T11: MaxPending is exact among many goroutines: never exceeded, and no refusal below it.
func TestMaxPendingConcurrently(t *testing.T) {
	const limit, goroutines = 100, 8
	f := start(t, Options{MaxPending: limit, Shards: 4})
	var accepted, refused atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range limit {
				_, err := f.Schedule(1, time.Hour)
				switch {
				case err == nil:
					accepted.Add(1)
				case errors.Is(err, ErrFull):
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, []int64{limit, limit * (goroutines - 1)}, []int64{accepted.Load(), refused.Load()})
	require.Equal(t, limit, f.Len())
	f.verifyStopped()

	// Each holds at most one, so none is refused.
	f = start(t, Options{MaxPending: goroutines, Shards: 4})
	for range goroutines {
		wg.Go(func() {
			for range 5000 {
				h, err := f.Schedule(1, time.Hour)
				if err != nil || !f.Stop(h) {
					t.Error("refused while there was capacity", err)
				}
			}
		})
	}
	wg.Wait()
	f.verifyStopped()
}

// A goroutine that finds its shard locked takes another, and stays there.
func TestLockedShardIsSkipped(t *testing.T) {
	f := start(t, Options{Shards: 4})
	f.useShard(1)
	s := f.shards[1]
	s.mu.Lock()
	shards := make(chan uint32, 3)
	go func() {
		for range 3 { // in the first call the stack may grow, and so move to another entry
			h, _ := f.Schedule(1, time.Hour)
			shards <- h.shard()
		}
	}()
	var got []uint32
	for range 3 {
		select {
		case shard := <-shards:
			got = append(got, shard)
		case <-time.After(time.Minute):
			s.mu.Unlock()
			t.Fatal("Schedule waits for one shard while others are free")
		}
	}
	s.mu.Unlock()
	require.NotContains(t, got, uint32(1))
	require.Equal(t, got[1], got[2])
}

// T12: every method works from a callback and from OnPanic.
func TestReentrant(t *testing.T) {
	for _, shards := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			var f *fixture
			var own, other Timer
			everything := func() {
				require.False(t, f.Stop(own), "its own timer has left")
				require.False(t, f.Reset(own, time.Hour))
				require.True(t, f.Reset(other, time.Hour))
				pending := f.Len()
				h, err := f.Schedule(2, time.Hour)
				require.NoError(t, err)
				require.True(t, f.Stop(h))
				_, err = f.ScheduleAt(3, time.Now()) // there is one worker: it waits
				require.NoError(t, err)
				require.Equal(t, pending+1, f.Len())
				require.Equal(t, pending+1, f.Stats().Pending)
			}
			f = start(t, Options{Workers: 1, Shards: shards, OnPanic: func(Panic) { everything() }}, func(v int) {
				if v == 1 {
					everything()
					panic(1)
				}
			})
			other = f.schedule(4, time.Minute)
			own = f.schedule(1, time.Hour)
			f.Reset(own, time.Second) // once own is set
			f.advance(time.Second)
			require.Equal(t, []int{1, 3, 3}, f.values())
			f.advance(2 * time.Hour)
			require.Equal(t, []firing{{4, time.Hour + time.Second}}, f.fired())
			require.Equal(t, uint64(1), f.Stats().Panics)
		})
	}
}

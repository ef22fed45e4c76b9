package purgatory

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A soak at full rate, with all outcomes mixed: memory and goroutines do not grow, and nothing
// is left. A window is a number of operations, so that a leak weighs the same on every machine.
// LIMBO_LONG=1 makes it ten minutes, in which memory grows by 2 % at most.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes a second or more")
	}
	window, windows := time.Duration(0), 4
	const operations = 100_000 // of each window, at least
	long := os.Getenv("LIMBO_LONG") != ""
	if long {
		window, windows = time.Minute, 10
	}
	const goroutines, keys = 4, 10_000
	// The runtime keeps memory for the largest number of goroutines so far: each cancelled
	// context starts one, and on a busy machine many of them wait.
	var spare sync.WaitGroup
	begin := make(chan struct{})
	for range 4000 {
		spare.Go(func() { <-begin })
	}
	close(begin)
	spare.Wait()
	before := heap()
	most := runtime.NumGoroutine() + goroutines + 2*(1+max(4, runtime.GOMAXPROCS(0))) // with each wheel's
	p := open[int](t, Options{OnPanic: func(Panic) {}})
	var number [64]atomic.Int64
	th, err := NewThreshold(func(k int) int64 { return number[k].Load() }, Options{})
	require.NoError(t, err)

	var stop, pause atomic.Bool
	var paused, wg sync.WaitGroup
	resume := make(chan struct{}) // replaced while all are paused
	var ended atomic.Int64
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			// Clients that only wait, as a baseline for growth.
			for i := range 5000 {
				h, err := p.TryCompleteElseWatch(context.Background(), &soakOp{ended: &ended}, NoTimeout, -1-i, -1-2*i)
				if err != nil {
					t.Error(err)
				}
				defer h.Cancel(nil)
			}
			var held [256]Pending
			var goals [256]Pending
			for i := 0; !stop.Load(); i++ {
				if pause.Load() {
					again := resume
					paused.Done()
					<-again
				}
				at := i % len(held)
				op := &soakOp{ended: &ended, panics: r.IntN(100) == 0}
				ctx, cancel := context.Background(), func() {}
				if r.IntN(50) == 0 {
					ctx, cancel = context.WithCancel(ctx)
				}
				key := r.IntN(keys)
				switch i % 4 {
				case 0:
					held[at].Cancel(nil)
				case 1:
					held[at].ForceComplete()
				case 2:
					p.CheckAndComplete(key)
				case 3:
					_ = p.CheckAndCompleteLater(key)
				}
				if i%1000 == 0 {
					p.CancelForKey(key, nil)
				}
				held[at], _ = p.TryCompleteElseWatch(ctx, op, time.Duration(r.IntN(20))*time.Millisecond, key, r.IntN(keys), r.IntN(keys))
				op.ready.Store(r.IntN(2) == 0)
				k := r.IntN(len(number))
				if i%3 == 0 {
					n := number[k].Add(1)
					th.Advance(k, n)
				}
				goals[at].Cancel(nil)
				goals[at], _ = th.TryCompleteElseWatch(context.Background(), op2{&ended}, time.Duration(r.IntN(20))*time.Millisecond, []Need{All, Any}[r.IntN(2)],
					Goal[int, int64]{k, number[k].Load() + r.Int64N(50)}, Goal[int, int64]{(k + 1) % len(number), r.Int64N(50)})
				cancel()
			}
		})
	}

	// At the end of each window all goroutines pause, pending operations time out, and the
	// memory that remains is measured.
	var heaps []int
	load := func(d time.Duration) {
		t.Helper()
		begun, before := time.Now(), ended.Load()
		require.Eventually(t, func() bool {
			return time.Since(begun) >= d && ended.Load()-before >= operations
		}, d+time.Minute, 10*time.Millisecond)
	}
	// Memory that grew with the peak of pending operations shrinks as operations end.
	stabilize := func() {
		t.Helper()
		for range 50_000 {
			h, err := p.TryCompleteElseWatch(context.Background(), &soakOp{ended: &ended}, NoTimeout, 0)
			require.NoError(t, err)
			h.Cancel(nil)
		}
	}
	load(min(window, 10*time.Second)) // until memory has adapted to the load
	for range windows {
		load(window)
		resume = make(chan struct{})
		paused.Add(goroutines)
		pause.Store(true)
		paused.Wait()
		require.Eventually(t, func() bool { return p.Len() == 5000*goroutines && th.Len() == 0 }, time.Minute, time.Millisecond)
		require.Zero(t, th.Stats().Watched+th.Stats().Keys)
		stabilize()
		runtime.GC()
		heaps = append(heaps, heap()-before)
		require.Eventually(t, func() bool { return runtime.NumGoroutine() <= most+1 }, time.Minute, time.Millisecond) // plus Eventually's
		pause.Store(false)
		close(resume)
	}
	stop.Store(true)
	wg.Wait()
	require.NoError(t, p.Shutdown(context.Background()))
	require.NoError(t, th.Shutdown(context.Background()))
	requireEmpty(t, p)
	a, b := p.Stats(), th.Stats()
	require.EqualValues(t, ended.Load(), a.Ended()+b.Ended())
	require.Positive(t, min(a.Completed, a.Expired, a.Cancelled, a.Failed, b.Completed, b.Expired, b.Cancelled))
	t.Logf("%d operations ended; live heap after each window, less that before: %d bytes", ended.Load(), heaps)
	growth, limit := heaps[windows-1]-heaps[0], 8*(windows-1)*operations // a pointer for each
	if long {
		limit = heaps[0] / 50
	}
	require.LessOrEqual(t, growth, limit, "maps still grow now and then, by doubling")
}

type soakOp struct {
	ready  atomic.Bool
	panics bool
	ended  *atomic.Int64
}

func (o *soakOp) TryComplete() bool {
	if o.ready.Load() && o.panics {
		panic("soaked")
	}
	return o.ready.Load()
}
func (o *soakOp) Complete(Outcome, error) { o.ended.Add(1) }

type op2 struct{ ended *atomic.Int64 }

func (o op2) Complete(Outcome, error) { o.ended.Add(1) }

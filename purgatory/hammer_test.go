package purgatory

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hammered holds the counters of a hammer's goroutines.
type hammered struct {
	accepted, refused, decided atomic.Int64
	ends                       [outcomes]atomic.Int64
	ending                     sync.WaitGroup // accepted and not yet ended
}

// P1 to P10: many goroutines run all calls on a few keys at once, with timeouts of about the
// time that takes. Every accepted operation ends exactly once, testOp and the race detector
// check P3, and the statistics add up. Some operations have a key of their own and only their
// timeout to end them: on one processor all others may have ended before a worker runs.
func TestHammer(t *testing.T) {
	const goroutines, each, keys = 8, 1500, 5
	p := open[int](t, Options{Tick: 20 * time.Microsecond, Workers: 3, MaxPending: 300, OnPanic: func(Panic) {}})
	var c hammered
	ctxs := make(chan context.CancelFunc, 64)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(rand.Uint64(), 1))
			ctx, cancel := context.WithCancel(context.Background())
			var held []Pending
			for i := range each {
				if i%20 == 0 {
					select {
					case ctxs <- cancel:
					default:
						cancel()
					}
					ctx, cancel = context.WithCancel(context.Background())
				}
				op := newOp(t)
				panicAt, chain := rnd.IntN(40), rnd.IntN(3*keys)
				op.try = func(n int) bool {
					if n == panicAt {
						panic("hammered")
					}
					return op.ready.Load()
				}
				op.end = func(o Outcome) {
					defer c.ending.Done()
					c.ends[o].Add(1)
					if chain < keys {
						p.CheckAndComplete(chain)
					}
				}
				c.ending.Add(1)
				if i%100 == 0 {
					alone := newOp(t)
					alone.end = op.end
					if _, err := p.TryCompleteElseWatch(context.Background(), alone, time.Duration(rnd.IntN(1000))*time.Microsecond, keys+g); err != nil {
						if err != ErrFull {
							t.Error(err)
						}
						c.ending.Done()
						c.refused.Add(1)
					} else {
						c.accepted.Add(1)
					}
					continue
				}
				timeout := time.Duration(rnd.IntN(1000)-100) * time.Microsecond
				if rnd.IntN(10) == 0 {
					timeout = NoTimeout
				}
				h, err := p.TryCompleteElseWatch(ctx, op, timeout, rnd.IntN(keys), rnd.IntN(keys), rnd.IntN(keys))
				if err != nil {
					if err != ErrFull {
						t.Error(err)
					}
					c.ending.Done()
					c.refused.Add(1)
					p.CheckAndComplete(rnd.IntN(keys))
					continue
				}
				c.accepted.Add(1)
				held = append(held, h)
				op.ready.Store(rnd.IntN(3) > 0)
				h = held[rnd.IntN(len(held))]
				switch rnd.IntN(12) {
				case 0, 1, 2:
					p.CheckAndComplete(rnd.IntN(keys))
				case 3, 4:
					if err := p.CheckAndCompleteLater(rnd.IntN(keys)); err != nil {
						t.Error(err)
					}
				case 5, 6:
					if h.Cancel(nil) {
						c.decided.Add(1)
						if h.Cancel(nil) || h.ForceComplete() {
							t.Error("P1: decided twice")
						}
					}
				case 7:
					h.ForceComplete()
				case 8:
					if rnd.IntN(20) == 0 {
						p.CancelForKey(rnd.IntN(keys), nil)
					}
				case 9:
					select {
					case cancel := <-ctxs:
						cancel()
					default:
					}
				case 10:
					_ = p.Stats()
					_ = p.Watched() + p.Len() + p.KeyCount()
				}
			}
			cancel()
		})
	}
	wg.Wait()
	for len(ctxs) > 0 {
		(<-ctxs)()
	}
	for key := range keys {
		p.CancelForKey(key, nil)
	}
	c.ending.Wait() // a failure is a timeout of the test
	require.EqualValues(t, goroutines*each, c.accepted.Load()+c.refused.Load())
	var sum int64
	for o := range c.ends {
		sum += c.ends[o].Load()
	}
	require.Equal(t, c.accepted.Load(), sum)
	mustShutdown(t, p)
	st := p.Stats()
	require.Equal(t,
		[]int64{int64(st.Completed), int64(st.Expired), int64(st.Cancelled), int64(st.Closed), int64(st.Failed)},
		[]int64{c.ends[1].Load(), c.ends[2].Load(), c.ends[3].Load(), c.ends[4].Load(), c.ends[5].Load()})
	for o := Completed; o <= Failed; o++ {
		if o != Closed {
			require.NotZero(t, c.ends[o].Load(), "the hammer does not reach %v", o)
		}
	}
}

// P1, P2: each operation waits for one of its own changes, all on one key, and only the
// goroutines that make changes check it. Nothing else ends it, and each completes once.
func TestHammerOneKey(t *testing.T) {
	const goroutines, each = 6, 1500
	p := open[string](t, Options{})
	var ended atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				op := newOp(t)
				op.end = func(o Outcome) {
					if o != Completed {
						t.Errorf("ended as %v", o)
					}
					ended.Add(1)
				}
				if _, err := p.TryCompleteElseWatch(context.Background(), op, NoTimeout, "hot", "cold"); err != nil {
					t.Error(err)
				}
				op.ready.Store(true)
				if i%3 == 0 {
					_ = p.CheckAndCompleteLater("hot")
				} else if p.CheckAndComplete("hot"); (i+g)%100 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	for ended.Load() < goroutines*each { // a failure is a timeout of the test
		runtime.Gosched()
	}
	mustShutdown(t, p)
	require.EqualValues(t, goroutines*each, p.Stats().Completed)
}

// P12: the hammer runs while the purgatory shuts down.
func TestHammerShutdown(t *testing.T) {
	for round := range 30 {
		p := open[int](t, Options{Tick: 20 * time.Microsecond, Workers: 2, OnPanic: func(Panic) {}})
		var accepted, ended atomic.Int64
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					op := newOp(t)
					op.try = func(n int) bool { return n > 2+i%3 }
					op.end = func(Outcome) { ended.Add(1) }
					h, err := p.TryCompleteElseWatch(ctx, op, time.Duration(rand.IntN(200))*time.Microsecond, i%5, i%3)
					if err == ErrClosed {
						return
					}
					accepted.Add(1)
					switch i % 5 {
					case 0:
						p.CheckAndComplete(i % 3)
					case 1:
						_ = p.CheckAndCompleteLater(i % 3)
					case 2:
						h.Cancel(nil)
					case 3:
						if i%50 == 0 {
							p.CancelForKey(i%5, nil)
						}
					}
				}
			})
		}
		for accepted.Load() < int64(100*round) {
			runtime.Gosched()
		}
		for range 2 {
			wg.Go(func() {
				if err := p.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		mustShutdown(t, p)
		cancel()
		require.Equal(t, accepted.Load(), ended.Load())
		require.EqualValues(t, ended.Load(), p.Stats().Ended())
	}
}

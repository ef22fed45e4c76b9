package timingwheel

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Many goroutines on real clocks, real cores and tiny geometry. Run them with -race. Counts are
// exact; the only times checked are the deadlines themselves.

// LIMBO_LONG=1 makes the hammers run for minutes, to soak.
var long = os.Getenv("LIMBO_LONG") != ""

func times(n int) int {
	if long {
		return 100 * n
	}
	return n
}

// ledger counts the ends of each value.
type ledger struct {
	ends     []atomic.Int32
	sum      atomic.Int64
	accepted atomic.Int64 // the sum of the accepted values
}

func (l *ledger) end(v int) {
	l.ends[v].Add(1)
	l.sum.Add(int64(v))
}

func (l *ledger) check(t *testing.T) {
	t.Helper()
	for v := range l.ends {
		if n := l.ends[v].Load(); n > 1 {
			t.Fatalf("T3: value %d ended %d times", v, n)
		}
	}
	require.Equal(t, l.accepted.Load(), l.sum.Load(), "T3: checksum of the values")
}

// T1, T3, T4, T5, timers 1, timers 5: goroutines schedule, stop and reset each other's timers,
// at delays around the tick, until a shutdown ends the remaining ones. Each accepted value ends
// once: it ran, Stop returned true, or it was returned.
func TestHammerExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Tick: 20 * time.Microsecond, WheelSize: 2, Shards: 1, Workers: 1},
		{Tick: 50 * time.Microsecond, WheelSize: 2, Shards: 4, Workers: 4},
		{Tick: time.Microsecond, WheelSize: 4, Shards: 2, Workers: 2, MaxPending: 300},
		{Tick: 1, WheelSize: 256, Shards: 1, Workers: 3},
	} {
		for _, policy := range policies {
			hammer(t, o, policy, false)
			hammer(t, o, policy, true)
		}
	}
}

func hammer(t *testing.T, o Options, policy Policy, eager bool) {
	const goroutines = 6
	per := times(1500)
	l := &ledger{ends: make([]atomic.Int32, goroutines*per)}
	deadlines := make([]atomic.Int64, goroutines*per) // at least; since base
	var w *Wheel[int]
	w, err := New(func(v int) {
		if d := nanos(deadlines[v].Load()); w.shared.now() < d {
			t.Errorf("T1: value %d ran %v early", v, time.Duration(d-w.shared.now()))
		}
		l.end(v)
	}, o)
	require.NoError(t, err)
	w.forceBatching(eager)

	var shared [64]struct { // handles that any goroutine may stop or move
		sync.Mutex
		h Timer
		v int
	}
	var working sync.WaitGroup
	var refused atomic.Int64
	for g := range goroutines {
		working.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), uint64(policy)))
			for i := range per {
				v := g*per + i
				delay := time.Duration(r.IntN(300)) * time.Microsecond
				if i%8 == 0 {
					delay = 0
				}
				fixed := i%2 == 0              // never moved, so its deadline is known
				if fixed && policy != RunNow { // which runs them early
					deadlines[v].Store(int64(w.shared.now()) + int64(delay))
				}
				h, err := w.Schedule(v, delay)
				if err != nil {
					if !errors.Is(err, ErrFull) && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					refused.Add(1)
					continue
				}
				l.accepted.Add(int64(v))
				if fixed {
					if r.IntN(4) == 0 && w.Stop(h) {
						l.end(v)
						if w.Stop(h) || w.Reset(h, 0) {
							t.Error("T4: stopped twice")
						}
					}
					continue
				}
				s := &shared[r.IntN(len(shared))]
				s.Lock()
				old, oldValue := s.h, s.v
				s.h, s.v = h, v
				s.Unlock()
				w.Reset(h, time.Duration(r.IntN(200))*time.Microsecond)
				switch r.IntN(3) {
				case 0:
					if w.Stop(old) {
						l.end(oldValue)
					}
				case 1:
					w.Reset(old, time.Duration(r.IntN(400))*time.Microsecond)
				}
				s = &shared[r.IntN(len(shared))]
				s.Lock()
				any := s.h
				s.Unlock()
				w.Reset(any, time.Duration(r.IntN(100)-50)*time.Microsecond)
			}
		})
	}
	if policy%2 == 1 { // shut down under load, or when all are scheduled
		working.Wait()
	}
	var ending sync.WaitGroup
	for k := range 3 {
		ending.Go(func() {
			p := policy
			if k == 2 && policy != Discard {
				p = Return
			}
			left, err := w.Shutdown(context.Background(), p)
			if err != nil {
				t.Error(err)
			}
			for _, d := range left {
				l.end(d.Value)
			}
		})
	}
	working.Wait()
	ending.Wait()
	st := w.Stats()
	require.Equal(t, st.Scheduled+uint64(refused.Load()), uint64(goroutines*per))
	require.Equal(t, st.Scheduled, st.Stopped+st.Expired+st.Discarded+st.Returned)
	require.Zero(t, st.Pending)
	verify(t, w)
	if policy != Discard {
		require.Zero(t, st.Discarded)
		l.check(t)
		return
	}
	ended := 0
	for v := range l.ends {
		n := int(l.ends[v].Load())
		require.LessOrEqual(t, n, 1)
		ended += n
	}
	require.Equal(t, int(st.Scheduled), ended+int(st.Discarded))
}

// T4, timers 1: one Stop races one expiry as closely as possible, just after a cascade.
func TestHammerStopAgainstExpiry(t *testing.T) {
	t.Parallel()
	var ran atomic.Int32
	done := make(chan struct{}, 1)
	w, err := New(func(int) {
		ran.Add(1)
		done <- struct{}{}
	}, Options{Tick: time.Microsecond, WheelSize: 2, Shards: 1, Workers: 2})
	require.NoError(t, err)
	stopped, rounds := 0, times(3000)
	r := rand.New(rand.NewPCG(4, 1))
	for i := range rounds {
		delay := 5*time.Microsecond + time.Duration(i%40)*time.Microsecond
		h, err := w.Schedule(i, delay)
		require.NoError(t, err)
		until := w.shared.now() + nanos(delay) + nanos(r.IntN(20_000))
		for w.shared.now() < until { // not a sleep: that is not precise enough
		}
		if w.Stop(h) {
			stopped++
			require.Zero(t, ran.Load(), "T4: Stop said true")
			continue
		}
		<-done
		require.Equal(t, int32(1), ran.Swap(0))
	}
	require.Zero(t, w.Len())
	_, err = w.Shutdown(context.Background(), Discard)
	require.NoError(t, err)
	verify(t, w)
	require.Zero(t, ran.Load(), "T4: a stopped timer ran later")
	require.Equal(t, uint64(stopped), w.Stats().Stopped)
}

// T3, timers 3: no wake-up is lost: self-rescheduling 1 ms timers run continuously. Under
// LIMBO_LONG there are 100,000 of them, for two minutes.
func TestHammerSelfRescheduling(t *testing.T) {
	t.Parallel()
	n, rounds := 1000, int32(150)
	if long {
		n, rounds = 100_000, 500
	}
	runs := make([]atomic.Int32, n)
	var left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	var w *Wheel[int]
	w, err := New(func(v int) {
		if k := runs[v].Add(1); k < rounds {
			if _, err := w.Schedule(v, time.Millisecond); err != nil {
				t.Error(err)
			}
		} else if k == rounds && left.Add(-1) == 0 {
			close(done)
		}
	}, Options{WheelSize: 2, Shards: 2})
	require.NoError(t, err)
	for v := range n {
		_, err := w.Schedule(v, time.Millisecond)
		require.NoError(t, err)
	}
	<-done // or the test's timeout
	for v := range n {
		require.Equal(t, rounds, runs[v].Load())
	}
	_, err = w.Shutdown(context.Background(), Await)
	require.NoError(t, err)
}

// timers 3 (the lone timer that stops after some 100,000 rounds): one timer at a time, at the
// smallest delays, so that each wakes the advancer again.
func TestHammerSingleTimer(t *testing.T) {
	t.Parallel()
	rounds := times(5000)
	done := make(chan struct{})
	var w *Wheel[int]
	w, err := New(func(v int) {
		if v == 0 {
			close(done)
			return
		}
		if _, err := w.Schedule(v-1, time.Duration(v%7)*time.Microsecond); err != nil {
			t.Error(err)
		}
	}, Options{Tick: time.Microsecond, WheelSize: 2})
	require.NoError(t, err)
	_, err = w.Schedule(rounds, 0)
	require.NoError(t, err)
	<-done
	_, err = w.Shutdown(context.Background(), Discard)
	require.NoError(t, err)
}

// T11: MaxPending is never exceeded, at any instant.
func TestHammerMaxPending(t *testing.T) {
	t.Parallel()
	const limit = 50
	w, err := New(func(int) {}, Options{Tick: 10 * time.Microsecond, WheelSize: 2, Shards: 4, MaxPending: limit})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range times(3000) {
				h, err := w.Schedule(i, time.Duration(i%50)*time.Microsecond)
				if held := w.shared.limit.Held(); held > limit || held < 0 {
					t.Errorf("%d held", held)
				}
				if err == nil && i%3 == g%3 {
					w.Stop(h)
				}
			}
		})
	}
	wg.Wait()
	_, err = w.Shutdown(context.Background(), Await)
	require.NoError(t, err)
	require.Zero(t, w.shared.limit.Held())
}

// T3, T4: goroutines stop the same timers, each in a different order, while some come due,
// cascade or are moved. Each timer ends once, and the counts always add up.
func TestHammerStopMany(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Tick: 100 * time.Microsecond, WheelSize: 4, Shards: 1, Workers: 2},
		{Tick: 20 * time.Microsecond, Shards: 2, Workers: 2, MaxPending: 8000},
	} {
		n := times(8000)
		if o.MaxPending > 0 {
			n = o.MaxPending
		}
		ends := make([]atomic.Int32, n)
		w, err := New(func(v int) { ends[v].Add(1) }, o)
		require.NoError(t, err)
		held := make([]Timer, n)
		for i := range held {
			delay := time.Hour
			if i%4 == 0 {
				delay = rand.N(30 * time.Millisecond)
			}
			held[i], err = w.Schedule(i, delay)
			require.NoError(t, err)
		}
		var working sync.WaitGroup
		for range 3 {
			working.Go(func() {
				for k, i := range rand.Perm(n) {
					if k%16 == 0 {
						w.Reset(held[i], rand.N(30*time.Millisecond))
						continue
					}
					if v, ok := w.Remove(held[i]); ok {
						ends[v].Add(1)
						if _, ok = w.Value(held[i]); v != i || ok || w.Stop(held[i]) {
							t.Errorf("T4, T6: stopped %d as %d", i, v)
						}
					}
				}
			})
		}
		for w.Len() > n/8 {
			st := w.Stats()
			if st.Scheduled != uint64(st.Pending)+st.Stopped+st.Expired {
				t.Errorf("T3: Stats are %+v", st)
				break
			}
			runtime.Gosched()
		}
		working.Wait()
		_, err = w.Shutdown(context.Background(), RunNow)
		require.NoError(t, err)
		verify(t, w)
		for i := range ends {
			require.Equal(t, int32(1), ends[i].Load(), "T3: timer %d", i)
		}
	}
}

// T11: Len and Stats are of one moment. Two goroutines, each with its own shard, pass the only
// slot back and forth.
func TestHammerConsistentCounts(t *testing.T) {
	t.Parallel()
	f := start(t, Options{Shards: 8, MaxPending: 1})
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !over.Load() {
				if timer, err := f.Schedule(0, time.Hour); err == nil {
					f.Stop(timer)
				}
				runtime.Gosched() // or the calls below wait for whole time slices
			}
		})
	}
	for range 50_000 {
		if n := f.Len(); n < 0 || n > 1 {
			t.Errorf("Len is %d, of at most 1", n)
			break
		}
		if st := f.Stats(); st.Pending > 1 || st.Scheduled != st.Stopped+uint64(st.Pending) {
			t.Errorf("Stats are %+v", st)
			break
		}
	}
	over.Store(true)
	wg.Wait()
}

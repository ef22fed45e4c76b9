package calls

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

func table(t testing.TB, o Options) *Table[int, string] {
	t.Helper()
	c, err := New[int, string](o)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Shutdown(context.Background()))
		require.Zero(t, c.Stats().Pending)
		require.Zero(t, timers(c))
		require.Zero(t, c.limit.Held())
	})
	return c
}

// timers returns the number of timers on both wheels.
func timers(c *Table[int, string]) int {
	st := c.Stats()
	return st.DoWheel.Pending + st.GoWheel.Pending
}

func sendNothing() error { return nil }

func TestDoReturnsTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		go func() {
			time.Sleep(time.Second)
			require.True(t, c.Reply(1, "one"))
		}()
		began := time.Now()
		r, err := c.Do(t.Context(), 1, time.Minute, sendNothing)
		require.NoError(t, err)
		require.Equal(t, "one", r)
		require.Equal(t, time.Second, time.Since(began))
		require.False(t, c.Reply(1, "again"), "a second reply")
		require.False(t, c.Fail(1, io.EOF))
		st := c.Stats()
		require.Equal(t, uint64(1), st.Completed)
		require.Equal(t, uint64(2), st.Unmatched)
		require.InDelta(t, 1, st.Waited[purgatory.Completed].Sum, 0)
	})
}

func TestDoIsRepliedToWithinSend(t *testing.T) {
	c := table(t, Options{})
	r, err := c.Do(t.Context(), 1, time.Minute, func() error { c.Reply(1, "one"); return io.EOF })
	require.NoError(t, err, "the reply came first")
	require.Equal(t, "one", r)
}

// Lesson calls 1.
func TestDoExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		began := time.Now()
		_, err := c.Do(t.Context(), 1, time.Minute, sendNothing)
		require.ErrorIs(t, err, ErrExpired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.Less(t, time.Since(began), time.Minute+time.Millisecond)
		require.False(t, c.Reply(1, "late"))
		require.Equal(t, uint64(1), c.Stats().Expired)
		require.Equal(t, uint64(1), c.Stats().Late.Count)
		require.LessOrEqual(t, c.Stats().Late.Mean(), time.Millisecond/2)
	})
}

// Lesson calls 1.
func TestDoIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(io.ErrUnexpectedEOF) })
		_, err := c.Do(ctx, 1, time.Minute, sendNothing)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.False(t, c.Reply(1, "late"))
		_, err = c.Do(ctx, 2, time.Minute, func() error { panic("must not be called") })
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, uint64(1), c.Stats().Cancelled)
	})
}

func TestDoWithoutATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		time.AfterFunc(1000*time.Hour, func() { c.Reply(1, "one") })
		r, err := c.Do(context.Background(), 1, NoTimeout, sendNothing)
		require.NoError(t, err)
		require.Equal(t, "one", r)
	})
}

// Lesson calls 1.
func TestSendFails(t *testing.T) {
	c := table(t, Options{})
	_, err := c.Do(t.Context(), 1, time.Minute, func() error { return io.ErrClosedPipe })
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.False(t, c.Reply(1, "late"))

	var got []error
	require.NoError(t, c.Go(1, time.Minute, func() error { return io.ErrClosedPipe }, func(_ string, err error) { got = append(got, err) }))
	require.Equal(t, []error{io.ErrClosedPipe}, got)
	require.Equal(t, uint64(2), c.Stats().Failed)
}

func TestSendDoesNotReturn(t *testing.T) {
	c := table(t, Options{})
	require.PanicsWithValue(t, "no", func() { _, _ = c.Do(t.Context(), 1, time.Minute, func() error { panic("no") }) })
	var got []error
	done := func(_ string, err error) { got = append(got, err) }
	require.PanicsWithValue(t, "no", func() { _ = c.Go(2, time.Minute, func() error { panic("no") }, done) })
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Go(3, time.Minute, func() error { runtime.Goexit(); return nil }, done) })
	wg.Wait()
	require.Len(t, got, 2)
	require.Error(t, got[0])
	require.Zero(t, timers(c))
	require.Equal(t, uint64(3), c.Stats().Failed)
	require.Zero(t, c.Stats().Pending)
}

// A send that panics, ends its goroutine or fails after its call has ended leaves no timer
// behind.
func TestSendDoesNotReturnAfterTheReply(t *testing.T) {
	c := table(t, Options{})
	for name, fault := range map[string]func() error{
		"panic":  func() error { panic("no") },
		"Goexit": func() error { runtime.Goexit(); return nil },
		"error":  func() error { return io.ErrClosedPipe },
	} {
		var replies []string
		send := func(id int) func() error {
			return func() error {
				require.True(t, c.Reply(id, "in time"))
				return fault()
			}
		}
		var wg sync.WaitGroup
		alone := func(f func()) {
			wg.Go(func() {
				defer func() { _ = recover() }()
				f()
			})
			wg.Wait()
		}
		alone(func() { _, _ = c.Do(t.Context(), 1, time.Minute, send(1)) })
		require.Zero(t, timers(c), name)
		alone(func() {
			_ = c.Go(2, time.Minute, send(2), func(r string, err error) { replies = append(replies, r) })
		})
		require.Zero(t, timers(c), name)
		require.Equal(t, []string{"in time"}, replies, name)
	}
	require.Equal(t, uint64(6), c.Stats().Completed)
}

func TestGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		type result struct {
			value string
			err   error
		}
		var mu sync.Mutex
		got := map[int][]result{}
		start := func(id int) {
			require.NoError(t, c.Go(id, time.Minute, sendNothing, func(v string, err error) {
				mu.Lock()
				defer mu.Unlock()
				got[id] = append(got[id], result{v, err})
			}))
		}
		for id := range 3 {
			start(id)
		}
		require.ErrorIs(t, c.Go(0, time.Minute, func() error { panic("must not be called") }, func(string, error) { panic("nor this") }), ErrDuplicate)
		require.True(t, c.Reply(0, "zero"))
		require.True(t, c.Fail(1, io.EOF))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, map[int][]result{0: {{"zero", nil}}, 1: {{"", io.EOF}}, 2: {{"", ErrExpired}}}, got)
		st := c.Stats()
		require.Equal(t, []uint64{1, 1, 1, 1}, []uint64{st.Completed, st.Failed, st.Expired, st.Duplicates})
	})
}

func TestDuplicateLeavesPendingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		first := make(chan string, 1)
		go func() {
			r, err := c.Do(context.Background(), 1, time.Minute, sendNothing)
			require.NoError(t, err)
			first <- r
		}()
		synctest.Wait()
		_, err := c.Do(t.Context(), 1, time.Second, sendNothing)
		require.ErrorIs(t, err, ErrDuplicate)
		time.Sleep(2 * time.Second) // the refused call has no timeout
		require.True(t, c.Reply(1, "one"))
		require.Equal(t, "one", <-first)
	})
}

// A send fails after its call has ended and its record serves the next call with the same id:
// that call is not affected.
func TestLateSendErrorDoesNotAffectNextCall(t *testing.T) {
	c := table(t, Options{})
	for range 100 { // a record comes back from the pool most of the time
		var got []string
		done := func(r string, err error) {
			require.NoError(t, err)
			got = append(got, r)
		}
		require.NoError(t, c.Go(1, time.Minute, func() error {
			require.True(t, c.Reply(1, "first"))
			require.NoError(t, c.Go(1, time.Minute, sendNothing, done))
			return io.ErrClosedPipe
		}, done))
		require.True(t, c.Reply(1, "second"))
		require.Equal(t, []string{"first", "second"}, got)
	}
}

// Lesson calls 2.
func TestGroupsEndIndependently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		lost, other := c.Group(), c.Group()
		var errs [3]error
		var wg sync.WaitGroup
		for i, g := range []*Group[int, string]{lost, other, c.ungrouped} {
			wg.Go(func() { _, errs[i] = g.Do(context.Background(), 1, time.Minute, sendNothing) })
		}
		synctest.Wait()
		require.Equal(t, 3, c.Stats().Pending)
		require.Equal(t, 3, c.Len())
		require.Equal(t, 2, c.Stats().Groups)
		require.Equal(t, 1, lost.CloseWithError(io.ErrUnexpectedEOF))
		require.Zero(t, lost.CloseWithError(io.EOF))
		_, err := lost.Do(t.Context(), 2, time.Minute, func() error { panic("must not be called") })
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "the first Close decides")
		require.ErrorIs(t, lost.Go(2, time.Minute, sendNothing, func(string, error) {}), io.ErrUnexpectedEOF)
		require.False(t, lost.Reply(1, "late"), "of a closed connection")
		require.True(t, other.Reply(1, "one"))
		require.True(t, c.Reply(1, "one"))
		wg.Wait()
		require.Equal(t, [3]error{io.ErrUnexpectedEOF}, errs)
		st := c.Stats()
		require.Equal(t, []uint64{2, 1, 2, 1}, []uint64{st.Completed, st.Failed, st.RefusedClosed, st.Unmatched})
		require.Equal(t, 1, st.Groups)
	})
}

func TestShutdownEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		g := c.Group()
		var ended atomic.Int64
		done := func(_ string, err error) {
			require.ErrorIs(t, err, ErrClosed)
			c.Close() // may be called from here
			ended.Add(1)
		}
		for id := range 100 {
			require.NoError(t, c.Go(id, time.Minute, sendNothing, done))
			require.NoError(t, g.Go(id, NoTimeout, sendNothing, done))
		}
		require.NoError(t, c.Shutdown(t.Context()))
		require.Equal(t, int64(200), ended.Load())
		_, err := c.Group().Do(t.Context(), 1, time.Minute, sendNothing)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, c.Go(1, time.Minute, sendNothing, done), ErrClosed)
		require.Equal(t, uint64(200), c.Stats().Closed)
		require.PanicsWithValue(t, "calls: the context is nil", func() { _ = c.Shutdown(nil) })
	})
}

func TestShutdownWaitsForDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New[int, string](Options{})
		require.NoError(t, err)
		running, release := make(chan struct{}), make(chan struct{})
		require.NoError(t, c.Go(1, time.Second, sendNothing, func(string, error) { close(running); <-release }))
		<-running
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Shutdown(ctx), context.DeadlineExceeded)
		close(release)
		require.NoError(t, c.Shutdown(t.Context()))
	})
}

func TestMaxPending(t *testing.T) {
	c := table(t, Options{MaxPending: 2})
	g := c.Group()
	discard := func(string, error) {}
	require.NoError(t, c.Go(1, time.Minute, sendNothing, discard))
	require.NoError(t, g.Go(1, NoTimeout, sendNothing, discard))
	require.ErrorIs(t, g.Go(2, time.Minute, sendNothing, discard), ErrFull)
	_, err := c.Do(t.Context(), 2, time.Minute, sendNothing)
	require.ErrorIs(t, err, ErrFull)
	require.ErrorIs(t, g.Go(1, time.Minute, sendNothing, discard), ErrDuplicate)
	require.True(t, c.Reply(1, ""))
	require.NoError(t, c.Go(2, time.Minute, sendNothing, discard))
	require.Equal(t, 1, g.CloseWithError(io.EOF))
	require.NoError(t, c.Go(3, time.Minute, sendNothing, discard))
	require.Equal(t, uint64(2), c.Stats().RefusedFull)
}

func TestBadInput(t *testing.T) {
	_, err := New[int, string](Options{MaxPending: -1})
	require.EqualError(t, err, "calls: Options.MaxPending is -1, must be 0 (no bound) or more")
	_, err = New[int, string](Options{Workers: -1})
	require.EqualError(t, err, "calls: timingwheel: Options.Workers is -1, must be 1 to 65536")
	_, err = New[int, string](Options{Tick: -1})
	require.ErrorContains(t, err, "Tick is -1ns")
	f, err := New[float64, string](Options{})
	require.NoError(t, err)
	_, err = f.Do(t.Context(), math.NaN(), time.Minute, sendNothing)
	require.ErrorContains(t, err, "not equal to itself")
	require.NoError(t, f.Shutdown(t.Context()))

	c := table(t, Options{})
	for _, timeout := range []time.Duration{0, -1, math.MinInt64} {
		_, err = c.Do(t.Context(), 1, timeout, func() error { panic("must not be called") })
		require.ErrorIs(t, err, ErrExpired)
		require.ErrorIs(t, c.Go(1, timeout, sendNothing, func(string, error) {}), ErrExpired)
	}
	require.NoError(t, c.Go(1, NoTimeout-1, sendNothing, func(string, error) {}), "beyond the end of time")
	for w := range c.All() {
		require.True(t, w.Deadline.IsZero())
	}
	for text, f := range map[string]func(){
		"calls: Do with a nil context or send": func() { _, _ = c.Do(t.Context(), 1, time.Minute, nil) },
		"calls: Go with a nil send or done":    func() { _ = c.Go(2, time.Minute, sendNothing, nil) },
		"calls: Fail with a nil error":         func() { c.Fail(1, nil) },
	} {
		require.PanicsWithValue(t, text, f)
	}
	require.Equal(t, 1, c.Stats().Pending)
}

func TestDonePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := make(chan any, 2)
		c := table(t, Options{OnPanic: func(p timingwheel.Panic) { panics <- p.Value }})
		require.NoError(t, c.Go(1, time.Second, sendNothing, func(string, error) { panic("replied") }))
		require.NoError(t, c.Go(2, time.Second, sendNothing, func(string, error) { panic("expired") }))
		require.True(t, c.Reply(1, ""))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, panics, 2, "that are reported")
		require.Equal(t, "replied", <-panics)
		require.Equal(t, "expired", <-panics)
	})
}

func TestAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		g := c.Group()
		discard := func(string, error) {}
		require.NoError(t, g.Go(1, time.Minute, sendNothing, discard))
		time.Sleep(time.Second)
		require.NoError(t, g.Go(2, NoTimeout, sendNothing, discard))
		got := map[int]Waiting[int]{}
		for w := range g.All() {
			got[w.ID] = w
		}
		require.Equal(t, map[int]Waiting[int]{
			1: {1, time.Second, time.Now().Add(59 * time.Second)},
			2: {2, 0, time.Time{}},
		}, got)
		require.Equal(t, 2, g.Len())
		for range g.All() {
			break
		}
	})
}

// Oldest against sorting all, in several groups.
func TestOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{})
		groups := []*Group[int, string]{c.Group(), c.Group(), c.Group()}
		rnd := rand.New(rand.NewPCG(6, 7))
		var ages []time.Duration
		for id := range 500 {
			require.NoError(t, groups[rnd.IntN(3)].Go(id, time.Hour, sendNothing, func(string, error) {}))
			if rnd.IntN(3) > 0 { // some of equal age
				time.Sleep(time.Millisecond)
			}
		}
		for w := range c.All() {
			ages = append(ages, w.Age)
		}
		slices.Sort(ages)
		slices.Reverse(ages)
		for _, n := range []int{-1, 0, 1, 20, 499, 500, 501} {
			oldest := c.Oldest(n)
			require.Len(t, oldest, min(max(n, 0), 500))
			for i, w := range oldest {
				require.Equal(t, ages[i], w.Age)
			}
		}
	})
}

func TestMemoryFollowsTheCalls(t *testing.T) {
	c := table(t, Options{})
	g := c.Group()
	heap := func() uint64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const n = 200_000
	for id := range n {
		require.NoError(t, g.Go(id, time.Hour, sendNothing, func(string, error) {}))
	}
	held := heap() - before
	for id := range n - 1000 {
		require.True(t, g.Reply(id, ""))
	}
	left := int64(heap()) - int64(before)
	require.Less(t, left, int64(held/20), "%d bytes for %d calls, %d for 1,000", held, n, left)
}

// A few calls in a row without an allocation suffice: under the race detector a pool drops a
// quarter of its items.
func TestNothingIsAllocated(t *testing.T) {
	c := table(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	id := 0
	send := func() error { c.Reply(id, "r"); return nil }
	done := func(string, error) {}
	for _, timeout := range []time.Duration{time.Minute, NoTimeout} {
		call := func() {
			id++
			if _, err := c.Do(ctx, id, timeout, send); err != nil {
				panic(err)
			}
			if err := c.Go(id, timeout, send, done); err != nil {
				panic(err)
			}
		}
		least := testing.AllocsPerRun(3, call)
		for n := 0; least > 0 && n < 1000; n++ {
			least = testing.AllocsPerRun(3, call)
		}
		require.Zero(t, least, "timeout %v", timeout)
	}
}

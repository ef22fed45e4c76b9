package calls

import (
	"context"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Done functions that block delay no Do. Calls of Go then wait for a worker, accept replies,
// and end in order.
func TestDoneFunctionsBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{Workers: 2})
		release := make(chan struct{})
		resume := sync.OnceFunc(func() { close(release) })
		t.Cleanup(resume)
		type end struct {
			id  int
			err error
		}
		var mu sync.Mutex
		var ended []end
		for id := range 10 {
			require.NoError(t, c.Go(id, time.Second+time.Duration(id)*time.Millisecond, sendNothing, func(_ string, err error) {
				mu.Lock()
				ended = append(ended, end{id, err})
				mu.Unlock()
				<-release
			}))
		}
		var errs [100]error
		var took [100]time.Duration
		for id := range errs {
			go func() {
				began := time.Now()
				_, err := c.Do(context.Background(), 1000+id, 2*time.Second, sendNothing)
				errs[id], took[id] = err, time.Since(began)
			}()
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		st := c.Stats()
		require.Equal(t, 8, st.Pending, "the calls of Go that wait for a worker, and none of Do")
		require.Equal(t, 8, st.GoWheel.Ready)
		require.Equal(t, 2*time.Second, st.GoWheel.Overdue.Round(100*time.Millisecond))
		require.Equal(t, uint64(102), st.Late.Count, "the calls that wait have not expired")
		for id := range errs {
			require.ErrorIs(t, errs[id], ErrExpired)
			require.LessOrEqual(t, took[id], 2*time.Second+time.Millisecond/2)
		}
		require.Equal(t, []end{{0, ErrExpired}, {1, ErrExpired}}, ended)
		go func() { require.True(t, c.Reply(5, "late, but not too late")) }()
		synctest.Wait()
		require.Equal(t, 7, c.Stats().Pending)
		require.Equal(t, end{5, nil}, ended[2])
		resume()
		synctest.Wait()
		require.ElementsMatch(t, []int{2, 3, 4, 6, 7, 8, 9}, func() (ids []int) {
			for _, e := range ended[3:] {
				require.ErrorIs(t, e.err, ErrExpired)
				ids = append(ids, e.id)
			}
			return ids
		}())
		st = c.Stats()
		require.Equal(t, uint64(109), st.Late.Count)
		require.InDelta(t, 7*2, st.Late.Sum, 0.1)
		require.Zero(t, st.GoWheel.Ready)
		require.Zero(t, st.GoWheel.Overdue)
	})
}

// Nothing refers to a call that has ended while it waited for a worker: its done function, and
// everything that it refers to, can be collected while the workers still block.
func TestWaitingCallsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{Workers: 1, MaxPending: 101})
		release := make(chan struct{})
		defer close(release)
		require.NoError(t, c.Go(-1, time.Millisecond, sendNothing, func(string, error) { <-release }))
		synctest.Wait()
		type request [1 << 10]byte
		var requests []weak.Pointer[request]
		start := func(id int) {
			r := new(request)
			requests = append(requests, weak.Make(r))
			require.NoError(t, c.Go(id, time.Second, sendNothing, func(string, error) { runtime.KeepAlive(r) }))
		}
		lost := c.Group()
		for range 10 { // of 100 calls each, which is MaxPending
			for id := range 100 {
				start(id)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.Equal(t, 100, c.Stats().GoWheel.Ready)
			for k := range 100 {
				id := k * 37 % 100 // from anywhere
				if k%2 == 0 {
					require.True(t, c.Reply(id, "late, but not too late"))
				} else {
					require.True(t, c.Fail(id, io.EOF))
				}
				require.Equal(t, 99-k, c.Stats().GoWheel.Pending)
			}
		}
		require.NoError(t, lost.Go(1, time.Second, sendNothing, func(string, error) {}))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, c.Stats().GoWheel.Ready)
		require.Equal(t, 1, lost.CloseWithError(io.EOF))
		require.Zero(t, c.Stats().GoWheel.Pending)
		for range 2 { // a pool keeps its items for one collection
			runtime.GC()
		}
		held := 0
		for _, r := range requests {
			if r.Value() != nil {
				held++
			}
		}
		require.Zero(t, held, "of %d", len(requests))
	})
}

// A done function that ends its worker's goroutine frees the worker's capacity.
func TestDoneEndsItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := table(t, Options{Workers: 2})
		release := make(chan struct{})
		ended := make(chan int, 50)
		for id := range 50 {
			require.NoError(t, c.Go(id, time.Second, sendNothing, func(string, error) {
				<-release
				ended <- id
				runtime.Goexit()
			}))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 48, c.Stats().Pending)
		close(release)
		synctest.Wait()
		require.Len(t, ended, 50)
		require.NoError(t, c.Go(1, time.Second, sendNothing, func(string, error) { ended <- 1 }))
		for range 51 {
			<-ended
		}
	})
}

// A shutdown ends the calls that wait for a worker, once each.
func TestShutdownEndsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New[int, string](Options{Workers: 1})
		require.NoError(t, err)
		release := make(chan struct{})
		got := make(chan error, 50)
		require.NoError(t, c.Go(-1, time.Millisecond, sendNothing, func(string, error) { <-release }))
		for id := range 50 {
			require.NoError(t, c.Go(id, time.Second, sendNothing, func(_ string, err error) { got <- err }))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 50, c.Stats().GoWheel.Ready)
		c.Close()
		require.Len(t, got, 50)
		close(release)
		require.NoError(t, c.Shutdown(t.Context()))
		require.Len(t, got, 50)
		for range 50 {
			require.ErrorIs(t, <-got, ErrClosed)
		}
	})
}

// Calls of Go have a wheel from the first that has a timeout. One that begins just before the
// table closes leaves no wheel running.
func TestGoWheelIsMadeOnce(t *testing.T) {
	c := table(t, Options{})
	_, err := c.Do(t.Context(), 1, time.Minute, func() error { c.Reply(1, ""); return nil })
	require.NoError(t, err)
	require.NoError(t, c.Go(2, NoTimeout, sendNothing, func(string, error) {}))
	require.Nil(t, c.goWheel.Load())
	_, goes := c.Levels()
	require.Empty(t, goes)
	require.NoError(t, c.Go(3, time.Minute, sendNothing, func(string, error) {}))
	made := c.goWheel.Load()
	require.NoError(t, c.Go(4, time.Minute, sendNothing, func(string, error) {}))
	require.True(t, made == c.goWheel.Load())
	_, goes = c.Levels()
	require.Equal(t, 2, goes[len(goes)-1].Pending)

	raced := 0
	for range 300 {
		c, err := New[int, string](Options{})
		require.NoError(t, err)
		var others sync.WaitGroup
		others.Go(func() { _ = c.Go(1, time.Minute, sendNothing, func(string, error) {}) })
		require.NoError(t, c.Shutdown(t.Context()))
		w := c.goWheel.Load()
		others.Wait()
		require.True(t, w == c.goWheel.Load(), "made after the shutdown")
		if w != nil {
			raced++
			_, err = w.Schedule(nil, time.Minute)
			require.ErrorIs(t, err, timingwheel.ErrClosed)
		}
	}
	t.Log(raced, "tables had a wheel for Go")
}

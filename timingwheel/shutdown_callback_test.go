package timingwheel

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contract T13, called on a worker: Close begins a shutdown and does not wait.

// T13, T12: from one callback or several at once, under each policy, with one worker or more,
// and with timers pending.
func TestCloseFromCallback(t *testing.T) {
	for _, policy := range policies {
		for _, workers := range []int{1, 3} {
			for _, callers := range []int{1, 3} {
				t.Run(policy.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var f *fixture
						var mu sync.Mutex
						var left []int
						f = start(t, Options{Workers: workers, Shards: 2, WheelSize: 2}, func(v int) {
							if v >= 0 {
								return
							}
							l, err := f.Close(policy)
							require.NoError(t, err)
							mu.Lock()
							left = append(left, f.valuesOf(l)...)
							mu.Unlock()
							_, err = f.Schedule(1, 0)
							require.ErrorIs(t, err, ErrClosed)
						})
						for i := range 10 {
							f.schedule(i, time.Duration(i+2)*time.Second)
						}
						for range callers {
							f.schedule(-1, time.Second)
						}
						time.Sleep(time.Minute)
						synctest.Wait()
						f.closed()
						ran := without(f.values(), -1)
						slices.Sort(ran)
						all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
						switch policy {
						case Discard:
							require.Empty(t, ran)
						case Return:
							require.Equal(t, all, without(left, -1))
							require.Empty(t, ran)
						default:
							require.Equal(t, all, ran)
						}
					})
				})
			}
		}
	}
}

// T13: from OnPanic, while another goroutine shuts down: Shutdown waits for OnPanic too.
func TestCloseFromHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = start(t, Options{Workers: 1, OnPanic: func(Panic) {
			_, err := f.Close(Return)
			require.NoError(t, err)
			time.Sleep(time.Minute)
		}}, explode)
		f.schedule(-1, time.Second)
		f.schedule(1, time.Hour)
		require.Empty(t, f.end(Await))
		require.Equal(t, time.Minute+time.Second, f.since())
		require.Equal(t, uint64(1), f.Stats().Returned)
	})
}

// T13: Close does not wait, whatever goroutine calls it; still, none of the wheel's goroutines
// remains, or the bubble would not end.
func TestCloseDoesNotWait(t *testing.T) {
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			g := make(gate)
			w, err := New(g.wait, Options{Workers: 1})
			require.NoError(t, err)
			for i := range 3 {
				_, err := w.Schedule(i-1, time.Duration(i)*time.Second)
				require.NoError(t, err)
			}
			synctest.Wait()
			at := time.Now()
			for range 2 {
				_, err = w.Close(policy)
				require.NoError(t, err)
			}
			require.Equal(t, at, time.Now())
			g <- struct{}{}
			time.Sleep(time.Minute)
		})
	}
}

// T13: Shutdown from a callback waits for that callback until its context is done. It still
// begins the shutdown, as Close would.
func TestShutdownFromCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = start(t, Options{Workers: 1}, func(v int) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			left, err := f.Shutdown(ctx, Return)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, []int{2}, f.valuesOf(left))
		})
		f.schedule(1, time.Second)
		f.schedule(2, time.Hour)
		f.end(Await)
		require.Equal(t, time.Minute+time.Second, f.since())
	})
}

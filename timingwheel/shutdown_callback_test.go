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

// Contract T13, called on a worker.

// T13: from a callback, under each policy, with one worker and with more, and
// with timers pending: another worker takes over meanwhile.
func TestShutdownFromCallback(t *testing.T) {
	for _, policy := range policies {
		for _, workers := range []int{1, 3} {
			for _, callers := range []int{1, 3} { // of Shutdown, at once
				t.Run(policy.String(), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						var f *fixture
						var mu sync.Mutex
						var left []int
						f = start(t, Options{Workers: workers, Shards: 2, WheelSize: 2}, func(v int) {
							if v >= 0 {
								return
							}
							l, err := f.Shutdown(context.Background(), policy)
							require.NoError(t, err)
							mu.Lock()
							left = append(left, l...)
							mu.Unlock()
							_, err = f.Schedule(1, 0)
							require.ErrorIs(t, err, ErrClosed)
						})
						for i := range 10 {
							f.in(i, time.Duration(i+2)*time.Second)
						}
						for range callers {
							f.in(-1, time.Second)
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
						case HandBack:
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

// T13: from the hook of a panic, and while another goroutine shuts down too.
func TestShutdownFromHook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var f *fixture
		f = start(t, Options{Workers: 1, OnPanic: func(Panic) { f.end2(HandBack) }}, explode)
		f.in(-1, time.Second)
		f.in(1, time.Hour)
		f.end2(Await) // may return while the hook's call does
		require.Equal(t, time.Second, f.since())
		synctest.Wait()
		f.closed()
	})
}

// end2 is end where a worker that is in Shutdown itself is not gone.
func (f *fixture) end2(p Policy) {
	_, err := f.Shutdown(context.Background(), p)
	require.NoError(f.t, err)
}

// T13: a Shutdown waits for a callback that called Shutdown itself and went on
// to do other things, whether its own call succeeded or gave up.
func TestShutdownWaitsForFormerCaller(t *testing.T) {
	for _, gaveUp := range []bool{true, false} {
		for _, workers := range []int{1, 3} {
			bubble(t, func(t *testing.T) {
				var f *fixture
				f = start(t, Options{Workers: workers}, func(v int) {
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if v == 2 {
						return
					}
					policy := Discard
					if gaveUp {
						cancel()
						policy = Await
					}
					_, err := f.Shutdown(ctx, policy)
					require.Equal(t, gaveUp, err != nil)
					time.Sleep(time.Minute)
				})
				f.in(1, time.Second)
				f.in(2, 10*time.Second)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				f.end(Await)
				require.Equal(t, 61*time.Second, f.since())
				if gaveUp {
					require.Equal(t, []int{1, 2}, f.values())
				} else {
					require.Equal(t, []int{1}, f.values())
				}
			})
		}
	}
}

// T11: callbacks that call Shutdown and give up do not make the pool grow by
// one worker each.
func TestShutdownFromCallbacksIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var f *fixture
		f = start(t, Options{Workers: 2, Shards: 1}, func(v int) {
			ctx, cancel := context.WithTimeout(context.Background(), 1)
			defer cancel()
			f.Shutdown(ctx, Await)
			time.Sleep(time.Hour)
		})
		for i := range 100 {
			f.in(i, time.Duration(i+1)*time.Second)
		}
		for range 100 {
			time.Sleep(time.Second)
			require.LessOrEqual(t, f.Stats().Workers, 4)
		}
		f.end2(RunNow)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		f.closed()
	})
}

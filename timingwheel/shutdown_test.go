package timingwheel

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Contract T13.

var policies = []Policy{Discard, Return, RunNow, Await}

// end shuts down, which must succeed, and checks the state after that.
func (f *fixture) end(p Policy) []int {
	f.t.Helper()
	left, err := f.Shutdown(context.Background(), p)
	require.NoError(f.t, err)
	f.closed()
	return f.valuesOf(left)
}

// valuesOf returns the values that Return returned, which must be in order of deadlines.
func (f *fixture) valuesOf(due []Due[int]) (vs []int) {
	f.t.Helper()
	for i, d := range due {
		require.False(f.t, i > 0 && d.Deadline.Before(due[i-1].Deadline), "T13: in order of deadlines")
		vs = append(vs, d.Value)
	}
	return vs
}

// closed checks a wheel whose shutdown has ended.
func (f *fixture) closed() {
	f.t.Helper()
	refused := f.Stats().RefusedClosed
	for _, d := range []time.Duration{0, time.Second} {
		h, err := f.Schedule(1, d)
		require.ErrorIs(f.t, err, ErrClosed)
		require.Zero(f.t, h)
		_, err = f.ScheduleAt(1, time.Now().Add(d))
		require.ErrorIs(f.t, err, ErrClosed)
	}
	verify(f.t, f.Wheel)
	st := f.Stats()
	require.Equal(f.t, refused+4, st.RefusedClosed, "T17")
	require.Equal(f.t, []int{0, 0, 0, 0}, []int{st.Pending, st.Ready, st.Workers, st.Bytes})
	require.Zero(f.t, st.Overdue)
	require.Equal(f.t, st.Scheduled, st.Stopped+st.Expired+st.Discarded+st.Returned, "T3")
	<-f.done
	require.Zero(f.t, f.shared.queue.Len())
	for _, s := range f.shards {
		func() {
			s.mu.Lock() // another call of Shutdown may be about to return
			defer s.mu.Unlock()
			require.Zero(f.t, s.bytes())
			require.Nil(f.t, s.levels)
		}()
	}
}

// T13, T3, timers 4: each policy, with timers on every level, in the ready list, running,
// stopped and moved, treats each timer that has not run as it promises, once.
func TestShutdownPolicies(t *testing.T) {
	for _, policy := range policies {
		for _, shards := range []int{1, 4} {
			t.Run(policy.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := make(gate)
					f := start(t, Options{WheelSize: 4, Shards: shards, Workers: 1, MaxPending: 1000}, g.wait)
					f.blockWorkers(1)
					const n = 200
					var hs []Timer
					for i := range n {
						hs = append(hs, f.schedule(i, time.Duration(i)*time.Millisecond))
					}
					f.Stop(hs[10])
					f.Stop(hs[110])
					f.Reset(hs[20], 300*time.Millisecond) // the last of all
					f.Reset(hs[120], 10*time.Millisecond) // runs tenth or so
					f.advance(50 * time.Millisecond)      // some are ready
					order := []int{}
					for i := range n {
						if i != 10 && i != 110 && i != 20 && i != 120 {
							order = append(order, i)
						}
					}
					order = append(order, 20)
					const late = 11

					at := f.since()
					free := make(chan struct{})
					go func() {
						time.Sleep(time.Second)
						close(g)
						close(free)
					}()
					left := f.end(policy)
					switch policy {
					case Discard:
						require.Equal(t, at+time.Second, f.since(), "it waits for the function that runs")
						require.Nil(t, left)
						require.Empty(t, f.fired())
						require.Equal(t, uint64(n-2), f.Stats().Discarded)
					case Return:
						require.Equal(t, at+time.Second, f.since())
						require.Equal(t, order, without(left, 120), "in order of deadline")
						require.Contains(t, left[:late+1], 120)
						require.Empty(t, f.fired())
						require.Equal(t, uint64(n-2), f.Stats().Returned)
					case RunNow, Await:
						require.Nil(t, left)
						require.Equal(t, at+time.Second, f.since(), "all were due when the worker was free")
						ran := f.values()
						require.Equal(t, order, without(ran, 120))
						require.Contains(t, ran[:late+1], 120)
					}
					<-free
					for _, h := range hs {
						require.False(t, f.Stop(h))
						require.False(t, f.Reset(h, 0))
					}
					require.Nil(t, f.end(policies[shards%4]), "idempotent")
				})
			})
		}
	}
}

func without(vs []int, v int) []int {
	return slices.DeleteFunc(slices.Clone(vs), func(x int) bool { return x == v })
}

// T13: RunNow does not wait for deadlines, Await does; Stop and Reset still work, and new
// timers are refused, also in callbacks.
func TestRunNowAndAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{WheelSize: 2, Shards: 2, Workers: 1}) // with two, the second might record its value first
		f.schedule(2, 2*time.Hour)
		f.schedule(1, math.MaxInt64)
		f.end(RunNow)
		require.Equal(t, []firing{{2, 0}, {1, 0}}, f.fired())
	})
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = start(t, Options{WheelSize: 2, Shards: 2, MaxPending: 4}, func(v int) {
			_, err := f.Schedule(v, time.Hour)
			require.ErrorIs(t, err, ErrClosed)
		})
		f.schedule(1, time.Hour)
		stop, move, soon := f.schedule(2, 3*time.Hour), f.schedule(3, time.Minute), f.schedule(4, 5*time.Hour)
		ended := make(chan time.Duration)
		go func() {
			f.end(Await)
			ended <- f.since()
		}()
		f.waitIdle()
		_, err := f.Schedule(5, 0)
		require.ErrorIs(t, err, ErrClosed, "refused as closed, though MaxPending are held as well")
		f.advance(time.Second)
		require.True(t, f.Reset(move, 2*time.Hour))
		require.True(t, f.Stop(stop))
		require.True(t, f.Reset(soon, 0))
		require.Equal(t, 2*time.Hour+time.Second, <-ended)
		require.Equal(t, []firing{{4, time.Second}, {1, time.Hour}, {3, 2*time.Hour + time.Second}}, f.fired())
	})
	synctest.Test(t, func(t *testing.T) { // Await of stopped timers
		f := start(t, Options{Shards: 2})
		h := f.schedule(1, time.Hour)
		go func() {
			time.Sleep(time.Minute)
			f.Stop(h)
		}()
		f.end(Await)
		require.Equal(t, time.Minute, f.since())
	})
}

// T13: a call with a stricter policy ends a waiting one; both return.
func TestStricterPolicyEndsAwait(t *testing.T) {
	for _, stricter := range policies[:3] {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{Shards: 2})
			f.schedule(1, time.Hour)
			ended := make(chan time.Duration, 1)
			go func() {
				left, err := f.Shutdown(context.Background(), Await)
				require.NoError(t, err)
				require.Nil(t, left)
				ended <- f.since()
			}()
			f.advance(time.Minute)
			require.Equal(t, stricter == Return, slices.Equal([]int{1}, f.end(stricter)))
			require.Equal(t, time.Minute, <-ended)
			require.Equal(t, stricter == RunNow, len(f.fired()) == 1)
		})
	}
}

// T13: under RunNow a timer that waits for a worker can be stopped, but not moved.
func TestResetUnderRunNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Workers: 1}, g.wait)
		f.blockWorkers(1)
		a, b, c := f.schedule(1, time.Hour), f.schedule(2, time.Hour), f.schedule(3, time.Hour)
		ended := make(chan struct{})
		go func() {
			f.end(RunNow)
			close(ended)
		}()
		f.waitIdle()
		require.True(t, f.Reset(a, 2*time.Hour))
		require.True(t, f.Reset(c, time.Minute))
		require.True(t, f.Stop(b))
		close(g)
		<-ended
		require.Equal(t, []firing{{1, 0}, {3, 0}}, f.fired())
		require.False(t, f.Reset(a, time.Hour))
	})
}

// T13: a context ends while a callback blocks. The shutdown continues by its policy; a second
// call waits for it, or ends it with a stricter policy.
func TestShutdownContext(t *testing.T) {
	for _, policy := range policies {
		for _, second := range policies {
			t.Run(policy.String()+second.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := make(gate)
					f := start(t, Options{WheelSize: 2, Shards: 2, Workers: 1}, g.wait)
					f.blockWorkers(1)
					f.schedule(2, 2*time.Hour)
					f.schedule(1, time.Hour)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					back, err := f.Shutdown(ctx, policy)
					got := f.valuesOf(back)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, time.Minute, f.since())
					_, err = f.Schedule(3, 0)
					require.ErrorIs(t, err, ErrClosed)
					f.waitIdle()

					time.AfterFunc(time.Minute, func() { close(g) })
					got = append(got, f.end(second)...)
					ran := f.values()
					first := policy
					if policy == Await && second != Await { // the stricter one decides
						first = second
					}
					switch {
					case first == Discard || policy == RunNow && second == Discard:
						require.Empty(t, append(got, ran...))
					case first == Return || policy == RunNow && second == Return:
						require.Equal(t, []int{1, 2}, got)
						require.Empty(t, ran)
					default:
						require.Equal(t, []int{1, 2}, ran)
						require.Empty(t, got)
					}
					end := 2 * time.Minute
					if first == Await {
						end = 2 * time.Hour
					}
					require.Equal(t, end, f.since())
				})
			})
		}
	}
}

// T13: a context that is done already still starts the shutdown.
func TestShutdownCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{}, g.wait)
		f.blockWorkers(1)
		f.schedule(1, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		left, err := f.Shutdown(ctx, Return)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []int{1}, f.valuesOf(left))
		close(g)
		synctest.Wait()
		f.closed()
	})
}

// T13, timers 4: any number of concurrent calls with different policies: each timer ends once,
// each call returns, and nothing remains.
func TestConcurrentShutdowns(t *testing.T) {
	for round := range 200 {
		synctest.Test(t, func(t *testing.T) {
			var running atomic.Int32
			f := start(t, Options{WheelSize: 2, Shards: 1 << (round % 3), Workers: 2, Tick: 1 + time.Duration(round)}, func(int) {
				running.Add(1)
				runtime.Gosched()
				running.Add(-1)
			})
			const n = 150
			for i := range n {
				f.schedule(i, time.Duration(i%70*50))
			}
			var mu sync.Mutex
			ends := map[int]int{}
			var wg sync.WaitGroup
			for k := range 8 {
				wg.Go(func() {
					time.Sleep(time.Duration(k * round))
					left, err := f.Shutdown(context.Background(), policies[(round>>(k%4)+k)%4])
					if err != nil || running.Load() != 0 {
						t.Error("returned too early", err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, d := range left {
						ends[d.Value]++
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			f.closed()
			for _, v := range f.values() {
				ends[v]++
			}
			st := f.Stats()
			require.Equal(t, n, len(ends)+int(st.Discarded))
			for v, k := range ends {
				require.Equal(t, 1, k, "timer %d", v)
			}
		})
	}
}

// T13: until it is closed, the delay queue may name buckets of a discarded shard. They are not
// found, even if their records were reused.
func TestFlushAfterDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 1})
		f.stopAdvancer()
		f.schedule(1, time.Hour)
		s := f.shards[0]
		head, ok := f.shared.queue.Peek()
		require.True(t, ok)
		r := head.Value
		s.mu.Lock()
		s.closed = true
		s.counts.discarded++
		s.dropAll()
		s.lists.newBucket(bucketReady, 0, 1)
		require.Equal(t, r.bucket, uint32(1), "the same record")
		require.Greater(t, s.lists.bucket(1).seq, r.seq, "a bucket's sequence number is used again")
		s.mu.Unlock()
		f.advancer.prune()
		require.Equal(t, 1, f.shared.queue.Len())
		require.Zero(t, f.Stats().Overdue)
		time.Sleep(2 * time.Hour)
		require.False(t, f.advancer.flush(r))
		require.Equal(t, bucketReady, s.lists.bucket(1).state)
		s.lists.freeBucket(1)
		f.startAdvancer()
	})
}

// T3, T13: a shutdown treats the timers of a half-cascaded bucket like all others, and the
// cascade finds that they have been removed.
func TestShutdownDuringCascade(t *testing.T) {
	const n = 50 * cascadeChunk
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{WheelSize: 2, Shards: 1})
			f.stopAdvancer()
			for i := range n {
				f.schedule(i, 5*time.Millisecond)
			}
			time.Sleep(4 * time.Millisecond)
			s, id := f.head()
			var taken int
			f.duringCascade(s, id, func(int) {
				s.mu.Unlock()
				defer s.mu.Lock()
				switch policy {
				case Discard, Return:
					left, err := f.Close(policy)
					require.NoError(t, err)
					taken = len(left)
					require.Zero(t, f.Len())
				case RunNow:
					f.runAll()
				}
			})
			f.startAdvancer()
			f.end(policy)
			switch policy {
			case Discard:
				require.Equal(t, uint64(n), f.Stats().Discarded)
			case Return:
				require.Equal(t, n, taken)
			default:
				ran := f.values()
				slices.Sort(ran)
				require.Len(t, slices.Compact(ran), n)
			}
		})
	}
}

// T13: an unknown policy is refused, by name and value, and changes nothing.
func TestUnknownPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{})
		_, err := f.Shutdown(t.Context(), Await+1)
		require.EqualError(t, err, "timingwheel: the policy is Policy(4), must be Discard, Return, RunNow or Await")
		f.schedule(1, 0)
		f.waitIdle()
		require.Len(t, f.fired(), 1)
		for p, name := range []string{"Discard", "Return", "RunNow", "Await", "Policy(4)"} {
			require.Equal(t, name, Policy(p).String())
		}
	})
}

// T13: a shutdown without a waiting caller still ends, and leaves no goroutine, or the bubble
// would not end.
func TestShutdownContinuesWithoutCaller(t *testing.T) {
	for _, policy := range []Policy{RunNow, Await} {
		t.Run(policy.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ran := 0
				hold := make(chan bool)
				w, err := New(func(int) { <-hold; ran++ }, Options{Workers: 1})
				require.NoError(t, err)
				for i := range 3 {
					_, err = w.Schedule(i, time.Duration(i)*time.Second)
					require.NoError(t, err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err = w.Shutdown(ctx, policy)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				close(hold)
				time.Sleep(3 * time.Second)
				synctest.Wait()
				require.Equal(t, 3, ran)
				require.Zero(t, w.Stats().Workers)
			})
		})
	}
}

// T13: a nil context panics before any change.
func TestShutdownNilContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{})
		require.PanicsWithValue(t, "timingwheel: the context is nil", func() {
			f.Shutdown(nil, Await)
		})
		f.schedule(1, 0)
		f.waitIdle()
		require.Len(t, f.fired(), 1)
	})
}

// T13: returned timers have their deadlines: as scheduled, as reset, or already due.
func TestReturnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(gate)
		f := start(t, Options{Workers: 1, Shards: 2, Tick: 10 * time.Millisecond}, g.wait)
		f.blockWorkers(1)
		f.advance(time.Second)
		f.schedule(2, 20*time.Millisecond)
		f.Reset(f.schedule(3, time.Millisecond), time.Hour)
		f.schedule(1, -time.Hour)
		f.schedule(4, 2*time.Hour+time.Nanosecond)
		left, err := f.Close(Return)
		require.NoError(t, err)
		close(g)
		var got []time.Duration
		for _, d := range left {
			got = append(got, d.Deadline.Sub(f.created)-time.Second)
		}
		require.Equal(t, []int{1, 2, 3, 4}, f.valuesOf(left))
		require.Equal(t, []time.Duration{0, 20 * time.Millisecond, time.Hour, 2*time.Hour + 10*time.Millisecond}, got)
		require.Equal(t, uint64(4), f.Stats().Returned)
		f.end(Discard)
	})
}

// T13: a RunNow that was overtaken and finds no timers leaves nothing behind in a shard whose
// memory is freed.
func TestOvertakenRunNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Options{Shards: 1})
		f.schedule(1, time.Hour)
		s := f.shards[0]
		pending := s.appendPending(nil)
		f.end(Discard)
		s.makeReady(pending)
		f.closed()
	})
}

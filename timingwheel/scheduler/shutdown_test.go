package scheduler

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

// T13: each policy, with a call and a job of each kind; the statistics.
func TestShutdown(t *testing.T) {
	for _, c := range []struct {
		policy   timingwheel.Policy
		ran      []string // and when
		returned []string // and when
		stats    []uint64 // Ended, Discarded, Returned
	}{
		{timingwheel.Discard, nil, nil, []uint64{0, 5, 0}},
		{timingwheel.Return, nil, []string{"after 10ms", "every 20ms", "delay 30ms", "at 40ms", "schedule 1s"}, []uint64{0, 0, 5}},
		{timingwheel.RunNow, []string{"after 1ms", "at 1ms", "delay 1ms", "every 1ms", "schedule 1ms"}, nil, []uint64{5, 0, 0}},
		{timingwheel.Await, []string{"after 10ms", "at 40ms", "delay 30ms", "every 20ms", "schedule 1s"}, nil, []uint64{5, 0, 0}},
	} {
		for _, bound := range []int{0, 5} {
			t.Run(c.policy.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newFixture(t, Options{MaxPending: bound})
					var mu sync.Mutex
					var ran []string
					last := ""
					note := func(name string) func() {
						return func() {
							mu.Lock()
							defer mu.Unlock()
							last = name
							ran = append(ran, name+" "+r.since().String())
						}
					}
					var e ends
					o := JobOptions{OnEnd: e.record}
					call := r.after(10*milli, note("after"))
					jobs := []*Job{
						r.every(20*milli, note("every"), o),
						r.job(r.EveryDelay(30*milli, note("delay"), o)),
						r.job(r.At(r.wallNow().Add(40*milli), note("at"), o)),
						r.on(multiples{time.Second, 0}, note("schedule"), o),
					}
					r.advance(milli)
					returned, err := r.Shutdown(t.Context(), c.policy)
					require.NoError(t, err)
					if c.policy != timingwheel.Await {
						require.Equal(t, milli, r.since())
					}
					slices.Sort(ran)
					require.Equal(t, c.ran, ran)
					var names []string
					for _, p := range returned {
						p.Func()
						names = append(names, last+" "+p.Deadline.Sub(r.created).String())
						if p.Job == nil {
							require.Equal(t, "after", last)
						} else {
							require.Equal(t, p.Job, jobs[slices.Index([]string{"every", "delay", "at", "schedule"}, last)])
						}
					}
					require.Equal(t, c.returned, names)
					require.False(t, call.Stop())
					require.False(t, call.Reset(0))
					for i, j := range jobs {
						require.False(t, j.Stop(), i)
						require.Zero(t, j.Next(), i)
						if i == 2 && c.policy >= timingwheel.RunNow {
							require.NoError(t, j.Err(), "it ran: nothing was refused")
						} else {
							require.ErrorIs(t, j.Err(), ErrClosed, i)
						}
					}
					require.ElementsMatch(t, jobs, e.jobs)
					require.Zero(t, r.Len())
					st := r.verify()
					require.Equal(t, c.stats, []uint64{st.Ended, st.Discarded, st.Returned})

					_, err = r.AfterFunc(0, r.record)
					require.ErrorIs(t, err, ErrClosed)
					_, err = r.Every(milli, r.record, JobOptions{})
					require.ErrorIs(t, err, ErrClosed)
					_, err = r.At(time.Now(), r.record, JobOptions{})
					require.ErrorIs(t, err, ErrClosed)
					require.Equal(t, uint64(3), r.Stats().RefusedClosed)
					require.Zero(t, r.clock.watchers)
					for _, policy := range policies { // idempotent
						returned, err = r.Shutdown(t.Context(), policy)
						require.NoError(t, err)
						require.Empty(t, returned)
					}
					before := len(ran)
					r.advance(time.Hour)
					require.Len(t, ran, before)
				})
			})
		}
	}
}

// A scheduler without a job, and an unused scheduler.
func TestShutdownWithoutJobs(t *testing.T) {
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			r.after(time.Second, r.record)
			_, err := r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
			_, err = r.Every(time.Second, r.record, JobOptions{})
			require.ErrorIs(t, err, ErrClosed)
			require.Nil(t, r.jobs.wheel)
			r = newFixture(t, Options{})
			_, err = r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
		})
	}
}

// A job without a run is refused like any other, and its hook is not called.
func TestNoRunAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		var e ends
		never := scheduleFunc(func(time.Time) time.Time { return time.Time{} })
		j := r.on(never, r.record, JobOptions{OnEnd: e.record})
		require.NoError(t, j.Err())
		require.Equal(t, []error{nil}, e.recorded())
		_, err := r.Close(timingwheel.Await)
		require.NoError(t, err)
		j, err = r.OnSchedule(never, r.record, JobOptions{OnEnd: e.record})
		require.ErrorIs(t, err, ErrClosed)
		require.Nil(t, j)
		require.Empty(t, e.recorded())
		require.Equal(t, uint64(1), r.Stats().RefusedClosed)
	})
}

// An unknown policy is an error, and a nil context panics; both change nothing.
func TestShutdownBadArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 2})
		r.at(2*time.Hour, r.record)
		_, err := r.Shutdown(t.Context(), 4)
		require.EqualError(t, err, "scheduler: the policy is Policy(4), must be Discard, Return, RunNow or Await")
		_, err = r.Close(4)
		require.ErrorContains(t, err, "Policy(4)")
		require.PanicsWithValue(t, "scheduler: the context is nil", func() {
			_, _ = r.Shutdown(nil, timingwheel.Discard) // the subject of this test
		})
		r.after(time.Second, func() {})
		require.Empty(t, r.advance(time.Minute))
		r.setWall(time.Hour)
		require.Equal(t, durations{time.Hour}, r.advance(2*time.Hour))
	})
}

// A function may call Close while another goroutine waits in Shutdown; with a stricter policy
// this ends the Await.
func TestCloseFromFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		r.every(milli, func() {
			r.record()
			_, err := r.Close(timingwheel.RunNow)
			require.NoError(t, err)
		}, JobOptions{})
		r.after(time.Hour, r.record)
		r.at(time.Hour, r.record)
		_, err := r.Shutdown(t.Context(), timingwheel.Await)
		require.NoError(t, err)
		require.Equal(t, durations{milli, milli, milli}, r.recorded())
	})
}

// A shutdown whose context ends first still completes.
func TestShutdownContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		r.after(time.Minute, r.record)
		r.after(0, func() { time.Sleep(time.Hour) })
		r.at(0, func() { time.Sleep(2 * time.Hour) })
		j := r.every(time.Minute, r.record, JobOptions{})
		r.advance(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		returned, err := r.Shutdown(ctx, timingwheel.Return)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, returned, 2)
		require.Nil(t, returned[0].Job)
		require.Equal(t, j, returned[1].Job)
		ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = r.Shutdown(ctx, timingwheel.Return)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Hour+2*time.Second, r.since())
		_, err = r.Shutdown(t.Context(), timingwheel.Await)
		require.NoError(t, err)
		require.Equal(t, 2*time.Hour, r.since())
	})
}

// White box: a job whose timer a worker has taken is neither returned nor discarded: it runs,
// and then ends. Nor is a job returned that was stopped after the wheel returned it.
func TestShutdownAfterTimerWasTaken(t *testing.T) {
	for _, policy := range policies[:2] {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var e ends
			j := r.every(time.Hour, r.record, JobOptions{OnEnd: e.record})
			require.True(t, j.wheel.Stop(j.timer)) // as a worker does
			returned, err := r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
			require.Empty(t, returned)
			require.Equal(t, 1, r.Len())
			j.run()
			require.Len(t, r.recorded(), 1)
			require.Equal(t, []error{ErrClosed}, e.recorded())
			st := r.verify()
			require.Equal(t, []uint64{1, 0, 0}, []uint64{st.Ended, st.Discarded, st.Returned})
		})
	}
	r := newFixture(t, Options{})
	j := r.every(time.Hour, r.record, JobOptions{})
	require.True(t, j.Stop())
	_, ok := j.take(endedByReturn)
	require.False(t, ok)
}

// By RunNow and Await the next run is the last, even if the wall clock has not reached its
// time.
func TestWallJobsUnderShutdown(t *testing.T) {
	for _, policy := range policies[2:] {
		for _, back := range []time.Duration{0, 1, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Options{})
				at := r.at(900*milli, r.record)
				run := r.on(multiples{900 * milli, 0}, r.record, JobOptions{})
				r.setWall(-back)
				_, err := r.Shutdown(t.Context(), policy)
				require.NoError(t, err)
				require.Len(t, r.recorded(), 2, "%v, back by %v", policy, back)
				require.NoError(t, at.Err())
				require.ErrorIs(t, run.Err(), ErrClosed)
			})
		}
	}
}

// A hook that ends the goroutine of Close does not prevent calls of the others.
func TestCloseHookEndsItsGoroutine(t *testing.T) {
	for _, policy := range policies[:2] {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var e ends
			for range 3 {
				r.every(time.Hour, r.record, JobOptions{OnEnd: func(j *Job, err error) {
					e.record(j, err)
					runtime.Goexit()
				}})
			}
			returned := false
			go func() {
				_, _ = r.Close(policy)
				returned = true
			}()
			synctest.Wait()
			require.Equal(t, []error{ErrClosed, ErrClosed, ErrClosed}, e.recorded())
			require.False(t, returned)
			require.Zero(t, r.Len())
			_, err := r.Shutdown(t.Context(), policy)
			require.NoError(t, err)
		})
	}
}

// T3: jobs end under a shutdown at any moment; each accepted call or job is called, stopped or
// returned, once; the statistics match.
func TestShutdownHammer(t *testing.T) {
	t.Parallel()
	rounds := 120
	if testing.Short() {
		rounds = 12
	}
	for round := range rounds {
		policy := policies[round%4]
		s, err := New(Options{Tick: 20 * time.Microsecond, MaxPending: round % 2 * 1000})
		require.NoError(t, err)
		var set atomic.Int64
		s.clock.reading = func(now time.Time) time.Time { return now.Round(0).Add(time.Duration(set.Load())) }
		var ended [200]atomic.Int32
		var jobs [200]*Job
		var calls [200]Call
		accepted := 0
		var done sync.WaitGroup
		done.Go(func() { // makes jobs replan at the same time
			for range 20 {
				set.Add(int64(11 * milli))
				s.clock.stepped()
				runtime.Gosched()
			}
		})
		done.Go(func() {
			for i := range ended {
				var err error
				d, f := time.Duration(i)*10*time.Microsecond, func() { ended[i].Add(1) }
				if i%2 == 0 {
					jobs[i], err = s.At(s.clock.reading(time.Now()).Add(d), f, JobOptions{})
				} else {
					calls[i], err = s.AfterFunc(d, f)
				}
				if err != nil {
					require.ErrorIs(t, err, ErrClosed)
					break
				}
				accepted++
				if i%7 == 0 && i >= 10 {
					if jobs[i-10] != nil && jobs[i-10].Stop() || calls[i-10].Stop() {
						ended[i-10].Add(100)
					}
				}
			}
		})
		for range round {
			runtime.Gosched()
		}
		returned, err := s.Shutdown(t.Context(), policy)
		require.NoError(t, err)
		for _, p := range returned {
			p.Func()
		}
		done.Wait()
		counts := map[int32]int{}
		for i := range accepted {
			n := ended[i].Load()
			if n == 101 && jobs[i] != nil {
				n = 100 // a job may be stopped while its function runs
			}
			counts[n]++
		}
		st := s.Stats()
		require.Equal(t, accepted, counts[0]+counts[1]+counts[100], "%v: %v", policy, counts)
		require.Equal(t, uint64(counts[0]), st.Discarded, "neither called nor returned")
		require.Equal(t, uint64(counts[100]), st.Stopped)
		require.Equal(t, uint64(len(returned)), st.Returned)
		require.Equal(t, uint64(counts[1]-len(returned)), st.Ended)
		require.Equal(t, uint64(accepted), st.Scheduled)
		require.Zero(t, st.Pending)
	}
}

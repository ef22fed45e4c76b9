package scheduler

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

// slowSchedule is a schedule of every minute, counted from its argument, whose n-th Next takes a
// set time. It checks that no two calls overlap.
type slowSchedule struct {
	t       testing.TB
	slow    map[int]time.Duration
	running atomic.Int32
	calls   int
}

func (s *slowSchedule) Next(t time.Time) time.Time {
	if s.running.Add(1) != 1 {
		s.t.Error("two calls of Next overlap")
	}
	defer s.running.Add(-1)
	s.calls++
	time.Sleep(s.slow[s.calls])
	return t.Add(time.Minute)
}

// A schedule that the check calls blocks neither the job nor a worker: the run is made at its
// time, and the next is planned when the schedule has returned.
func TestRunsWhileScheduleIsCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{Workers: 1})
		s := &slowSchedule{t: t, slow: map[int]time.Duration{2: 10 * time.Minute}}
		j := r.on(s, r.record, JobOptions{})
		r.advance(30*time.Second + 500*milli)
		r.setWall(-40 * time.Second) // before the plan was made; Next is called from 31 s on
		other := r.every(time.Second, func() {}, JobOptions{})
		r.advanceTo(40 * time.Second)
		require.Equal(t, 2, s.calls)
		require.Equal(t, r.created.Add(time.Minute), j.Next())
		require.Equal(t, durations{100 * time.Second}, r.advanceTo(101*time.Second))
		require.Equal(t, 2, s.calls)
		require.Zero(t, j.Next(), "not planned yet")
		require.True(t, other.Stop(), "it ran")
		require.Empty(t, r.advanceTo(10*time.Minute+30*time.Second))
		r.advanceTo(10*time.Minute + 32*time.Second)
		require.Equal(t, 4, s.calls, "after the run, and from now on because that is past")
		require.Equal(t, durations{11*time.Minute + 31*time.Second}, r.advanceTo(11*time.Minute+31*time.Second))
	})
}

// Nor does it block other wall-clock jobs whose schedules need no call.
func TestSlowScheduleAfterTheClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		start := func() {
			r.at(2*time.Hour, r.record)                                               // set past
			r.on(multiples{3 * time.Hour, 0}, r.record, JobOptions{Missed: Coalesce}) // too
			r.on(multiples{24 * time.Hour, 4 * time.Hour}, r.record, JobOptions{})    // follows
		}
		start()
		calls := 0
		r.on(scheduleFunc(func(at time.Time) time.Time {
			if calls++; calls == 2 {
				time.Sleep(10 * time.Hour)
			}
			return at.Add(2 * time.Hour)
		}), r.record, JobOptions{})
		start()
		r.advance(500 * milli)
		r.setWall(3*time.Hour + 30*time.Minute)
		const second, half = time.Second, 30 * time.Minute
		require.Equal(t, durations{second, second, second, second}, r.advance(second))
		require.Equal(t, 2, calls)
		require.Equal(t, durations{half, half}, r.advanceTo(time.Hour))
	})
}

// If a run begins while the check calls the schedule, the result does not count: the schedule
// is called again when the run has ended.
func TestRunBeginsWhileScheduleIsCalled(t *testing.T) {
	for _, answer := range []time.Duration{0, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			calls := 0
			j := r.on(scheduleFunc(func(t time.Time) time.Time {
				if calls++; calls == 2 {
					time.Sleep(2 * time.Minute)
					if answer == 0 {
						return time.Time{}
					}
					return t.Add(answer)
				}
				return t.Add(time.Minute)
			}), func() { r.record(); time.Sleep(5 * time.Minute) }, JobOptions{})
			r.advance(500 * milli)
			r.setWall(-2 * time.Second) // noticed at 1 s
			r.advanceTo(time.Minute + 2*time.Second)
			require.Zero(t, j.Next(), "it runs")
			require.Len(t, r.advanceTo(4*time.Minute), 0)
			require.Equal(t, 2, calls)
			require.Equal(t, 1, r.Len())
			r.advanceTo(6*time.Minute + 3*time.Second)
			require.Equal(t, 4, calls, "after 1 min, and from 6 min on")
			require.NoError(t, j.Err())
			require.True(t, j.Next().After(r.wallNow()))
		})
	}
}

// If the clock is set while the job runs, the schedule is called for that only when the run has
// ended.
func TestClockIsSetWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		s := &slowSchedule{t: t}
		r.on(s, func() { time.Sleep(10 * time.Second) }, JobOptions{})
		r.advanceTo(time.Minute + 2500*milli)
		r.setWall(-time.Hour)
		r.advanceTo(time.Minute + 9*time.Second)
		require.Equal(t, uint64(1), r.Stats().ClockSteps)
		require.Equal(t, 1, s.calls)
		r.advanceTo(time.Minute + 10*time.Second)
		require.Equal(t, 2, s.calls)
	})
}

// If the clock is set while the schedule is called for the next run, the job is planned by the
// clock after that.
func TestClockIsSetWhileScheduleIsCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		// The first Next, in OnSchedule.
		s := &slowSchedule{t: t, slow: map[int]time.Duration{1: 10 * time.Second}}
		go func() {
			time.Sleep(2500 * milli)
			r.setWall(-time.Hour)
		}()
		j := r.on(s, r.record, JobOptions{})
		require.Equal(t, 10*time.Second, r.since())
		require.Equal(t, r.wallNow().Add(time.Minute), j.Next())
		require.Equal(t, 2, s.calls)
		require.True(t, j.Stop())
	})
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		// The call after a run.
		s := &slowSchedule{t: t, slow: map[int]time.Duration{2: 10 * time.Second}}
		j := r.on(s, r.record, JobOptions{})
		r.advance(time.Minute + 2500*milli)
		r.setWall(-time.Hour)
		r.advanceTo(time.Minute + 10*time.Second)
		require.Equal(t, r.wallNow().Add(time.Minute), j.Next())
		require.Equal(t, 3, s.calls)
	})
}

// If the job is stopped or shut down while the check calls the schedule, the result has no
// effect.
func TestEndsWhileScheduleIsCalled(t *testing.T) {
	for i, end := range []func(r *fixture, j *Job){
		func(r *fixture, j *Job) { require.True(r.t, j.Stop()) },
		func(r *fixture, j *Job) {
			returned, err := r.Close(timingwheel.Return)
			require.NoError(r.t, err)
			require.Len(r.t, returned, 1)
			require.Equal(r.t, j, returned[0].Job)
		},
		func(r *fixture, _ *Job) {
			_, err := r.Close(timingwheel.Discard)
			require.NoError(r.t, err)
		},
		func(r *fixture, _ *Job) {
			_, err := r.Close(timingwheel.RunNow)
			require.NoError(r.t, err)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{MaxPending: 1})
			var e ends
			s := &slowSchedule{t: t, slow: map[int]time.Duration{2: 10 * time.Second}}
			j := r.on(s, r.record, JobOptions{OnEnd: e.record})
			r.advance(500 * milli)
			r.setWall(-time.Hour)
			r.advance(time.Second)
			require.Equal(t, 2, s.calls)
			end(r, j)
			require.Equal(t, i == 3, len(r.advance(time.Second)) == 1)
			require.Equal(t, i == 3, r.Len() == 1, "ended at once, but after a last run")
			require.Empty(t, r.advance(2*time.Hour))
			require.Zero(t, r.Len())
			require.Len(t, e.recorded(), min(i, 1))
			require.Zero(t, r.checks())
		})
	}
}

// A schedule that ends after the clock was set, or returns an invalid time.
func TestScheduleEndsWhenReplanned(t *testing.T) {
	for i, next := range []func(t time.Time) time.Time{
		func(time.Time) time.Time { return time.Time{} },
		func(t time.Time) time.Time { return t },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var e ends
			first := true
			j := r.on(scheduleFunc(func(t time.Time) time.Time {
				if first {
					first = false
					return t.Add(time.Hour)
				}
				return next(t)
			}), r.record, JobOptions{OnEnd: e.record})
			r.setWall(-time.Minute)
			require.Empty(t, r.advance(2*time.Second))
			require.Zero(t, r.Len())
			require.Equal(t, []error{j.Err()}, e.recorded())
			if i == 0 {
				require.NoError(t, j.Err())
			} else {
				require.ErrorContains(t, j.Err(), "must be after that")
			}
			require.Empty(t, r.advance(2*time.Hour))
		})
	}
}

// T12: a schedule may use its job and the scheduler, whatever goroutine calls it.
func TestScheduleUsesItsJob(t *testing.T) {
	for _, step := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var j *Job
			called := false
			j = r.on(scheduleFunc(func(at time.Time) time.Time {
				if j != nil && !called {
					called = true
					_, _, _, _ = j.Next(), j.Err(), r.Len(), r.Stats()
					r.at(10*time.Second, r.record)
					require.True(t, j.Stop())
				}
				return at.Add(2 * time.Second)
			}), r.record, JobOptions{})
			if step {
				r.setWall(-time.Minute)
				r.advance(time.Second)
				require.True(t, called)
				require.Empty(t, r.advance(8*time.Second))
			} else {
				require.Len(t, r.advance(9*time.Second), 1)
				require.True(t, called)
			}
			require.Equal(t, 1, r.Len())
		})
	}
}

// Many goroutines call Stop against the job's own runs: it is true once, and no run begins
// after it.
func TestJobStopHammer(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Options{Tick: 20 * time.Microsecond})
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	for round := range rounds {
		var stopped atomic.Bool
		var runs, running, trues atomic.Int32
		f := func() {
			if stopped.Load() {
				t.Error("called after Stop")
			}
			if running.Add(1) != 1 {
				t.Error("runs overlap")
			}
			runs.Add(1)
			running.Add(-1)
		}
		j := r.every(20*time.Microsecond, f, JobOptions{Missed: Missed(round % 3), OnEnd: func(*Job, error) { t.Error("OnEnd was called") }})
		for runs.Load() < 2 {
			runtime.Gosched()
		}
		var done sync.WaitGroup
		for range 3 {
			done.Go(func() {
				if j.Stop() {
					trues.Add(1)
				}
				_, _ = j.Next(), j.Err()
			})
		}
		done.Wait()
		for running.Load() > 0 { // a run that had begun
			runtime.Gosched()
		}
		require.Equal(t, int32(1), trues.Load())
		require.Zero(t, j.Next())
		require.NoError(t, j.Err())
	}
	require.Zero(t, r.Len())
}

// All operations run concurrently, while the clock is set: runs of a job do not overlap, nor do
// calls of its schedule, each job can be stopped, and nothing remains.
func TestJobHammer(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Options{Tick: 50 * time.Microsecond, OnPanic: func(timingwheel.Panic) {}})
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	stop := make(chan struct{})
	var setter, done sync.WaitGroup
	setter.Go(func() { // sets the clock, and triggers a check at once
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				r.setWall(time.Duration(i%41-20) * milli)
				r.clock.stepped()
				runtime.Gosched()
			}
		}
	})
	for g := range 4 {
		done.Go(func() {
			x := newRand(uint64(g))
			for range rounds {
				var running atomic.Int32
				var reported atomic.Int32
				calls := 0 // by one goroutine at a time
				f := func() {
					if running.Add(1) != 1 {
						t.Error("runs overlap")
					}
					calls++
					running.Add(-1)
					if calls%5 == 4 {
						panic("boo")
					}
				}
				s := &counting{period: time.Duration(1+x.IntN(300)) * time.Microsecond}
				j, err := r.OnSchedule(s, f, JobOptions{
					Missed: Missed(x.IntN(3)), Jitter: time.Duration(x.IntN(2)) * milli, OnEnd: func(*Job, error) { reported.Add(1) },
				})
				if err != nil {
					t.Error(err)
					return
				}
				at, err := r.At(r.wallNow().Add(time.Duration(x.IntN(3))*milli), func() {}, JobOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				for range x.IntN(300) {
					runtime.Gosched()
				}
				if !j.Stop() {
					t.Errorf("the job had ended: %v", j.Err())
				}
				at.Stop()
				if reported.Load() != 0 {
					t.Error("OnEnd was called")
				}
			}
		})
	}
	done.Wait()
	close(stop)
	setter.Wait()
	require.Zero(t, r.Len())
}

// counting is a schedule that is not safe for concurrent use, as documented.
type counting struct {
	period time.Duration
	calls  int
}

func (s *counting) Next(t time.Time) time.Time {
	s.calls++
	return t.Add(s.period)
}

// OnEnd is called once, whether the job's own run, the check or Close ends the job.
func TestOnEndOnce(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			x := newRand(seed)
			r := newFixture(t, Options{Workers: 4})
			var reported atomic.Int32
			ends := r.created.Add(time.Duration(1+x.IntN(3)) * time.Second)
			j := r.on(scheduleFunc(func(at time.Time) time.Time {
				if at.Before(ends) {
					return at.Add(time.Second)
				}
				return time.Time{}
			}), r.record, JobOptions{OnEnd: func(j *Job, err error) {
				require.Equal(t, err, j.Err())
				reported.Add(1)
			}})
			stopped := int32(0)
			for range 3 {
				r.advanceTo(r.since().Truncate(time.Second) + time.Second)
				switch x.IntN(4) {
				case 0:
					go func() { _, _ = r.Close(policies[x.IntN(3)]) }()
				case 1:
					if j.Stop() {
						stopped = 1
					}
				case 2:
					r.setWall(time.Duration(x.IntN(5)-2) * time.Minute)
					go r.clock.stepped()
				}
			}
			r.advance(10 * time.Minute)
			synctest.Wait()
			if j.Stop() {
				stopped++
			}
			require.Equal(t, int32(1), reported.Load()+stopped, "seed %d", seed)
		})
	}
}

package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
)

func (r *schedRig) every(period time.Duration, f func(), o JobOptions) *Job {
	r.t.Helper()
	j, err := r.Every(period, f, o)
	require.NoError(r.t, err)
	return j
}

// at is a job at this time after the start, by the wall clock as it is now.
func (r *schedRig) at(d time.Duration, f func()) *Job {
	r.t.Helper()
	j, err := r.At(r.wall.now().Add(d-time.Since(r.born)), f)
	require.NoError(r.t, err)
	return j
}

func (r *schedRig) run(s Schedule, f func(), o JobOptions) *Job {
	r.t.Helper()
	j, err := r.Run(s, f, o)
	require.NoError(r.t, err)
	return j
}

// times is from, from+step, ... up to to.
func jobTimes(from, to, step time.Duration) (all []time.Duration) {
	for t := from; t <= to; t += step {
		all = append(all, t)
	}
	return all
}

// A fixed rate does not drift, however slow the function is (timers 14).
func TestJobEveryDoesNotDrift(t *testing.T) {
	for _, slow := range []time.Duration{0, 1, 3 * milli, 10*milli - 1} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{})
			j := r.every(10*milli, func() { r.note(); time.Sleep(slow) }, JobOptions{})
			require.Equal(t, r.born.Add(10*milli), j.Next())
			require.Equal(t, jobTimes(10*milli, 10*time.Second, 10*milli), r.pass(10*time.Second))
			require.True(t, j.Stop())
			require.Zero(t, j.Next())
		})
	}
}

// Nor does one whose period is not in whole ticks: each run is at the first
// tick at or after its time, and the next is counted from its time.
func TestJobEveryBetweenTicks(t *testing.T) {
	for _, period := range []time.Duration{1700 * time.Microsecond, 300 * time.Microsecond, milli + 1, 333333} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{})
			j := r.every(period, r.note, JobOptions{Missed: RunAll})
			const n = 3000
			runs := r.pass(n * period)
			for i, at := range runs {
				due := time.Duration(i+1) * period
				require.Equal(t, (due+milli-1)/milli*milli, at, "run %d of period %v", i+1, period)
			}
			require.GreaterOrEqual(t, len(runs), n-int(milli/period)-1)
			j.Stop()
		})
	}
}

// What becomes of missed runs: the function is slow, or the worker is busy.
func TestJobMissed(t *testing.T) {
	type at = []time.Duration
	for _, c := range []struct {
		missed Missed
		first  time.Duration // how long the first run takes
		want   at            // of a job every 10 ms
	}{
		{Skip, 9 * milli, at{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Skip, 10 * milli, at{10 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Skip, 35 * milli, at{10 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 9 * milli, at{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 10 * milli, at{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 11 * milli, at{10 * milli, 21 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 35 * milli, at{10 * milli, 45 * milli, 50 * milli, 60 * milli}},
		{RunAll, 9 * milli, at{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{RunAll, 11 * milli, at{10 * milli, 21 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{RunAll, 35 * milli, at{10 * milli, 45 * milli, 45 * milli, 45 * milli, 50 * milli, 60 * milli}},
		{RunAll, 40 * milli, at{10 * milli, 50 * milli, 50 * milli, 50 * milli, 50 * milli, 60 * milli}},
	} {
		t.Run(fmt.Sprintf("%d/%v", c.missed, c.first), func(t *testing.T) {
			for _, wall := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					r := schedStart(t, Options{})
					var done atomic.Bool
					f := func() {
						r.note()
						if !done.Swap(true) {
							time.Sleep(c.first)
						}
					}
					if wall {
						r.run(rate{r.wall.now(), 10 * milli}, f, JobOptions{Missed: c.missed})
					} else {
						r.every(10*milli, f, JobOptions{Missed: c.missed})
					}
					require.Equal(t, c.want, r.pass(65*milli))
				})
			}
		})
	}
}

// The worker is busy until 45 ms: the run of 10 ms comes late, and those of
// 20 to 40 were missed.
func TestJobMissedByBusyWorkers(t *testing.T) {
	type at = []time.Duration
	for missed, want := range map[Missed]at{
		Skip:     {45 * milli, 50 * milli, 60 * milli},
		Coalesce: {45 * milli, 45 * milli, 50 * milli, 60 * milli},
		RunAll:   {45 * milli, 45 * milli, 45 * milli, 45 * milli, 50 * milli, 60 * milli},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{Workers: 1})
			r.every(10*milli, r.note, JobOptions{Missed: missed})
			r.after(5*milli, func() { time.Sleep(40 * milli) })
			require.Equal(t, want, r.pass(65*milli))
		})
	}
}

// A fixed delay is counted from the end of a run; there is nothing to miss.
func TestJobEveryAfter(t *testing.T) {
	for _, missed := range []Missed{Skip, Coalesce, RunAll} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{})
			j, err := r.EveryAfter(10*milli, func() { r.note(); time.Sleep(25 * milli) }, JobOptions{Missed: missed})
			require.NoError(t, err)
			require.Equal(t, r.born.Add(10*milli), j.Next())
			require.Equal(t, jobTimes(10*milli, 3000*milli, 35*milli), r.pass(3000*milli))
			require.Zero(t, j.Next(), "while it runs")
			r.pass(15 * milli) // it ended at 3010
			require.Equal(t, r.born.Add(3020*milli), j.Next())
			j.Stop()
		})
	}
}

// The schedules of robfig/cron fit.
func TestJobCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := cron.ParseStandard("*/10 2-3 * * *") // midnight it is
		require.NoError(t, err)
		r := schedStart(t, Options{})
		j := r.run(s, r.note, JobOptions{})
		require.Equal(t, r.born.Add(2*time.Hour), j.Next())
		day := jobTimes(2*time.Hour, 4*time.Hour-1, 10*time.Minute)
		require.Equal(t, day, r.pass(5*time.Hour))
		require.Equal(t, r.born.Add(26*time.Hour), j.Next(), "the next day")
		require.True(t, j.Stop())
		require.Empty(t, r.pass(24*time.Hour))
	})
}

func TestJobCronSecondsAndEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse("15,45 * * * * *")
		require.NoError(t, err)
		r := schedStart(t, Options{})
		r.run(s, r.note, JobOptions{})
		require.Equal(t, jobTimes(15*time.Second, 10*time.Minute, 30*time.Second), r.pass(10*time.Minute))
	})
	synctest.Test(t, func(t *testing.T) {
		s, err := cron.ParseStandard("@every 90s")
		require.NoError(t, err)
		r := schedStart(t, Options{})
		r.run(s, r.note, JobOptions{Missed: Coalesce})
		require.Equal(t, jobTimes(90*time.Second, 30*time.Minute, 90*time.Second), r.pass(30*time.Minute))
	})
}

// A schedule that has no further time ends the job, without an error.
func TestJobScheduleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		never, err := cron.ParseStandard("0 0 30 2 *") // the 30th of February
		require.NoError(t, err)
		j := r.run(never, r.note, JobOptions{})
		require.False(t, j.Stop())
		require.NoError(t, j.Err())
		require.Zero(t, j.Next())
		require.Zero(t, r.Len())

		j = r.run(&jobList{r.born.Add(time.Second), r.born.Add(3 * time.Second)}, r.note, JobOptions{})
		require.Equal(t, []time.Duration{time.Second, 3 * time.Second}, r.pass(time.Hour))
		require.False(t, j.Stop())
		require.NoError(t, j.Err())
		require.Zero(t, j.Next())
		require.Zero(t, r.Len())
		require.Empty(t, r.wall.jobs)
	})
}

// jobList is a schedule of some times. It is not safe for concurrent use, which
// the race detector sees if it is called so.
type jobList []time.Time

func (l *jobList) Next(t time.Time) time.Time {
	for len(*l) > 0 && !(*l)[0].After(t) {
		*l = (*l)[1:]
	}
	if len(*l) == 0 {
		return time.Time{}
	}
	return (*l)[0]
}

func TestJobAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		j := r.at(10*time.Second, r.note)
		require.Equal(t, r.born.Add(10*time.Second), j.Next())
		require.Empty(t, r.pass(10*time.Second-1))
		require.Equal(t, []time.Duration{10 * time.Second}, r.pass(1))
		require.Zero(t, j.Next())
		require.NoError(t, j.Err())
		require.False(t, j.Stop())
		require.Empty(t, r.pass(time.Hour))

		// What is past is due at once.
		r.born = time.Now()
		for _, past := range []time.Time{r.born, r.born.Add(-1), r.born.Add(-1000 * time.Hour), time.Unix(0, 0), {}} {
			_, err := r.At(past, r.note)
			require.NoError(t, err)
			require.Equal(t, []time.Duration{0}, r.pass(0), "%v", past)
		}
		require.Zero(t, r.Len())

		j = r.at(time.Hour, r.note)
		require.True(t, j.Stop())
		require.False(t, j.Stop())
		far, err := r.At(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), r.note) // further than an int64 counts
		require.NoError(t, err)
		require.Empty(t, r.pass(5*time.Hour))
		require.True(t, far.Stop())
	})
}

// Timers 16: what goes by the wall clock follows it when that is set, within a
// second; by the minute it is exact, for the clock was set well before.
func TestJobWallClockSet(t *testing.T) {
	const minute = time.Minute
	hourly, err := cron.ParseStandard("30 * * * *")
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		by   time.Duration // at 10 minutes
		at   time.Duration // by the clock as it was at first
		want time.Duration
		late time.Duration // at most
		cron []time.Duration
	}{
		{"forward", time.Hour, 90 * minute, 30 * minute, 0, jobTimes(30*minute, 3*time.Hour, time.Hour)},
		{"forward, past it", time.Hour, 30 * minute, 10 * minute, time.Second, jobTimes(30*minute, 3*time.Hour, time.Hour)},
		{"back", -time.Hour, 30 * minute, 90 * minute, 0, jobTimes(30*minute, 3*time.Hour, time.Hour)},
		{"a little forward", 5 * minute, 90 * minute, 85 * minute, 0, jobTimes(25*minute, 3*time.Hour, time.Hour)},
		{"a little back", -5 * minute, 90 * minute, 95 * minute, 0, jobTimes(35*minute, 3*time.Hour, time.Hour)},
		{"not", 0, 90 * minute, 90 * minute, 0, jobTimes(30*minute, 3*time.Hour, time.Hour)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := schedStart(t, Options{})
				j := r.at(c.at, r.note)
				due := j.Next()
				require.Empty(t, r.pass(10*minute+milli))
				r.setWall(c.by)
				runs := r.pass(2 * time.Hour)
				require.Len(t, runs, 1)
				require.GreaterOrEqual(t, runs[0], c.want)
				require.LessOrEqual(t, runs[0], c.want+milli+c.late)
				require.Equal(t, due, r.born.Add(c.at), "an appointment is the same as ever")
			})
			synctest.Test(t, func(t *testing.T) {
				r := schedStart(t, Options{})
				j := r.run(hourly, r.note, JobOptions{})
				require.Empty(t, r.pass(10*minute+milli))
				r.setWall(c.by)
				require.Empty(t, r.pass(2*time.Second))
				require.Equal(t, r.born.Add(c.cron[0]+c.by), j.Next(), "planned anew")
				require.Equal(t, c.cron, r.pass(3*time.Hour-10*minute-2*time.Second-milli))
			})
		})
	}
}

// The clock is set between two looks, and the run is due before the next one.
func TestJobWallClockSetJustBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		r.at(10*time.Second+500*milli, r.note)
		require.Empty(t, r.pass(10*time.Second+300*milli))
		r.setWall(-time.Hour)
		require.Equal(t, []time.Duration{time.Hour + 10*time.Second + 500*milli}, r.pass(2*time.Hour))
	})
}

// A small correction does not run a job twice, nor leave a run out.
func TestJobWallClockCorrected(t *testing.T) {
	for _, back := range []time.Duration{1, milli, 9 * milli, 11 * milli, 20 * milli, 500 * milli, time.Second - 1} {
		for _, after := range []time.Duration{0, 1, 5 * milli, 300 * milli} {
			synctest.Test(t, func(t *testing.T) {
				r := schedStart(t, Options{})
				s, err := cron.ParseStandard("* * * * *")
				require.NoError(t, err)
				r.run(s, r.note, JobOptions{})
				require.Equal(t, []time.Duration{time.Minute}, r.pass(time.Minute))
				time.Sleep(after)
				r.setWall(-back)
				require.Empty(t, r.pass(time.Minute-after-1), "back by %v, %v after a run", back, after)
				runs := r.pass(2 * time.Second)
				require.Len(t, runs, 1)
				require.GreaterOrEqual(t, runs[0], 2*time.Minute+back)
				require.LessOrEqual(t, runs[0], 2*time.Minute+back+2*milli)
			})
		}
	}
	// While it runs.
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		r.run(schedSecondly{}, func() {
			if r.note(); r.set.Load() == 0 {
				r.setWall(-20 * milli)
			}
		}, JobOptions{})
		require.Equal(t, []time.Duration{time.Second, 2020 * milli, 3020 * milli}, r.pass(3500*milli))
	})
	// Each of many small ones: they add up, and the job follows.
	for _, by := range []time.Duration{-5 * milli, 5 * milli} {
		synctest.Test(t, func(t *testing.T) {
			r := schedStart(t, Options{})
			r.at(10*time.Minute, r.note)
			for range 300 {
				r.pass(time.Second)
				r.setWall(by)
			}
			require.Equal(t, []time.Duration{10*time.Minute - 300*by}, r.pass(10*time.Minute))
		})
	}
}

// One that is set back by more than a moment does happen again: it is that
// time again.
func TestJobWallClockSetBackRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		s, err := cron.ParseStandard("30 * * * *")
		require.NoError(t, err)
		r.run(s, r.note, JobOptions{})
		require.Equal(t, []time.Duration{30 * time.Minute}, r.pass(40*time.Minute))
		r.setWall(-time.Hour) // 23:40 it is; the next is 0:30 again
		require.Equal(t, []time.Duration{90 * time.Minute, 150 * time.Minute}, r.pass(2*time.Hour))
	})
}

// While no job goes by the wall clock nobody looks at it (T9).
func TestJobNoWakeUpsWithoutWallJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		idle := func() {
			t.Helper()
			require.Zero(t, r.Len())
			require.Zero(t, r.Stats().Pending)
			r.pass(2 * time.Hour) // past the one stale wake-up that T9 allows
			before := r.Stats()
			r.pass(2 * time.Hour)
			require.Equal(t, before, r.Stats())
		}
		idle()
		j := r.at(100*time.Hour, r.note)
		k := r.run(schedSecondly{}, r.note, JobOptions{})
		before := r.Stats().Expired
		r.pass(10 * time.Second)
		require.GreaterOrEqual(t, r.Stats().Expired-before, uint64(19)) // ten runs and as many looks
		require.True(t, k.Stop())
		before = r.Stats().Expired
		r.pass(10 * time.Second)
		require.Equal(t, r.Stats().Expired-before, uint64(10))
		require.True(t, j.Stop())
		idle()
		r.at(0, r.note) // past
		require.Len(t, r.pass(0), 1)
		idle()
		j = r.every(time.Hour, r.note, JobOptions{})
		wakeups := r.Stats().Wakeups
		require.Len(t, r.pass(24*time.Hour), 24)
		require.LessOrEqual(t, r.Stats().Wakeups-wakeups, uint64(25*4)) // one a level at most
		require.True(t, j.Stop())
		idle()
	})
}

// White box: a look has been taken by a worker, then the last wall job goes
// and another comes. There is one look a second after that, not two.
func TestJobOneLookASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		j := r.at(time.Hour, r.note)
		late := func() { look{&r.wall}.run() } // it is only now that it runs
		require.True(t, j.Stop())
		late()
		require.Zero(t, r.Stats().Pending)
		j = r.at(time.Hour, r.note)
		late()
		late()
		require.Equal(t, 2, r.Stats().Pending, "the job and one look")
		require.Equal(t, 1, r.Len())
		before := r.Stats().Expired
		r.pass(10*time.Second + milli)
		require.Equal(t, uint64(10), r.Stats().Expired-before)
		require.True(t, j.Stop())
		require.Zero(t, r.Stats().Pending)
	})
}

// Timers 7: stopped within its own function, it does not come back.
func TestJobStopWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		for _, start := range []func(f func()) (*Job, error){
			func(f func()) (*Job, error) { return r.Every(10*milli, f, JobOptions{Missed: RunAll}) },
			func(f func()) (*Job, error) { return r.EveryAfter(10*milli, f, JobOptions{}) },
			func(f func()) (*Job, error) { return r.Run(schedSecondly{}, f, JobOptions{}) },
			func(f func()) (*Job, error) { return r.At(r.wall.now().Add(10*milli), f) },
		} {
			n := 0
			handle := make(chan *Job, 1)
			j, err := start(func() {
				n++
				j := <-handle
				require.Zero(t, j.Next())
				require.True(t, j.Stop())
				require.False(t, j.Stop())
			})
			require.NoError(t, err)
			handle <- j
			r.pass(time.Minute)
			require.Equal(t, 1, n)
			require.False(t, j.Stop())
			require.NoError(t, j.Err())
			require.Zero(t, r.Len())
			require.Zero(t, r.Stats().Pending)
		}
	})
}

// White box, timers 7: stopped when a worker has taken its timer and not yet
// called it, it is not called; stopped while it runs, it does not come back.
func TestJobStopBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		for _, wall := range []bool{false, true} {
			var j *Job
			if wall {
				j = r.run(schedSecondly{}, r.note, JobOptions{})
			} else {
				j = r.every(time.Second, r.note, JobOptions{})
			}
			require.True(t, r.wheel.Stop(j.timer)) // as a worker takes it
			require.True(t, j.Stop())
			j.run()
			require.Empty(t, r.pass(time.Minute))
			require.Zero(t, r.Stats().Pending)
		}
		j := r.every(10*milli, func() { r.note(); time.Sleep(5 * milli) }, JobOptions{})
		require.Len(t, r.pass(12*milli), 1)
		require.True(t, j.Stop())
		require.Empty(t, r.pass(4*milli)) // it has ended by now
		require.Zero(t, r.Stats().Pending, "it was armed again")
		require.Empty(t, r.pass(time.Minute))
		require.Zero(t, r.Len())
	})
}

// Stop, from many goroutines and against the job's own runs: true once, and
// no run begins after it.
func TestJobStopHammer(t *testing.T) {
	r := schedStart(t, Options{Tick: 20 * time.Microsecond})
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
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
		j := r.every(20*time.Microsecond, f, JobOptions{Missed: Missed(rand.N(3))})
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
		for running.Load() > 0 { // one that had begun
			runtime.Gosched()
		}
		require.Equal(t, int32(1), trues.Load())
		require.Zero(t, j.Next())
		require.NoError(t, j.Err())
	}
	require.Eventually(t, func() bool { return r.Stats().Pending == 0 }, 10*time.Second, milli)
}

// A panic, or a Goexit, in one run: the next comes all the same.
func TestJobPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Int32
		r := schedStart(t, Options{Workers: 1, OnPanic: func(Panic) { panics.Add(1) }})
		n := 0
		f := func() {
			r.note()
			switch n++; n % 3 {
			case 0:
				panic("boo")
			case 1:
				runtime.Goexit()
			}
		}
		j := r.every(10*milli, f, JobOptions{})
		require.Equal(t, jobTimes(10*milli, 90*milli, 10*milli), r.pass(95*milli))
		require.Equal(t, int32(3), panics.Load())
		require.True(t, j.Stop())

		n = 2
		j = r.run(schedSecondly{}, f, JobOptions{Missed: RunAll})
		require.Equal(t, jobTimes(time.Second, 9*time.Second, time.Second), r.pass(9*time.Second))
		require.True(t, j.Stop())

		n = 2
		j = r.at(10*time.Second, f)
		require.Len(t, r.pass(time.Minute), 1)
		require.False(t, j.Stop())
		require.Zero(t, r.Stats().Pending)
	})
}

// A schedule that panics has no next time; nothing else comes to harm.
func TestJobSchedulePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{OnPanic: func(Panic) {}})
		var calls atomic.Int32
		require.PanicsWithValue(t, "boo", func() {
			_, _ = r.Run(jobFunc(func(time.Time) time.Time { panic("boo") }), r.note, JobOptions{})
		})
		require.Zero(t, r.Stats().Pending)
		j := r.run(jobFunc(func(t time.Time) time.Time {
			if calls.Add(1) == 3 {
				panic("boo")
			}
			return t.Add(10 * milli)
		}), r.note, JobOptions{})
		require.Equal(t, []time.Duration{10 * milli, 20 * milli}, r.pass(time.Minute))
		require.Zero(t, j.Next())
		require.False(t, j.Stop(), "it ended")
		require.Zero(t, r.Stats().Pending)

		// Nor to the other jobs that are planned anew after the clock was set.
		calls.Store(0)
		for range 20 {
			r.run(jobFunc(func(t time.Time) time.Time {
				if calls.Add(1) > 20 {
					panic("boo")
				}
				return t.Add(time.Hour)
			}), func() {}, JobOptions{})
		}
		r.born = time.Now()
		r.at(2*time.Hour, r.note)
		r.pass(time.Minute)
		r.setWall(time.Hour)
		require.Equal(t, []time.Duration{time.Hour}, r.pass(2*time.Hour))
	})
}

type jobFunc func(time.Time) time.Time

func (f jobFunc) Next(t time.Time) time.Time { return f(t) }

// A schedule may ask the job, stop it, and use the scheduler: no lock is held
// while it runs (T12). Not in a bubble, in which a deadlock would never end.
func TestJobScheduleUsesItsJob(t *testing.T) {
	r := schedStart(t, Options{})
	var j atomic.Pointer[Job]
	done := make(chan struct{})
	var once sync.Once
	made, err := r.Run(jobFunc(func(at time.Time) time.Time {
		if j := j.Load(); j != nil {
			_, _, _ = j.Next(), j.Err(), r.Len()
			if !j.Stop() {
				t.Error("Stop said false")
			}
			once.Do(func() { close(done) })
		}
		return at.Add(20 * milli)
	}), r.note, JobOptions{})
	require.NoError(t, err)
	j.Store(made)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("deadlock")
	}
	require.Eventually(t, func() bool { return r.Stats().Pending == 0 }, 10*time.Second, milli)
	require.Len(t, r.noted(), 1)
}

// Also while it is planned anew, after the clock was set.
func TestJobScheduleUsesItsJobAgain(t *testing.T) {
	r := schedStart(t, Options{})
	var j atomic.Pointer[Job]
	done := make(chan struct{})
	made := r.run(jobFunc(func(at time.Time) time.Time {
		if j := j.Load(); j != nil {
			j.Next()
			j.Stop()
		}
		return at.Add(time.Hour)
	}), r.note, JobOptions{})
	j.Store(made)
	go func() {
		made.again()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("deadlock")
	}
	require.Zero(t, made.Next())
	require.Zero(t, r.Stats().Pending)
}

// Runs of one job never overlap, though the workers are free.
func TestJobNeverOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{Workers: 16})
		for _, o := range []JobOptions{{}, {Missed: Coalesce}, {Missed: RunAll}, {Jitter: 3 * milli}, {Missed: RunAll, Jitter: milli}} {
			var running, most, runs atomic.Int32
			f := func() {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Duration(rand.N(5)) * milli)
				running.Add(-1)
				runs.Add(1)
			}
			jobs := []*Job{r.every(milli, f, o)}
			r.pass(time.Second)
			jobs[0].Stop()
			r.pass(time.Second)
			require.Equal(t, int32(1), most.Load(), "%+v", o)
			require.Greater(t, runs.Load(), int32(100))
		}
	})
}

// Jitter delays each run by up to as much, and does not shift the schedule.
func TestJobJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{})
		var j *Job
		j = r.every(100*milli, r.note, JobOptions{Jitter: 50 * milli})
		seen := map[time.Duration]int{}
		early, late := 0, 0
		for i := range 500 {
			due := time.Duration(i+1) * 100 * milli
			require.Equal(t, r.born.Add(due), j.Next(), "planned without jitter")
			runs := r.pass(due + 50*milli - time.Since(r.born))
			require.Len(t, runs, 1)
			by := runs[0] - due
			require.GreaterOrEqual(t, by, time.Duration(0))
			require.LessOrEqual(t, by, 50*milli)
			seen[by]++
			if by < 15*milli {
				early++
			}
			if by > 35*milli {
				late++
			}
		}
		require.Greater(t, len(seen), 30, "as good as every tick of it")
		require.Greater(t, early, 50)
		require.Greater(t, late, 50)
		j.Stop()

		// A wall job's, and one that is larger than an int64 holds.
		r.born = time.Now()
		j = r.run(rate{r.born, time.Second}, r.note, JobOptions{Jitter: 100 * milli})
		for i, at := range r.pass(100*time.Second - 1) {
			require.GreaterOrEqual(t, at, time.Duration(i+1)*time.Second)
			require.LessOrEqual(t, at, time.Duration(i+1)*time.Second+100*milli)
		}
		j.Stop()
		j = r.every(1<<63-1, r.note, JobOptions{Jitter: 1<<63 - 1})
		require.Empty(t, r.pass(10000*time.Hour))
		require.True(t, j.Stop())
	})
}

// A scheduler that is full when the job would come back: the job ends, and
// says why.
func TestJobFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{MaxPending: 1})
		var thief Call
		j := r.every(10*milli, func() {
			r.note()
			if time.Since(r.born) > 25*milli {
				thief = r.after(time.Hour, func() {})
			}
		}, JobOptions{})
		_, err := r.Every(milli, r.note, JobOptions{})
		require.ErrorIs(t, err, ErrFull)
		_, err = r.At(time.Now(), r.note)
		require.ErrorIs(t, err, ErrFull)
		require.NoError(t, j.Err())
		require.Equal(t, []time.Duration{10 * milli, 20 * milli, 30 * milli}, r.pass(time.Minute))
		require.ErrorIs(t, j.Err(), ErrFull)
		require.False(t, j.Stop())
		require.Zero(t, j.Next())
		require.True(t, thief.Stop())
		require.Empty(t, r.wall.jobs)
	})
}

// The clock was set, and the scheduler is full: the job keeps its place.
func TestJobPlannedAnewWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := schedStart(t, Options{MaxPending: 2}) // the job and the look
		j := r.at(2*time.Hour, r.note)
		r.pass(milli)
		require.Equal(t, 2, r.Stats().Pending)
		r.setWall(time.Hour)
		require.Equal(t, []time.Duration{time.Hour}, r.pass(2*time.Hour))
		require.NoError(t, j.Err())
	})
}

// Under a shutdown that runs or awaits, the next run is the last, also by a
// wall clock that shows less than the time of it.
func TestJobWallUnderShutdown(t *testing.T) {
	for _, policy := range []Policy{RunNow, Await} {
		for _, back := range []time.Duration{0, 1, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				r := schedStart(t, Options{})
				at := r.at(time.Second, r.note)
				run := r.run(schedSecondly{}, r.note, JobOptions{})
				r.setWall(-back)
				_, err := r.Shutdown(t.Context(), policy)
				require.NoError(t, err)
				require.Len(t, r.noted(), 2, "%v, back by %v", policy, back)
				require.NoError(t, at.Err())
				require.ErrorIs(t, run.Err(), ErrClosed)
			})
		}
	}
}

// All at once, and the clock being set: nothing runs twice at a time, each job
// can be stopped, and nothing is left.
func TestJobHammer(t *testing.T) {
	r := schedStart(t, Options{Tick: 50 * time.Microsecond, OnPanic: func(Panic) {}})
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { // sets the clock, and has it noticed at once
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Microsecond):
				r.setWall(time.Duration(rand.N(41)-20) * milli)
				look{&r.wall}.run()
			}
		}
	})
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	for g := range 4 {
		done.Go(func() {
			x := rand.New(rand.NewPCG(uint64(g), 1))
			for range rounds {
				var running atomic.Int32
				var calls int // by one goroutine at a time
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
				s := &jobCounting{period: time.Duration(1+x.IntN(300)) * time.Microsecond}
				j, err := r.Run(s, f, JobOptions{Missed: Missed(x.IntN(3)), Jitter: time.Duration(x.IntN(2)) * milli})
				if err != nil {
					t.Error(err)
					return
				}
				at, err := r.At(r.wall.now().Add(time.Duration(x.IntN(3))*milli), func() {})
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Duration(x.IntN(2000)) * time.Microsecond)
				if !j.Stop() {
					t.Errorf("the job had ended: %v", j.Err())
				}
				at.Stop()
			}
		})
	}
	time.AfterFunc(time.Second, func() { close(stop) })
	done.Wait()
	require.Eventually(t, func() bool { return r.Stats().Pending == 0 }, 10*time.Second, milli)
	require.Empty(t, r.wall.jobs)
}

// jobCounting is a schedule that is not safe for concurrent use, as documented.
type jobCounting struct {
	period time.Duration
	calls  int
}

func (s *jobCounting) Next(t time.Time) time.Time {
	s.calls++
	return t.Add(s.period)
}

// Jobs end under a shutdown that comes at any moment, and At's functions are
// called or handed back, once.
func TestJobShutdownHammer(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		policy := []Policy{HandBack, RunNow, Await}[round%3]
		s, err := NewScheduler(Options{Tick: 20 * time.Microsecond})
		require.NoError(t, err)
		var set atomic.Int64
		s.wall.now = func() time.Time { return time.Now().Round(0).Add(time.Duration(set.Load())) }
		var ended [200]atomic.Int32
		accepted := 0
		var done sync.WaitGroup
		done.Go(func() { // has jobs planned anew meanwhile
			for range 20 {
				set.Add(int64(11 * milli))
				look{&s.wall}.run()
				runtime.Gosched()
			}
		})
		done.Go(func() {
			for i := range ended {
				_, err := s.At(s.wall.now().Add(time.Duration(i)*10*time.Microsecond), func() { ended[i].Add(1) })
				if err != nil {
					require.ErrorIs(t, err, ErrClosed)
					break
				}
				accepted++
			}
		})
		for range round {
			runtime.Gosched()
		}
		back, err := s.Shutdown(context.Background(), policy)
		require.NoError(t, err)
		for _, f := range back {
			f()
		}
		done.Wait()
		counts := make([]int32, 0, accepted)
		for i := range accepted {
			counts = append(counts, ended[i].Load())
		}
		require.NotContains(t, counts, int32(0), "%v: neither called nor handed back", policy)
		require.Equal(t, slices.Repeat([]int32{1}, accepted), counts, "%v", policy)
	}
}

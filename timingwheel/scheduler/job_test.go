package scheduler

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

// timers 14: a fixed rate does not drift, however slow the function is.
func TestEveryDoesNotDrift(t *testing.T) {
	for _, slow := range []time.Duration{0, 1, 3 * milli, 10*milli - 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			j := r.every(10*milli, func() { r.record(); time.Sleep(slow) }, JobOptions{})
			require.Equal(t, r.created.Add(10*milli), j.Next())
			require.Equal(t, times(10*milli, 10*time.Second, 10*milli), r.advance(10*time.Second))
			require.True(t, j.Stop())
			require.Zero(t, j.Next())
		})
	}
}

// T1, T2: a rate whose period is not in whole ticks does not drift either: each run is at the first
// tick at or after its time, and the next is counted from its time.
func TestEveryBetweenTicks(t *testing.T) {
	for _, period := range []time.Duration{1700 * time.Microsecond, 300 * time.Microsecond, milli + 1, 333333} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			j := r.every(period, r.record, JobOptions{Missed: RunAll})
			const n = 3000
			runs := r.advance(n * period)
			for i, at := range runs {
				due := time.Duration(i+1) * period
				require.Equal(t, (due+milli-1)/milli*milli, at, "run %d of period %v", i+1, period)
			}
			require.GreaterOrEqual(t, len(runs), n-int(milli/period)-1)
			j.Stop()
		})
	}
}

// A fixed delay is counted from the end of a run, and misses no run.
func TestEveryDelay(t *testing.T) {
	for _, missed := range []Missed{Skip, Coalesce, RunAll} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			j := r.job(r.EveryDelay(10*milli, func() { r.record(); time.Sleep(25 * milli) }, JobOptions{Missed: missed}))
			require.Equal(t, r.created.Add(10*milli), j.Next())
			require.Equal(t, times(10*milli, 3000*milli, 35*milli), r.advance(3000*milli))
			require.Zero(t, j.Next(), "while it runs")
			r.advance(15 * milli) // it ended at 3010
			require.Equal(t, r.created.Add(3020*milli), j.Next())
			j.Stop()
		})
	}
}

// A job runs exactly at the times of its schedule.
func TestOnSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		j := r.on(multiples{24 * time.Hour, 2 * time.Hour}, r.record, JobOptions{})
		require.Equal(t, r.created.Add(2*time.Hour), j.Next())
		require.Equal(t, durations{2 * time.Hour, 26 * time.Hour, 50 * time.Hour}, r.advance(60*time.Hour))
		require.Equal(t, r.created.Add(74*time.Hour), j.Next())
		require.True(t, j.Stop())
		require.Empty(t, r.advance(48*time.Hour))
	})
}

// A schedule without a further time ends the job, without an error.
func TestScheduleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		var e ends
		j := r.on(&timeList{}, r.record, JobOptions{OnEnd: e.record})
		require.Equal(t, []error{nil}, e.recorded(), "OnEnd is called before OnSchedule returns")
		require.False(t, j.Stop())
		require.NoError(t, j.Err())
		require.Zero(t, j.Next())
		require.Zero(t, r.Stats().Scheduled)
		require.Zero(t, r.clock.watchers)

		j = r.on(&timeList{r.created.Add(time.Second), r.created.Add(3 * time.Second)}, r.record, JobOptions{OnEnd: e.record})
		require.Equal(t, durations{time.Second, 3 * time.Second}, r.advance(time.Hour))
		require.Equal(t, []error{nil}, e.recorded())
		require.False(t, j.Stop())
		require.NoError(t, j.Err())
		require.Zero(t, j.Next())
		require.Zero(t, r.Len())
		require.Equal(t, uint64(1), r.Stats().Ended)
	})
}

// A schedule whose next time is not after its argument would make the job run without end.
func TestScheduleDoesNotAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		same := scheduleFunc(func(t time.Time) time.Time { return t })
		_, err := r.OnSchedule(same, r.record, JobOptions{})
		require.ErrorContains(t, err, "scheduler: the schedule's Next(2000-01-01 00:00:00 +0000 UTC) is 2000-01-01 00:00:00 +0000 UTC, must be after that")
		require.Zero(t, r.Stats().Scheduled)
		require.Nil(t, r.jobs.first)
		require.Zero(t, r.clock.watchers)
		for _, missed := range []Missed{Skip, Coalesce, RunAll} {
			var e ends
			r.created = time.Now()
			fixed := r.created.Add(time.Second)
			j := r.on(scheduleFunc(func(time.Time) time.Time { return fixed }), r.record, JobOptions{Missed: missed, OnEnd: e.record})
			require.Equal(t, durations{time.Second}, r.advance(time.Hour))
			require.ErrorContains(t, j.Err(), "must be after that")
			require.Equal(t, []error{j.Err()}, e.recorded())
			require.Zero(t, r.Len())
		}
	})
}

func TestAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		j := r.at(10*time.Second, r.record)
		require.Equal(t, r.created.Add(10*time.Second), j.Next())
		require.Empty(t, r.advance(10*time.Second-1))
		require.Equal(t, durations{10 * time.Second}, r.advance(1))
		require.Zero(t, j.Next())
		require.NoError(t, j.Err())
		require.False(t, j.Stop())
		require.Empty(t, r.advance(time.Hour))

		// A past time is due at once (T7, timers 12).
		r.created = time.Now()
		for _, past := range []time.Time{r.created, r.created.Add(-1), r.created.Add(-1000 * time.Hour), time.Unix(0, 0), {}} {
			r.job(r.At(past, r.record, JobOptions{}))
			require.Equal(t, durations{0}, r.advance(0), "%v", past)
		}
		require.Zero(t, r.Len())

		j = r.at(time.Hour, r.record)
		require.True(t, j.Stop())
		require.False(t, j.Stop())
		far := r.job(r.At(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), r.record, JobOptions{})) // T8
		require.Empty(t, r.advance(5*time.Hour))
		require.True(t, far.Stop())

		r.created = time.Now()
		r.job(r.At(r.created.Add(time.Second), r.record, JobOptions{Jitter: time.Second}))
		runs := r.advance(time.Hour)
		require.Len(t, runs, 1)
		require.GreaterOrEqual(t, runs[0], time.Second)
		require.LessOrEqual(t, runs[0], 2*time.Second)
	})
}

// A deadline with a monotonic reading still counts by the wall clock.
func TestAtStripsMonotonic(t *testing.T) {
	r := newFixture(t, Options{})
	at := time.Now().Add(time.Hour)
	require.NotEqual(t, at, at.Round(0)) // they differ in the monotonic reading
	j := r.job(r.At(at, r.record, JobOptions{}))
	require.Equal(t, at.Round(0), j.Next())
	k := r.on(scheduleFunc(func(t time.Time) time.Time {
		require.Equal(r.t, t.Round(0), t)
		return at
	}), r.record, JobOptions{})
	require.Equal(t, at.Round(0), k.Next())
}

// timers 7: a job that is stopped within its own function does not run again, and OnEnd is not
// called.
func TestStopDuringRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		var e ends
		o := JobOptions{Missed: RunAll, OnEnd: e.record}
		for _, start := range []func(f func()) (*Job, error){
			func(f func()) (*Job, error) { return r.Every(10*milli, f, o) },
			func(f func()) (*Job, error) { return r.EveryDelay(10*milli, f, o) },
			func(f func()) (*Job, error) { return r.OnSchedule(multiples{time.Second, 0}, f, o) },
			func(f func()) (*Job, error) { return r.At(r.wallNow().Add(10*milli), f, o) },
			func(f func()) (*Job, error) {
				return r.Retry(10*milli, func() error { f(); return ErrFull }, RetryOptions{OnEnd: e.record})
			},
			func(f func()) (*Job, error) {
				return r.Retry(10*milli, func() error { f(); return nil }, RetryOptions{OnEnd: e.record})
			},
		} {
			n := 0
			handle := make(chan *Job, 1)
			j, err := start(func() {
				n++
				j := <-handle
				require.Zero(t, j.Next())
				require.True(t, j.Stop())
				require.False(t, j.Stop())
				require.Zero(t, r.Len())
			})
			require.NoError(t, err)
			handle <- j
			r.advance(time.Minute)
			require.Equal(t, 1, n)
			require.False(t, j.Stop())
			require.NoError(t, j.Err())
			require.Zero(t, r.Len())
			require.Zero(t, r.Stats().JobWheel.Pending)
		}
		require.Empty(t, e.recorded())
		require.Equal(t, uint64(6), r.Stats().Stopped)
	})
}

// White box, timers 7: a job that is stopped after a worker has taken its timer and before the
// call is not called; a job that is stopped while it runs does not run again.
func TestStopAfterTimerWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		for _, wall := range []bool{false, true} {
			var j *Job
			if wall {
				j = r.on(multiples{time.Second, 0}, r.record, JobOptions{})
			} else {
				j = r.every(time.Second, r.record, JobOptions{})
			}
			require.True(t, j.wheel.Stop(j.timer)) // as a worker takes it
			require.True(t, j.Stop())
			j.run()
			require.Empty(t, r.advance(time.Minute))
			require.Zero(t, r.Stats().JobWheel.Pending)
		}
		j := r.every(10*milli, func() { r.record(); time.Sleep(5 * milli) }, JobOptions{})
		require.Len(t, r.advance(12*milli), 1)
		require.True(t, j.Stop())
		require.Empty(t, r.advance(4*milli)) // it has ended by now
		require.Zero(t, r.Stats().JobWheel.Pending, "it was armed")
		require.Empty(t, r.advance(time.Minute))
		require.Zero(t, r.Len())
	})
}

// T10: a panic, or a Goexit, in one run does not prevent the next.
func TestJobPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Int32
		r := newFixture(t, Options{Workers: 1, OnPanic: func(timingwheel.Panic) { panics.Add(1) }})
		n := 0
		f := func() {
			r.record()
			switch n++; n % 3 {
			case 0:
				panic("boo")
			case 1:
				runtime.Goexit()
			}
		}
		j := r.every(10*milli, f, JobOptions{})
		require.Equal(t, times(10*milli, 90*milli, 10*milli), r.advance(95*milli))
		require.Equal(t, int32(3), panics.Load())
		require.True(t, j.Stop())

		n = 2
		r.advanceTo(time.Second)
		j = r.on(multiples{time.Second, 0}, f, JobOptions{Missed: RunAll})
		require.Equal(t, times(2*time.Second, 9*time.Second, time.Second), r.advance(8*time.Second))
		require.True(t, j.Stop())

		n = 2
		j = r.at(10*time.Second, f)
		require.Len(t, r.advance(time.Minute), 1)
		require.False(t, j.Stop())
		require.Zero(t, r.Len())
	})
}

// A schedule that panics, or ends its goroutine, ends the job and affects nothing else.
func TestSchedulePanics(t *testing.T) {
	for _, crash := range []func(){func() { panic("boo") }, runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{OnPanic: func(timingwheel.Panic) {}})
			calls := 0
			var e ends
			j := r.on(scheduleFunc(func(t time.Time) time.Time {
				if calls++; calls == 3 {
					crash()
				}
				return t.Add(10 * milli)
			}), r.record, JobOptions{OnEnd: e.record})
			require.Equal(t, durations{10 * milli, 20 * milli}, r.advance(time.Minute))
			require.Zero(t, j.Next())
			require.False(t, j.Stop(), "it ended")
			require.ErrorIs(t, j.Err(), ErrPanicked)
			require.Equal(t, []error{j.Err()}, e.recorded())
			require.Zero(t, r.Len())

			// Nor does it affect the other jobs, which are replanned after the clock was set.
			calls = 0
			for range 20 {
				r.on(scheduleFunc(func(t time.Time) time.Time {
					if calls++; calls > 20 {
						crash()
					}
					return t.Add(2 * time.Hour)
				}), func() {}, JobOptions{OnEnd: e.record})
			}
			r.created = time.Now()
			r.at(2*time.Hour, r.record)
			r.advance(time.Minute)
			r.setWall(-time.Hour)
			r.advance(time.Minute)
			require.Len(t, e.recorded(), 20)
			require.Equal(t, 1, r.Len())
			require.Equal(t, durations{3 * time.Hour}, r.advance(4*time.Hour))
		})
	}
}

// A panic of the first Next goes to its caller; nothing is left of the job.
func TestFirstNextPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1})
		require.PanicsWithValue(t, "boo", func() {
			_, _ = r.OnSchedule(scheduleFunc(func(time.Time) time.Time { panic("boo") }), r.record, JobOptions{})
		})
		require.Zero(t, r.Len())
		require.Nil(t, r.jobs.first)
		require.Zero(t, r.clock.watchers)
		r.at(time.Second, r.record)
		require.Len(t, r.advance(time.Second), 1)
	})
}

// Runs of one job never overlap, although workers are free.
func TestNeverOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{Workers: 16})
		for _, o := range []JobOptions{{}, {Missed: Coalesce}, {Missed: RunAll}, {Jitter: 3 * milli}, {Missed: RunAll, Jitter: milli}} {
			var running, most, runs atomic.Int32
			f := func() {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(time.Duration(rand.N(5)) * milli)
				running.Add(-1)
				runs.Add(1)
			}
			j := r.every(milli, f, o)
			r.advance(time.Second)
			j.Stop()
			r.advance(time.Second)
			require.Equal(t, int32(1), most.Load(), "%+v", o)
			require.Greater(t, runs.Load(), int32(100))
		}
	})
}

// OnEnd is called once for each job that ends other than by Stop, with no lock held, and after
// the job's end is visible.
func TestOnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1, OnPanic: func(timingwheel.Panic) {}})
		reported := 0
		hook := func(j *Job, err error) {
			reported++
			require.Zero(t, j.Next())
			require.Equal(t, err, j.Err())
			require.False(t, j.Stop())
			require.Zero(t, r.verify().Pending, "the slot is free")
			if reported == 1 {
				r.at(2*time.Second, r.record)
			}
		}
		// From a function that panics, followed by a panic of the hook.
		r.job(r.At(r.created.Add(time.Second), func() { r.record(); panic("f") }, JobOptions{OnEnd: func(j *Job, err error) {
			hook(j, err)
			panic("hook")
		}}))
		require.Equal(t, times(time.Second, 2*time.Second, time.Second), r.advance(time.Hour))
		require.Equal(t, 1, reported)
		require.Equal(t, uint64(2), r.Stats().Panics)

		// From a shutdown, which the hook may call as well.
		r.job(r.Every(time.Hour, r.record, JobOptions{OnEnd: func(j *Job, err error) {
			hook(j, err)
			require.ErrorIs(t, err, ErrClosed)
			_, err = r.Close(timingwheel.Discard)
			require.NoError(t, err)
		}}))
		returned, err := r.Close(timingwheel.Return)
		require.NoError(t, err)
		require.Len(t, returned, 1)
		require.Equal(t, 2, reported)
	})
}

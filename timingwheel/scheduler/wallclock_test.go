package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

// timers 16: wall-clock jobs follow the clock within a second when it is set; later runs are
// exact, because the clock was set well before.
func TestWallClockSet(t *testing.T) {
	const minute, hour = time.Minute, time.Hour
	for _, c := range []struct {
		name   string
		by     time.Duration // at 10 minutes
		at     time.Duration // by the original clock
		want   time.Duration
		late   time.Duration // at most
		hourly durations     // at half past
	}{
		{"forward", hour, 90 * minute, 30 * minute, 0, times(30*minute, 3*hour, hour)},
		{"forward, past it", hour, 30 * minute, 10 * minute, time.Second, times(30*minute, 3*hour, hour)},
		{"back", -hour, 30 * minute, 90 * minute, 0, times(30*minute, 3*hour, hour)},
		{"a little forward", 5 * minute, 90 * minute, 85 * minute, 0, times(25*minute, 3*hour, hour)},
		{"a little back", -5 * minute, 90 * minute, 95 * minute, 0, times(35*minute, 3*hour, hour)},
		{"not", 0, 90 * minute, 90 * minute, 0, times(30*minute, 3*hour, hour)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Options{})
				j := r.at(c.at, r.record)
				require.Equal(t, r.created.Add(c.at), j.Next())
				require.Empty(t, r.advance(10*minute+milli))
				r.setWall(c.by)
				runs := r.advance(2 * hour)
				require.Len(t, runs, 1)
				require.GreaterOrEqual(t, runs[0], c.want)
				require.LessOrEqual(t, runs[0], c.want+milli+c.late)
			})
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Options{})
				j := r.on(multiples{hour, 30 * minute}, r.record, JobOptions{})
				require.Empty(t, r.advance(10*minute+milli))
				r.setWall(c.by)
				require.Empty(t, r.advance(2*time.Second))
				require.Equal(t, r.created.Add(c.hourly[0]+c.by), j.Next(), "planned again")
				require.Equal(t, c.hourly, r.advanceTo(3*hour))
			})
		})
	}
}

// A change of the clock, at whatever phase and to whatever time, is noticed within a second.
func TestWallClockSetIsNoticedWithinASecond(t *testing.T) {
	for _, phase := range []time.Duration{1, milli, 500 * milli, time.Second - 1, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			r.advance(phase)
			r.at(10*time.Hour, r.record)
			r.advance(time.Hour)
			r.setWall(10 * time.Hour)
			runs := r.advance(time.Minute)
			require.Len(t, runs, 1)
			require.LessOrEqual(t, runs[0], time.Hour+phase+time.Second+milli)
			require.Equal(t, uint64(1), r.Stats().ClockSteps)
		})
	}
}

// The clock is set back between two checks, and the run is due before the next check.
func TestWallClockSetJustBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		r.at(10*time.Second+500*milli, r.record)
		require.Empty(t, r.advance(10*time.Second+300*milli))
		r.setWall(-time.Hour)
		require.Equal(t, durations{time.Hour + 10*time.Second + 500*milli}, r.advance(2*time.Hour))
	})
	// A worker has already taken the timer when the check runs: it follows the new plan.
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		j := r.on(multiples{time.Hour, 0}, r.record, JobOptions{})
		r.advanceTo(59 * time.Minute)
		require.True(t, j.wheel.Stop(j.timer)) // as the worker does
		r.setWall(-time.Hour)                  // 23:59
		r.advanceTo(59*time.Minute + 2*time.Second)
		require.Equal(t, r.created, j.Next())
		j.run()
		require.Equal(t, durations{time.Hour}, r.advanceTo(61*time.Minute))
	})
}

// A correction of up to maxDrift does not count as a step.
func TestWallClockDrift(t *testing.T) {
	for by, steps := range map[time.Duration]uint64{maxDrift: 0, maxDrift + 1: 1, -maxDrift: 0, -maxDrift - 1: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			r.at(time.Hour, r.record)
			r.setWall(by)
			require.Empty(t, r.advance(time.Minute))
			require.Equal(t, steps, r.Stats().ClockSteps, by)
		})
	}
}

// A small correction neither repeats a run nor omits one.
func TestWallClockCorrected(t *testing.T) {
	for _, back := range []time.Duration{1, milli, 9 * milli, 11 * milli, 20 * milli, 500 * milli, time.Second - 1} {
		for _, after := range []time.Duration{0, 1, 5 * milli, 300 * milli} {
			for _, phase := range []time.Duration{0, 10 * milli, 400 * milli} { // of the checks
				synctest.Test(t, func(t *testing.T) {
					r := newFixture(t, Options{})
					r.advance(phase)
					r.on(multiples{time.Minute, 0}, r.record, JobOptions{})
					require.Equal(t, durations{time.Minute}, r.advanceTo(time.Minute))
					time.Sleep(after)
					r.setWall(-back)
					require.Empty(t, r.advance(time.Minute-after-1), "back by %v, %v after a run", back, after)
					runs := r.advance(2 * time.Second)
					require.Len(t, runs, 1)
					require.GreaterOrEqual(t, runs[0], 2*time.Minute+back)
					require.LessOrEqual(t, runs[0], 2*time.Minute+back+2*milli)
				})
			}
		}
	}
	// While it runs.
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		r.on(multiples{time.Second, 0}, func() {
			if r.record(); r.set.Load() == 0 {
				r.setWall(-20 * milli)
			}
		}, JobOptions{})
		require.Equal(t, durations{time.Second, 2020 * milli, 3020 * milli}, r.advance(3500*milli))
	})
	// A Coalesce run stands for the missed runs, which do not repeat either.
	for _, back := range []time.Duration{0, 20 * milli, 500 * milli, time.Second - 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			r.advance(300 * milli)
			r.on(multiples{10 * time.Second, 0}, func() {
				if r.record(); r.since() < 20*time.Second {
					time.Sleep(40*time.Second + 200*milli) // until 50.2
				}
			}, JobOptions{Missed: Coalesce})
			require.Equal(t, durations{10 * time.Second, 50*time.Second + 200*milli}, r.advanceTo(50*time.Second+250*milli))
			r.setWall(-back)
			require.Empty(t, r.advanceTo(60*time.Second+back-1), back)
			require.Len(t, r.advanceTo(60*time.Second+back+milli), 1)
		})
	}
	// Many small corrections add up, and the job follows.
	for _, by := range []time.Duration{-5 * milli, 5 * milli} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			r.at(10*time.Minute, r.record)
			for range 300 {
				r.advance(time.Second)
				r.setWall(by)
			}
			require.Equal(t, durations{10*time.Minute - 300*by}, r.advance(10*time.Minute))
		})
	}
}

// For a schedule that counts from its argument, a small correction moves the next run by as
// much, not by a period.
func TestWallClockCorrectedRelative(t *testing.T) {
	for _, back := range []time.Duration{20 * milli, 900 * milli} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			j := r.on(scheduleFunc(func(t time.Time) time.Time { return t.Add(time.Minute) }), r.record, JobOptions{})
			require.Len(t, r.advance(time.Minute), 1)
			r.setWall(-back)
			r.advance(2 * time.Second)
			require.Equal(t, r.created.Add(2*time.Minute), j.Next())
			r.setWall(back) // right again, and later than when the plan was made
			r.advance(2 * time.Second)
			require.Equal(t, r.created.Add(2*time.Minute), j.Next())
			require.Len(t, r.advanceTo(10*time.Minute), 9)
		})
	}
}

// Runs repeat if the clock is set back by more than a moment, because their time repeats; also
// if it was set back while the job ran.
func TestWallClockSetBackRunsAgain(t *testing.T) {
	const minute = time.Minute
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		r.on(multiples{time.Hour, 30 * minute}, r.record, JobOptions{})
		require.Equal(t, durations{30 * minute}, r.advance(40*minute))
		r.setWall(-time.Hour) // it is 23:40; the next is 0:30 again
		require.Equal(t, durations{90 * minute, 150 * minute}, r.advance(2*time.Hour))
	})
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		r.on(multiples{time.Hour, 30 * minute}, func() {
			if r.record(); r.set.Load() == 0 {
				r.setWall(-time.Hour)
			}
		}, JobOptions{})
		require.Equal(t, durations{30 * minute, 90 * minute, 150 * minute}, r.advance(160*minute))
	})
	// Set back during a run: each repeated time has a run.
	for _, missed := range []Missed{Skip, Coalesce, RunAll} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			r.on(multiples{minute, 0}, func() { r.record(); time.Sleep(2 * time.Second) }, JobOptions{Missed: missed})
			r.advanceTo(time.Hour + time.Second) // the run of 1:00 is in progress
			r.setWall(-30 * minute)
			require.Equal(t, times(61*minute, 120*minute, minute), r.advanceTo(2*time.Hour), missed)
		})
	}
}

// Runs to be made up are not lost when the clock is set back a little.
func TestMadeUpRunsSurviveACorrection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{Workers: 1})
		runs := 0
		r.on(multiples{10 * time.Second, 0}, func() {
			r.record()
			if runs++; runs == 1 {
				time.Sleep(35 * time.Second) // until 45
				r.at(45*time.Second, func() { time.Sleep(3 * time.Second) })
			}
		}, JobOptions{Missed: RunAll})
		r.advanceTo(44 * time.Second)
		require.Equal(t, 1, runs)
		r.advanceTo(46 * time.Second) // the worker is busy until 48; 20, 30 and 40 are due
		r.setWall(-30 * milli)
		r.advanceTo(47 * time.Second)
		r.advanceTo(49 * time.Second)
		require.Equal(t, 4, runs)
	})
}

// The check takes no slot and is not counted: a bound of two allows a job and a call.
func TestCheckTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 2})
		r.at(time.Hour, r.record)
		c := r.after(time.Hour, r.record)
		require.Equal(t, 2, r.Len())
		_, err := r.AfterFunc(time.Hour, r.record)
		require.ErrorIs(t, err, ErrFull)
		before := r.Stats()
		require.Equal(t, 2, before.Pending)
		r.advance(10*time.Second + milli)
		require.GreaterOrEqual(t, r.readings.Load(), int64(10), "checks")
		after := r.Stats()
		require.Equal(t, before.CallWheel.Expired, after.CallWheel.Expired)
		require.Equal(t, before.JobWheel.Expired, after.JobWheel.Expired)
		require.Equal(t, before.Scheduled, after.Scheduled)
		require.True(t, c.Stop())
		r.after(time.Hour, r.record)
	})
}

// The clock is checked even if the scheduler is full.
func TestCheckWhenFull(t *testing.T) {
	for _, bound := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{MaxPending: bound})
			r.at(10*time.Hour, r.record)
			for r.Len() < bound {
				r.after(20*time.Hour, func() {})
			}
			require.Empty(t, r.advance(30*time.Minute))
			r.setWall(9 * time.Hour) // 9:30
			require.Equal(t, durations{time.Hour}, r.advance(2*time.Hour))
		})
	}
}

// T3: a job whose timer expired too early, because the clock was set back, keeps its slot while
// it returns to the wheel.
func TestReplannedJobKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1})
		j := r.at(5*time.Second+500*milli, r.record)
		r.advanceTo(5*time.Second + 100*milli)
		r.setWall(-time.Hour)
		attempts := 0
		r.onRead = func() { // a worker has the timer, and reads the clock
			attempts++
			_, err := r.AfterFunc(time.Hour, func() {})
			require.ErrorIs(t, err, ErrFull)
			require.Equal(t, 1, r.Len())
		}
		r.advanceTo(5*time.Second + 600*milli)
		r.onRead = nil
		require.NotZero(t, attempts)
		require.NoError(t, j.Err())
		require.Equal(t, durations{time.Hour + 5*time.Second + 500*milli}, r.advance(2*time.Hour))
	})
}

// T9: the check exists only while jobs follow the wall clock.
func TestCheckExistsOnlyForWallJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		readings := func(d time.Duration) int64 {
			before := r.readings.Load()
			r.advance(d)
			return r.readings.Load() - before
		}
		require.Zero(t, readings(time.Hour))
		j := r.at(100*time.Hour, r.record)
		k := r.at(100*time.Hour, r.record)
		require.Equal(t, int64(10), readings(10*time.Second))
		require.True(t, k.Stop())
		require.Equal(t, int64(10), readings(10*time.Second))
		require.True(t, j.Stop())
		require.Zero(t, r.checks())
		require.Zero(t, readings(time.Hour))
		r.at(0, r.record) // past
		require.Len(t, r.advance(0), 1)
		require.Zero(t, readings(time.Hour))
		// It returns, one a second, however often it existed before.
		for range 5 {
			j = r.at(100*time.Hour, r.record)
			require.Equal(t, int64(10), readings(10*time.Second))
			require.True(t, j.Stop())
		}
		wakeups := r.Stats().JobWheel.Wakeups
		require.Zero(t, readings(24*time.Hour))
		require.LessOrEqual(t, r.Stats().JobWheel.Wakeups-wakeups, uint64(1), "one that was slept for may be left")
	})
}

// White box: a check is starting when the last job ends and another is added. After that there
// is one check a second, not two.
func TestOneCheckASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		late := func() { // it runs only now
			r.clock.mu.Lock()
			r.clock.active++
			r.clock.mu.Unlock()
			r.clock.check()
		}
		j := r.at(time.Hour, r.record)
		require.True(t, j.Stop())
		late()
		require.Zero(t, r.checks())
		j = r.at(time.Hour, r.record)
		late()
		late()
		require.Equal(t, 1, r.checks())
		before := r.readings.Load()
		r.advance(10*time.Second + milli)
		require.Equal(t, int64(10), r.readings.Load()-before)
		require.True(t, j.Stop())
		require.Zero(t, r.checks())
	})
}

// T13: Shutdown waits for the check, and for the effects of a schedule there.
func TestShutdownWaitsForTheCheck(t *testing.T) {
	for _, policy := range policies {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			called := 0
			var e ends
			r.on(scheduleFunc(func(t time.Time) time.Time {
				if called++; called == 2 {
					time.Sleep(time.Minute)
				}
				return t.Add(time.Hour)
			}), r.record, JobOptions{OnEnd: e.record})
			r.advanceTo(time.Minute + 500*milli)
			r.setWall(-2 * time.Minute)
			r.advanceTo(time.Minute + 1500*milli) // Next has been running since 1:01
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			returned, err := r.Shutdown(ctx, policy)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, policy == timingwheel.Return, len(returned) == 1)
			returned, err = r.Shutdown(t.Context(), timingwheel.Await)
			require.NoError(t, err)
			require.Empty(t, returned)
			require.Zero(t, r.checks())
			require.Equal(t, 1, len(e.recorded()))
			if policy == timingwheel.Await { // after a run at 0:59:01 by the clock, an hour after 23:59:01
				require.Equal(t, time.Hour+time.Minute+time.Second, r.since())
				require.Len(t, r.recorded(), 1)
			} else {
				require.Equal(t, 2*time.Minute+time.Second, r.since())
			}
		})
	}
}

// Await follows the clock until the last job has run.
func TestAwaitFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{MaxPending: 1})
		r.at(10*time.Hour, r.record)
		_, err := r.Close(timingwheel.Await)
		require.NoError(t, err)
		r.advance(time.Hour)
		r.setWall(8 * time.Hour)
		_, err = r.Shutdown(t.Context(), timingwheel.Await)
		require.NoError(t, err)
		require.Equal(t, durations{2 * time.Hour}, r.recorded())
	})
}

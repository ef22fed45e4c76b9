package scheduler

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// T14, timers 14: treatment of runs that a slow function misses.
func TestMissed(t *testing.T) {
	for _, c := range []struct {
		missed Missed
		first  time.Duration // how long the first run takes
		want   durations     // of a job every 10 ms
	}{
		{Skip, 9 * milli, durations{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Skip, 10 * milli, durations{10 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Skip, 35 * milli, durations{10 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 9 * milli, durations{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 10 * milli, durations{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 11 * milli, durations{10 * milli, 21 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{Coalesce, 35 * milli, durations{10 * milli, 45 * milli, 50 * milli, 60 * milli}},
		{RunAll, 9 * milli, durations{10 * milli, 20 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{RunAll, 11 * milli, durations{10 * milli, 21 * milli, 30 * milli, 40 * milli, 50 * milli, 60 * milli}},
		{RunAll, 35 * milli, durations{10 * milli, 45 * milli, 45 * milli, 45 * milli, 50 * milli, 60 * milli}},
		{RunAll, 40 * milli, durations{10 * milli, 50 * milli, 50 * milli, 50 * milli, 50 * milli, 60 * milli}},
	} {
		t.Run(fmt.Sprintf("%v/%v", c.missed, c.first), func(t *testing.T) {
			for _, wall := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					r := newFixture(t, Options{})
					var done atomic.Bool
					f := func() {
						r.record()
						if !done.Swap(true) {
							time.Sleep(c.first)
						}
					}
					if wall {
						r.on(multiples{10 * milli, 0}, f, JobOptions{Missed: c.missed})
					} else {
						r.every(10*milli, f, JobOptions{Missed: c.missed})
					}
					require.Equal(t, c.want, r.advance(65*milli))
				})
			}
		})
	}
}

// The jobs' worker is busy until 45 ms: the run of 10 ms is late, and those of 20 to 40 are
// missed. This does not delay calls.
func TestMissedByBusyWorkers(t *testing.T) {
	for missed, want := range map[Missed]durations{
		Skip:     {45 * milli, 50 * milli, 60 * milli},
		Coalesce: {45 * milli, 50 * milli, 60 * milli},
		RunAll:   {45 * milli, 45 * milli, 45 * milli, 45 * milli, 50 * milli, 60 * milli},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{Workers: 1})
			r.every(10*milli, r.record, JobOptions{Missed: missed})
			r.at(5*milli, func() { time.Sleep(40 * milli) })
			called := time.Duration(0)
			r.after(7*milli, func() { called = r.since() })
			require.Equal(t, want, r.advance(65*milli))
			require.Equal(t, 7*milli, called)
		})
	}
}

// The argument of each Next is the planned time of the previous run, however late that was and
// with whatever jitter; so a schedule that counts from its argument does not shift.
func TestNextIsGivenThePlannedTime(t *testing.T) {
	for _, missed := range []Missed{Skip, Coalesce, RunAll} {
		for _, jitter := range []time.Duration{0, 9 * milli} {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Options{Workers: 1})
				var args, given durations
				s := scheduleFunc(func(t time.Time) time.Time {
					args = append(args, t.Sub(r.created))
					given = append(given, t.Add(30*milli).Sub(r.created))
					return t.Add(30 * milli)
				})
				r.on(s, func() { r.record(); time.Sleep(10 * milli) }, JobOptions{Missed: missed, Jitter: jitter})
				r.at(1015*milli, func() { time.Sleep(10 * milli) }) // the run of 1020 is late
				runs := r.advance(3025 * milli)
				require.Len(t, runs, 100)
				require.Equal(t, times(0, 3000*milli, 30*milli), args)
				for i, at := range runs {
					require.GreaterOrEqual(t, at, given[i])
					late := jitter
					if given[i] == 1020*milli {
						late = max(jitter, 5*milli)
					}
					require.LessOrEqual(t, at, given[i]+late)
				}
			})
		}
	}
}

// Jitter delays each run by at most its value, and does not shift the schedule.
func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		j := r.every(100*milli, r.record, JobOptions{Jitter: 50 * milli})
		seen := map[time.Duration]int{}
		for i := range 500 {
			due := time.Duration(i+1) * 100 * milli
			require.Equal(t, r.created.Add(due), j.Next(), "planned without jitter")
			runs := r.advanceTo(due + 50*milli)
			require.Len(t, runs, 1)
			by := runs[0] - due
			require.GreaterOrEqual(t, by, time.Duration(0))
			require.LessOrEqual(t, by, 50*milli)
			seen[by]++
		}
		require.Greater(t, len(seen), 30, "as good as every tick of it")
		j.Stop()

		// The jitter of a wall job, and a jitter whose sum with the period overflows an int64.
		r.advanceTo(time.Minute)
		j = r.on(multiples{time.Second, 0}, r.record, JobOptions{Jitter: 100 * milli})
		for i, at := range r.advance(100*time.Second - 1) {
			require.GreaterOrEqual(t, at, time.Minute+time.Duration(i+1)*time.Second)
			require.LessOrEqual(t, at, time.Minute+time.Duration(i+1)*time.Second+100*milli)
		}
		j.Stop()
		j = r.every(1<<63-1, r.record, JobOptions{Jitter: 1<<63 - 1})
		require.Empty(t, r.advance(10000*time.Hour))
		require.True(t, j.Stop())
	})
}

// A run's time is its planned time plus its jitter: it is missed only when that has passed.
func TestMissedByTheTimeWithJitter(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	const second = time.Second
	for _, c := range []struct {
		missed                   Missed
		began, now, jitter, want time.Duration // of the run of 10, one every 10
	}{
		{Skip, 10, 25, 0, 30},
		{Skip, 10, 25, 4, 30},
		{Skip, 10, 25, 5, 30},
		{Skip, 10, 25, 6, 20},
		{Skip, 18, 19, 9, 20},
		{Coalesce, 25, 26, 0, 30},
		{Coalesce, 25, 26, 5, 30},
		{Coalesce, 25, 26, 6, 20},
		{Coalesce, 10, 25, 0, 20},
		{Coalesce, 19, 25, 0, 20},
		{RunAll, 25, 45, 0, 20},
		{RunAll, 10, 45, 9, 20},
	} {
		var given durations
		p := &recurring{scheduleFunc(func(t time.Time) time.Time {
			given = append(given, t.Sub(start)/second)
			return multiples{10 * second, 0}.Next(t)
		}), c.missed, true}
		at := func(d time.Duration) time.Time { return start.Add(d * second) }
		next, err := p.after(at(10), at(c.began), at(c.now), c.jitter*second)
		require.NoError(t, err)
		require.Equal(t, at(c.want), next, "%+v", c)
		require.Equal(t, time.Duration(10), given[0], "the planned time")
		require.Equal(t, c.want == 30, len(given) == 2, "%+v: once more only if it was missed", c)
	}
}

// The time from which a schedule is called after the clock was set, at the edges: a time that
// repeats by less than a second is not run again, and a time passed by less than a second is
// not missed.
func TestAfterStep(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		missed                        Missed
		last, began, planned, at, now time.Duration
		late                          bool
		from                          time.Duration // -1: nothing changes
	}{
		// Set past the planned run.
		{Skip, 10_000, 10_000, 10_000, 20_000, 21_000, false, 21_000},
		{Skip, 10_000, 10_000, 10_000, 20_000, 20_999, false, -1},
		{Skip, 10_000, 10_000, 10_000, 20_000, 21_000, true, -1},
		{Coalesce, 10_000, 10_000, 10_000, 20_000, 90_000, false, -1},
		{RunAll, 10_000, 10_000, 10_000, 20_000, 90_000, false, -1},
		{Skip, 10_000, 10_000, 10_000, 20_000, 20_000, false, -1},
		// Ahead, but not past it; and no change.
		{Skip, 10_000, 10_000, 10_000, 20_000, 19_999, false, -1},
		{Skip, 10_000, 10_000, 10_500, 20_000, 10_500, false, -1},
		// Back, to before the plan was made.
		{Skip, 10_000, 10_000, 10_500, 20_000, 10_499, false, 10_499},
		{Skip, 10_000, 10_000, 10_500, 20_000, 10_000, false, 10_000},
		{Skip, 10_000, 10_000, 10_500, 20_000, 9_999, false, 10_000},
		{Skip, 10_000, 10_000, 10_500, 20_000, 9_001, false, 10_000},
		{Skip, 10_000, 10_000, 10_500, 20_000, 9_000, false, 9_000},
		{Skip, 10_000, 10_700, 10_800, 20_000, 10_300, false, 10_300},
		{RunAll, 10_000, 10_700, 10_800, 20_000, 10_300, false, 10_300},
		{Coalesce, 10_000, 10_700, 10_800, 20_000, 10_300, false, 10_700},
		{Coalesce, 10_000, 10_700, 10_800, 20_000, 9_700, false, 9_700},
		{Coalesce, 10_000, 9_000, 10_800, 20_000, 9_700, false, 10_000},
	} {
		at := func(ms time.Duration) time.Time { return start.Add(ms * milli) }
		p := &recurring{missed: c.missed}
		from, changed := p.afterStep(at(c.last), at(c.began), at(c.planned), at(c.at), at(c.now), c.late)
		require.Equal(t, c.from >= 0, changed, "%+v", c)
		if changed {
			require.Equal(t, at(c.from), from, "%+v", c)
		}
	}
}

// A run ends at a time before its own, because the clock was set back during the run: by a
// second or more, that time repeats.
func TestClockSetBackDuringRun(t *testing.T) {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms time.Duration) time.Time { return start.Add(ms * milli) }
	for _, c := range []struct {
		missed                 Missed
		last, began, now, want time.Duration
	}{
		{Skip, 10_000, 10_000, 9_001, 20_000},
		{Skip, 10_000, 10_000, 9_000, 10_000},
		{RunAll, 10_000, 10_000, 9_001, 20_000},
		{RunAll, 10_000, 10_000, 9_000, 10_000},
		{Coalesce, 10_000, 30_500, 29_501, 40_000},
		{Coalesce, 10_000, 30_500, 29_500, 30_000}, // a run that it stood for repeats
	} {
		p := &recurring{multiples{10 * time.Second, 0}, c.missed, true}
		next, err := p.after(at(c.last), at(c.began), at(c.now), 0)
		require.NoError(t, err)
		require.Equal(t, at(c.want), next, "%+v", c)
	}
}

// With a jitter of ten periods RunAll makes every run, each at most the jitter after its
// planned time, however long it continues; the others omit runs and are no later.
func TestJitterBeyondThePeriod(t *testing.T) {
	const period, jitter = 10 * milli, 100 * milli
	for _, missed := range []Missed{Skip, Coalesce, RunAll} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			var args durations // the planned time of each run, except the first
			start := rate{r.created, period}
			j := r.on(scheduleFunc(func(t time.Time) time.Time {
				args = append(args, t.Sub(r.created))
				return start.Next(t)
			}), r.record, JobOptions{Missed: missed, Jitter: jitter})
			runs := r.advance(60 * time.Second)
			next := j.Next().Sub(r.created)
			require.GreaterOrEqual(t, next, 60*time.Second-jitter, "it fell behind")
			require.LessOrEqual(t, next, 60*time.Second+period)
			for i, at := range runs {
				if missed == RunAll {
					due := time.Duration(i+1) * period
					require.Equal(t, due, args[i+1])
					require.GreaterOrEqual(t, at, due, "run %d", i)
					require.LessOrEqual(t, at, due+jitter, "run %d", i)
				}
			}
			if missed == RunAll {
				require.Equal(t, int(next/period)-1, len(runs))
			} else {
				require.Less(t, len(runs), 6000)
				require.Greater(t, len(runs), 600)
			}
			require.True(t, slices.IsSorted(runs))
		})
	}
}

// A daily run at midnight; the machine sleeps from 23:00 to 7:00, or its clock is set ahead by
// as much: the monotonic clock has stood still. The run is made up within a second, unless
// missed runs are skipped; the next run is at the next midnight.
func TestMissedInASuspend(t *testing.T) {
	const hour = time.Hour
	for missed, want := range map[Missed]int{Skip: 0, Coalesce: 1, RunAll: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{})
			j := r.on(multiples{24 * hour, 0}, r.record, JobOptions{Missed: missed})
			require.Empty(t, r.advance(23*hour+milli/3))
			r.setWall(8 * hour)
			runs := r.advance(2 * time.Second)
			require.Len(t, runs, want)
			for _, at := range runs {
				require.LessOrEqual(t, at, 23*hour+time.Second+milli)
			}
			require.Equal(t, r.created.Add(48*hour), j.Next())
			require.Equal(t, durations{40 * hour}, r.advance(18*hour), "which the clock shows as 48:00")
		})
	}
}

// Several runs missed in one suspend: Coalesce makes them up by one run, RunAll each, Skip
// none.
func TestSeveralMissedInASuspend(t *testing.T) {
	for missed, want := range map[Missed]int{Skip: 0, Coalesce: 1, RunAll: 5} {
		for _, jitter := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Options{})
				j := r.on(multiples{time.Hour, 0}, r.record, JobOptions{Missed: missed, Jitter: jitter})
				require.Empty(t, r.advance(30*time.Minute))
				r.setWall(5 * time.Hour) // 5:30
				require.Len(t, r.advance(3*time.Second), want)
				require.Equal(t, r.created.Add(6*time.Hour), j.Next())
				require.Empty(t, r.advance(29*time.Minute))
			})
		}
	}
}

// A correction of the clock to just past a run's time does not skip the run.
func TestSmallStepPastARun(t *testing.T) {
	for _, missed := range []Missed{Skip, Coalesce, RunAll} {
		for by, want := range map[time.Duration]int{1350 * milli: 1, 1990 * milli: 1, 2010 * milli: 0, time.Minute: 0} {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture(t, Options{})
				j := r.on(multiples{time.Hour, 0}, r.record, JobOptions{Missed: missed})
				r.advance(time.Hour - 1300*milli) // it is noticed 300 ms later
				r.setWall(by)
				runs := r.advance(time.Minute)
				if missed != Skip {
					want = 1
				}
				require.Len(t, runs, want, "%v %v", missed, by)
				require.Equal(t, r.created.Add(2*time.Hour), j.Next())
			})
		}
	}
}

// A run that waits for a worker is merely late, by Skip too, however the clock is set during
// the wait: it was not set past the run.
func TestStepDuringALateRun(t *testing.T) {
	for _, by := range []time.Duration{0, 20 * milli, -20 * milli, 5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			r := newFixture(t, Options{Workers: 1})
			r.at(45*time.Second, func() { time.Sleep(45 * time.Second) })
			j := r.on(multiples{time.Minute, 0}, r.record, JobOptions{})
			r.advanceTo(61 * time.Second)
			r.setWall(by)
			r.advanceTo(70 * time.Second)
			r.setWall(by * 2)
			require.Equal(t, durations{90 * time.Second}, r.advanceTo(91*time.Second), by)
			require.True(t, j.Next().After(r.wallNow()))
		})
	}
	// So is a run that waits for its tick; the check starts it.
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{Tick: 15 * time.Second})
		r.on(multiples{time.Hour, 5 * time.Second}, r.record, JobOptions{})
		r.advanceTo(7 * time.Second)
		r.setWall(20 * milli)
		require.Equal(t, durations{8 * time.Second}, r.advanceTo(16*time.Second), "by the check")
	})
}

// A job matches a simulation of the documentation, for any period, slowness of the function and
// Missed.
func TestMissedModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		checkMissed(t, seed)
	}
}

func FuzzMissed(f *testing.F) {
	f.Add(uint64(1000))
	f.Fuzz(checkMissed)
}

func checkMissed(t *testing.T, seed uint64) {
	t.Helper()
	x := newRand(seed)
	missed := Missed(x.IntN(3))
	period := time.Duration(1+x.IntN(20)) * milli
	wall := x.IntN(2) == 1
	slow := make(durations, 200)
	for i := range slow {
		if x.IntN(4) == 0 {
			slow[i] = time.Duration(x.IntN(100)) * milli
		}
	}
	const end = 2 * time.Second

	// The simulation walks through time a millisecond at a time, and keeps a list of the runs
	// whose time has come.
	var want, come durations
	free := time.Duration(0) // when the run in progress ends
	for now := period; now <= end; now += milli {
		if now%period == 0 {
			come = append(come, now)
		}
		for len(come) > 0 && free <= now {
			first := come[0]
			switch {
			case missed == Skip && first < now || missed == Skip && first == free && free > 0:
				come = come[1:] // its time came during a run
				continue
			case missed == Coalesce:
				come = nil
			default:
				come = come[1:]
			}
			want = append(want, now)
			free = now + slow[len(want)%len(slow)]
		}
	}

	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, Options{})
		n := 0
		f := func() {
			r.record()
			n++
			time.Sleep(slow[n%len(slow)])
		}
		if wall {
			start := rate{r.wallNow(), period}
			r.on(start, f, JobOptions{Missed: missed})
		} else {
			r.every(period, f, JobOptions{Missed: missed})
		}
		require.Equal(t, want, r.advance(end), "seed %d: %v every %v", seed, missed, period)
	})
}

package scheduler

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/stretchr/testify/require"
)

const milli = time.Millisecond

type durations = []time.Duration

var policies = []timingwheel.Policy{timingwheel.Discard, timingwheel.Return, timingwheel.RunNow, timingwheel.Await}

// fixture is a scheduler whose wall clock can be set, with a record of the times of runs.
type fixture struct {
	*Scheduler
	t        testing.TB
	created  time.Time
	set      atomic.Int64 // how far the wall clock was set ahead of the real one
	readings atomic.Int64 // of the wall clock
	onRead   func()       // called with each reading, if not nil

	mu   sync.Mutex
	runs durations // after created
}

// newFixture makes a scheduler with a tick of 1 ms. It is shut down when the test ends, and must
// then be empty and without a check of the clock.
func newFixture(t testing.TB, o Options) *fixture {
	t.Helper()
	r := &fixture{t: t, created: time.Now()}
	o.Tick = cmp.Or(o.Tick, milli)
	o.WheelSize = cmp.Or(o.WheelSize, 256)
	s, err := New(o)
	require.NoError(t, err)
	s.clock.reading = func(now time.Time) time.Time {
		r.readings.Add(1)
		if r.onRead != nil {
			r.onRead()
		}
		return now.Round(0).Add(time.Duration(r.set.Load()))
	}
	r.Scheduler = s
	t.Cleanup(func() {
		r.barrier()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Hour)
		defer cancel()
		_, err := s.Shutdown(ctx, timingwheel.Discard)
		require.NoError(t, err)
		require.Zero(t, s.Len())
		st := r.verify()
		require.Zero(t, st.CallWheel.Workers+st.JobWheel.Workers, "T13: Shutdown waits for the goroutines")
		require.Zero(t, r.checks())
		require.Zero(t, s.clock.watchers)
		require.Nil(t, s.jobs.first)
	})
	return r
}

// verify checks the invariants of the statistics.
func (r *fixture) verify() Stats {
	r.t.Helper()
	st := r.Stats()
	require.Equal(r.t, st.Scheduled, uint64(st.Pending)+st.Stopped+st.Ended+st.Discarded+st.Returned, "%+v", st)
	require.LessOrEqual(r.t, st.Jobs, st.Pending)
	return st
}

func (r *fixture) since() time.Duration { return time.Since(r.created) }

// record is a function to schedule: it records when it runs.
func (r *fixture) record() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, r.since())
}

// recorded returns the times since the last call.
func (r *fixture) recorded() durations {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs
	r.runs = nil
	return runs
}

// advance lets time pass and returns what recorded returns.
func (r *fixture) advance(d time.Duration) durations {
	r.t.Helper()
	r.barrier()
	time.Sleep(d)
	synctest.Wait()
	r.verify()
	return r.recorded()
}

// barrier orders earlier actions of the test before later ones of functions, schedules and
// hooks; to the race detector, sleeping does not. So it takes the locks, and touches the
// counter of readings, as the clock does before each schedule's call.
func (r *fixture) barrier() {
	r.verify()
	r.readings.Add(0)
	r.mu.Lock()
	defer r.mu.Unlock()
}

// checks returns the number of timers and goroutines of the wall clock's check.
func (r *fixture) checks() int {
	r.clock.mu.Lock()
	defer r.clock.mu.Unlock()
	return r.clock.active
}

// advanceTo is advance until a time after the start.
func (r *fixture) advanceTo(d time.Duration) durations {
	r.t.Helper()
	return r.advance(d - r.since())
}

// setWall sets the wall clock forward, or back.
func (r *fixture) setWall(by time.Duration) { r.set.Add(int64(by)) }

// wallNow returns the wall clock's reading.
func (r *fixture) wallNow() time.Time { return time.Now().Round(0).Add(time.Duration(r.set.Load())) }

func (r *fixture) after(delay time.Duration, f func()) Call {
	r.t.Helper()
	c, err := r.AfterFunc(delay, f)
	require.NoError(r.t, err)
	return c
}

func (r *fixture) job(j *Job, err error) *Job {
	r.t.Helper()
	require.NoError(r.t, err)
	require.NotNil(r.t, j)
	return j
}

func (r *fixture) every(period time.Duration, f func(), o JobOptions) *Job {
	r.t.Helper()
	return r.job(r.Every(period, f, o))
}

// at is a job at this time after the start, by the present wall clock.
func (r *fixture) at(d time.Duration, f func()) *Job {
	r.t.Helper()
	return r.job(r.At(r.wallNow().Add(d-r.since()), f, JobOptions{}))
}

func (r *fixture) on(s Schedule, f func(), o JobOptions) *Job {
	r.t.Helper()
	return r.job(r.OnSchedule(s, f, o))
}

// times returns from, from+step, ... up to to.
func times(from, to, step time.Duration) (all durations) {
	for t := from; t <= to; t += step {
		all = append(all, t)
	}
	return all
}

// multiples is the schedule of the multiples of a duration, plus an offset, since the beginning of
// the day.
type multiples struct{ step, offset time.Duration }

func (s multiples) Next(t time.Time) time.Time {
	next := t.Truncate(s.step).Add(s.offset)
	for !next.After(t) {
		next = next.Add(s.step)
	}
	return next
}

// timeList is a schedule of some times. It is not safe for concurrent use, so the race detector
// reports concurrent calls.
type timeList []time.Time

func (l *timeList) Next(t time.Time) time.Time {
	*l = slices.DeleteFunc(*l, func(at time.Time) bool { return !at.After(t) })
	if len(*l) == 0 {
		return time.Time{}
	}
	return (*l)[0]
}

// scheduleFunc is a function as a schedule.
type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(t time.Time) time.Time { return f(t) }

// ends collects the arguments of OnEnd.
type ends struct {
	mu   sync.Mutex
	jobs []*Job
	errs []error
}

func (e *ends) record(j *Job, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, j)
	e.errs = append(e.errs, err)
}

func (e *ends) recorded() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	errs := e.errs
	e.errs = nil
	return errs
}

// newRand returns the generator that decides the steps of a model test.
func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

package scheduler

import (
	"cmp"
	"context"
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

// rig is a scheduler whose wall clock can be set, with a record of the times of runs.
type rig struct {
	*Scheduler
	t        testing.TB
	born     time.Time
	set      atomic.Int64 // how far the wall clock was set ahead of the real one
	readings atomic.Int64 // of the wall clock
	onRead   func()       // called with each reading, if not nil

	mu   sync.Mutex
	runs durations // after born
}

// newRig makes a scheduler with a tick of 1 ms. It is shut down when the test ends, and must
// then be empty and without a check of the clock.
func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	r := &rig{t: t, born: time.Now()}
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
func (r *rig) verify() Stats {
	r.t.Helper()
	st := r.Stats()
	require.Equal(r.t, st.Scheduled, uint64(st.Pending)+st.Stopped+st.Ended+st.Discarded+st.Returned, "%+v", st)
	require.LessOrEqual(r.t, st.Jobs, st.Pending)
	return st
}

func (r *rig) since() time.Duration { return time.Since(r.born) }

// note is a function to schedule: it records when it runs.
func (r *rig) note() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, r.since())
}

// noted returns the records of note since the last call.
func (r *rig) noted() durations {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.runs
	r.runs = nil
	return runs
}

// pass lets time pass and returns the records of note.
func (r *rig) pass(d time.Duration) durations {
	r.t.Helper()
	r.barrier()
	time.Sleep(d)
	synctest.Wait()
	r.verify()
	return r.noted()
}

// barrier orders earlier actions of the test before later ones of functions, schedules and
// hooks; to the race detector, sleeping does not. So it takes the locks, and touches the
// counter of readings, as the clock does before each schedule's call.
func (r *rig) barrier() {
	r.verify()
	r.readings.Add(0)
	r.mu.Lock()
	defer r.mu.Unlock()
}

// checks returns the number of timers and goroutines of the wall clock's check.
func (r *rig) checks() int {
	r.clock.mu.Lock()
	defer r.clock.mu.Unlock()
	return r.clock.active
}

// passTo is pass until a time after the start.
func (r *rig) passTo(d time.Duration) durations {
	r.t.Helper()
	return r.pass(d - r.since())
}

// setWall sets the wall clock forward, or back.
func (r *rig) setWall(by time.Duration) { r.set.Add(int64(by)) }

// wallNow returns the wall clock's reading.
func (r *rig) wallNow() time.Time { return time.Now().Round(0).Add(time.Duration(r.set.Load())) }

func (r *rig) after(delay time.Duration, f func()) Call {
	r.t.Helper()
	c, err := r.AfterFunc(delay, f)
	require.NoError(r.t, err)
	return c
}

func (r *rig) job(j *Job, err error) *Job {
	r.t.Helper()
	require.NoError(r.t, err)
	require.NotNil(r.t, j)
	return j
}

func (r *rig) every(period time.Duration, f func(), o JobOptions) *Job {
	r.t.Helper()
	return r.job(r.Every(period, f, o))
}

// at is a job at this time after the start, by the present wall clock.
func (r *rig) at(d time.Duration, f func()) *Job {
	r.t.Helper()
	return r.job(r.At(r.wallNow().Add(d-r.since()), f, JobOptions{}))
}

func (r *rig) on(s Schedule, f func(), o JobOptions) *Job {
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

// each is the schedule of the multiples of a duration, plus an offset, since the beginning of
// the day.
type each struct{ step, offset time.Duration }

func (s each) Next(t time.Time) time.Time {
	next := t.Truncate(s.step).Add(s.offset)
	for !next.After(t) {
		next = next.Add(s.step)
	}
	return next
}

// list is a schedule of some times. It is not safe for concurrent use, so the race detector
// reports concurrent calls.
type list []time.Time

func (l *list) Next(t time.Time) time.Time {
	*l = slices.DeleteFunc(*l, func(at time.Time) bool { return !at.After(t) })
	if len(*l) == 0 {
		return time.Time{}
	}
	return (*l)[0]
}

// by is a function as a schedule.
type by func(time.Time) time.Time

func (f by) Next(t time.Time) time.Time { return f(t) }

// ends collects the arguments of OnEnd.
type ends struct {
	mu   sync.Mutex
	jobs []*Job
	errs []error
}

func (e *ends) note(j *Job, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, j)
	e.errs = append(e.errs, err)
}

func (e *ends) noted() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	errs := e.errs
	e.errs = nil
	return errs
}

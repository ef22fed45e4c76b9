package scheduler

import (
	"errors"
	"fmt"
	"time"
)

// Schedule computes when a job runs: Next returns the first time after t, or the
// zero time if there is none. A Spec and an Every of package cron are Schedules.
//
// Next is called once before the first run, after each run with the planned
// time of that run, and again from the present if runs were missed or the wall
// clock was set; t has no monotonic reading, and is in the local time zone or in
// that of what Next returned. It is called by one goroutine at a time, with no
// lock held, and possibly while the job's function runs; it may use the job and
// the scheduler. When the wall clock was set, the schedules of the jobs concerned
// are called one after the other, after the jobs that need no call were set right:
// a Next, or an OnEnd, that takes long there delays those of other jobs. A time
// that is not after t ends the job with an error; so does a panic, which goes to
// [Options.OnPanic]. A panic of the first call is the caller's of OnSchedule.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Every calls f at a fixed rate: one period from now, and each further period
// from there, by the monotonic clock. A run that is late does not shift those
// after it. On most systems that clock stands still while the machine is
// suspended, and so does the job.
//
// The errors are ErrClosed, ErrFull, and one that names a period that is not
// more than 0, a nil f, or an option out of range.
func (s *Scheduler) Every(period time.Duration, f func(), o JobOptions) (*Job, error) {
	if period <= 0 {
		return nil, fmt.Errorf("scheduler: the period of Every is %v, must be more than 0", period)
	}
	return s.startJob(&recurring{rate{time.Now(), period}, o.Missed, false}, false, f, o)
}

// EveryDelay calls f with a fixed delay: delay from now, and again delay after
// each run has ended, by the monotonic clock. There are no missed runs then.
// Errors as for [Scheduler.Every].
func (s *Scheduler) EveryDelay(delay time.Duration, f func(), o JobOptions) (*Job, error) {
	if delay <= 0 {
		return nil, fmt.Errorf("scheduler: the delay of EveryDelay is %v, must be more than 0", delay)
	}
	return s.startJob(pause(delay), false, f, o)
}

// OnSchedule calls f at the times of a schedule, by the wall clock. If that is
// set, by more than 10 ms, the next run follows within a second. When it
// was set ahead, past runs that were planned, or the machine was suspended, those
// are missed, see [JobOptions.Missed]; when it was set back by a second or more,
// the times that come again have runs again. A schedule without any run gives a
// job that has ended.
//
// Errors as for [Scheduler.Every], and one for a schedule whose first time is
// not after the present.
func (s *Scheduler) OnSchedule(schedule Schedule, f func(), o JobOptions) (*Job, error) {
	if schedule == nil {
		return nil, errors.New("scheduler: the schedule of OnSchedule is nil")
	}
	return s.startJob(&recurring{schedule, o.Missed, true}, true, f, o)
}

// At calls f once, at a time of the wall clock: if that is set meanwhile, f is
// called when it shows t, or within a second after it was set past t. (For a
// point in time that a clock being set does not move, use AfterFunc.) A time
// that is past is due at once. Errors as for [Scheduler.Every].
func (s *Scheduler) At(t time.Time, f func(), o JobOptions) (*Job, error) {
	return s.startJob(single(stripMonotonic(t)), true, f, o)
}

func (s *Scheduler) startJob(p planner, wall bool, f func(), o JobOptions) (*Job, error) {
	if f == nil {
		return nil, errNilFunc
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	return s.start(&Job{planner: p, wall: wall, f: f, jitter: o.Jitter, onEnd: o.OnEnd})
}

// rate is the schedule of Every. Its times carry a monotonic reading.
type rate struct {
	start  time.Time
	period time.Duration
}

func (r rate) Next(t time.Time) time.Time {
	n := t.Sub(r.start) / r.period
	next := r.start.Add(n * r.period)
	for !next.After(t) { // once, but for a t before the start
		next = next.Add(r.period)
	}
	return next
}

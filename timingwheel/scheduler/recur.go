package scheduler

import (
	"errors"
	"fmt"
	"time"
)

// Schedule calculates when a job runs: Next returns the first time after t, or the zero time if
// there is none. A Spec and an Every of package cron are Schedules.
//
// Next is called once before the first run, after each run with the planned time of that run,
// and again from the present if runs were missed or the wall clock was set. t has no monotonic
// reading, and is in the local time zone or in that of Next's last result. One goroutine at a
// time calls Next, with no lock held, and possibly while the job's function runs; Next may use
// the job and the scheduler. When the wall clock was set, the scheduler first corrects the jobs
// that need no call, and then calls the schedules of the others one after the other: a slow
// Next, or OnEnd, there delays those of other jobs. A time that is not after t ends the job
// with an error; so does a panic, which goes to [Options.OnPanic]. A panic of the first call
// goes to the caller of OnSchedule.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Every calls f at a fixed rate: one period from now, and each further period from there, by
// the monotonic clock. A late run does not shift later ones. On most systems that clock stands
// still while the machine is suspended, and so does the job.
//
// The errors are ErrClosed, ErrFull, and one that names a period that is not more than 0, a nil
// f, or an option out of range.
func (s *Scheduler) Every(period time.Duration, f func(), o JobOptions) (*Job, error) {
	if period <= 0 {
		return nil, fmt.Errorf("scheduler: the period of Every is %v, must be more than 0", period)
	}
	return s.startJob(&recurring{rate{time.Now(), period}, o.Missed, false}, false, f, o)
}

// EveryDelay calls f with a fixed delay: delay from now, and again delay after each run has
// ended, by the monotonic clock. So it has no missed runs. Errors as for [Scheduler.Every].
func (s *Scheduler) EveryDelay(delay time.Duration, f func(), o JobOptions) (*Job, error) {
	if delay <= 0 {
		return nil, fmt.Errorf("scheduler: the delay of EveryDelay is %v, must be more than 0", delay)
	}
	return s.startJob(fixedDelay(delay), false, f, o)
}

// OnSchedule calls f at the times of a schedule, by the wall clock. If that is set by more than
// 10 ms, the next run is replanned within a second. Planned runs that it was set past, or that
// passed while the machine was suspended, are missed, see [JobOptions.Missed]; when it was set
// back by a second or more, the repeated times have runs again. For a schedule without any run,
// OnSchedule returns a job that has ended.
//
// Errors as for [Scheduler.Every], and one for a schedule whose first time is not after the
// present.
func (s *Scheduler) OnSchedule(schedule Schedule, f func(), o JobOptions) (*Job, error) {
	if schedule == nil {
		return nil, errors.New("scheduler: the schedule of OnSchedule is nil")
	}
	return s.startJob(&recurring{schedule, o.Missed, true}, true, f, o)
}

// At calls f once, at a time of the wall clock. If that clock is changed before f has run, f is
// called when the clock shows t, or within a second after it was set past t. (For a point in
// time that does not move with the clock, use AfterFunc.) A past time is due at once. Errors as
// for [Scheduler.Every].
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
	for !next.After(t) { // once, except for a t before the start
		next = next.Add(r.period)
	}
	return next
}

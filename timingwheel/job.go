package timingwheel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Schedule says when a job runs: Next is the first time after t, or the zero
// time if there is none. It is called before the first run, after each, and
// when the wall clock was set, by one goroutine at a time; it may use the job.
// If it panics there is none either. The schedules of github.com/robfig/cron
// fit it.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Missed says what becomes of runs whose time passed while the job was still
// running, the workers were busy, or the process was stopped.
type Missed uint8

const (
	// Skip leaves them out: the next run is the next one that the schedule has
	// from now on.
	Skip Missed = iota
	// Coalesce makes them up by one run, at once.
	Coalesce
	// RunAll makes each of them up, at once, one after the other.
	RunAll
)

// JobOptions configures a job. The zero value skips missed runs and has no
// jitter.
type JobOptions struct {
	// Missed is what becomes of missed runs. Default Skip.
	Missed Missed
	// Jitter delays each run by a random time from zero up to this, so that
	// jobs with the same schedule do not all run at once. The schedule itself
	// does not shift. Default 0; at least 0.
	Jitter time.Duration
}

// Job is a function that runs by a schedule. Runs of one job never overlap.
type Job struct {
	scheduler *Scheduler
	f         func()
	options   JobOptions
	schedule  Schedule
	wall      bool // its times are of the wall clock, which may be set

	// asking is held while the schedule is asked, by one goroutine at a time.
	// Not mu: the schedule is the user's, and may use the job (T12). No method
	// of a Job takes it. Lock order: asking, then mu.
	asking sync.Mutex
	mu     sync.Mutex

	// Guarded by mu.
	timer   Timer     // of the next run; zero while it runs, and when it ended
	due     time.Time // the time that the schedule gave for the run to come, or in progress
	last    time.Time // that of the run before; zero: none yet
	running bool
	ended   bool
	err     error // why, if the scheduler refused the next run
}

// Every calls f at a fixed rate: one period from now, and each further period
// from there, by the monotonic clock. A run that is late does not shift those
// after it.
func (s *Scheduler) Every(period time.Duration, f func(), o JobOptions) (*Job, error) {
	if period <= 0 {
		return nil, fmt.Errorf("timingwheel: Every's period is %v, must be more than 0", period)
	}
	return s.start(&Job{schedule: rate{start: time.Now(), period: period}, f: f, options: o})
}

// EveryAfter calls f with a fixed delay: delay from now, and again delay after
// each run has ended. There are no missed runs then.
func (s *Scheduler) EveryAfter(delay time.Duration, f func(), o JobOptions) (*Job, error) {
	if delay <= 0 {
		return nil, fmt.Errorf("timingwheel: EveryAfter's delay is %v, must be more than 0", delay)
	}
	o.Missed = Skip
	return s.start(&Job{schedule: pause(delay), f: f, options: o})
}

// Run calls f at the times of a schedule, by the wall clock. If that is set,
// the time of the next run is worked out again, at most a second later.
func (s *Scheduler) Run(schedule Schedule, f func(), o JobOptions) (*Job, error) {
	if schedule == nil {
		return nil, errors.New("timingwheel: Run's schedule is nil")
	}
	return s.start(&Job{schedule: schedule, f: f, options: o, wall: true})
}

// At calls f once, at a time of the wall clock: if that is set meanwhile, f is
// still called when it shows t, or at most a second later. (For a point in
// time that a clock being set does not move, use AfterFunc.) What is past is
// due at once.
func (s *Scheduler) At(t time.Time, f func()) (*Job, error) {
	return s.start(&Job{schedule: appointment(t), f: f, wall: true})
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

// pause is the schedule of EveryAfter.
type pause time.Duration

func (p pause) Next(t time.Time) time.Time { return t.Add(time.Duration(p)) }

// appointment is the schedule of At.
type appointment time.Time

func (a appointment) Next(time.Time) time.Time {
	if t := time.Time(a); !t.IsZero() {
		return t
	}
	return time.Time(a).Add(1) // the zero time is past, too, and no way to say that there is none
}

func (s *Scheduler) start(j *Job) (*Job, error) {
	switch {
	case j.f == nil:
		return nil, errNilFunc
	case j.options.Missed > RunAll:
		return nil, fmt.Errorf("timingwheel: JobOptions.Missed is %d, must be Skip, Coalesce or RunAll", j.options.Missed)
	case j.options.Jitter < 0:
		return nil, fmt.Errorf("timingwheel: JobOptions.Jitter is %v, must be at least 0", j.options.Jitter)
	}
	j.scheduler = s
	next := j.schedule.Next(j.now()) // nobody else knows the job yet
	j.mu.Lock()
	defer j.mu.Unlock()
	j.aimLocked(next)
	if j.err != nil {
		return nil, j.err
	}
	return j, nil
}

// Stop ends the job: f is not called again. A run in progress is not
// interrupted, nor waited for. It says whether this call ended the job, and so
// false for one whose schedule had come to its end.
func (j *Job) Stop() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return false
	}
	j.endLocked(nil)
	return true
}

// Next is the time for which the next run is planned, without jitter; the zero
// time if none is: the job has ended, or is running.
func (j *Job) Next() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended || j.running {
		return time.Time{}
	}
	return j.due
}

// Err says why the job ended without Stop or the end of its schedule: ErrFull
// or ErrClosed, when the scheduler refused its next run. Otherwise nil.
func (j *Job) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// run is called by a worker.
func (j *Job) run() {
	j.mu.Lock()
	// Stopped in the gap between the timer's leaving the wheel and now.
	if j.ended {
		j.mu.Unlock()
		return
	}
	j.timer = Timer{}
	if j.wall && j.now().Before(j.due) { // the wall clock was set back
		err := j.armLocked()
		if err != nil && !errors.Is(err, ErrClosed) {
			j.endLocked(err)
		}
		// In a shutdown there is nothing to wait for: RunNow has it run now,
		// and under any policy this is its last run.
		if !errors.Is(err, ErrClosed) {
			j.mu.Unlock()
			return
		}
	}
	j.running = true
	j.mu.Unlock()
	defer j.ran() // also if f panics: the next run is another matter
	j.f()
}

// ran plans the next run. Until it has, the job counts as running: nobody else
// plans it.
func (j *Job) ran() {
	// To the end, so that again comes before or after, and finds it planned.
	j.asking.Lock()
	defer j.asking.Unlock()
	var next time.Time // none, if the schedule panics
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.running = false
		if !j.ended { // stopped from within f, or meanwhile
			j.aimLocked(next)
		}
	}()
	if _, single := j.schedule.(appointment); single {
		return
	}
	j.mu.Lock()
	j.last = j.due
	now := j.now()
	from := j.afterLast(now)
	if j.options.Missed != Skip && j.due.Before(now) {
		from = j.due
	}
	ended := j.ended
	j.mu.Unlock()
	if ended {
		return
	}
	next = j.schedule.Next(from)
	if j.options.Missed == Coalesce && !next.IsZero() && next.Before(now) {
		next = now
	}
}

// aimLocked plans the run that the schedule has for due.
func (j *Job) aimLocked(due time.Time) {
	if due.IsZero() {
		j.endLocked(nil)
		return
	}
	j.due = due
	if err := j.armLocked(); err != nil {
		j.endLocked(err)
	}
}

// armLocked puts the job on the wheel, until it is due.
func (j *Job) armLocked() error {
	t, err := j.scheduler.wheel.Schedule(j, j.delay(j.due))
	if err != nil {
		return err
	}
	j.timer = t
	if j.wall {
		j.scheduler.wall.add(j)
	}
	return nil
}

// delay is from now until a run that is due then, jitter and all.
func (j *Job) delay(due time.Time) time.Duration {
	delay := max(due.Sub(j.now()), 0)
	if j.options.Jitter > 0 {
		delay = time.Duration(after(nanos(delay), rand.N(j.options.Jitter)))
	}
	return delay
}

// endLocked ends the job, for good.
func (j *Job) endLocked(err error) {
	j.ended, j.err = true, err
	j.scheduler.wheel.Stop(j.timer)
	j.timer = Timer{}
	if j.wall {
		j.scheduler.wall.remove(j)
	}
}

// again works the time of the next run out anew, after the wall clock was set.
// The timer is moved, never taken out and replaced: it keeps its place under
// MaxPending, and a shutdown in between finds it.
func (j *Job) again() {
	j.asking.Lock()
	defer j.asking.Unlock()
	j.mu.Lock()
	timer, idle := j.timer, !j.ended && !j.running
	from := j.afterLast(j.now())
	j.mu.Unlock()
	if !idle {
		return
	}
	// A schedule may have a run before the one planned, now that the clock was
	// set back; an appointment is the same as ever.
	next := j.schedule.Next(from)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.ended || j.timer != timer: // it has run since
	case next.IsZero():
		if j.scheduler.wheel.Stop(timer) {
			j.endLocked(nil)
		}
	case j.scheduler.wheel.Reset(timer, j.delay(next)):
		j.due = next
	}
}

// afterLast is from when on the next run is looked for. A wall clock that was
// corrected by a moment, and so shows a time before that of the last run, must
// not make that run happen twice; one that was set back by more, does.
func (j *Job) afterLast(now time.Time) time.Time {
	if ahead := j.last.Sub(now); ahead > 0 && ahead < lookEvery {
		return j.last
	}
	return now
}

// now is the time by the clock that the job goes by.
func (j *Job) now() time.Time {
	if j.wall {
		return j.scheduler.wall.now()
	}
	return time.Now()
}

func (j *Job) dropped() func() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.timer = Timer{}
	if j.ended {
		return nil
	}
	j.endLocked(ErrClosed)
	if _, single := j.schedule.(appointment); single {
		return j.f
	}
	return nil
}

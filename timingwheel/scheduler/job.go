package scheduler

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Job is a function that a scheduler calls on a schedule, at a time of day, or until it
// succeeds. Runs of one job never overlap. All methods are safe for use from any goroutine,
// including the job's own function, schedule and hook; none blocks. The zero Job has ended.
type Job struct {
	scheduler *Scheduler
	f         func()
	planner   planner
	jitter    time.Duration
	onEnd     func(*Job, error)
	wall      bool // its times are of the wall clock, which may be set

	wheel *timingwheel.Wheel[*Job] // set when the job is admitted

	// Guarded by jobs.mu.

	prev, next *Job              // in the list
	slot       timingwheel.Timer // on the calls' wheel, if there is a bound

	// mu is never held while the job's function, schedule or hook runs. Lock
	// order: mu, then jobs.mu or wallClock.mu.
	mu sync.Mutex

	// Guarded by mu.

	state jobState
	// planning is set while a goroutine calculates the next run, for which it may have to call
	// the schedule without the lock. Another goroutine with a reason to plan adds the reason to
	// pending, and the first one handles it when the schedule has returned. So one goroutine at
	// a time calls a schedule, and none waits for another.
	planning   bool
	pending    reasons
	unreported bool // onEnd has not been called yet

	timer     timingwheel.Timer // of the next run, while waiting
	due       time.Time         // the planned time of the next run, or of the one in progress
	runAt     time.Time         // due and its jitter
	firesAt   time.Time         // runAt by the monotonic clock, as of when the timer was set; if wall
	last      time.Time         // the planned time of the run before; zero: none yet
	plannedAt time.Time         // the job's clock when due was calculated
	began     time.Time         // the job's clock when the last run began
	err       error
}

type jobState uint8

const (
	// jobEnded is final, once the job was admitted. The zero Job is in this state.
	jobEnded jobState = iota
	// jobWaiting: the timer is on the wheel, or a worker has just taken it and is about to call
	// run. Leads to jobRunning by run, or to jobEnded.
	jobWaiting
	// jobRunning: the function is being called, or the next run is not planned yet. Leads to
	// jobWaiting by plan, or to jobEnded.
	jobRunning
)

// reasons is the set of reasons to plan a job.
type reasons uint8

const (
	runEnded     reasons = 1 << iota // the next run has no time yet
	clockStepped                     // its time may be wrong
)

// start begins a job. If it returns an error, no trace of the job remains.
func (s *Scheduler) start(j *Job) (*Job, error) {
	s.mustBeMade()
	j.scheduler = s
	j.planning = true // goroutines that find it on the list leave it alone
	if j.wall {
		s.clock.watch()
	}
	s.jobs.add(j)
	admitted := false
	defer func() { // deferred: the schedule may panic
		if !admitted {
			s.jobs.remove(j)
			j.unwatch()
		}
	}()
	now := j.now()
	due, err := j.planner.first(now)
	if identical(err, errNoRun) {
		if err := s.jobs.checkOpen(); err != nil {
			return nil, err
		}
		j.mu.Lock()
		j.unreported = true
		j.unlockAndReport()
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	j.setLocked(due, j.drawJitter(), now)
	if err := s.jobs.admitLocked(j); err != nil {
		j.mu.Unlock()
		return nil, err
	}
	admitted = true
	j.planning = false
	j.mu.Unlock()
	j.plan(0) // if the clock was set in between
	return j, nil
}

func (j *Job) unwatch() {
	if j.wall {
		j.scheduler.clock.unwatch()
	}
}

// armLocked puts the job on the wheel.
func (j *Job) armLocked() (err error) {
	if j.wall {
		j.timer, err = j.wheel.Schedule(j, j.delayLocked())
	} else {
		j.timer, err = j.wheel.ScheduleAt(j, j.runAt)
	}
	if err != nil {
		return convertError(err)
	}
	j.state = jobWaiting
	return nil
}

// delayLocked returns the time until the next run of a job that follows the wall clock, and
// notes when that is by the monotonic clock.
func (j *Job) delayLocked() time.Duration {
	now := time.Now()
	delay := j.runAt.Sub(j.scheduler.clock.reading(now))
	j.firesAt = now.Add(delay)
	return delay
}

func (j *Job) setLocked(due time.Time, jitter time.Duration, now time.Time) {
	j.due, j.runAt, j.plannedAt = due, due.Add(jitter), now
}

func (j *Job) drawJitter() time.Duration {
	if j.jitter == 0 {
		return 0
	}
	return rand.N(j.jitter)
}

// now returns the time by the clock that the job follows.
func (j *Job) now() time.Time {
	now := time.Now()
	if j.wall {
		return j.scheduler.clock.reading(now)
	}
	return now
}

// run is called by a worker.
func (j *Job) run() {
	if !j.begin() {
		return
	}
	defer j.plan(runEnded) // also if f panics: the next run is independent
	j.f()
}

// begin reports whether the function is to be called now.
func (j *Job) begin() bool {
	j.mu.Lock()
	if j.state != jobWaiting { // stopped after the worker had taken the timer
		j.mu.Unlock()
		return false
	}
	now := j.now()
	if j.wall && now.Before(j.runAt) { // the wall clock was set back
		err := j.armLocked()
		if err == nil {
			j.mu.Unlock()
			return false
		}
		// In a shutdown the job cannot wait: RunNow runs it now, and by any policy this is its
		// last run.
		if !identical(err, ErrClosed) {
			j.endLocked(endedByItself, err)
			j.unlockAndReport()
			return false
		}
	}
	j.state, j.timer = jobRunning, timingwheel.Timer{}
	j.last, j.began = j.due, now
	j.mu.Unlock()
	return true
}

// Stop ends the job: its function is not called again. Stop neither interrupts nor waits for a
// run in progress. It reports whether this call ended the job: true also during a run,
// including the last one, and false for a job that had already ended, for example with its
// schedule. Constant time.
func (j *Job) Stop() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state == jobEnded {
		return false
	}
	j.endLocked(endedByStop, nil)
	j.unreported = false
	return true
}

// Next returns the planned time of the next run, without jitter, or the zero time if there is
// none: the job has ended, or is running.
func (j *Job) Next() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state != jobWaiting {
		return time.Time{}
	}
	return j.due
}

// Err returns why the job has ended. It is nil if the job has not ended, was stopped, or came
// to the end of its schedule, after the run of At, and after a Retry that succeeded. Otherwise
// the error matches [ErrClosed], [ErrGaveUp] or [ErrPanicked], or describes the schedule's
// mistake.
func (j *Job) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// outcome is how a job ends.
type outcome uint8

const (
	endedByItself outcome = iota
	endedByStop
	endedByDiscard
	endedByReturn
)

// endLocked ends the job, for good, and frees its slot. The caller unlocks by unlockAndReport,
// unless it reports the end itself.
func (j *Job) endLocked(how outcome, err error) {
	if r, ok := j.planner.(*retry); ok && identical(err, ErrClosed) && r.err != nil {
		err = &closedError{r.err}
	}
	j.wheel.Stop(j.timer) // no effect while the job runs
	j.scheduler.jobs.removeEnded(j, how)
	j.unwatch()
	j.state, j.err, j.unreported = jobEnded, err, true
	j.timer = timingwheel.Timer{}
}

// unlockAndReport unlocks mu, and calls the hook if the job has ended and the
// hook was not called yet.
func (j *Job) unlockAndReport() {
	report := j.unreported && j.onEnd != nil
	j.unreported = false
	err := j.err
	j.mu.Unlock()
	if report {
		j.scheduler.protect(func() { j.onEnd(j, err) })
	}
}

// report calls the hook if it was not called yet.
func (j *Job) report() {
	j.mu.Lock()
	j.unlockAndReport()
}

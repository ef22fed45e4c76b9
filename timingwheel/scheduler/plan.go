package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/internal/goexit"
)

// planner calculates when a job runs. One goroutine at a time calls its methods, without a
// lock: they may call the user's schedule. They return errNoRun if there is no further run, and
// another error if the job cannot continue.
type planner interface {
	// first returns the planned time of the first run.
	first(now time.Time) (time.Time, error)
	// after returns the planned time of the next run. The previous run was planned for last,
	// began at began, and has ended. The run takes place jitter after the returned time.
	after(last, began, now time.Time, jitter time.Duration) (time.Time, error)
}

var errNoRun = errors.New("no further run")

// identical reports whether err is this package's error own. It does not use errors.Is, which
// calls methods of the user's errors: they may panic, query the job whose lock is held, or
// match anything.
func identical(err, own error) bool {
	return err == own //nolint:errorlint // see above
}

// single is the planner of At: one run, at that time.
type single time.Time

func (p single) first(time.Time) (time.Time, error) { return time.Time(p), nil }

func (single) after(time.Time, time.Time, time.Time, time.Duration) (time.Time, error) {
	return time.Time{}, errNoRun
}

// fixedDelay is the planner of EveryDelay.
type fixedDelay time.Duration

func (p fixedDelay) first(now time.Time) (time.Time, error) { return now.Add(time.Duration(p)), nil }

func (p fixedDelay) after(_, _, now time.Time, _ time.Duration) (time.Time, error) {
	return p.first(now)
}

// recurring is the planner of Every and OnSchedule.
type recurring struct {
	schedule Schedule
	missed   Missed
	wall     bool // its times are of the wall clock
}

func (p *recurring) first(now time.Time) (time.Time, error) { return p.next(now) }

// after continues from the planned time of the last run, whenever that was made: so a schedule
// that counts from its argument does not drift.
func (p *recurring) after(last, began, now time.Time, jitter time.Duration) (time.Time, error) {
	if last.Sub(now) >= checkEvery {
		last = now // the wall clock was set back during the run: that time repeats
	}
	if began.Sub(now) >= checkEvery {
		began = now
	}
	due, err := p.next(last)
	if err != nil {
		return due, err
	}
	// Runs up to now are not made up (Skip), or the last run has made up those up to began
	// (Coalesce).
	switch at := due.Add(jitter); {
	case p.missed == Skip && !at.After(now):
		return p.next(now)
	case p.missed == Coalesce && !at.After(began):
		return p.next(began)
	}
	return due, nil
}

// afterStep reports whether the time of the next run may have changed because the wall clock
// was set. If so, it is the schedule's next after from. late reports that the run was already
// due without the change.
func (p *recurring) afterStep(last, began, plannedAt, at, now time.Time, late bool) (from time.Time, changed bool) {
	switch {
	case !at.After(now): // its time has passed
		return now, p.missed == Skip && !late && now.Sub(at) >= checkEvery
	case now.Before(plannedAt):
		// Set back to before the time that the plan was made for: there may be a run before the
		// planned one. But a correction by a moment, to before the time of the last run, must
		// not repeat that run; nor, with Coalesce, the runs that it stood for.
		if p.missed == Coalesce && began.After(last) {
			last = began
		}
		if ahead := last.Sub(now); ahead > 0 && ahead < checkEvery {
			return last, true
		}
		return now, true
	}
	return now, false
}

// next returns the schedule's first time after t.
func (p *recurring) next(t time.Time) (time.Time, error) {
	next := p.schedule.Next(t)
	switch {
	case next.IsZero():
		return next, errNoRun
	case !next.After(t): // it would run without end, at once
		return next, fmt.Errorf("scheduler: the schedule's Next(%v) is %v, must be after that, or the zero time", t, next)
	}
	if p.wall {
		next = stripMonotonic(next) // or the wheel would not follow the wall clock
	}
	return next, nil
}

// plan calculates the next run, for the given reason and all reasons that arrive during the
// calculation. If another goroutine is planning, that goroutine handles the reason.
func (j *Job) plan(why reasons) {
	j.mu.Lock()
	j.pending |= why
	if j.planning {
		j.mu.Unlock()
		return
	}
	j.planning = true
	returned := false
	defer func() {
		if !returned { // the schedule has ended this goroutine
			j.mu.Lock()
			if j.state != jobEnded {
				j.endLocked(endedByItself, ErrPanicked)
			}
		}
		j.planning = false
		j.unlockAndReport()
	}()
	for j.pending != 0 && j.state != jobEnded {
		why, j.pending = j.pending, 0
		if why&runEnded != 0 {
			j.planNextLocked() // by the present clock, so for both reasons
		} else {
			j.replanLocked()
		}
	}
	returned = true
}

// planNextLocked plans the next run, after a run has ended. It unlocks while it calls the
// planner.
func (j *Job) planNextLocked() {
	last, began, now, jitter := j.last, j.began, j.now(), j.drawJitter()
	due, err := j.unlocked(func() (time.Time, error) { return j.planner.after(last, began, now, jitter) })
	if j.state == jobEnded { // stopped, from within f or otherwise
		return
	}
	if err == nil {
		j.setLocked(due, jitter, now)
		err = j.armLocked()
	}
	switch {
	case identical(err, errNoRun):
		j.endLocked(endedByItself, nil)
	case err != nil:
		j.endLocked(endedByItself, err)
	}
}

// replanLocked corrects the time of the next run after the wall clock was set. It unlocks while
// it calls the schedule.
//
// It moves the timer, and never removes and replaces it: so a concurrent shutdown finds the
// timer. If a worker has already taken it, the worker uses the new time: see begin.
func (j *Job) replanLocked() {
	if j.state != jobWaiting {
		return // it will be planned by the clock at that time
	}
	if p, from, now, changed := j.afterStepLocked(); changed {
		due, err := j.unlocked(func() (time.Time, error) { return p.next(from) })
		switch {
		case j.state != jobWaiting: // ended, or running: see above
			return
		case identical(err, errNoRun):
			j.endLocked(endedByItself, nil)
			return
		case err != nil:
			j.endLocked(endedByItself, err)
			return
		}
		j.setLocked(due, j.drawJitter(), now)
	}
	j.wheel.Reset(j.timer, j.delayLocked())
}

// afterStepLocked is recurring.afterStep for a waiting job, by the present clock.
func (j *Job) afterStepLocked() (p *recurring, from, now time.Time, changed bool) {
	p, ok := j.planner.(*recurring)
	if !ok { // the run of At stays
		return nil, from, now, false
	}
	now = j.now()
	late := !j.firesAt.After(time.Now())
	from, changed = p.afterStep(j.last, j.began, j.plannedAt, j.runAt, now, late)
	return p, from, now, changed
}

// unlocked calls f without the lock, which the caller holds.
func (j *Job) unlocked(f func() (time.Time, error)) (due time.Time, err error) {
	j.mu.Unlock()
	err = ErrPanicked
	j.scheduler.protect(func() { due, err = f() })
	j.mu.Lock()
	return due, err
}

// planAll corrects the plans of jobs. It begins with jobs that call no schedule, so that a slow
// schedule delays only jobs that also call theirs.
func planAll(jobs []*Job) {
	var calling []*Job
	jobs = slices.DeleteFunc(jobs, func(j *Job) bool {
		calls := j.callsSchedule()
		if calls {
			calling = append(calling, j)
		}
		return calls
	})
	goexit.Each(append(jobs, calling...), func(j *Job) { j.plan(clockStepped) })
}

// callsSchedule reports whether replanLocked would call the schedule now.
func (j *Job) callsSchedule() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state != jobWaiting {
		return false
	}
	_, _, _, changed := j.afterStepLocked()
	return changed
}

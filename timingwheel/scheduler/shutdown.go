package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/internal/goexit"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Pending is a call, or a job that waited for its next run, that a shutdown returns.
type Pending struct {
	// Func is the function that would have been called; for a Retry, it makes one attempt and
	// drops the error. It is never nil, and the scheduler does not call it.
	Func func()
	// Deadline is the time of the call: for a call of AfterFunc the time from which it would
	// have been made, rounded up to the tick; for a job the planned time of its next run, as
	// Job.Next returned it.
	Deadline time.Time
	// Job is the job, ended with ErrClosed; nil for a call of AfterFunc.
	Job *Job
}

// Close begins a shutdown and does not wait for its end; it may be called from the functions
// that the scheduler calls. From now on new calls and jobs are refused with ErrClosed. policy
// decides about the pending ones:
//
//   - [timingwheel.Discard] drops them,
//   - [timingwheel.Return] returns them, in order of time,
//   - [timingwheel.RunNow] runs them at once, calls and jobs each in order of time,
//   - [timingwheel.Await] lets each run at its time, unless it is stopped before.
//
// No job has a further run after that: by Discard and Return it ends with ErrClosed now, by
// RunNow and Await after its next run; a job whose function is running ends after that run. By
// Await the scheduler follows the wall clock to the end, unless it is set back within the last
// second before a run. When no call or job is left and the functions have returned, the
// scheduler's goroutines end.
//
// Close may be called again, for example with a stricter policy to end an Await sooner; each
// call and job still ends once. It returns the calls and jobs that Return removed, and nil
// otherwise. An unknown policy is an error, and changes nothing.
//
// O(n) in calls and jobs, and O(n log n) under Return and RunNow.
func (s *Scheduler) Close(policy timingwheel.Policy) ([]Pending, error) {
	s.mustBeMade()
	if policy > timingwheel.Await {
		return nil, fmt.Errorf("scheduler: the policy is %v, must be Discard, Return, RunNow or Await", policy)
	}
	returned, ended := s.close(policy)
	goexit.Each(ended, (*Job).report) // hooks may call Close
	return returned, nil
}

// Shutdown is [Scheduler.Close] that waits until no call or job is left, the functions have
// returned, and the scheduler's goroutines have ended. So it must not be called from a
// function, schedule or hook that the scheduler calls: it would wait until ctx is done.
//
// When ctx is done first, Shutdown returns its error. Nothing is lost: the shutdown continues
// with its policy, and another call waits for it again, or ends it sooner with a stricter
// policy. It may be called any number of times, concurrently or after the end. With an error,
// Shutdown still returns the calls and jobs that Return removed. A nil ctx panics, and
// changes nothing.
func (s *Scheduler) Shutdown(ctx context.Context, policy timingwheel.Policy) ([]Pending, error) {
	if ctx == nil {
		panic("scheduler: the context is nil")
	}
	returned, err := s.Close(policy)
	if err != nil {
		return nil, err
	}
	// The policy has been applied already; Await only adds the wait.
	if _, err := s.calls.Shutdown(ctx, timingwheel.Await); err != nil {
		return returned, err
	}
	if w := s.jobs.close(); w != nil {
		if _, err := w.Shutdown(ctx, timingwheel.Await); err != nil {
			return returned, err
		}
	}
	return returned, s.clock.wait(ctx)
}

// close is Close without the hooks: it returns the jobs that it has ended.
func (s *Scheduler) close(policy timingwheel.Policy) (returned []Pending, ended []*Job) {
	s.closing.Lock()
	defer s.closing.Unlock()
	w := s.jobs.close()
	// The only possible error is an unknown policy, here and below.
	calls, _ := s.calls.Close(policy)
	for _, due := range calls {
		returned = append(returned, Pending{Func: due.Value, Deadline: due.Deadline})
	}
	if w == nil {
		return returned, nil
	}
	if policy != timingwheel.Discard && policy != timingwheel.Return {
		_, _ = w.Close(policy)
		return nil, nil
	}
	// The wheel returns the waiting jobs, for Discard too: a job that is about to run does so,
	// and then ends.
	how := endedByDiscard
	if policy == timingwheel.Return {
		how = endedByReturn
	}
	jobs, _ := w.Close(timingwheel.Return)
	var waited []Pending
	for _, due := range jobs {
		if p, ok := due.Value.take(how); ok {
			ended = append(ended, due.Value)
			waited = append(waited, p)
		}
	}
	if policy == timingwheel.Return && len(waited) > 0 {
		returned = append(returned, waited...)
		slices.SortStableFunc(returned, func(a, b Pending) int { return a.Deadline.Compare(b.Deadline) })
	}
	return returned, ended
}

// take ends a job whose timer was on the wheel when that was closed, unless the job has been
// stopped since.
func (j *Job) take(how outcome) (Pending, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.state != jobWaiting {
		return Pending{}, false
	}
	j.endLocked(how, ErrClosed)
	f := j.f
	if r, ok := j.planner.(*retry); ok {
		f = func() { _ = r.f() }
	}
	return Pending{Func: f, Deadline: j.due, Job: j}, true
}

package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Pending is what a shutdown has handed back: a call, or a job that waited for
// its next run.
type Pending struct {
	// Func is what would have been called; for a Retry, it makes one attempt
	// whose error is lost. It is never nil, and the scheduler does not call it.
	Func func()
	// Deadline is when: for a call the time from which it would have been called,
	// rounded up to the tick; for a job the planned time of its next run, as
	// Job.Next returned it.
	Deadline time.Time
	// Job is the job, ended with ErrClosed; nil for a call of AfterFunc.
	Job *Job
}

// Close begins a shutdown and does not wait for its end; it may be called from
// the functions that the scheduler calls. From now on new calls and jobs are
// refused with ErrClosed. What is pending is dealt with by policy:
//
//   - [timingwheel.Discard] drops it,
//   - [timingwheel.HandBack] returns it, in order of time,
//   - [timingwheel.RunNow] has it run at once, calls and jobs each in order of time,
//   - [timingwheel.Await] lets each run at its time, unless it is stopped before.
//
// No job has a run after that: by Discard and HandBack it ends with ErrClosed
// now, by RunNow and Await after its next run; one whose function is running
// ends with that. By Await the wall clock is followed to the end, unless it is
// set back within the last second before a run. When nothing is left and the
// functions have returned, the scheduler's goroutines end.
//
// Close may be called again, with a stricter policy to end sooner what Await
// waits for; each call and job still ends once. It returns what HandBack took
// out, nil otherwise. An unknown policy is an error, and changes nothing.
//
// O(n) in calls and jobs, and O(n log n) under HandBack and RunNow.
func (s *Scheduler) Close(policy timingwheel.Policy) ([]Pending, error) {
	s.mustBeMade()
	if policy > timingwheel.Await {
		return nil, fmt.Errorf("scheduler: the policy is %v, must be Discard, HandBack, RunNow or Await", policy)
	}
	back, ended := s.close(policy)
	forEach(ended, (*Job).report) // hooks may call Close
	return back, nil
}

// Shutdown is [Scheduler.Close] that waits: until nothing is left, the functions
// have returned, and the scheduler's goroutines have ended. So it must not be
// called from a function, schedule or hook that the scheduler calls, for which
// it would wait until ctx is done.
//
// When ctx is done first, Shutdown returns its error. Nothing is lost by that:
// the shutdown goes on by its policy, and another call waits for it again, or
// ends it sooner by a stricter policy. Any number of calls may be made, at once
// or after the end. What HandBack took out is returned beside an error too. A
// nil ctx panics, and changes nothing.
func (s *Scheduler) Shutdown(ctx context.Context, policy timingwheel.Policy) ([]Pending, error) {
	if ctx == nil {
		panic("scheduler: the context is nil")
	}
	back, err := s.Close(policy)
	if err != nil {
		return nil, err
	}
	// The policy is carried out already; Await adds nothing to it but the wait.
	if _, err := s.calls.Shutdown(ctx, timingwheel.Await); err != nil {
		return back, err
	}
	if w := s.jobs.close(); w != nil {
		if _, err := w.Shutdown(ctx, timingwheel.Await); err != nil {
			return back, err
		}
	}
	return back, s.clock.wait(ctx)
}

// close is Close without the hooks: it returns the jobs that it has ended.
func (s *Scheduler) close(policy timingwheel.Policy) (back []Pending, ended []*Job) {
	s.closing.Lock()
	defer s.closing.Unlock()
	w := s.jobs.close()
	// There is no error but for an unknown policy, here and below.
	calls, _ := s.calls.Close(policy)
	for _, due := range calls {
		back = append(back, Pending{Func: due.Value, Deadline: due.Deadline})
	}
	if w == nil {
		return back, nil
	}
	if policy != timingwheel.Discard && policy != timingwheel.HandBack {
		_, _ = w.Close(policy)
		return nil, nil
	}
	// A job that waits is one that the wheel gives back, by Discard too: what is
	// about to run does so, and ends with that.
	how := endedByDiscard
	if policy == timingwheel.HandBack {
		how = endedByHandBack
	}
	jobs, _ := w.Close(timingwheel.HandBack)
	var waited []Pending
	for _, due := range jobs {
		if p, ok := due.Value.take(how); ok {
			ended = append(ended, due.Value)
			waited = append(waited, p)
		}
	}
	if policy == timingwheel.HandBack && len(waited) > 0 {
		back = append(back, waited...)
		slices.SortStableFunc(back, func(a, b Pending) int { return a.Deadline.Compare(b.Deadline) })
	}
	return back, ended
}

// take ends a job whose timer was on the wheel when that was closed, unless the
// job was stopped meanwhile.
func (j *Job) take(how ending) (Pending, bool) {
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

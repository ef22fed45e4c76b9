package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Retry calls f after delay and, as long as f returns an error, again after a backoff that is
// counted from the end of the attempt: see [RetryOptions]. The job ends when f returns nil,
// after RetryOptions.MaxAttempts attempts, by Job.Stop, or by a shutdown; under RunNow and
// Await a shutdown ends it after one more attempt. [Job.Err] returns how it ended, and
// RetryOptions.OnEnd is called with that.
//
// Attempts are made on workers and never overlap. An attempt that panics has failed with
// ErrPanicked. The scheduler calls no method of an error that f returns; the text of Job.Err
// contains the text of that error, which is requested only then. Zero or a negative delay is
// due at once. The job holds one slot from the start to the end, so that a full scheduler does
// not end it. The errors are ErrClosed, ErrFull, and one that names a nil f or an option out of
// range.
func (s *Scheduler) Retry(delay time.Duration, f func() error, o RetryOptions) (*Job, error) {
	if f == nil {
		return nil, errNilFunc
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &retry{f: f, options: o, delay: delay, backoff: o.Base}
	return s.start(&Job{planner: r, f: r.attempt, onEnd: o.OnEnd})
}

// retry is the planner of Retry.
type retry struct {
	f       func() error
	options RetryOptions
	delay   time.Duration // until the first attempt

	// Runs of a job overlap neither each other nor planning, and the job's lock is taken in
	// between.
	attempts int
	backoff  time.Duration // after the next failure
	err      error         // of the last attempt
}

func (r *retry) attempt() {
	r.attempts++
	r.err = ErrPanicked // unless it returns
	r.err = r.f()
}

func (r *retry) first(now time.Time) (time.Time, error) { return now.Add(max(r.delay, 0)), nil }

func (r *retry) after(_, _, now time.Time, _ time.Duration) (time.Time, error) {
	if r.err == nil {
		return now, errNoRun
	}
	if r.attempts == r.options.MaxAttempts {
		return now, &gaveUpError{r.attempts, r.err}
	}
	return now.Add(r.wait()), nil
}

// wait returns how long to wait after a failure, and raises the backoff.
func (r *retry) wait() time.Duration {
	wait := r.backoff
	// Rounded up: otherwise a backoff of a few nanoseconds would not grow.
	if next := math.Ceil(float64(wait) * r.options.Factor); next < float64(r.options.Max) {
		r.backoff = time.Duration(next)
	} else {
		r.backoff = r.options.Max
	}
	if !r.options.FixedBackoff {
		wait = time.Duration(rand.Uint64N(uint64(wait) + 1))
	}
	return wait
}

// gaveUpError and closedError are the errors of a Retry that ends without success. They build
// their texts on demand: these contain the text of an attempt's error, whose methods must not
// be called when the job ends, under its lock. fmt recovers a panic there.

// gaveUpError is an ErrGaveUp.
type gaveUpError struct {
	attempts int
	last     error // of the last attempt
}

func (e *gaveUpError) Error() string {
	return fmt.Sprintf("%v after %d attempts: %v", ErrGaveUp, e.attempts, e.last)
}

func (e *gaveUpError) Unwrap() []error { return []error{ErrGaveUp, e.last} }

// closedError is an ErrClosed after an attempt.
type closedError struct {
	last error // of the last attempt
}

func (e *closedError) Error() string {
	return fmt.Sprintf("%v; the last attempt: %v", ErrClosed, e.last)
}

func (e *closedError) Unwrap() []error { return []error{ErrClosed, e.last} }

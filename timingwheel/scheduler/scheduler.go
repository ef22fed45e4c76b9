package scheduler

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Scheduler calls functions at their time. Make one with [New]: the zero Scheduler is not
// usable, and its methods panic. It runs goroutines until [Scheduler.Shutdown] or
// [Scheduler.Close]; without either, its goroutines and memory are never released.
//
// All methods are safe for use from any goroutine. All but Shutdown may be called from the
// functions, schedules and hooks that the scheduler calls, and only Shutdown blocks. No lock is
// held while any of those runs.
type Scheduler struct {
	calls   *timingwheel.Wheel[func()]
	jobs    jobs
	clock   wallClock
	onPanic func(timingwheel.Panic)
	panics  atomic.Uint64 // of schedules and hooks; any goroutine writes

	closing sync.Mutex // one Close at a time; taken before all other locks
}

// New makes a scheduler. An idle one costs one goroutine, and some 11 KiB with two processors
// and more with more, like its wheel; its first job adds one goroutine and some 50 KiB. An
// option out of range is an error that names it.
func New(o Options) (*Scheduler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{onPanic: o.OnPanic}
	o.OnPanic = s.report // for the wheels; it does not panic
	s.calls, err = timingwheel.New(func(f func()) { f() }, o.wheel(o.MaxPending))
	if err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	s.jobs.init(s.calls, o)
	s.clock.reading = stripMonotonic
	s.clock.stepped = func() { planAll(s.jobs.byWallClock()) }
	return s, nil
}

// AfterFunc calls f once, on a worker, after delay: never earlier by the monotonic clock, and
// at most one tick later, plus the time to wake a goroutine and to find a free worker. Zero or
// a negative delay is due at once; f is still called on a worker.
//
// AfterFunc takes constant time, and allocates only the closure f. The errors are ErrClosed
// once a shutdown has begun, ErrFull beyond [Options.MaxPending], and one for a nil f.
func (s *Scheduler) AfterFunc(delay time.Duration, f func()) (Call, error) {
	s.mustBeMade()
	if f == nil {
		return Call{}, errNilFunc
	}
	t, err := s.calls.Schedule(f, delay)
	if err != nil {
		return Call{}, convertError(err)
	}
	return Call{s.calls, t}, nil
}

// convertError converts an error of the wheel to this package's.
func convertError(err error) error {
	if errors.Is(err, timingwheel.ErrClosed) {
		return ErrClosed
	}
	return ErrFull
}

// Call is a handle to a function that AfterFunc will call: small, comparable, free to copy. The
// zero Call, or a Call that is returned with an error, is no call: its methods return false. A
// handle never affects another call.
type Call struct {
	wheel *timingwheel.Wheel[func()]
	timer timingwheel.Timer
}

// Stop cancels the call, and reports whether the scheduler will never call the function. It
// returns false once a worker has begun the function, and for a call that was already stopped,
// discarded or returned. Constant time; it does not wait for a running function.
func (c Call) Stop() bool { return c.wheel != nil && c.wheel.Stop(c.timer) }

// Reset gives a pending call a new delay, counted from now, and reports whether it was pending.
// Unlike time.Timer's, it arms nothing if the function has been called, or the call was
// stopped. Constant time.
func (c Call) Reset(delay time.Duration) bool {
	return c.wheel != nil && c.wheel.Reset(c.timer, delay)
}

// Touch is Reset, except that it never shortens the deadline: with an earlier deadline, or a
// delay of zero or less, the present one stays. It reports whether the call was pending.
func (c Call) Touch(delay time.Duration) bool {
	return c.wheel != nil && c.wheel.Touch(c.timer, delay)
}

// Deadline returns the time from which the function may be called, rounded up
// to the tick, and whether the call is pending. Constant time.
func (c Call) Deadline() (deadline time.Time, ok bool) {
	if c.wheel == nil {
		return time.Time{}, false
	}
	return c.wheel.Deadline(c.timer)
}

// Len returns the number of slots in use: calls whose function has not been called, and jobs
// that have not ended, including running ones. The number is exact for one moment.
func (s *Scheduler) Len() int {
	s.mustBeMade()
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	return s.calls.Len() - s.jobs.slots + s.jobs.live
}

func (s *Scheduler) mustBeMade() {
	if s.calls == nil {
		panic("scheduler: the zero Scheduler is not usable, make one with New")
	}
}

// protect calls a schedule or a hook. It recovers and reports a panic, as the wheel does for
// functions.
func (s *Scheduler) protect(f func()) {
	defer func() {
		if v := recover(); v != nil {
			s.panics.Add(1)
			s.report(timingwheel.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	f()
}

// report passes a panic to OnPanic. A panic in OnPanic is only logged, and one of the logger is
// dropped: there is nowhere else to report it, and it must not end the process.
func (s *Scheduler) report(p timingwheel.Panic) {
	defer func() {
		if v := recover(); v != nil {
			defer func() { _ = recover() }()
			logPanic(p)
			logPanic(timingwheel.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	s.onPanic(p)
}

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

// Scheduler calls functions when their time has come. Make one with [New]: the
// zero Scheduler is not usable, and its methods panic. It runs goroutines until
// [Scheduler.Shutdown] or [Scheduler.Close]; one that is forgotten without
// either keeps them, and its memory, for good.
//
// All methods are safe for use from any goroutine. All but Shutdown may be
// called from the functions, schedules and hooks that the scheduler calls, and
// none blocks but Shutdown. No lock is held while any of those runs.
type Scheduler struct {
	calls   *timingwheel.Wheel[func()]
	jobs    jobs
	clock   wallClock
	onPanic func(timingwheel.Panic)
	panics  atomic.Uint64 // of schedules and hooks; any goroutine writes

	closing sync.Mutex // one Close at a time; taken before all other locks
}

// New makes a scheduler. It costs one goroutine while idle, and some 9 KiB with two
// processors, more with more, as its wheel; one goroutine more and some 50 KiB once
// it has had a job. An option out of range is an error that names it.
func New(o Options) (*Scheduler, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Scheduler{onPanic: o.OnPanic}
	o.OnPanic = s.report // which does not panic; for the wheels
	s.calls, err = timingwheel.New(func(f func()) { f() }, o.wheel(o.MaxPending))
	if err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	s.jobs.init(s.calls, o)
	s.clock.reading = stripMonotonic
	s.clock.stepped = func() { planAll(s.jobs.byWallClock()) }
	return s, nil
}

// AfterFunc calls f once, on a worker, after delay: never earlier by the
// monotonic clock, and at most one tick later, plus what the machine takes to
// wake a goroutine and to find a free worker. Zero or a negative delay is due at
// once; f is still called on a worker.
//
// It takes constant time, and allocates nothing but what the closure f is. The
// errors are ErrClosed once a shutdown has begun, ErrFull beyond
// [Options.MaxPending], and one for a nil f.
func (s *Scheduler) AfterFunc(delay time.Duration, f func()) (Call, error) {
	s.mustBeMade()
	if f == nil {
		return Call{}, errNilFunc
	}
	t, err := s.calls.Schedule(f, delay)
	if err != nil {
		return Call{}, refusal(err)
	}
	return Call{s.calls, t}, nil
}

// refusal returns the error of this package for one of the wheel's.
func refusal(err error) error {
	if errors.Is(err, timingwheel.ErrClosed) {
		return ErrClosed
	}
	return ErrFull
}

// Call is a handle to a function that AfterFunc will call: small, comparable,
// free to copy. The zero Call, and what comes with an error, is no call: its
// methods return false. A handle never affects another call than its own.
type Call struct {
	wheel *timingwheel.Wheel[func()]
	timer timingwheel.Timer
}

// Stop takes the call back, and reports whether the function will never be
// called by the scheduler. It returns false once a worker has begun with the
// function, and for a call that was stopped, discarded or handed back before.
// Constant time; it does not wait for a running function.
func (c Call) Stop() bool { return c.wheel != nil && c.wheel.Stop(c.timer) }

// Reset gives a call that is still pending a new delay, counted from now, and
// reports whether it was pending. Unlike time.Timer's, it arms nothing if the
// function has been called, or the call was stopped. Constant time.
func (c Call) Reset(delay time.Duration) bool {
	return c.wheel != nil && c.wheel.Reset(c.timer, delay)
}

// Touch is Reset, but never to a deadline that is sooner than the present one: that stays as
// it is then, as it does with a delay of zero or less. It reports whether the call was
// pending.
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

// Len returns the number of places taken: calls whose function has not been
// called, and jobs that have not ended, those that run included. It is that of
// one moment, exactly.
func (s *Scheduler) Len() int {
	s.mustBeMade()
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	return s.calls.Len() - s.jobs.places + s.jobs.live
}

func (s *Scheduler) mustBeMade() {
	if s.calls == nil {
		panic("scheduler: the zero Scheduler is not usable, make one with New")
	}
}

// protect calls a schedule or a hook. A panic is recovered and reported, as the
// wheel does for functions.
func (s *Scheduler) protect(f func()) {
	defer func() {
		if v := recover(); v != nil {
			s.panics.Add(1)
			s.report(timingwheel.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	f()
}

// report passes a panic to OnPanic; one in there is only logged, and one of the
// logger's is lost: there is nobody left to report it to, and it must not end the
// process.
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

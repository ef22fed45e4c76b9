package timingwheel

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// WithTimeout is context.WithTimeout with the deadline kept on the scheduler's
// wheel: never early, up to a tick late. All else is as the standard library
// has it: Err and Cause, a parent's earlier deadline, contexts derived from
// it, and context.AfterFunc, none of which costs a goroutine. But one thing: when
// a parent is cancelled, the context itself says so at once, if it is asked;
// a channel that Done gave before, and contexts derived from it, follow a
// moment later. If the scheduler refuses it, being closed or full, the standard
// library's own context is returned.
func (s *Scheduler) WithTimeout(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return s.WithDeadlineCause(parent, time.Now().Add(timeout), nil)
}

// WithTimeoutCause is WithTimeout with the cause of a context that ends by its
// deadline.
func (s *Scheduler) WithTimeoutCause(parent context.Context, timeout time.Duration, cause error) (context.Context, context.CancelFunc) {
	return s.WithDeadlineCause(parent, time.Now().Add(timeout), cause)
}

// WithDeadline is WithTimeout for a point in time.
func (s *Scheduler) WithDeadline(parent context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	return s.WithDeadlineCause(parent, deadline, nil)
}

// WithDeadlineCause is WithDeadline with the cause of a context that ends by
// its deadline.
func (s *Scheduler) WithDeadlineCause(parent context.Context, deadline time.Time, cause error) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: the parent context is nil")
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(deadline) {
		return context.WithCancel(parent) // the parent ends first
	}
	now := time.Now()
	left := deadline.Sub(now)
	if left <= 0 || parent.Err() != nil {
		return context.WithDeadlineCause(parent, deadline, cause) // has ended, and needs no timer
	}
	// now.Add(left) is deadline by the monotonic clock, also if that is read off a wall
	// clock; as in the standard library, a clock that is set later changes nothing.
	c := &deadlineContext{deadline: deadline, source: source{wheel: s.wheel, parent: parent, at: now.Add(left), cause: cause}}
	var cancel context.CancelFunc
	c.Context, cancel = context.WithCancel(&c.source)
	t, err := s.wheel.ScheduleAt(&c.source, c.source.at)
	if err != nil {
		cancel()
		return context.WithDeadlineCause(parent, deadline, cause)
	}
	c.source.watch(t)
	return c, func() {
		c.source.look()
		cancel()
	}
}

// deadlineContext is a context of the standard library that is derived from a
// source, and its source. So all that is derived from it registers with the
// standard library's part, and is cancelled with it, as if there were no other.
//
// That part alone would not do: it can be ended with the Err that a deadline
// calls for in one way only, which is that its parent has that Err. And its
// parent alone would not do either: the standard library spends a goroutine on
// what is derived from a context of another kind, unless it has an AfterFunc
// method, and has it directly, with no WithValue in between.
type deadlineContext struct {
	context.Context
	source   source
	deadline time.Time
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deadlineContext) Done() <-chan struct{} {
	c.source.look()
	return c.Context.Done()
}

func (c *deadlineContext) Err() error {
	c.source.look()
	return c.Context.Err()
}

func (c *deadlineContext) String() string {
	return fmt.Sprintf("timingwheel.WithDeadline(%s)", c.deadline)
}

// source is a context that ends by the wheel's timer, or with its parent. It
// has one child, the standard library's part of a deadlineContext, and nobody
// else knows it.
type source struct {
	wheel  *Wheel[task]
	parent context.Context
	at     time.Time // the deadline, by the monotonic clock
	cause  error     // of an end by the deadline; nil: DeadlineExceeded
	tell   func()    // ends the child; set before anybody else knows of the source

	once sync.Once // the end
	last atomic.Pointer[ending]

	mu sync.Mutex

	// Guarded by mu.
	over   bool        // released
	timer  Timer       // on the wheel
	late   *time.Timer // instead, once the scheduler was shut down
	unhook func() bool // takes the hook on the parent away
}

// ending is what a source has to say when it has ended: err; and, by Value, the cause.
type ending struct {
	context.Context
	err error
}

// never is the Done of all sources. They tell their child by AfterFunc.
var never = make(chan struct{})

func (s *source) Deadline() (time.Time, bool) { return s.parent.Deadline() }

func (s *source) Done() <-chan struct{} { return never }

func (s *source) Err() error {
	if e := s.last.Load(); e != nil {
		return e.err
	}
	return nil
}

func (s *source) Value(key any) any {
	if e := s.last.Load(); e != nil {
		return e.Value(key)
	}
	return s.parent.Value(key)
}

// AfterFunc is called by context.WithCancel, once. The child calls what it
// returns when it is cancelled.
func (s *source) AfterFunc(f func()) func() bool {
	s.tell = f
	return s.release
}

// watch is told of the timer, and hooks the source up with its parent.
func (s *source) watch(t Timer) {
	var unhook func() bool
	if s.parent.Done() != nil {
		unhook = context.AfterFunc(s.parent, s.look)
	}
	s.mu.Lock()
	over := s.over
	if !over {
		s.timer, s.unhook = t, unhook
	}
	s.mu.Unlock()
	if over && unhook != nil { // ended meanwhile
		unhook()
	}
}

// look ends the source if its parent is done. The hook on the parent does that
// too, but on a goroutine of its own; who asks after having cancelled the
// parent is to be told at once.
func (s *source) look() {
	if err := s.parent.Err(); err != nil {
		s.end(err, context.Cause(s.parent))
	}
}

// end is the first end of the source; later ones do nothing, but they wait for
// it: whoever has called end finds the child ended. (The child may have been
// cancelled before all of them, and stays so.)
func (s *source) end(err, cause error) {
	s.once.Do(func() {
		if cause == nil {
			cause = err
		}
		// For Cause, which asks Value for the nearest context of the standard
		// library, and takes that one's.
		values, cancel := context.WithCancelCause(context.WithoutCancel(s.parent))
		cancel(cause)
		s.last.Store(&ending{values, err})
		s.tell()
	})
	s.release()
}

// release lets go of the timer and of the parent.
func (s *source) release() bool {
	s.mu.Lock()
	over, unhook := s.over, s.unhook
	s.over, s.unhook = true, nil
	s.wheel.Stop(s.timer)
	if s.late != nil {
		s.late.Stop()
	}
	s.mu.Unlock()
	if unhook != nil {
		unhook()
	}
	return !over
}

// run is called by a worker, at the deadline; sooner under a Shutdown with
// RunNow, and then the standard library's timer takes over.
func (s *source) run() {
	if left := time.Until(s.at); left > 0 {
		s.handOver(left)
		return
	}
	s.look() // the parent may have been first
	s.end(context.DeadlineExceeded, s.cause)
}

func (s *source) dropped() func() {
	s.handOver(time.Until(s.at))
	return nil
}

func (s *source) handOver(left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.late = time.AfterFunc(left, s.run)
	}
}

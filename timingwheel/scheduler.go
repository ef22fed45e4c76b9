package timingwheel

import (
	"context"
	"errors"
	"time"
)

// Scheduler runs functions when their time has come: once after a delay or at
// a time of day, or again and again, by a rate, a delay or any schedule. It is
// the face of a [Wheel] for those who would reach for time.AfterFunc, cheaper
// where there are many timers; and it keeps contexts with deadlines.
//
// Functions run on the wheel's workers, Options.Workers of them: one that
// blocks for long should start a goroutine. All methods are safe for use from
// any goroutine, those functions included.
type Scheduler struct {
	wheel *Wheel[task]
	wall  wallClock
}

// task is what a scheduler's wheel holds.
type task interface {
	// run is called by a worker when the time has come.
	run()
	// dropped is called for a task that Shutdown discards or hands back; it
	// returns the function that its user is owed, if any.
	dropped() func()
}

// once is a function to run once. Being of function type it fits an interface
// without an allocation.
type once func()

func (f once) run()            { f() }
func (f once) dropped() func() { return f }

// NewScheduler makes a scheduler. It costs one goroutine while idle. An option
// out of range is an error that names it; MaxPending bounds what is held of
// all kinds together.
func NewScheduler(o Options) (*Scheduler, error) {
	w, err := New(task.run, o)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{wheel: w}
	s.wall.init(s)
	return s, nil
}

var errNilFunc = errors.New("timingwheel: the function is nil")

// Call is a handle to a function that AfterFunc will call. It is a small
// value, free to copy; the zero Call is no call. See [Timer].
type Call struct {
	scheduler *Scheduler
	timer     Timer
}

// AfterFunc calls f once, delay from now, on a worker. What [Wheel.Schedule]
// says of time and errors holds here. It allocates nothing but what f, the
// closure, is.
func (s *Scheduler) AfterFunc(delay time.Duration, f func()) (Call, error) {
	if f == nil {
		return Call{}, errNilFunc
	}
	t, err := s.wheel.Schedule(once(f), delay)
	return Call{s, t}, err
}

// Stop says true if and only if the function will never be called; see
// [Wheel.Stop].
func (c Call) Stop() bool { return c.scheduler != nil && c.scheduler.wheel.Stop(c.timer) }

// Reset gives a call that is still pending a new delay, counted from now. It
// says false, and arms nothing, if the function was called, or the call
// stopped: unlike time.Timer's; see [Wheel.Reset].
func (c Call) Reset(delay time.Duration) bool {
	return c.scheduler != nil && c.scheduler.wheel.Reset(c.timer, delay)
}

// Len is the number of calls, jobs and contexts that are pending. A job counts
// while it waits for its next run.
func (s *Scheduler) Len() int {
	// The look at the wall clock is the scheduler's own. A worker may take it
	// in between; that happens once, for none is armed while its lock is held.
	s.wall.mu.Lock()
	defer s.wall.mu.Unlock()
	for {
		_, looks := s.wheel.value(s.wall.timer)
		n := s.wheel.Len()
		if _, still := s.wheel.value(s.wall.timer); still != looks {
			continue
		}
		if looks {
			n--
		}
		return n
	}
}

// Stats is what the scheduler's wheel holds and has done.
func (s *Scheduler) Stats() Stats { return s.wheel.Stats() }

// Shutdown ends the scheduler; see [Wheel.Shutdown]. Jobs end: under RunNow
// with one run at once, under Await with their next one. HandBack returns the
// functions that AfterFunc and At would have called. Contexts do not end
// before their deadlines by any policy but are left to the standard library's
// timers; Await waits for them.
func (s *Scheduler) Shutdown(ctx context.Context, policy Policy) ([]func(), error) {
	if policy <= Await { // or it is an error, and changes nothing
		s.wall.close()
	}
	asked := policy
	if policy == Discard {
		policy = HandBack // to see which are contexts
	}
	tasks, err := s.wheel.Shutdown(ctx, policy)
	var functions []func()
	for _, t := range tasks {
		if f := t.dropped(); f != nil && asked == HandBack {
			functions = append(functions, f)
		}
	}
	return functions, err
}

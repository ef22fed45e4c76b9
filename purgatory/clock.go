package purgatory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Clock runs the timeouts and the deferred checks of all purgatories and thresholds that have
// it as Options.Clock. Make one with [NewClock]. A purgatory without one makes its own.
//
// A clock costs one goroutine while nothing expires. It takes about 10 KiB with two processors,
// or 48 KiB once it has held a timer; with sixteen, 39 and 75 KiB. An empty purgatory on a
// shared clock costs less than 8 KiB. Purgatories on one clock also share its workers: a
// Complete that blocks occupies a worker of all of them.
type Clock struct {
	timers *timingwheel.Wheel[event]

	mu     sync.Mutex
	users  int           // guarded by mu; purgatories that are not shut down
	closed bool          // guarded by mu; no more users may join
	done   chan struct{} // closed when the clock is, the last user has left, and all goroutines ended
}

// ClockOptions configures a clock. The zero value is a good default.
type ClockOptions struct {
	// Name is the value of the pprof label "limbo" of the clock's goroutines.
	// Default: none.
	Name string

	// Tick is the resolution of timeouts: an operation expires up to one Tick
	// late and never early. Default 500 µs; at least 1 ns.
	Tick time.Duration

	// Workers bounds the goroutines that run expiries and deferred checks, Complete included.
	// Default: GOMAXPROCS, at least 4; 1 to 65,536. Raise it when Complete blocks.
	Workers int
}

// NewClock makes a clock. An option out of range is an error that names it.
func NewClock(o ClockOptions) (*Clock, error) {
	c := &Clock{done: make(chan struct{})}
	timers, err := timingwheel.New(func(e event) { e.to.due(e.arg) }, timingwheel.Options{
		Name:    o.Name,
		Tick:    o.Tick,
		Workers: o.Workers,
	})
	if err != nil {
		return nil, fmt.Errorf("purgatory: %w", err)
	}
	c.timers = timers
	return c, nil
}

// mustBeMade returns the timers. It panics for a zero value.
func (c *Clock) mustBeMade() *timingwheel.Wheel[event] {
	if c.timers == nil {
		panic("purgatory: the zero Clock is not usable, make one with NewClock")
	}
	return c.timers
}

// Stats returns the statistics of the timers.
func (c *Clock) Stats() timingwheel.Stats { return c.mustBeMade().Stats() }

// Levels returns the levels of the timing wheel; see [timingwheel.Wheel.Levels].
func (c *Clock) Levels() []timingwheel.Level { return c.mustBeMade().Levels() }

// Close refuses further purgatories with ErrClosed, and does not wait. The clock's goroutines
// end when the last purgatory that shares it has been shut down.
func (c *Clock) Close() {
	c.mustBeMade()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.endLocked()
	}
}

// Shutdown calls [Clock.Close] and waits for the goroutines to end. So it must not be called
// from a Complete or a TryComplete. When ctx is done first, it returns its error; the shutdown
// goes on, and another call waits for it again. A nil ctx panics, and changes nothing.
func (c *Clock) Shutdown(ctx context.Context) error {
	mustHaveContext(ctx)
	c.Close()
	return waitFor(ctx, c.done)
}

// join adds a user.
func (c *Clock) join() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: Options.Clock", ErrClosed)
	}
	c.users++
	return nil
}

// leave removes a user that has been shut down.
func (c *Clock) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	c.endLocked()
}

// endLocked ends the goroutines if the clock is closed and has no users.
func (c *Clock) endLocked() {
	if !c.closed || c.users > 0 {
		return
	}
	go func() {
		_, _ = c.timers.Shutdown(context.Background(), timingwheel.Discard)
		close(c.done)
	}()
}

// event is a timer's value: its target and an argument.
type event struct {
	to  target
	arg uint64
}

// target receives a due timer. due is called on a worker.
type target interface{ due(arg uint64) }

// schedule makes e due after a delay. A closed clock drops e: no operation is left that e could
// be for.
func (c *Clock) schedule(e event, delay time.Duration) timingwheel.Timer {
	for {
		t, err := c.timers.Schedule(e, delay)
		if !errors.Is(err, timingwheel.ErrFull) {
			return t
		}
		// A shard holds at most 2^28 timers. The caller cannot report an error here, and no
		// timer may be dropped, so wait until there is capacity.
		time.Sleep(time.Millisecond)
	}
}

func (c *Clock) stop(t timingwheel.Timer) { c.timers.Stop(t) }

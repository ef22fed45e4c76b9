package purgatory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Clock runs the timeouts and the deferred checks of any number of purgatories
// and thresholds: those whose Options.Clock it is. Make one with [NewClock]. A
// purgatory without one makes its own.
//
// A clock costs one goroutine while nothing expires, and with two processors some 9 KiB,
// 48 once it has held a timer; with sixteen 39 and 72. A purgatory that shares one and
// holds nothing costs less than 8 KiB. Those that share a clock share its workers, too: a
// Complete that blocks keeps one from all of them.
type Clock struct {
	timers *timingwheel.Wheel[event]

	mu     sync.Mutex
	users  int           // guarded by mu; purgatories that are not shut down
	closed bool          // guarded by mu; no more of them
	done   chan struct{} // closed when it is closed, the last user has gone and the goroutines have ended
}

// ClockOptions configures a clock. The zero value is a good default.
type ClockOptions struct {
	// Name is the value of the pprof label "limbo" of the clock's goroutines.
	// Default: none.
	Name string

	// Tick is the resolution of timeouts: an operation expires up to one Tick
	// late and never early. Default 500 µs; at least 1 ns.
	Tick time.Duration

	// Workers bounds the goroutines that run expiries and deferred checks,
	// Complete included. Default: GOMAXPROCS, at least 4; 1 to 65,536. Raise
	// it when Complete blocks.
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

// made returns the timers. It panics for a zero value.
func (c *Clock) made() *timingwheel.Wheel[event] {
	if c.timers == nil {
		panic("purgatory: the zero Clock cannot be used, must be made by NewClock")
	}
	return c.timers
}

// Stats returns the figures of the timers.
func (c *Clock) Stats() timingwheel.Stats { return c.made().Stats() }

// Levels returns where the timers stand; see [timingwheel.Wheel.Levels].
func (c *Clock) Levels() []timingwheel.Level { return c.made().Levels() }

// Close refuses further purgatories with ErrClosed, and does not wait. When the
// last of those that share the clock has been shut down, its goroutines end.
func (c *Clock) Close() {
	c.made()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.endLocked()
	}
}

// Shutdown is [Clock.Close] that waits for the goroutines to end. So it must not
// be called from a Complete or a TryComplete. When ctx is done first, it returns
// its error; the shutdown goes on, and another call waits for it again. A nil ctx
// panics, and changes nothing.
func (c *Clock) Shutdown(ctx context.Context) error {
	mustHave(ctx)
	c.Close()
	return waitFor(ctx, c.done)
}

// join counts a purgatory in.
func (c *Clock) join() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: Options.Clock", ErrClosed)
	}
	c.users++
	return nil
}

// leave counts a purgatory out that has been shut down.
func (c *Clock) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	c.endLocked()
}

// endLocked has the goroutines end, if nobody needs them any more.
func (c *Clock) endLocked() {
	if !c.closed || c.users > 0 {
		return
	}
	go func() {
		_, _ = c.timers.Shutdown(context.Background(), timingwheel.Discard)
		close(c.done)
	}()
}

// event is a timer's value: what is due, and what for.
type event struct {
	to  target
	arg uint64
}

// target is what a timer can be for. due is called on a worker.
type target interface{ due(arg uint64) }

// schedule has e due after a delay. Only if nothing waits any more that e could be for
// is the clock closed, and e dropped.
func (c *Clock) schedule(e event, delay time.Duration) timingwheel.Timer {
	for {
		t, err := c.timers.Schedule(e, delay)
		if !errors.Is(err, timingwheel.ErrFull) {
			return t
		}
		// A shard holds 2^28 timers. There is nobody to tell, and nothing that could
		// be left out: wait for room.
		time.Sleep(time.Millisecond)
	}
}

func (c *Clock) stop(t timingwheel.Timer) { c.timers.Stop(t) }

package purgatory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Wheel runs the timeouts and the deferred checks of any number of purgatories
// and thresholds: those whose Options.Wheel it is. Make one with [NewWheel]. A
// purgatory without one makes its own.
//
// A wheel costs one goroutine while nothing expires, and with two processors some 9 KiB,
// 48 once it has held a timer; with sixteen 39 and 72. A purgatory that shares one and
// holds nothing costs less than 8 KiB. Those that share a wheel share its workers, too: a
// Complete that blocks keeps one from all of them.
type Wheel struct {
	timers *timingwheel.Wheel[event]

	mu     sync.Mutex
	users  int           // guarded by mu; purgatories that are not shut down
	closed bool          // guarded by mu; no more of them
	done   chan struct{} // closed when it is closed, the last user has gone and the goroutines have ended
}

// WheelOptions configures a wheel. The zero value is a good default.
type WheelOptions struct {
	// Name is the value of the pprof label "limbo" of the wheel's goroutines.
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

// NewWheel makes a wheel. An option out of range is an error that names it.
func NewWheel(o WheelOptions) (*Wheel, error) {
	w := &Wheel{done: make(chan struct{})}
	timers, err := timingwheel.New(func(e event) { e.to.due(e.arg) }, timingwheel.Options{
		Name:    o.Name,
		Tick:    o.Tick,
		Workers: o.Workers,
	})
	if err != nil {
		return nil, fmt.Errorf("purgatory: %w", err)
	}
	w.timers = timers
	return w, nil
}

// made returns the timers. It panics for a zero value.
func (w *Wheel) made() *timingwheel.Wheel[event] {
	if w.timers == nil {
		panic("purgatory: the zero Wheel cannot be used, must be made by NewWheel")
	}
	return w.timers
}

// Stats returns the figures of the timers.
func (w *Wheel) Stats() timingwheel.Stats { return w.made().Stats() }

// Levels returns where the timers stand; see [timingwheel.Wheel.Levels].
func (w *Wheel) Levels() []timingwheel.Level { return w.made().Levels() }

// Close refuses further purgatories with ErrClosed, and does not wait. When the
// last of those that share the wheel has been shut down, its goroutines end.
func (w *Wheel) Close() {
	w.made()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.closed = true
		w.endLocked()
	}
}

// Shutdown is [Wheel.Close] that waits for the goroutines to end. So it must not
// be called from a Complete or a TryComplete. When ctx is done first, it returns
// its error; the shutdown goes on, and another call waits for it again. A nil ctx
// panics, and changes nothing.
func (w *Wheel) Shutdown(ctx context.Context) error {
	mustHave(ctx)
	w.Close()
	return waitFor(ctx, w.done)
}

// join counts a purgatory in.
func (w *Wheel) join() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("%w: Options.Wheel", ErrClosed)
	}
	w.users++
	return nil
}

// leave counts a purgatory out that has been shut down.
func (w *Wheel) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users--
	w.endLocked()
}

// endLocked has the goroutines end, if nobody needs them any more.
func (w *Wheel) endLocked() {
	if !w.closed || w.users > 0 {
		return
	}
	go func() {
		_, _ = w.timers.Shutdown(context.Background(), timingwheel.Discard)
		close(w.done)
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
// is the wheel closed, and e dropped.
func (w *Wheel) schedule(e event, delay time.Duration) timingwheel.Timer {
	for {
		t, err := w.timers.Schedule(e, delay)
		if !errors.Is(err, timingwheel.ErrFull) {
			return t
		}
		// A shard holds 2^28 timers. There is nobody to tell, and nothing that could
		// be left out: wait for room.
		time.Sleep(time.Millisecond)
	}
}

func (w *Wheel) stop(t timingwheel.Timer) { w.timers.Stop(t) }

package purgatory

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Options configures a purgatory. The zero value is a good default.
type Options struct {
	// Name names the purgatory in Stats. It is also the value of the pprof label "limbo" of the
	// goroutines of the purgatory's own clock. Default: none.
	Name string

	// Clock is a clock that several purgatories share. Default nil: the purgatory has its own,
	// made with Tick and Workers and shut down with the purgatory.
	Clock *Clock

	// Tick is the resolution of the purgatory's own clock: an operation expires up to one Tick
	// late and never early. Default 500 µs; at least 1 ns; must be 0 if Clock is set.
	Tick time.Duration

	// Workers bounds the goroutines of the purgatory's own clock, which run expiries and
	// deferred checks, Complete included. Default: GOMAXPROCS, at least 4; 1 to 65,536; must be
	// 0 if Clock is set. Raise it when Complete blocks.
	Workers int

	// MaxPending bounds the number of pending operations; beyond it TryCompleteElseWatch
	// returns ErrFull. Default 0: no bound but memory.
	MaxPending int

	// OnPanic is called with each panic of an operation's TryComplete or Complete, of its
	// context, of OnEnd, and of a Threshold's current in AdvanceLater, on the goroutine that
	// recovered it. It must not call Shutdown, because the operation may not have ended yet.
	// Default: log an error with slog's default logger.
	OnPanic func(Panic)

	// OnEnd is called when an operation has ended, before its Complete and on the same
	// goroutine, with the arguments of Complete and the time that the operation waited. It is
	// for tracing, and must not block. Default: none.
	OnEnd func(outcome Outcome, waited time.Duration, cause error)
}

// Panic describes a panic of an operation that the purgatory recovered.
type Panic = timingwheel.Panic

// NoTimeout is the timeout of an operation that never expires.
const NoTimeout time.Duration = 1<<63 - 1

// withDefaults sets the defaults of zero fields and refuses values out of range. The wheel
// checks Tick and Workers itself.
func (o Options) withDefaults() (Options, error) {
	if o.Clock != nil && o.Clock.timers == nil {
		return o, errors.New("purgatory: Options.Clock is the zero value, must be made by NewClock")
	}
	if o.Clock != nil && o.Tick != 0 {
		return o, fmt.Errorf("purgatory: Options.Tick is %v, must be 0 with Options.Clock", o.Tick)
	}
	if o.Clock != nil && o.Workers != 0 {
		return o, fmt.Errorf("purgatory: Options.Workers is %d, must be 0 with Options.Clock", o.Workers)
	}
	if o.MaxPending < 0 {
		return o, fmt.Errorf("purgatory: Options.MaxPending is %d, must be 0 (no bound) or more", o.MaxPending)
	}
	if o.OnPanic == nil {
		o.OnPanic = logPanic
	}
	return o, nil
}

func logPanic(p Panic) {
	defer func() { _ = recover() }() // the logger panicked: nowhere else to report it
	slog.Error("purgatory: operation panicked", "panic", p.Value, "stack", string(p.Stack))
}

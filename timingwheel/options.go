package timingwheel

import (
	"fmt"
	"log/slog"
	"math/bits"
	"runtime"
	"time"

	"github.com/seed-782fa212/limbo/internal/sentinel"
)

// Options configures a wheel. The zero value is a good default.
type Options struct {
	// Name is the value of the pprof label "limbo" of the wheel's goroutines.
	// Default: none.
	Name string

	// Tick is the resolution: a timer fires at the first tick at or after its deadline, so up
	// to one Tick late and never early. Default 500 µs; at least 1 ns. A smaller tick costs
	// wake-ups only while timers are due, not while the wheel is idle.
	Tick time.Duration

	// WheelSize is the number of a level's buckets that one bucket of the next level spans,
	// rounded up to a power of two; a level has twice as many buckets. Default 2,048; 2 to
	// 65,536. With a Tick of 500 µs the levels reach 2 s, 70 min, 99 days, ... ahead. A timer
	// cascades at most once per level.
	WheelSize int

	// Shards is the number of independently locked parts, rounded up to a power of two.
	// Default: 2 for each of GOMAXPROCS, at most 256; 1 to 256. More shards let more cores
	// schedule and stop at once; each takes 3 KiB once used, and 16.5 KiB per level at the
	// default WheelSize.
	Shards int

	// Workers bounds the goroutines that run the expiry function. They start when first needed,
	// and stay until the wheel is shut down. Default: GOMAXPROCS, at least 4; 1 to 65,536.
	// Raise it when expiries block.
	Workers int

	// MaxPending bounds the timers held at once; beyond it Schedule returns ErrFull. Default 0:
	// bounded only by memory and by 2^28 timers per shard.
	MaxPending int

	// OnPanic is called with each panic of the expiry function, on the worker that recovered
	// it. Default: log an error on slog's default logger.
	OnPanic func(Panic)
}

// Panic describes a panic that a worker recovered.
type Panic struct {
	Value any    // the argument of panic
	Stack []byte // the stack at the panic, as debug.Stack formats it
}

// ErrClosed is returned for a timer that is scheduled after a shutdown has begun.
var ErrClosed = sentinel.Closed("timingwheel: closed")

// ErrFull is returned for a timer beyond Options.MaxPending, or beyond the 2^28 that a shard
// can hold.
var ErrFull = sentinel.Full("timingwheel: full")

const (
	defaultTick      = 500 * time.Microsecond
	defaultWheelSize = 2048
	minWorkers       = 4
	maxWheelSize     = 1 << 16
	maxShards        = 1 << shardBits
	maxWorkers       = 1 << 16
)

// withDefaults replaces zero values by defaults and refuses values out of range.
func (o Options) withDefaults() (Options, error) {
	procs := runtime.GOMAXPROCS(0)
	if o.Tick == 0 {
		o.Tick = defaultTick
	}
	if o.WheelSize == 0 {
		o.WheelSize = defaultWheelSize
	}
	if o.Shards == 0 {
		o.Shards = min(2*procs, maxShards)
	}
	if o.Workers == 0 {
		o.Workers = max(procs, minWorkers)
	}
	if o.OnPanic == nil {
		o.OnPanic = logPanic
	}
	if o.Tick < 0 {
		return o, fmt.Errorf("timingwheel: Options.Tick is %v, must be at least 1ns", o.Tick)
	}
	for _, f := range []struct {
		name         string
		v, low, high int
	}{
		{"WheelSize", o.WheelSize, 2, maxWheelSize},
		{"Shards", o.Shards, 1, maxShards},
		{"Workers", o.Workers, 1, maxWorkers},
	} {
		if f.v < f.low || f.v > f.high {
			return o, fmt.Errorf("timingwheel: Options.%s is %d, must be %d to %d", f.name, f.v, f.low, f.high)
		}
	}
	if o.MaxPending < 0 {
		return o, fmt.Errorf("timingwheel: Options.MaxPending is %d, must be 0 (no bound) or more", o.MaxPending)
	}
	o.WheelSize = ceilPow2(o.WheelSize)
	o.Shards = ceilPow2(o.Shards)
	return o, nil
}

func ceilPow2(n int) int { return 1 << bits.Len(uint(n-1)) }

func logPanic(p Panic) {
	defer func() { _ = recover() }() // a panic of the logger: nowhere else to report it
	slog.Error("timingwheel: expiry function panicked", "panic", p.Value, "stack", string(p.Stack))
}

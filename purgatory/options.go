package purgatory

import (
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"runtime"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Options configures a purgatory. The zero value is a good default.
type Options struct {
	// Tick is the resolution of timeouts: an operation expires up to one Tick
	// late and never early. Default 500 µs; at least 1 ns.
	Tick time.Duration

	// Workers bounds the goroutines that run expiries and deferred checks,
	// Complete included. Default: GOMAXPROCS, at least 4; 1 to 65,536. Raise
	// it when Complete blocks.
	Workers int

	// Shards is the number of separately locked parts of the watch lists, by
	// key, rounded up to a power of two; each costs 192 bytes. Default: 128 for
	// each of GOMAXPROCS, at most 4,096; 1 to 65,536.
	Shards int

	// MaxOperations bounds the operations that wait at once; beyond it
	// TryCompleteElseWatch says ErrFull. Default 0: no bound but memory.
	MaxOperations int

	// OnPanic is told of each panic of an operation's TryComplete or Complete,
	// on the goroutine that recovered it. It must not call Shutdown: the
	// operation may not have ended yet. Default: an error on slog's default
	// logger.
	OnPanic func(Panic)
}

// Panic describes a panic of an operation that the purgatory recovered.
type Panic = timingwheel.Panic

// ErrClosed is returned for what a purgatory in shutdown refuses.
var ErrClosed = errors.New("purgatory: closed")

// ErrFull is returned for an operation that Options.MaxOperations refuses.
var ErrFull = errors.New("purgatory: MaxOperations operations wait already")

// NoTimeout is the timeout of an operation that never expires.
const NoTimeout time.Duration = 1<<63 - 1

const (
	shardsPerProc = 128
	maxShards     = 1 << 16
	maxDefault    = 1 << 12
)

// withDefaults fills in what is zero and refuses what is out of range. The
// wheel has its own say about Tick and Workers.
func (o Options) withDefaults() (Options, error) {
	if o.Shards == 0 {
		o.Shards = min(shardsPerProc*runtime.GOMAXPROCS(0), maxDefault)
	}
	if o.Shards < 1 || o.Shards > maxShards {
		return o, fmt.Errorf("purgatory: Options.Shards is %d, must be 1 to %d", o.Shards, maxShards)
	}
	if o.MaxOperations < 0 {
		return o, fmt.Errorf("purgatory: Options.MaxOperations is %d, must be 0 (no bound) or more", o.MaxOperations)
	}
	if o.OnPanic == nil {
		o.OnPanic = logPanic
	}
	o.Shards = 1 << bits.Len(uint(o.Shards-1))
	return o, nil
}

func logPanic(p Panic) {
	slog.Error("purgatory: operation panicked", "panic", p.Value, "stack", string(p.Stack))
}

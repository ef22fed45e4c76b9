package purgatory

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// host is what holds operations, whatever they wait for: the wheel of their
// timeouts, the bound on their number, how they ended, and the shutdown. It is
// the part that Purgatory and Threshold have in common.
type host struct {
	options Options
	owner   any // the Purgatory that this is a part of: its records find it by this
	wheel   *timingwheel.Wheel[Pending]
	base    time.Time // what record.since counts from
	end     closing

	held atomic.Int64 // operations, counted only under MaxOperations; any goroutine writes

	// outside counts what the shards' counters do not: operations that ended
	// without ever waiting, and corrections. Any goroutine writes.
	outside [outcomes + 1]atomic.Int64
	checks  atomic.Uint64 // of those
	late    lateness
}

// open starts the wheel. o has its defaults already.
func (t *host) open(o Options, expire func(Pending)) (err error) {
	t.options, t.base = o, time.Now()
	t.end.done = make(chan struct{})
	t.wheel, err = timingwheel.New(expire, timingwheel.Options{
		Tick:    o.Tick,
		Workers: o.Workers,
		OnPanic: o.OnPanic,
	})
	if err != nil {
		return fmt.Errorf("purgatory: %w", err)
	}
	return nil
}

func (t *host) now() time.Duration { return time.Since(t.base) }

// reserve counts an operation in, unless MaxOperations wait.
func (t *host) reserve() bool {
	bound := int64(t.options.MaxOperations)
	if bound == 0 {
		return true
	}
	for {
		n := t.held.Load()
		if n >= bound {
			return false
		}
		if t.held.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (t *host) unreserve() {
	if t.options.MaxOperations > 0 {
		t.held.Add(-1)
	}
}

// first is the check of an operation that does not wait yet. It says whether that
// has ended it: by a yes, or as Failed by a panic (P7).
func (t *host) first(op Operation) (ended bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		ended = true
		defer t.endOutside(op, Failed) // the goroutine may end here: see record.look
		if v != nil {
			t.report(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	yes := op.TryComplete()
	returned = true
	if yes {
		t.endOutside(op, Completed)
	}
	return yes
}

// endOutside ends an operation that has never waited.
func (t *host) endOutside(op Operation, o Outcome) {
	t.outside[o].Add(1)
	t.checks.Add(1)
	t.complete(op, o)
}

// complete calls the operation's Complete. One that panics is counted as
// Failed; it has had its call (P7).
func (t *host) complete(op Completion, o Outcome) {
	defer func() {
		if v := recover(); v != nil {
			t.outside[o].Add(-1)
			t.outside[Failed].Add(1)
			t.report(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	op.Complete(o)
}

// report tells the hook of a panic; a hook that panics is only logged.
func (t *host) report(what Panic) {
	defer func() {
		if v := recover(); v != nil {
			logPanic(what)
			logPanic(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	t.options.OnPanic(what)
}

package purgatory

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// core is what holds operations, whatever they wait for: the wheel of their
// timeouts, the bound on their number, what is counted of them, and the shutdown.
// It is the part that Purgatory and Threshold have in common.
type core struct {
	options Options
	lists   lists
	clock   *Clock
	own     bool         // the wheel is this core's
	held    atomic.Int64 // operations, counted only under MaxPending; any goroutine writes
	panics  atomic.Uint64
	tallies tallies
	closing closing
}

// lists is where the operations of a core are entered. The goroutine that owns the
// operation calls it.
type lists interface {
	// leave takes it out of all lists. It returns of how many, and how many keys are
	// without an operation by that and not counted out yet.
	leave(*waiter) (watches, vanished int)
	// shrink gives memory back, at most that of so many of the table's buckets.
	shrink(most int)
	// free is called when nothing of this package will touch the record again.
	free(*waiter)
}

// open makes or joins the wheel. o has its defaults already.
func (c *core) open(o Options, l lists) (err error) {
	c.options, c.lists, c.clock = o, l, o.Clock
	c.closing.done = make(chan struct{})
	c.tallies.most = runtime.GOMAXPROCS(0)
	if c.clock == nil {
		c.clock, err = NewClock(ClockOptions{Name: o.Name, Tick: o.Tick, Workers: o.Workers})
		if err != nil {
			return err
		}
		c.own = true
	}
	return c.clock.join()
}

// mustBeMade panics if the core is part of a zero value.
func (c *core) mustBeMade() {
	if c.clock == nil {
		panic(zeroValue)
	}
}

const zeroValue = "purgatory: the zero value cannot be used, must be made by New, NewThreshold or NewFutures"

// mustHave panics if the context is nil, and returns its channel. A typed nil panics in
// Done: here, while nothing depends on it.
func mustHave(ctx context.Context) (done <-chan struct{}) {
	if ctx == nil {
		panic("purgatory: the context is nil")
	}
	return ctx.Done()
}

// mustBeUsable panics if an argument is nil that the caller must give. It returns the
// context's channel.
func (c *core) mustBeUsable(ctx context.Context, op any) (done <-chan struct{}) {
	c.mustBeMade()
	if op == nil {
		panic("purgatory: the operation is nil")
	}
	return mustHave(ctx)
}

// reserve counts an operation in, unless MaxPending wait.
func (c *core) reserve() bool {
	bound := int64(c.options.MaxPending)
	if bound == 0 {
		return true
	}
	for {
		n := c.held.Load()
		if n >= bound {
			return false
		}
		if c.held.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *core) unreserve() {
	if c.options.MaxPending > 0 {
		c.held.Add(-1)
	}
}

// complete calls the hook and the operation's Complete, which is deferred because the
// hook may end the goroutine.
func (c *core) complete(op Completion, o Outcome, waited time.Duration, cause error) {
	if c.options.OnEnd == nil {
		c.deliver(op, o, cause)
		return
	}
	defer c.deliver(op, o, cause)
	defer c.recoverPanic()
	c.options.OnEnd(o, waited, cause)
}

// deliver calls the operation's Complete. One that panics has had its call (P7).
func (c *core) deliver(op Completion, o Outcome, cause error) {
	defer c.recoverPanic()
	op.Complete(o, cause)
}

// recoverPanic reports the panic of the function that defers it, if there is one.
func (c *core) recoverPanic() {
	if v := recover(); v != nil {
		c.report(v)
	}
}

// report counts a panic and calls the hook with it; a hook that panics is only logged.
func (c *core) report(v any) {
	c.panics.Add(1)
	what := Panic{Value: v, Stack: debug.Stack()}
	defer func() {
		if v := recover(); v != nil {
			logPanic(what)
			logPanic(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	c.options.OnPanic(what)
}

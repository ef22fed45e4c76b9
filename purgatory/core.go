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
	wheel   *Wheel
	own     bool         // the wheel is this core's
	held    atomic.Int64 // operations, counted only under MaxOperations; any goroutine writes
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
	c.options, c.lists, c.wheel = o, l, o.Wheel
	c.closing.done = make(chan struct{})
	c.tallies.most = runtime.GOMAXPROCS(0)
	if c.wheel == nil {
		c.wheel, err = NewWheel(WheelOptions{Name: o.Name, Tick: o.Tick, Workers: o.Workers})
		if err != nil {
			return err
		}
		c.own = true
	}
	return c.wheel.join()
}

// mustBeUsable panics if an argument is nil that the caller must give. It asks the
// context whether it can be done, while nothing depends on what that does.
func mustBeUsable(ctx context.Context, op any) {
	if op == nil {
		panic("purgatory: the operation is nil")
	}
	mustHave(ctx)
	ctx.Done()
}

func mustHave(ctx context.Context) {
	if ctx == nil {
		panic("purgatory: the context is nil")
	}
}

// reserve counts an operation in, unless MaxOperations wait.
func (c *core) reserve() bool {
	bound := int64(c.options.MaxOperations)
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
	if c.options.MaxOperations > 0 {
		c.held.Add(-1)
	}
}

// complete calls the operation's Complete. One that panics is counted as
// Failed; it has had its call (P7).
func (c *core) complete(op Completion, o Outcome, waited time.Duration, cause error) {
	defer func() {
		if v := recover(); v != nil {
			c.countPanic(o)
			c.report(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	if c.options.OnEnd != nil {
		c.tell(o, waited, cause)
	}
	op.Complete(o, cause)
}

// tell calls the hook. One that panics is reported, and keeps nobody from its end.
func (c *core) tell(o Outcome, waited time.Duration, cause error) {
	defer func() {
		if v := recover(); v != nil {
			c.report(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	c.options.OnEnd(o, waited, cause)
}

// report calls the hook with a panic; a hook that panics is only logged.
func (c *core) report(what Panic) {
	defer func() {
		if v := recover(); v != nil {
			logPanic(what)
			logPanic(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	c.options.OnPanic(what)
}

package purgatory

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/internal/limit"
)

// core holds operations, whatever they wait for: the wheel of their timeouts, the bound on
// their number, their statistics, and the shutdown. Purgatory and Threshold share it.
type core struct {
	options   Options
	lists     lists
	clock     *Clock
	ownsClock bool        // the clock is this core's
	limit     limit.Limit // of operations; written by any goroutine
	panics    atomic.Uint64
	tallies   tallies
	closing   closing
}

// lists are the lists in which a core's operations are entered. Only the goroutine that owns
// the operation calls the methods that take one.
type lists interface {
	// leave removes the operation from all lists. It returns the number of these lists, and the
	// number of keys that lost their last operation and are still to be subtracted from the key
	// count.
	leave(*waiter) (watches, keysRemoved int)
	// shrink releases the memory of at most that many of the table's buckets.
	shrink(most int)
	// free is called when nothing of this package will touch the record again.
	free(*waiter)
}

// open makes or joins the wheel. The defaults of o are already set.
func (c *core) open(o Options, l lists) (err error) {
	c.options, c.lists, c.clock = o, l, o.Clock
	c.limit.Max = int64(o.MaxPending)
	c.closing.done = make(chan struct{})
	c.tallies.maxParts = runtime.GOMAXPROCS(0)
	if c.clock == nil {
		c.clock, err = NewClock(ClockOptions{Name: o.Name, Tick: o.Tick, Workers: o.Workers})
		if err != nil {
			return err
		}
		c.ownsClock = true
	}
	return c.clock.join()
}

// mustBeMade panics if the core is part of a zero value.
func (c *core) mustBeMade() {
	if c.clock == nil {
		panic(zeroValue)
	}
}

const zeroValue = "purgatory: the zero value is not usable, make one with New, NewThreshold or NewFutures"

// mustHaveContext panics if the context is nil, and returns its channel. A typed nil panics in
// Done here, before anything depends on the context.
func mustHaveContext(ctx context.Context) (done <-chan struct{}) {
	if ctx == nil {
		panic("purgatory: the context is nil")
	}
	return ctx.Done()
}

// mustHaveArguments panics if op or the context is nil. It returns the context's channel.
func (c *core) mustHaveArguments(ctx context.Context, op any) (done <-chan struct{}) {
	c.mustBeMade()
	if op == nil {
		panic("purgatory: the operation is nil")
	}
	return mustHaveContext(ctx)
}

// complete calls the OnEnd hook and then the operation's Complete, which is deferred because
// the hook may end the goroutine.
func (c *core) complete(op Completion, o Outcome, waited time.Duration, cause error) {
	if c.options.OnEnd == nil {
		c.deliver(op, o, cause)
		return
	}
	defer c.deliver(op, o, cause)
	defer c.recoverPanic()
	c.options.OnEnd(o, waited, cause)
}

// deliver calls the operation's Complete. A Complete that panics is not called again: the
// outcome stands (one outcome, P1).
func (c *core) deliver(op Completion, o Outcome, cause error) {
	defer c.recoverPanic()
	op.Complete(o, cause)
}

// recoverPanic recovers and reports a panic of the function that defers it.
func (c *core) recoverPanic() {
	if v := recover(); v != nil {
		c.report(v)
	}
}

// report counts a panic and calls the hook with it. A panic of the hook is only logged.
func (c *core) report(v any) {
	c.panics.Add(1)
	recovered := Panic{Value: v, Stack: debug.Stack()}
	defer func() {
		if v := recover(); v != nil {
			logPanic(recovered)
			logPanic(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	c.options.OnPanic(recovered)
}

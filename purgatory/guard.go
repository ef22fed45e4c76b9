package purgatory

import (
	"context"
	"sync/atomic"
	"time"
)

// guard wraps an operation's context from the moment when other goroutines can end the
// operation. If a method of the user's context panics or ends its goroutine, whichever
// goroutine called it, the operation ends as Failed, and the method counts as having answered
// that the context is cancelled.
//
// The channel is obtained before the operation exists. Through it and through Value, package
// context recognizes its own contexts behind a guard, and starts no goroutine for them.
type guard struct {
	ctx  context.Context
	done <-chan struct{}
	core *core
	h    Pending

	failed atomic.Bool // the panic has been reported; written by any goroutine
}

// cancel ends the operation because the context is done.
func (g *guard) cancel() { g.h.Cancel(context.Cause(g)) }

func (g *guard) Deadline() (time.Time, bool) { return time.Time{}, false } // not used by context

func (g *guard) Done() <-chan struct{} { return g.done }

func (g *guard) Err() error { return call(g, g.ctx.Err, context.Canceled) }

func (g *guard) Value(key any) any {
	return call(g, func() any { return g.ctx.Value(key) }, nil)
}

// call calls a method of the context and returns its result, or fallback if the method panics.
func call[T any](g *guard, method func() T, fallback T) (result T) {
	returned := false
	defer func() {
		if !returned {
			result = fallback
			g.fail(recover())
		}
	}()
	result = method()
	returned = true
	return result
}

// fail ends the operation as Failed. v is the panic value of a method, or nil if the method is
// ending its goroutine.
func (g *guard) fail(v any) {
	// Deferred, because the panic hook may also end the goroutine.
	defer g.h.endWith(Failed, &CheckError{Value: v, context: true})
	if v != nil && !g.failed.Swap(true) {
		g.core.report(v)
	}
}

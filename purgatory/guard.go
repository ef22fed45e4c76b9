package purgatory

import (
	"context"
	"sync/atomic"
	"time"
)

// guard is the context of an operation, once that can be ended by others. A method of the
// user's context that panics or ends its goroutine, on whatever goroutine asks, ends the
// operation as Failed, and counts as the answer of a context that is cancelled (P7).
//
// The channel was asked for before there was an operation. By it and by Value, package
// context recognizes its own contexts behind a guard, and starts no goroutine for them.
type guard struct {
	ctx  context.Context
	done <-chan struct{}
	core *core
	h    Pending

	failed atomic.Bool // its panic is reported; any goroutine writes
}

// cancel ends the operation because the context is done.
func (g *guard) cancel() { g.h.Cancel(context.Cause(g)) }

func (g *guard) Deadline() (time.Time, bool) { return time.Time{}, false } // package context does not ask

func (g *guard) Done() <-chan struct{} { return g.done }

func (g *guard) Err() error { return ask(g, g.ctx.Err, context.Canceled) }

func (g *guard) Value(key any) any {
	return ask(g, func() any { return g.ctx.Value(key) }, nil)
}

// ask returns the answer of a context's method, or otherwise if that panics.
func ask[T any](g *guard, method func() T, otherwise T) (answer T) {
	returned := false
	defer func() {
		if !returned {
			answer = otherwise
			g.fail(recover())
		}
	}()
	answer = method()
	returned = true
	return answer
}

// fail ends the operation as Failed. v is what a method panicked with; nil: it is ending
// its goroutine.
func (g *guard) fail(v any) {
	// Deferred, because the hook for panics may end the goroutine, too.
	defer g.h.endWith(Failed, &CheckError{Value: v, context: true})
	if v != nil && !g.failed.Swap(true) {
		g.core.report(v)
	}
}

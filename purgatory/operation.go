package purgatory

import (
	"fmt"
	"runtime/debug"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Operation is what waits: a request that cannot be answered yet. No lock of
// the library is held while its methods run (P6).
type Operation interface {
	// TryComplete reports whether the operation can complete now. It is called
	// at most twice by TryCompleteElseWatch (P4), then once or more for every
	// CheckAndComplete of one of its keys; never twice at once, never while
	// Complete runs, never after it (P3). So it may keep what it found in the
	// operation, for Complete to use, without a lock.
	//
	// It must not call CheckAndComplete for a key of its own, nor for one
	// whose watchers' checks do that: each asks for one more check, for ever.
	TryComplete() bool

	// Complete ends the operation. It is called exactly once (P1), after the
	// operation has left all lists and the wheel, on the goroutine that ended
	// it: that of TryCompleteElseWatch, CheckAndComplete, a cancel or
	// Shutdown, of a check that was running then, or a worker's.
	Complete(Outcome)
}

// Outcome is how an operation ended.
type Outcome uint8

const (
	// Completed means that TryComplete said yes, or that Pending.Complete was called.
	Completed Outcome = iota + 1
	// Expired means that its timeout passed.
	Expired
	// Cancelled means by Pending.Cancel, CancelForKey, or its context.
	Cancelled
	// Closed means that the purgatory was shut down.
	Closed
	// Failed means that its TryComplete panicked.
	Failed

	outcomes // how many, with "none yet"

	// withdrawn is the outcome of an operation that TryCompleteElseWatch takes
	// back: it returns an error, and Complete is not called.
	withdrawn Outcome = outcomes
)

// String is the outcome in lower case: "completed", "expired", "cancelled",
// "closed" or "failed".
func (o Outcome) String() string {
	switch o {
	case Completed:
		return "completed"
	case Expired:
		return "expired"
	case Cancelled:
		return "cancelled"
	case Closed:
		return "closed"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// Pending is the handle to an operation that waits. Its methods are safe for
// use from any goroutine, on a nil handle too. Once the operation has ended
// the handle holds on to nothing of it.
type Pending[K comparable] struct {
	state     state
	purgatory *Purgatory[K]

	// The goroutine that has the state's running bit owns these.
	op      Operation         // nil once ended
	timer   timingwheel.Timer // zero: none; expireNow sets it by its own rule
	unhook  func() bool       // takes the context's hook away; nil: none
	watches []watch[K]        // one for each distinct key
}

// Complete forces the operation to its end as Completed, without a check, and
// says whether this call decided that. If a check is just running, it is the
// checking goroutine that calls the operation's Complete.
func (h *Pending[K]) Complete() bool { return h != nil && h.end(Completed) }

// Cancel ends the operation as Cancelled, and says whether this call decided
// that. If a check is just running, it is the checking goroutine that calls
// the operation's Complete.
func (h *Pending[K]) Cancel() bool { return h != nil && h.end(Cancelled) }

// end decides the outcome, from outside.
func (h *Pending[K]) end(o Outcome) bool {
	won, mine := h.state.decide(o)
	if mine {
		h.finish(o)
	}
	return won
}

// check looks whether the operation can complete, unless somebody else is
// looking: then that one is asked to look again. It says whether this call
// decided that the operation is Completed.
func (h *Pending[K]) check() bool {
	return h.state.acquire() && h.release(h.look())
}

// look is one check, by the owner. It says whether that decided for Completed.
func (h *Pending[K]) look() bool {
	if !h.tryComplete() {
		return false
	}
	won, _ := h.state.decide(Completed)
	return won
}

// release gives the ownership up after a look, or ends the operation if its
// outcome is decided. If another look was asked for, it is had first. It says
// whether the last look decided for Completed.
func (h *Pending[K]) release(completed bool) bool {
	for {
		o, again := h.state.settle()
		switch {
		case o != 0:
			h.finish(o)
			return completed
		case !again:
			return false
		}
		completed = h.look()
	}
}

// tryComplete calls the operation's TryComplete. One that panics, or ends its
// goroutine by runtime.Goexit, decides for Failed (P7).
func (h *Pending[K]) tryComplete() (yes bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		h.state.decide(Failed)
		gone := true // by Goexit, of TryComplete or of the hook
		defer func() {
			if gone { // the goroutine ends here: nobody else will do it
				o, _ := h.state.settle()
				h.finish(o)
			}
		}()
		if v := recover(); v != nil {
			h.purgatory.report(Panic{Value: v, Stack: debug.Stack()})
			gone = false
		}
	}()
	yes = h.op.TryComplete()
	returned = true
	return yes
}

// first is the check of an operation that does not wait yet: 0 if it has to.
func (p *Purgatory[K]) first(op Operation) (o Outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		o = Failed
		gone := true // by Goexit, of TryComplete or of the hook
		defer func() {
			if gone { // the goroutine ends here: nobody else will do it
				p.outside[o].Add(1)
				p.complete(op, o)
			}
		}()
		if v := recover(); v != nil {
			p.report(Panic{Value: v, Stack: debug.Stack()})
			gone = false
		}
	}()
	if op.TryComplete() {
		o = Completed
	}
	returned = true
	return o
}

// finish ends the operation, as its owner, with the outcome decided: it leaves
// the lists, the wheel and its context, and only then is completed (P5).
func (h *Pending[K]) finish(o Outcome) {
	p := h.purgatory
	h.unwatch(o)
	if o != Expired && h.timer != (timingwheel.Timer{}) {
		p.wheel.Stop(h.timer)
	}
	if h.unhook != nil {
		h.unhook()
		h.unhook = nil
	}
	op := h.op
	h.op = nil
	p.unreserve()
	if o != withdrawn {
		p.complete(op, o)
	}
}

// complete calls the operation's Complete. One that panics is counted as
// Failed; it has had its call (P7).
func (p *Purgatory[K]) complete(op Operation, o Outcome) {
	defer func() {
		if v := recover(); v != nil {
			p.outside[o].Add(-1)
			p.outside[Failed].Add(1)
			p.report(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	op.Complete(o)
}

// report tells the hook of a panic; a hook that panics is only logged.
func (p *Purgatory[K]) report(what Panic) {
	defer func() {
		if v := recover(); v != nil {
			logPanic(what)
			logPanic(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	p.options.OnPanic(what)
}

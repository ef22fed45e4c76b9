package purgatory

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// Pending is the handle to an operation that waits. Its methods are safe for
// use from any goroutine, on a nil handle too. Once the operation has ended
// the handle holds on to nothing of it.
type Pending struct {
	state  state
	checks uint32    // calls of TryComplete; who has the state's running bit owns it
	op     Operation // nil once ended; likewise
	host   *host
	waits  waits // the record that this is a part of

	// So it does these.
	timer  timingwheel.Timer // zero: none; expireNow sets it by its own rule
	unhook func() bool       // takes the context's hook away; nil: none

	// Set once, before others can meet it.
	since   time.Duration // when it came, by the host's clock
	timeout time.Duration
}

// waits is an operation with its places in the lists of what it waits for. The
// goroutine that owns the operation calls it, but for keep.
type waits interface {
	// leave takes it out of all lists and counts how it ended.
	leave(o Outcome)
	// keep stores the operation's timer, unless it has left already. Anybody
	// may call it.
	keep(t timingwheel.Timer) bool
}

// Complete forces the operation to its end as Completed, without a check, and
// says whether this call decided that. If a check is just running, it is the
// checking goroutine that calls the operation's Complete.
func (h *Pending) Complete() bool { return h != nil && h.end(Completed) }

// Cancel ends the operation as Cancelled, and says whether this call decided
// that. If a check is just running, it is the checking goroutine that calls
// the operation's Complete.
func (h *Pending) Cancel() bool { return h != nil && h.end(Cancelled) }

// end decides the outcome, from outside.
func (h *Pending) end(o Outcome) bool {
	won, mine := h.state.decide(o)
	if mine {
		h.finish(o)
	}
	return won
}

// look is one check, by the owner. It says whether that decided for Completed.
func (h *Pending) look() bool {
	if !h.tryComplete() {
		return false
	}
	won, _ := h.state.decide(Completed)
	return won
}

// release gives the ownership up after a look, or ends the operation if its
// outcome is decided. If another look was asked for, it is had first. It says
// whether the last look decided for Completed.
func (h *Pending) release(completed bool) bool {
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
func (h *Pending) tryComplete() (yes bool) {
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
			h.host.report(Panic{Value: v, Stack: debug.Stack()})
			gone = false
		}
	}()
	h.checks++
	yes = h.op.TryComplete()
	returned = true
	return yes
}

// finish ends the operation, as its owner, with the outcome decided: it leaves
// the lists, the wheel and its context, and only then is completed (P5).
func (h *Pending) finish(o Outcome) {
	h.waits.leave(o)
	op := h.op
	h.op = nil
	if o == Expired {
		h.host.late.add(h.host.now() - h.since - max(h.timeout, 0))
	} else if h.timer != (timingwheel.Timer{}) {
		h.host.wheel.Stop(h.timer)
	}
	if h.unhook != nil {
		h.unhook()
		h.unhook = nil
	}
	h.host.unreserve()
	if o != withdrawn {
		h.host.complete(op, o)
	}
}

// begin makes h that of a new operation, which its maker owns.
func (h *Pending) begin(t *host, w waits, op Operation, timeout time.Duration) {
	h.state.begin()
	h.host, h.waits, h.op = t, w, op
	h.checks = 1 // the first, before there was a record
	h.since, h.timeout = t.now(), timeout
}

// withdraw is its maker's way out when not all lists were open to it. Shutdown
// closes them one by one, and may have found the operation in one before another
// was closed: then it has been promised its end, and has it.
func (h *Pending) withdraw() (*Pending, error) {
	h.state.decide(withdrawn)
	o, _ := h.state.settle()
	h.finish(o)
	if o == withdrawn {
		return nil, ErrClosed
	}
	return h, nil
}

// entered is its maker's way on when the operation is in all its lists: the
// second look, and what ends it from outside. It gives the handle, nil if that
// look has completed it.
func (h *Pending) entered(ctx context.Context) (*Pending, error) {
	// From the first list on, others could meet it; as it is running, they have
	// left their wish in its state. Looks that were asked for so far are had by
	// the one that follows.
	h.state.clear()
	completed := h.look()
	if !h.state.decided() {
		h.arm(ctx)
	}
	if h.release(completed) {
		return nil, nil
	}
	if h.timeout <= 0 {
		h.expireNow()
	}
	return h, nil
}

// arm sets what ends the operation from outside: its timeout and its context.
// Both may strike before this returns; the operation is running still.
func (h *Pending) arm(ctx context.Context) {
	if timeout := h.timeout; timeout > 0 && timeout != NoTimeout {
		t, err := h.host.wheel.Schedule(h, timeout)
		if err != nil { // the wheel is shut down after all lists are closed
			h.state.decide(Closed)
			return
		}
		h.timer = t
	}
	if ctx.Done() != nil {
		h.unhook = context.AfterFunc(ctx, func() { h.end(Cancelled) })
	}
}

// expireNow has a worker end the operation as Expired. It is for timeouts of
// zero or less, and not part of arm: a worker that found the operation owned
// by TryCompleteElseWatch would leave its end to that goroutine, and P8
// promises a worker.
func (h *Pending) expireNow() {
	t, err := h.host.wheel.Schedule(h, 0)
	if err != nil {
		return // the wheel is shut down after the last operation has ended
	}
	// Whoever ends the operation takes it out of its lists before he looks for a
	// timer; so the lists say whether he will find this one.
	if !h.waits.keep(t) {
		h.host.wheel.Stop(t)
	}
}

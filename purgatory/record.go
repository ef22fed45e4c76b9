package purgatory

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// record is an operation that waits. When the operation has ended its memory
// serves another one, and a handle to it is stale: whoever does not own the
// operation names it by a [Pending], whose generation the state compares.
//
// Invariant: only the owner (state.go) touches a record's fields, but for those of
// which the lock of a list says otherwise; and nobody does once it is free.
type record struct {
	state  state
	checks uint32 // calls of TryComplete
	op     Operation
	host   *host
	waits  waits // the whole that this is a part of

	timer  timingwheel.Timer // zero: none; expireNow sets it by a rule of its own
	unhook func() bool       // takes the context's hook away; nil: none

	// Set before others can meet it; whoever holds a list's lock that it is in may
	// read them.
	since   time.Duration // when it came, by the host's clock
	timeout time.Duration
}

// waits is an operation with its places in the lists of what it waits for. The
// goroutine that owns the operation calls it.
type waits interface {
	// leave takes it out of all lists and counts how it ended.
	leave(o Outcome)
	// last is the lock of the list that leave takes it out of last.
	last() *sync.Mutex
	// free says that its memory may serve another operation of that purgatory.
	free(*host)
}

// handle names the operation that the record is now. The caller owns it, or holds
// the lock of a list that it is in, or it is a Threshold's, which serves once.
func (r *record) handle() Pending { return Pending{r, r.state.generation()} }

// look is one check, by the owner. completed: it decided for Completed. ended: it
// panicked, or is about to end its goroutine by runtime.Goexit, and the operation
// is over, as Failed (P7).
func (r *record) look() (completed, ended bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		t := r.host
		r.state.own(Failed)
		// Deferred, because the goroutine may end here: by Goexit, which goes on
		// even after a panic on its way, or by the hook's.
		defer func() {
			o, _ := r.state.settle()
			r.finish(o)
		}()
		ended = true
		if v != nil {
			t.report(Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	r.checks++
	yes := r.op.TryComplete()
	returned = true
	return yes && r.state.own(Completed), false
}

// release gives the ownership up after a look, or ends the operation if its
// outcome is decided. If another look was asked for, it is had first. It says
// whether the last look decided for Completed.
func (r *record) release(completed bool) bool {
	for {
		o, again := r.state.settle()
		switch {
		case o != 0:
			r.finish(o)
			return completed
		case !again:
			return false
		}
		var ended bool
		if completed, ended = r.look(); ended {
			return false
		}
	}
}

// finish ends the operation, as its owner, with the outcome decided: it leaves
// the lists, the wheel and its context, and only then is completed (P5). From
// free on the record is not to be touched.
func (r *record) finish(o Outcome) {
	r.waits.leave(o)
	t, op := r.host, r.op
	r.op = nil
	if o == Expired {
		t.late.add(t.now() - r.since - max(r.timeout, 0))
	} else if r.timer != (timingwheel.Timer{}) {
		t.wheel.Stop(r.timer)
	}
	r.timer = timingwheel.Timer{}
	if r.unhook != nil {
		r.unhook()
		r.unhook = nil
	}
	t.unreserve()
	w := r.waits
	r.host, r.waits = nil, nil // a stale handle holds on to no purgatory
	w.free(t)
	if o != withdrawn {
		t.complete(op, o)
	}
}

// begin makes the record that of a new operation, which its maker owns.
func (r *record) begin(t *host, w waits, op Operation, timeout time.Duration) {
	r.state.begin()
	r.host, r.waits, r.op = t, w, op
	r.checks = 1 // the first, before there was a record
	r.since, r.timeout = t.now(), timeout
}

// withdraw is its maker's way out when not all lists were open to it. Shutdown
// closes them one by one, and may have found the operation in one before another
// was closed: then it has been promised its end, and has it.
func (r *record) withdraw() (Pending, error) {
	h := r.handle()
	r.state.own(withdrawn)
	o, _ := r.state.settle()
	r.finish(o)
	if o == withdrawn {
		return Pending{}, ErrClosed
	}
	return h, nil
}

// entered is its maker's way on when the operation is in all its lists: the
// second look, and what ends it from outside. It gives the handle, zero if that
// look has completed it.
func (r *record) entered(ctx context.Context) (Pending, error) {
	t, h, timeout, last := r.host, r.handle(), r.timeout, r.waits.last()
	// From the first list on, others could meet it; as it is running, they have
	// left their wish in its state. Looks that were asked for so far are had by
	// the one that follows.
	r.state.clear()
	completed, ended := r.look()
	if ended {
		return h, nil
	}
	if !r.state.decided() {
		r.arm(ctx)
	}
	if r.release(completed) {
		return Pending{}, nil
	}
	if timeout <= 0 {
		t.expireNow(h, last)
	}
	return h, nil
}

// expireNow has a worker end the operation as Expired. It is for timeouts of
// zero or less, and not part of arm: a worker that found the operation owned
// by TryCompleteElseWatch would leave its end to that goroutine, and P8
// promises a worker.
func (t *host) expireNow(h Pending, last *sync.Mutex) {
	timer, err := t.wheel.Schedule(h, 0)
	if err != nil {
		return // the wheel is shut down after the last operation has ended
	}
	// The caller does not own the operation any more. But whoever ends it decides,
	// takes this lock to have it leave its last list, and then looks for a timer:
	// as long as nothing is decided, he will find this one.
	last.Lock()
	waits := h.r.state.waits(h.gen)
	if waits {
		h.r.timer = timer
	}
	last.Unlock()
	if !waits {
		t.wheel.Stop(timer)
	}
}

// arm sets what ends the operation from outside: its timeout and its context.
// Both may strike before this returns; the operation is running still.
func (r *record) arm(ctx context.Context) {
	h := r.handle()
	if timeout := r.timeout; timeout > 0 && timeout != NoTimeout {
		t, err := r.host.wheel.Schedule(h, timeout)
		if err != nil { // the wheel is shut down after all lists are closed
			r.state.own(Closed)
			return
		}
		r.timer = t
	}
	if ctx.Done() != nil {
		r.unhook = context.AfterFunc(ctx, func() { h.end(Cancelled) })
	}
}

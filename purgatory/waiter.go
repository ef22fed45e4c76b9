package purgatory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/internal/prefetch"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// waiter is the record of a waiting operation. When the operation has ended, the record serves
// another one (in a Threshold, see thresholdWaiter), and a handle to it is stale. A goroutine
// that does not own the operation refers to it by a [Pending], whose generation the state
// compares.
//
// Two cache lines: a check that returns false touches only the first.
//
// Invariant: only the owner (state.go) touches the fields, except where a field's comment says
// otherwise, and no goroutine touches them once the record is free.
type waiter struct {
	state state
	op    Operation
	core  *core
	since time.Duration // when the operation began; set before other goroutines can see it

	// deadline is set before other goroutines can see the operation; a stale handle may read it
	// at any time.
	deadline atomic.Int64

	checks   uint32                // calls of TryComplete
	rechecks uint16                // requested checks in a row, when they are passed to a worker
	n        uint16                // number of keys; set before other goroutines can see it
	extra    atomic.Pointer[extra] // nil: not yet needed; see watchlist

	timer  timingwheel.Timer // zero: none
	hashes [inRecord]uint32  // of its keys; see keyHashes
	unhook func() bool       // removes the context's hook; nil: none

	causes sync.Mutex // one goroutine at a time decides with a cause
	cause  error      // guarded by causes until a goroutine has decided
}

// inRecord is the number of keys that fit into the record itself.
const inRecord = 3

// extra holds fields that most records do not need. It stays with its record.
type extra struct {
	hashes    []uint32   // of all keys, if there are more than inRecord
	positions []position // of each key; guarded by the lock of its bucket
}

// maxExtra is the maximum number of keys for which a free record keeps memory.
const maxExtra = 64

var waiters = sync.Pool{New: func() any { return new(waiter) }}

// begin prepares the record for a new operation, which the caller owns.
func (w *waiter) begin(c *core, op Operation, timeout time.Duration) (gen uint64) {
	gen = w.state.begin() // before the deadline: see Pending.Deadline
	w.core, w.op = c, op
	w.since = now()
	w.deadline.Store(int64(after(w.since, timeout)))
	w.checks, w.n = 0, 0
	return gen
}

// handle returns the handle of the record's current operation. The caller owns it, or holds the
// lock of a list that contains it.
func (w *waiter) handle() Pending { return Pending{w, w.state.generation()} }

// prefetchOp begins to load the operation that op points to. The caller holds the lock
// of a list that contains the record, which leaves its lists before op changes.
func (w *waiter) prefetchOp() { prefetch.ValueIn(&w.op) }

// check runs one check, by the owner. completed reports that it decided for Completed. ended
// reports that the check panicked or is ending its goroutine by runtime.Goexit, and that the
// operation has ended as Failed.
func (w *waiter) check() (completed, ended bool) {
	returned := false
	defer func() {
		if !returned {
			ended = true
			w.fail(recover())
		}
	}()
	w.checks++
	yes := w.op.TryComplete()
	returned = true
	return yes && w.state.decideAsOwner(Completed), false
}

// fail ends the operation as Failed, by the owner, unless an outcome is already decided. v is
// the panic value of the check, or nil if it is ending its goroutine.
func (w *waiter) fail(v any) {
	w.decide(w.state.generation(), Failed, &CheckError{Value: v})
	c := w.core
	// Deferred, because the goroutine may end here, by a Goexit of the check, which continues
	// even after a panic on its way, or by one of the hook.
	defer func() {
		o, _ := w.state.tryYield()
		w.finish(o)
	}()
	if v != nil {
		c.report(v)
	}
}

const (
	// maxChecksHere is the number of requested checks in a row that the owner runs before it
	// leaves the rest to a worker (no key starves another, P15).
	maxChecksHere = 64
	// After spinSuspect checks in a row the operation may be requesting them itself, and after
	// spinLimit that is certain; see resume.
	spinSuspect = 10_000
	spinLimit   = spinSuspect + 12
	minPause    = time.Millisecond
)

// yield gives up the ownership after a check, or ends the operation if its outcome is decided.
// If another check was requested, it runs first, here or on a worker. ended reports that the
// operation was ended here, and completed that the last check here decided that.
func (w *waiter) yield(yes bool) (completed, ended bool) { return w.checkLoop(yes, 0, 0) }

// checkLoop is yield after a number of checks in a row, the last of which lasted took.
func (w *waiter) checkLoop(yes bool, rechecks int, took time.Duration) (completed, ended bool) {
	for here := 1; ; here++ {
		o, again := w.state.tryYield()
		switch {
		case o != 0:
			w.finish(o)
			return yes, true
		case !again:
			return false, false
		}
		if rechecks++; here == maxChecksHere || rechecks > spinSuspect {
			w.leaveToWorker(rechecks, took)
			return false, false
		}
		if yes, ended = w.check(); ended {
			return false, true
		}
	}
}

// leaveToWorker transfers the ownership to a worker, with a requested check.
func (w *waiter) leaveToWorker(rechecks int, took time.Duration) {
	w.rechecks = uint16(rechecks)
	pause := time.Duration(0)
	if rechecks > spinSuspect {
		pause = max(minPause, took)
	}
	w.core.clock.schedule(event{w, resumed}, pause)
}

// resumed is the argument of an event that transfers the ownership to a worker. No generation
// is as high.
const resumed = 1<<64 - 1

// resume continues on the worker.
//
// An operation whose TryComplete checks a key of its own requests another check with each
// check, for ever. Other goroutines can request checks as often, and then the operation must
// not fail. The difference is that other goroutines also request checks while no check runs. So
// after a number of checks a pause follows each, as long as the check took. If a request
// comes during each of the checks, and in none of the pauses, the operation itself makes it.
func (w *waiter) resume() {
	c := w.core
	c.startWork()
	defer c.stopWork()
	if w.state.decided() {
		w.yield(false)
		return
	}
	rechecks := int(w.rechecks)
	switch requested := w.state.takeRecheck(); {
	case rechecks <= spinSuspect:
	case requested:
		rechecks = 0
	case rechecks >= spinLimit:
		w.fail(errSpinning)
		return
	}
	start := now()
	completed, ended := w.check()
	if !ended {
		w.checkLoop(completed, rechecks, now()-start)
	}
}

var errSpinning = errors.New("purgatory: TryComplete endlessly calls CheckAndComplete for a key of its own")

// due is called by the wheel: the operation's timeout has passed, or an owner left a check to a
// worker.
func (w *waiter) due(arg uint64) {
	if arg == resumed {
		w.resume()
		return
	}
	if _, owns := w.state.decide(arg, Expired); owns {
		c := w.core
		c.startWork()
		defer c.stopWork()
		w.finish(Expired)
	}
}

// decide decides for Cancelled or Failed, with the cause; see state.decide.
func (w *waiter) decide(gen uint64, o Outcome, cause error) (won, owns bool) {
	w.causes.Lock()
	defer w.causes.Unlock()
	// The goroutine that finishes the operation reads the cause without the lock: by
	// then another call has either returned or will find the operation decided.
	if !w.state.waiting(gen) {
		return false, false
	}
	w.cause = cause
	return w.state.decide(gen, o)
}

// causeOf returns the cause of the outcome. Only the owner calls it.
func (w *waiter) causeOf(o Outcome) (cause error) {
	switch o {
	case Cancelled, Failed:
		cause, w.cause = w.cause, nil
		return cause
	}
	return o.Err()
}

// finish ends the operation, as its owner, with the decided outcome. It removes the operation
// from the lists, its context and the wheel, and only then completes it (no leftovers, P5). Only
// a timer that the record does not refer to may stay on the wheel; it soon fires. The record
// must not be touched after free.
func (w *waiter) finish(o Outcome) {
	if w.unhook != nil {
		w.unhookThenFinish(o)
		return
	}
	c, op := w.core, w.op
	cause := w.causeOf(o)
	watches, keysRemoved := 0, 0
	if w.n > 0 {
		watches, keysRemoved = c.lists.leave(w)
	}
	if w.timer != (timingwheel.Timer{}) {
		if o != Expired {
			c.clock.stop(w.timer)
		}
		w.timer = timingwheel.Timer{}
	}
	waited := c.countOut(w, o, watches, keysRemoved)
	w.op, w.core = nil, nil // a stale handle keeps no purgatory alive
	c.lists.free(w)
	c.complete(op, o, waited, cause)
}

// unhookThenFinish removes the context's hook and calls finish again, which then finds none. That
// call is deferred, because the context's code may panic or end the goroutine.
func (w *waiter) unhookThenFinish(o Outcome) {
	unhook := w.unhook
	w.unhook = nil
	defer w.finish(o)
	defer w.core.recoverPanic()
	unhook()
}

// wait continues TryCompleteElseWatch when the operation is in all its lists: it runs the
// second check and arms the timeout and the context. soon is the result of countIn. wait
// returns the handle, zero if it has ended the operation.
func (w *waiter) wait(ctx context.Context, done <-chan struct{}, gen uint64, soon bool) (Pending, error) {
	h, c := Pending{w, gen}, w.core
	if c.closing.begun.Load() {
		// The shutdown may have passed the lists before the operation was in them.
		w.state.decideAsOwner(Closed)
	}
	// Since the operation entered its first list, other goroutines could find it. It is
	// running, so they have set recheck. The check that follows serves all these requests.
	w.state.takeRecheck()
	completed := false
	if !w.state.decided() {
		var ended bool
		if completed, ended = w.check(); ended {
			return Pending{}, nil
		}
	}
	expired := time.Duration(w.deadline.Load()) == w.since
	if !completed && !w.state.decided() {
		if soon {
			w.arm()
		}
		if done != nil && w.hook(&guard{ctx: ctx, done: done, core: c, h: h}) {
			return Pending{}, nil
		}
	}
	if _, ended := w.yield(completed); ended {
		return Pending{}, nil
	}
	if expired {
		// A timeout of zero or less expires on a worker, which must not find the operation owned
		// by this goroutine. This timer is never stopped: if the operation has ended by then,
		// its generation is stale and the timer does nothing.
		c.clock.schedule(event{w, gen}, 0)
	}
	return h, nil
}

// hook makes the end of the context end the operation. Only the owner calls it. ended reports
// that the context's code did not return, and that the operation was ended here.
func (w *waiter) hook(g *guard) (ended bool) {
	returned := false
	defer func() {
		if !returned {
			ended = true
			defer w.yield(false)
			g.fail(recover())
		}
	}()
	own, ok := g.ctx.(interface {
		AfterFunc(f func()) (stop func() bool)
	})
	switch {
	case g.Err() != nil:
		g.cancel()
	case ok:
		w.unhook = own.AfterFunc(g.cancel)
	default:
		w.unhook = context.AfterFunc(g, g.cancel)
	}
	returned = true
	return false
}

// arm enters the operation's timeout on the wheel. The caller owns or holds the operation.
func (w *waiter) arm() {
	left := time.Duration(w.deadline.Load()) - now()
	w.timer = w.core.clock.schedule(event{w, w.state.generation()}, left)
}

// setHashes stores the hashes of the operation's keys, without the zeros of duplicates.
func (w *waiter) setHashes(all []uint64) {
	n := len(all)
	for _, h := range all {
		if h == 0 {
			n--
		}
	}
	w.n = uint16(n)
	x := w.extra.Load()
	if x == nil && n > inRecord {
		x = new(extra)
		w.extra.Store(x)
	}
	if n > inRecord {
		x.hashes = slices.Grow(x.hashes[:0], n)[:n]
	}
	if x != nil {
		x.positions = slices.Grow(x.positions[:0], n)[:n]
	}
	to := w.keyHashes()
	n = 0
	for _, h := range all {
		if h != 0 {
			to[n] = uint32(h)
			n++
		}
	}
}

func (w *waiter) keyHashes() []uint32 {
	if w.n <= inRecord {
		return w.hashes[:w.n]
	}
	return w.extra.Load().hashes
}

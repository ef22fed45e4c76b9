package purgatory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// waiter is the record of an operation that waits. When the operation has ended,
// a record of a Purgatory serves another one, and a handle to it is stale: whoever
// does not own the operation names it by a [Pending], whose generation the state
// compares.
//
// Two cache lines: a check that returns false touches the first alone.
//
// Invariant: only the owner (state.go) touches the fields, but for those of which
// something else is said; and nobody does once the record is free.
type waiter struct {
	state state
	op    Operation
	core  *core
	since time.Duration // when it came; set before others can meet it

	// deadline is set before others can meet it; a stale handle may read it at any
	// time.
	deadline atomic.Int64

	checks uint32                // calls of TryComplete
	looks  uint16                // checks in a row that somebody asked for, as they are handed over
	n      uint16                // keys; set before others can meet it
	aside  atomic.Pointer[aside] // nil: not needed so far; see watchlist

	timer  timingwheel.Timer // zero: none
	hashes [inRecord]uint32  // of its keys; see keyHashes
	unhook func() bool       // takes the context's hook away; nil: none

	causes sync.Mutex // lets one goroutine at a time decide with a cause
	cause  error      // guarded by causes until one of them has decided
}

// inRecord is for how many keys there is room in the record itself.
const inRecord = 3

// aside is what most records can do without. It stays with its record.
type aside struct {
	hashes []uint32 // of all keys, if they are more than inRecord
	places []place  // of each key; guarded by the lock of its bucket
}

// maxAside is how many keys a free record keeps room for.
const maxAside = 64

var waiters = sync.Pool{New: func() any { return new(waiter) }}

// begin makes the record that of a new operation, which the caller owns.
func (w *waiter) begin(c *core, op Operation, timeout time.Duration) (gen uint64) {
	gen = w.state.begin() // before the deadline: see Pending.Deadline
	w.core, w.op = c, op
	w.since = now()
	w.deadline.Store(int64(after(w.since, timeout)))
	w.checks, w.n = 0, 0
	return gen
}

// handle names the operation that the record serves now. The caller owns it, or
// holds the lock of a list that it is in.
func (w *waiter) handle() Pending { return Pending{w, w.state.generation()} }

// check is one check, by the owner. completed: it decided for Completed. ended: it
// panicked, or is about to end its goroutine by runtime.Goexit, and the operation
// is over, as Failed (P7).
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

// fail ends the operation as Failed, by the owner, unless an outcome was decided
// already. v is what its check panicked with; nil: it is ending its goroutine.
func (w *waiter) fail(v any) {
	w.decide(w.state.generation(), Failed, &CheckError{Value: v})
	c := w.core
	// Deferred, because the goroutine may end here: by Goexit, which goes on even
	// after a panic on its way, or by the hook's.
	defer func() {
		o, _ := w.state.tryYield()
		w.finish(o)
	}()
	if v != nil {
		c.report(v)
	}
}

const (
	// handOver is how many checks in a row that others asked for the owner makes,
	// before it leaves the rest to a worker (P15).
	handOver = 64
	// suspect is after how many in a row the operation may be asking for them itself,
	// and guilty when that is sure; see resume.
	suspect    = 10_000
	guilty     = suspect + 12
	leastPause = time.Millisecond
)

// yield gives the ownership up after a check, or ends the operation if its outcome
// is decided. If another check was asked for, that is had first, here or on a
// worker. ended: the operation has been ended here. completed: and the last check here
// decided that.
func (w *waiter) yield(yes bool) (completed, ended bool) { return w.checkLoop(yes, 0, 0) }

// checkLoop is yield after a number of checks in a row, the last of which took
// that long.
func (w *waiter) checkLoop(yes bool, looks int, took time.Duration) (completed, ended bool) {
	for here := 1; ; here++ {
		o, again := w.state.tryYield()
		switch {
		case o != 0:
			w.finish(o)
			return yes, true
		case !again:
			return false, false
		}
		if looks++; here == handOver || looks > suspect {
			w.leaveToWorker(looks, took)
			return false, false
		}
		if yes, ended = w.check(); ended {
			return false, true
		}
	}
}

// leaveToWorker hands the ownership over, with a check that was asked for.
func (w *waiter) leaveToWorker(looks int, took time.Duration) {
	w.looks = uint16(looks)
	pause := time.Duration(0)
	if looks > suspect {
		pause = max(leastPause, took)
	}
	w.core.clock.schedule(event{w, resumed}, pause)
}

// resumed is the argument of an event that brings a worker the ownership. No
// generation is as high.
const resumed = 1<<64 - 1

// resume is the worker's part.
//
// An operation whose TryComplete checks a key of its own asks for another check
// with each, for ever. Others can ask as often, and then the operation must not
// fail. What tells them apart is that they ask while no check runs, too: so after
// a number of checks there is a pause after each, as long as the check took. Who
// was asked in each of the checks, and in none of the pauses, has asked itself.
func (w *waiter) resume() {
	c := w.core
	c.startWork()
	defer c.stopWork()
	if w.state.decided() {
		w.yield(false)
		return
	}
	looks := int(w.looks)
	switch asked := w.state.takeRecheck(); {
	case looks <= suspect:
	case asked:
		looks = 0
	case looks >= guilty:
		w.fail(errSpinning)
		return
	}
	start := now()
	completed, ended := w.check()
	if !ended {
		w.checkLoop(completed, looks, now()-start)
	}
}

var errSpinning = errors.New("purgatory: TryComplete calls CheckAndComplete for a key of its own, for ever")

// due is what the wheel calls: the operation's timeout has passed, or an owner
// left a check to a worker.
func (w *waiter) due(arg uint64) {
	if arg == resumed {
		w.resume()
		return
	}
	if _, mine := w.state.decide(arg, Expired); mine {
		c := w.core
		c.startWork()
		defer c.stopWork()
		w.finish(Expired)
	}
}

// decide decides for Cancelled or Failed, with the cause; see state.decide.
func (w *waiter) decide(gen uint64, o Outcome, cause error) (won, mine bool) {
	w.causes.Lock()
	defer w.causes.Unlock()
	// The goroutine that finishes the operation reads the cause without the lock: by
	// then another call has either returned or will find the operation decided.
	if !w.state.waits(gen) {
		return false, false
	}
	w.cause = cause
	return w.state.decide(gen, o)
}

// causeOf returns why the operation ended, for its owner.
func (w *waiter) causeOf(o Outcome) (cause error) {
	switch o {
	case Cancelled, Failed:
		cause, w.cause = w.cause, nil
		return cause
	}
	return o.Err()
}

// finish ends the operation, as its owner, with the outcome decided: it leaves
// the lists, its context and the wheel, where only a timer stays that it does not know of
// and that is soon gone, and only then is completed (P5). From
// free on the record is not to be touched.
func (w *waiter) finish(o Outcome) {
	if w.unhook != nil {
		w.detach(o)
		return
	}
	c, op := w.core, w.op
	cause := w.causeOf(o)
	watches, vanished := 0, 0
	if w.n > 0 {
		watches, vanished = c.lists.leave(w)
	}
	if w.timer != (timingwheel.Timer{}) {
		if o != Expired {
			c.clock.stop(w.timer)
		}
		w.timer = timingwheel.Timer{}
	}
	waited := c.countOut(w, o, watches, vanished)
	w.op, w.core = nil, nil // a stale handle holds on to no purgatory
	c.lists.free(w)
	c.complete(op, o, waited, cause)
}

// detach removes the context's hook and then finishes the operation, also when the
// context's code panics or ends the goroutine.
func (w *waiter) detach(o Outcome) {
	unhook := w.unhook
	w.unhook = nil
	defer w.finish(o)
	defer w.core.recoverPanic()
	unhook()
}

// wait is the maker's way on when the operation is in all its lists: the
// second check, and what ends it from outside. soon is what countIn has returned. It
// returns the handle, zero if the operation has been ended here.
func (w *waiter) wait(ctx context.Context, done <-chan struct{}, gen uint64, soon bool) (Pending, error) {
	h, c := Pending{w, gen}, w.core
	if c.closing.begun.Load() {
		// The shutdown may have passed the lists before the operation was in them.
		w.state.decideAsOwner(Closed)
	}
	// From the first list on others could meet the operation; as it is running, they
	// have left their wish in its state. The checks asked for so far are had by the
	// one that follows.
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
		// P8 promises a worker, so it must not find the operation owned by this
		// goroutine. Nobody stops this timer: a handle that is stale by then does no
		// harm.
		c.clock.schedule(event{w, gen}, 0)
	}
	return h, nil
}

// hook makes the end of the context end the operation, by the owner. ended: the
// context's code has not returned, and the operation has been ended here.
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

// arm enters the operation's timeout on the wheel, by its owner or by who holds it.
func (w *waiter) arm() {
	left := time.Duration(w.deadline.Load()) - now()
	w.timer = w.core.clock.schedule(event{w, w.state.generation()}, left)
}

// setHashes notes the hashes of the operation's keys; 0: a key given before.
func (w *waiter) setHashes(all []uint64) {
	n := len(all)
	for _, h := range all {
		if h == 0 {
			n--
		}
	}
	w.n = uint16(n)
	x := w.aside.Load()
	if x == nil && n > inRecord {
		x = new(aside)
		w.aside.Store(x)
	}
	if n > inRecord {
		x.hashes = slices.Grow(x.hashes[:0], n)[:n]
	}
	if x != nil {
		x.places = slices.Grow(x.places[:0], n)[:n]
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

// keyHashes returns the hashes of the operation's keys.
func (w *waiter) keyHashes() []uint32 {
	if w.n <= inRecord {
		return w.hashes[:w.n]
	}
	return w.aside.Load().hashes
}

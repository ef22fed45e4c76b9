package calls

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// errUnequal is returned for an id that nothing could find again.
var errUnequal = errors.New("calls: the id is not equal to itself, as NaN is not")

// errSend is what done is called with if send has not returned.
var errSend = errors.New("calls: send panicked or ended its goroutine")

// call is the record of a call.
//
// Its way: begin takes it from Table.free and enters it into its part. Whoever takes it
// out of there, under the part's lock, owns it: a reply, the expiry, a cancel, Fail, Close
// or a failed send, one of them and no other. The owner sets value and err and ends it:
// a call of Do is handed to Do's goroutine by its channel, of Go to done. Who ends with it
// stops its timer, and only if the timer will never call expire with it does the record
// serve again.
type call[ID comparable, R any] struct {
	ready chan struct{} // capacity 1: its owner has set value and err; nil until Do needs it

	// Set under the part's lock before the call can be found there, and not changed until
	// the record serves another one.

	part            *part[ID, R]
	id              ID
	serial          uint64         // counts the calls that the record has served
	done            func(R, error) // nil: of Do
	timer           timingwheel.Timer
	began, deadline time.Duration // since base; never: no deadline

	// Set by the owner.

	value   R
	err     error
	outcome purgatory.Outcome

	// Guarded by backlog.mu.

	queued         bool         // it is in the backlog
	over           bool         // it has ended after its timer had run out, and must not enter the backlog
	before, behind *call[ID, R] // in the backlog
}

// base is what points in time are counted from, by the monotonic clock.
var base = time.Now()

const never time.Duration = 1<<63 - 1

func now() time.Duration { return time.Since(base) }

// record returns a record that is free, for a call of Do if done is nil.
func (t *Table[ID, R]) record(done func(R, error)) *call[ID, R] {
	c, _ := t.free.Get().(*call[ID, R])
	if c == nil {
		c = new(call[ID, R])
	}
	if done == nil && c.ready == nil {
		c.ready = make(chan struct{}, 1) // 96 bytes, which a call of Go does without
	}
	c.done = done
	return c
}

// recycle frees a record that nobody else knows.
func (t *Table[ID, R]) recycle(c *call[ID, R]) {
	c.value, c.err, c.done, c.timer = *new(R), nil, nil, timingwheel.Timer{}
	t.free.Put(c)
}

// await returns when the call has ended, and ends it when ctx is done, which gone tells.
func (c *call[ID, R]) await(ctx context.Context, gone <-chan struct{}) {
	if gone == nil {
		<-c.ready
		return
	}
	select {
	case <-c.ready:
	case <-gone:
		if c.part.take(c, c.id, c.serial, purgatory.Cancelled) {
			c.stop() // now: Cause may panic or end the goroutine, as ctx does
			c.value, c.err = *new(R), cause(ctx)
			return
		}
		<-c.ready // somebody was first
	}
}

// cause is why ctx is done; never nil, which would be a reply, whatever ctx says.
func cause(ctx context.Context) error { return cmp.Or(context.Cause(ctx), context.Canceled) }

// end gives the call its result. The caller owns it. Panics of done, and of the hook that
// is called with them, are recovered; done may still end the goroutine.
func (c *call[ID, R]) end(value R, err error) {
	if c.done == nil {
		c.value, c.err = value, err
		c.ready <- struct{}{} // and nothing of it may be touched any more
		return
	}
	t, done := c.part.group.table, c.done
	if c.stop() {
		t.recycle(c)
	} else {
		t.backlog.remove(c)
	}
	defer func() {
		if v := recover(); v != nil {
			t.report(timingwheel.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	done(value, err)
}

// endEach ends calls of Go. A done function that ends its goroutine does not keep the
// others from being called: they are while the goroutine ends.
func endEach[ID comparable, R any](all []*call[ID, R], err error) {
	next := 0
	defer func() {
		if next < len(all) {
			endEach(all[next:], err)
		}
	}()
	for next < len(all) {
		next++
		all[next-1].end(*new(R), err)
	}
}

// report calls the hook of panics; a hook that panics is only logged, and a panic of the
// logger's is lost.
func (t *Table[ID, R]) report(what timingwheel.Panic) {
	defer func() {
		if v := recover(); v != nil {
			defer func() { _ = recover() }()
			logPanic(what)
			logPanic(timingwheel.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	t.options.OnPanic(what)
}

func logPanic(p timingwheel.Panic) {
	slog.Error("calls: done function panicked", "panic", p.Value, "stack", string(p.Stack))
}

// stop stops the timer, and reports whether it will never call expire with this record. It
// may be called again.
func (c *call[ID, R]) stop() bool {
	if c.outcome == purgatory.Expired || c.timer == (timingwheel.Timer{}) {
		return true
	}
	if !c.part.group.table.wheel.Stop(c.timer) {
		return false
	}
	c.timer = timingwheel.Timer{}
	return true
}

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

// errUnequal is returned for an id that no map can find again.
var errUnequal = errors.New("calls: the id is not equal to itself, as NaN is not")

// errSend is passed to done if send has not returned.
var errSend = errors.New("calls: send panicked or ended its goroutine")

// call is the record of a call.
//
// Lifecycle: begin takes the record from Table.free and enters it into its part. Exactly one of
// a reply, the expiry, a cancel, Fail, Close and a failed send removes it from there, under the
// part's lock, and then owns it. The owner sets value and err and ends the call: it wakes Do's
// goroutine through ready, or calls done for Go. Do's goroutine, or the owner of a call of Go,
// then stops the timer, and frees the record only if the timer will never call expire with it.
type call[ID comparable, R any] struct {
	ready chan struct{} // capacity 1: the owner has set value and err; nil until Do needs it

	// Set under the part's lock before the call can be found there, and not changed until the
	// record is used again.

	part            *part[ID, R]
	id              ID
	serial          uint64         // counts the calls that the record has served
	done            func(R, error) // nil for Do
	timer           timingwheel.Timer
	began, deadline time.Duration // since base; never: no deadline

	// Set by the owner.

	value   R
	err     error
	outcome purgatory.Outcome
}

// base is the origin of all points in time, by the monotonic clock.
var base = time.Now()

const never time.Duration = 1<<63 - 1

func now() time.Duration { return time.Since(base) }

// record returns a free record, for a call of Do if done is nil.
func (t *Table[ID, R]) record(done func(R, error)) *call[ID, R] {
	c, _ := t.free.Get().(*call[ID, R])
	if c == nil {
		c = new(call[ID, R])
	}
	if done == nil && c.ready == nil {
		c.ready = make(chan struct{}, 1) // 96 bytes, which Go does not need
	}
	c.done = done
	return c
}

// recycle frees a record that no other goroutine refers to.
func (t *Table[ID, R]) recycle(c *call[ID, R]) {
	c.value, c.err, c.done, c.timer = *new(R), nil, nil, timingwheel.Timer{}
	t.free.Put(c)
}

// handle names a call. The record may serve another call by now: code that does not own the call
// keeps a handle, and take gives it the record if the call is still pending.
type handle[ID comparable, R any] struct {
	record *call[ID, R]
	part   *part[ID, R]
	id     ID
	serial uint64
}

// handle returns the handle of the record's present call.
func (c *call[ID, R]) handle() handle[ID, R] { return handle[ID, R]{c, c.part, c.id, c.serial} }

// take makes the caller the owner of a pending call, and returns its record; nil: the call has
// ended.
func (h handle[ID, R]) take(o purgatory.Outcome) *call[ID, R] {
	h.part.mu.Lock()
	defer h.part.mu.Unlock()
	if h.part.calls[h.id] != h.record || h.record.serial != h.serial {
		return nil
	}
	h.part.removeLocked(h.record, o)
	return h.record
}

// end ends a pending call with an error.
func (h handle[ID, R]) end(o purgatory.Outcome, err error) {
	if c := h.take(o); c != nil {
		c.end(*new(R), err)
	}
}

// send calls send. The call ends, if it has not ended already, if send returns an error, panics
// or ends its goroutine.
func (h handle[ID, R]) send(send func() error) {
	err := errSend
	defer func() {
		if err != nil {
			h.end(purgatory.Failed, err)
		}
	}()
	err = send()
}

// await waits until a call of Do has ended, and ends it when ctx is done, as the channel ctxDone
// reports.
func (h handle[ID, R]) await(ctx context.Context, ctxDone <-chan struct{}) {
	if ctxDone == nil { // a select would cost more
		<-h.record.ready
		return
	}
	select {
	case <-h.record.ready:
		return
	case <-ctxDone:
	}
	if c := h.take(purgatory.Cancelled); c != nil {
		c.value, c.err = *new(R), cause(ctx)
	} else {
		<-h.record.ready // another goroutine has ended it
	}
}

// cause returns why ctx is done. It never returns nil, which would mean a reply, whatever ctx
// returns.
func cause(ctx context.Context) error { return cmp.Or(context.Cause(ctx), context.Canceled) }

// end gives the call its result. The caller owns the call, and passes the record on: it must not
// touch it again. Panics of done, and of the hook that is called with them, are recovered; done
// may still end the goroutine.
func (c *call[ID, R]) end(value R, err error) {
	if c.done == nil {
		c.value, c.err = value, err
		c.ready <- struct{}{} // the record belongs to Do's goroutine now
		return
	}
	t, done := c.part.group.table, c.done
	if c.stop() {
		t.recycle(c)
	}
	defer func() {
		if v := recover(); v != nil {
			t.report(timingwheel.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	done(value, err)
}

// expire is called by a wheel when the call's timeout has passed. If the call has ended, its
// record was not freed: see stop.
func (c *call[ID, R]) expire() { c.handle().end(purgatory.Expired, ErrExpired) }

// report calls the panic hook. A panic of the hook is only logged, and a panic of the logger is
// dropped.
func (t *Table[ID, R]) report(recovered timingwheel.Panic) {
	defer func() {
		if v := recover(); v != nil {
			defer func() { _ = recover() }()
			logPanic(recovered)
			logPanic(timingwheel.Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	t.options.OnPanic(recovered)
}

func logPanic(p timingwheel.Panic) {
	slog.Error("calls: done function panicked", "panic", p.Value, "stack", string(p.Stack))
}

// stop stops the timer, and reports whether it will never call expire with this record. It may
// be called repeatedly.
func (c *call[ID, R]) stop() bool {
	if c.outcome == purgatory.Expired || c.timer == (timingwheel.Timer{}) {
		return true
	}
	if !c.part.group.table.wheel(c).Stop(c.timer) {
		return false
	}
	c.timer = timingwheel.Timer{}
	return true
}

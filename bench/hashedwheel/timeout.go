package hashedwheel

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"
)

// Timeout is a handle to one task that was given to a [Timer].
type Timeout struct {
	timer    *Timer
	task     func(*Timeout)
	deadline int64        // nanoseconds after the timer's start
	state    atomic.Int32 // any goroutine changes it, once, away from stateInit

	// The worker's own, after it has moved the timeout from the queue:
	bucket     *bucket // nil: not in a bucket yet, or no longer
	next, prev *Timeout
	rounds     int64
}

// A timeout's states. Each ends in one of the last two:
//
//	init -> cancelled   Cancel won
//	init -> expired     the worker won, and runs the task
const (
	stateInit int32 = iota
	stateCancelled
	stateExpired
)

// Cancel reports whether this call prevents the task from running. The timeout leaves the wheel
// at the next tick. Cancel is safe for use from any goroutine and does not block.
func (t *Timeout) Cancel() bool {
	if !t.state.CompareAndSwap(stateInit, stateCancelled) {
		return false
	}
	t.timer.cancelled.push(t)
	return true
}

// Cancelled reports whether the timeout was cancelled before its deadline.
func (t *Timeout) Cancelled() bool { return t.state.Load() == stateCancelled }

// Task returns the function that was passed to NewTimeout.
func (t *Timeout) Task() func(*Timeout) { return t.task }

// run calls the task and recovers its panics.
func (t *Timeout) run() {
	defer func() {
		if v := recover(); v != nil {
			slog.Warn("hashedwheel: a task panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	t.task(t)
}

// bucket is a doubly linked list of timeouts. Only the worker accesses it.
type bucket struct{ head, tail *Timeout }

func (b *bucket) add(t *Timeout) {
	t.bucket = b
	if b.tail == nil {
		b.head, b.tail = t, t
		return
	}
	b.tail.next, t.prev = t, b.tail
	b.tail = t
}

func (b *bucket) remove(t *Timeout) {
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		b.head = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		b.tail = t.prev
	}
	t.prev, t.next, t.bucket = nil, nil, nil
}

// expire runs the timeouts of the bucket that are due, and counts the others down by
// one round.
func (b *bucket) expire(timer *Timer) {
	for t := b.head; t != nil; {
		next := t.next
		switch {
		case t.rounds > 0:
			t.rounds--
		case t.state.CompareAndSwap(stateInit, stateExpired):
			b.remove(t)
			timer.pending.Add(-1)
			t.run()
		}
		// A cancelled timeout is in the queue of cancelled ones, or about to be: dropCancelled
		// unlinks and uncounts it, once.
		t = next
	}
}

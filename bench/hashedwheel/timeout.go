package hashedwheel

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Timeout is a handle to one task that was given to a [Timer].
type Timeout struct {
	timer    *Timer
	task     func(*Timeout)
	deadline int64        // nanoseconds after the timer's start
	state    atomic.Int32 // any goroutine, once, away from stateInit

	// The worker's own, once the timeout was handed over:
	bucket     *bucket // nil: in no bucket yet, or no more
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

// Cancel says true if the task will never run. The timeout leaves the wheel at
// the next tick. Safe from any goroutine; it does not block.
func (t *Timeout) Cancel() bool {
	if !t.state.CompareAndSwap(stateInit, stateCancelled) {
		return false
	}
	t.timer.cancelled.push(t)
	return true
}

// Cancelled says whether Cancel came first.
func (t *Timeout) Cancelled() bool { return t.state.Load() == stateCancelled }

// Expired says whether the deadline came first; the task may still be running.
func (t *Timeout) Expired() bool { return t.state.Load() == stateExpired }

// Timer is the timer that holds the timeout.
func (t *Timeout) Timer() *Timer { return t.timer }

// Task is what was given to NewTimeout.
func (t *Timeout) Task() func(*Timeout) { return t.task }

// Deadline is when the timeout is due.
func (t *Timeout) Deadline() time.Time { return t.timer.started.Add(time.Duration(t.deadline)) }

// run is the task with its panics kept from the worker.
func (t *Timeout) run() {
	defer func() {
		if v := recover(); v != nil {
			slog.Warn("hashedwheel: a task panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	t.task(t)
}

// bucket is a doubly linked list of timeouts. Only the worker touches it.
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

// expire runs what is due in the bucket and counts the rest one round down.
func (b *bucket) expire(timer *Timer) {
	for t := b.head; t != nil; {
		next := t.next
		switch {
		case t.rounds > 0:
			t.rounds--
		case t.state.CompareAndSwap(stateInit, stateExpired):
			b.remove(t)
			timer.pending.Add(-1)
			timer.execute(t)
		}
		// Otherwise it was cancelled, so it is in the queue of those, or about
		// to be: it is unlinked and counted out there, once.
		t = next
	}
}

// drainTo takes everything out and appends what is neither cancelled nor
// expired.
func (b *bucket) drainTo(all []*Timeout) []*Timeout {
	for b.head != nil {
		t := b.head
		b.remove(t)
		if t.state.Load() == stateInit {
			all = append(all, t)
		}
	}
	return all
}

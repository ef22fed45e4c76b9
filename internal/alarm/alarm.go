// Package alarm lets a goroutine sleep until a time, and wake on time.
//
// An idle Go process on Linux waits for its timers in epoll_wait, whose timeout is in whole
// milliseconds (netpoll in runtime/netpoll_epoll.go), so a sleep on a timer ends up to a
// millisecond late. A timerfd makes epoll_wait return when it expires, and the thread that has
// waited then runs the goroutine itself; a timer makes it wake another thread first. For sleeps
// of half a millisecond, docs/decisions.md has 0.03 instead of 0.6 ms, for less CPU.
//
// While all processors are busy it is the reverse: the runtime looks at its timers whenever it
// changes goroutines, at descriptors every 10 ms. So a sleep after one that ended late is on a
// timer, until one ends on time.
//
// Every sleep is on a timer on systems other than Linux, in a testing/synctest bubble, if the
// kernel refuses a descriptor, beyond maxOpen, and if it has to end with a context.
package alarm

import (
	"sync/atomic"
	"time"
)

const (
	// maxOpen is the most descriptors that the alarms of a process hold at once. A program with
	// thousands of wheels keeps its descriptors for its connections.
	maxOpen = 64

	// tooLate is how late a sleep ends only if the processors are busy. An idle process ends one
	// on a timer at most 1.1 ms late.
	tooLate = 2 * time.Millisecond

	// Forever is a sleep that only Interrupt and Close end.
	Forever = time.Duration(1<<63 - 1)
)

// opened counts the descriptors that alarms hold.
var opened atomic.Int64

// Alarm is the alarm of one goroutine at a time. That goroutine calls Set, with a lock held, and
// then Sleep, without it. Others may call Interrupt and Close, with the lock.
type Alarm struct {
	fd     *descriptor // nil: none
	asked  bool        // for fd: there is one, or there will be none
	closed bool        // fd too
	onFD   bool        // the sleep that was set last is on fd

	timer *time.Timer   // of other sleeps
	wake  chan struct{} // interrupts them; capacity 1

	end  time.Time // of the sleep that was set last
	late bool      // the last sleep ended late
}

// New returns an alarm. real tells that time is real: not so in a bubble.
func New(real bool) *Alarm {
	a := &Alarm{asked: !real, timer: time.NewTimer(Forever), wake: make(chan struct{}, 1)}
	a.timer.Stop()
	return a
}

// Set sets how long the next Sleep lasts from now on, and withdraws earlier interruptions.
// withContext tells that Sleep will get the channel of a context.
func (a *Alarm) Set(d time.Duration, withContext bool) {
	if !a.asked && !withContext {
		a.fd, a.asked = open(), true
	}
	a.end = time.Now().Add(d)
	a.onFD = a.fd != nil && !a.closed && !a.late && !withContext
	if a.onFD {
		a.fd.set(d)
		return
	}
	select {
	case <-a.wake:
	default:
	}
	if d == Forever {
		a.timer.Stop() // at the end of a bubble's time it would fire again and again
	} else {
		a.timer.Reset(d)
	}
}

// Sleep blocks until the time that was set is over, Interrupt or Close was called since Set, or
// one of the channels is closed: that of a context, which is nil unless Set was told of it, and
// one that the caller closes before it calls Close. It may return earlier for no reason.
func (a *Alarm) Sleep(done, closed <-chan struct{}) {
	if a.onFD {
		a.fd.sleep()
	} else {
		select {
		case <-a.timer.C:
		case <-a.wake:
		case <-done:
		case <-closed:
		}
	}
	a.late = time.Since(a.end) > tooLate
}

// Interrupt ends the Sleep that was set last, also if it has not begun.
func (a *Alarm) Interrupt() {
	if a.onFD {
		a.fd.interrupt()
		return
	}
	select {
	case a.wake <- struct{}{}:
	default: // interrupted already
	}
}

// Close ends the Sleep that was set last, and releases the descriptor. Later sleeps are on the
// timer.
func (a *Alarm) Close() {
	if a.fd != nil && !a.closed {
		a.fd.close()
	}
	a.asked, a.closed = true, true
}

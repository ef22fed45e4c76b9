package hashedwheel

import (
	"errors"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// ErrStopped is returned by NewTimeout and Start after Stop.
var ErrStopped = errors.New("hashedwheel: stopped")

const maxTransfer = 100_000 // new timeouts moved into buckets in one tick

// Timer runs tasks after their delay. All methods are safe for use from any goroutine; a task
// must not call Stop, which would wait for that task.
type Timer struct {
	tick  int64 // nanoseconds
	mask  int64
	wheel []bucket // the worker's own

	added     *queue // started, not in a bucket yet
	cancelled *queue // cancelled, possibly still in a bucket
	pending   atomic.Int64
	state     atomic.Int32

	start    sync.Once
	started  time.Time     // set by the first start
	stopping chan struct{} // closed by Stop
	stopped  chan struct{} // closed by the worker when it ends
}

// A timer's states.
const (
	timerInit    int32 = iota // no worker yet
	timerStarted              // by the first timeout, or Start
	timerStopped              // by Stop, for good
)

// New makes a timer whose worker visits a bucket each tick, which is at least 1 ns: a timeout is up
// to one tick late. There are ticksPerWheel buckets, 1 to 2^30, rounded up to a power of two. The
// timeouts of a bucket are all visited once a round, so many timeouts need more buckets. Netty's
// defaults are 100 ms and 512. The worker is started by the first timeout.
func New(tick time.Duration, ticksPerWheel int) *Timer {
	n := 1 << bits.Len(uint(ticksPerWheel-1))
	return &Timer{
		tick:      int64(tick),
		mask:      int64(n - 1),
		wheel:     make([]bucket, n),
		added:     newQueue(),
		cancelled: newQueue(),
		stopping:  make(chan struct{}),
		stopped:   make(chan struct{}),
	}
}

// Start starts the worker, unless it was started before. After Stop it returns ErrStopped.
func (t *Timer) Start() error {
	t.start.Do(func() {
		t.started = time.Now()
		if t.state.CompareAndSwap(timerInit, timerStarted) {
			go t.work()
		}
	})
	if t.state.Load() == timerStopped {
		return ErrStopped
	}
	return nil
}

// NewTimeout runs task after delay: never earlier, and at most one tick later, plus the time
// that earlier tasks take. It does not block. A timeout that races with Stop may be
// accepted and lost, as in Netty.
func (t *Timer) NewTimeout(task func(*Timeout), delay time.Duration) (*Timeout, error) {
	t.pending.Add(1)
	if err := t.Start(); err != nil {
		t.pending.Add(-1)
		return nil, err
	}
	deadline := t.now() + int64(delay)
	if delay > 0 && deadline < 0 {
		deadline = math.MaxInt64
	}
	timeout := &Timeout{timer: t, task: task, deadline: deadline}
	t.added.push(timeout)
	return timeout, nil
}

// Pending returns the number of timeouts that are neither expired nor, as of the last tick,
// cancelled.
func (t *Timer) Pending() int64 { return t.pending.Load() }

// Stop ends the timer, waits for the worker, and drops the timeouts that are pending.
func (t *Timer) Stop() {
	if t.state.Swap(timerStopped) == timerStarted {
		close(t.stopping)
		<-t.stopped
	}
}

func (t *Timer) now() int64 { return int64(time.Since(t.started)) }

// work is the worker: one bucket a tick until Stop.
func (t *Timer) work() {
	defer close(t.stopped)
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for tick := int64(0); t.wait(alarm, tick); tick++ {
		t.dropCancelled()
		t.transfer(tick)
		t.wheel[tick&t.mask].expire(t)
	}
}

// wait sleeps until the end of the given tick, when all timeouts in it are due. It returns false
// if the timer was stopped.
func (t *Timer) wait(alarm *time.Timer, tick int64) bool {
	for t.state.Load() != timerStopped {
		d := t.tick*(tick+1) - t.now()
		if d <= 0 {
			return true
		}
		alarm.Reset(time.Duration(d))
		select {
		case <-alarm.C:
		case <-t.stopping:
		}
	}
	return false
}

// transfer moves new timeouts into their buckets, at most 100,000, so that a flood of them does
// not delay due timeouts.
func (t *Timer) transfer(tick int64) {
	for range maxTransfer {
		timeout := t.added.pop()
		if timeout == nil {
			return
		}
		if timeout.Cancelled() {
			continue // dropCancelled uncounts it
		}
		due := timeout.deadline / t.tick
		timeout.rounds = (due - tick) / (t.mask + 1)
		t.wheel[max(due, tick)&t.mask].add(timeout) // never into the past
	}
}

// dropCancelled unlinks the timeouts that were cancelled since the last tick.
func (t *Timer) dropCancelled() {
	for timeout := t.cancelled.pop(); timeout != nil; timeout = t.cancelled.pop() {
		if timeout.bucket != nil {
			timeout.bucket.remove(timeout)
		}
		t.pending.Add(-1)
	}
}

// Queued returns the number of timeouts that were started and are not in a bucket yet.
func (t *Timer) Queued() int64 { return t.added.len() }

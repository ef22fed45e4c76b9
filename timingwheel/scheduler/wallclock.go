package scheduler

import (
	"context"
	"sync"
	"time"
)

// wallClock watches the time of day for the jobs that go by it. The wheel does
// not: its clock is monotonic, and setting the machine's changes nothing there.
// So while there are such jobs, once a second the two clocks are compared, and
// when one has moved against the other the plans of the jobs are corrected.
//
// The check is a timer of the standard library's, not of the wheel: it holds no
// place, is in no count, and waits for no worker. It exists only while jobs go
// by the wall clock.
type wallClock struct {
	// reading returns what the wall clock shows, without a monotonic reading, by
	// what time.Now returned. Tests set theirs.
	reading func(now time.Time) time.Time
	stepped func() // called when the wall clock was set, without the lock

	mu sync.Mutex // a leaf: nothing is locked under it

	// Guarded by mu.

	watchers int         // jobs that go by the wall clock
	timer    *time.Timer // calls check; nil: never used
	// active is 1 if the timer is running, plus the goroutines of check, those on
	// their way included. It is kept by what Reset and Stop return: false means
	// that the timer was not running, so that its goroutine has been started.
	active int
	idle   chan struct{} // closed when active is 0, if somebody waits for that
	// seen is what the wall clock showed, and at the time by the monotonic clock,
	// when the two were last found to have moved against each other, or when the
	// first watcher came.
	seen, at time.Time
	steps    uint64
}

const (
	// checkEvery is how soon it is noticed that the clock was set. A correction
	// by less than that does not cost or repeat a run.
	checkEvery = time.Second
	// maxDrift is how far the clocks may move apart before it counts. Being
	// slewed, a clock moves half a millisecond in a second.
	maxDrift = 10 * time.Millisecond
)

func stripMonotonic(now time.Time) time.Time { return now.Round(0) }

// watch begins to watch for a job. It comes before the job reads the clock: then
// either the reading is of after the clock was set, or the check notices.
func (c *wallClock) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers++; c.watchers == 1 {
		c.at = time.Now()
		c.seen = c.reading(c.at)
		c.armLocked()
	}
}

func (c *wallClock) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers--; c.watchers == 0 && c.timer.Stop() {
		c.leaveLocked()
	}
}

// armLocked has check called checkEvery from now.
func (c *wallClock) armLocked() {
	if c.timer == nil {
		c.timer = time.AfterFunc(checkEvery, c.check)
		c.active++
	} else if !c.timer.Reset(checkEvery) {
		c.active++
	}
}

func (c *wallClock) leaveLocked() {
	if c.active--; c.active == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// check compares the clocks. It is called on a goroutine of its own.
//
// One that was on its way when the last job ended, and that comes when there is
// another job, does no harm: it moves the timer that is running.
func (c *wallClock) check() {
	defer func() { // deferred: a schedule may end the goroutine
		c.mu.Lock()
		c.leaveLocked()
		c.mu.Unlock()
	}()
	if c.compare() {
		c.stepped()
	}
}

// compare arms the next check, and reports whether the wall clock was set.
func (c *wallClock) compare() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers == 0 {
		return false
	}
	c.armLocked()
	now := time.Now()
	wall := c.reading(now)
	if drift := wall.Sub(c.seen) - now.Sub(c.at); drift.Abs() <= maxDrift {
		return false
	}
	c.seen, c.at = wall, now
	c.steps++
	return true
}

func (c *wallClock) stepCount() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps
}

// wait waits until no goroutine of the check is left. It is called when no job
// comes any more, and none is left but what such a goroutine has under way.
func (c *wallClock) wait(ctx context.Context) error {
	c.mu.Lock()
	if c.active == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

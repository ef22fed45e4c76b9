package scheduler

import (
	"context"
	"sync"
	"time"
)

// wallClock watches the time of day for the jobs that follow it. The wheel does not: its clock
// is monotonic, so setting the machine's clock does not affect it. While there are such jobs,
// wallClock compares the two clocks once a second, and corrects the plans of the jobs when one
// has moved against the other.
//
// The check is a timer of the standard library, not of the wheel: it holds no slot, is not
// counted, and waits for no worker. It exists only while jobs follow the wall clock.
type wallClock struct {
	// reading returns the wall clock's value, without a monotonic reading, for a time that
	// time.Now returned. Tests replace it.
	reading func(now time.Time) time.Time
	stepped func() // called when the wall clock was set, without the lock

	mu sync.Mutex // a leaf: nothing is locked under it

	// Guarded by mu.

	watchers int         // jobs that follow the wall clock
	timer    *time.Timer // calls check; nil: never used
	// active is 1 if the timer is running, plus the number of check goroutines, including those
	// about to start. It is maintained by the results of Reset and Stop: false means that the
	// timer was not running, so its goroutine has been started.
	active int
	idle   chan struct{} // closed when active is 0, if a goroutine waits for that
	// lastWall and lastMono are the readings of the wall clock and of the monotonic clock when
	// the two were last found to have moved against each other, or when the first watcher was
	// added.
	lastWall, lastMono time.Time
	steps              uint64
}

const (
	// checkEvery is the longest time until a change of the clock is noticed. A correction by
	// less than that neither skips nor repeats a run.
	checkEvery = time.Second
	// maxDrift is how far the clocks may move apart before it counts. While it is slewed, a
	// clock moves half a millisecond in a second.
	maxDrift = 10 * time.Millisecond
)

func stripMonotonic(now time.Time) time.Time { return now.Round(0) }

// watch begins to watch for a job. It precedes the job's reading of the clock: so if the clock
// is set, either the reading is from after that, or the check notices.
func (c *wallClock) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers++; c.watchers == 1 {
		c.lastMono = time.Now()
		c.lastWall = c.reading(c.lastMono)
		c.armLocked()
	}
}

func (c *wallClock) unwatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers--; c.watchers == 0 && c.timer.Stop() {
		c.doneLocked()
	}
}

// armLocked schedules a check checkEvery from now.
func (c *wallClock) armLocked() {
	if c.timer == nil {
		c.timer = time.AfterFunc(checkEvery, c.check)
		c.active++
	} else if !c.timer.Reset(checkEvery) {
		c.active++
	}
}

func (c *wallClock) doneLocked() {
	if c.active--; c.active == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// check compares the clocks. It is called on its own goroutine.
//
// A check that was starting when the last job ended, and that runs when there is another job,
// does no harm: it moves the running timer.
func (c *wallClock) check() {
	defer func() { // deferred: a schedule may end the goroutine
		c.mu.Lock()
		c.doneLocked()
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
	if drift := wall.Sub(c.lastWall) - now.Sub(c.lastMono); drift.Abs() <= maxDrift {
		return false
	}
	c.lastWall, c.lastMono = wall, now
	c.steps++
	return true
}

func (c *wallClock) stepCount() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps
}

// wait waits until no goroutine of the check is left. It is called when no job can be added any
// more, and all have ended, except jobs that such a goroutine is processing.
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

package timingwheel

import (
	"sync"
	"time"
)

// wallClock looks after the jobs that go by the time of day. The wheel does
// not: its clock is monotonic, and setting the machine's changes nothing
// there. So while there are such jobs, once a second the two clocks are
// compared, and when one has moved against the other the jobs are planned anew.
type wallClock struct {
	scheduler *Scheduler
	now       func() time.Time // the wall clock; tests set theirs

	mu sync.Mutex

	// Guarded by mu.
	jobs   map[*Job]struct{}
	timer  Timer     // of the next look; zero: none
	seen   time.Time // the wall clock at the last look
	at     nanos     // the wheel's clock then
	closed bool
}

const (
	// lookEvery is how soon a clock that was set is noticed.
	lookEvery = time.Second
	// maxDrift is how far the clocks may move apart before it counts. Being
	// slewed, a clock moves half a millisecond in a second.
	maxDrift = 10 * time.Millisecond
)

func (c *wallClock) init(s *Scheduler) {
	c.scheduler = s
	c.now = func() time.Time { return time.Now().Round(0) } // without its monotonic reading
	c.jobs = map[*Job]struct{}{}
}

func (c *wallClock) add(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs[j] = struct{}{}
	if c.timer == (Timer{}) && !c.closed {
		c.seen, c.at = c.now(), c.scheduler.wheel.now()
		c.armLocked()
	}
}

func (c *wallClock) remove(j *Job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, j)
	if len(c.jobs) == 0 {
		c.scheduler.wheel.Stop(c.timer)
		c.timer = Timer{}
	}
}

func (c *wallClock) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.scheduler.wheel.Stop(c.timer)
	c.timer = Timer{}
}

// armLocked is called with no look pending, but for one that was armed while a
// worker was on its way with this one: there is to be one, not two from now on.
func (c *wallClock) armLocked() {
	c.scheduler.wheel.Stop(c.timer)
	// An error: the scheduler is full, and the next job that is added tries
	// again, or it is closed, and there is nothing to look after.
	c.timer, _ = c.scheduler.wheel.Schedule(look{c}, lookEvery)
}

// look is the task of comparing the clocks.
type look struct{ *wallClock }

func (c look) run() {
	c.mu.Lock()
	if len(c.jobs) == 0 || c.closed {
		// None is pending: remove and close have seen to that.
		c.timer = Timer{}
		c.mu.Unlock()
		return
	}
	wall, mono := c.now(), c.scheduler.wheel.now()
	drift := wall.Sub(c.seen) - time.Duration(mono-c.at)
	var again []*Job
	if drift.Abs() > maxDrift {
		c.seen, c.at = wall, mono
		for j := range c.jobs {
			again = append(again, j)
		}
	}
	c.armLocked()
	c.mu.Unlock()
	// Without the lock: a job's comes before it. Deferred, so that a schedule
	// that panics keeps none of the others from its turn.
	for _, j := range again {
		defer j.again()
	}
}

func (look) dropped() func() { return nil }

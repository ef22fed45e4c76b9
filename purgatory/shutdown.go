package purgatory

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/seed-782fa212/limbo/internal/goexit"
	"github.com/seed-782fa212/limbo/internal/ring"
)

// closing is the progress of a core's shutdown.
type closing struct {
	begun  atomic.Bool   // set once, by Close
	finish sync.Once     // starts the goroutine of closeWheel
	done   chan struct{} // closed when that goroutine has finished

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed when an operation or work ends; nil if unused
}

// refuseAll begins the shutdown: no operation is counted in any more. An operation that is
// being entered into the lists detects the shutdown once it is there; see waiter.wait.
func (c *core) refuseAll() {
	c.mustBeMade()
	c.closing.begun.Store(true)
	a := &c.tallies
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	c.each(func(t *tally) { t.closed = true })
}

// closeWheel starts a goroutine that waits for the last operation to leave and for work on
// workers to end, and then leaves the wheel or shuts it down. So a shutdown completes even if
// no caller waits for it.
func (c *core) closeWheel() {
	c.closing.finish.Do(func() {
		go func() {
			for {
				// Get the channel before the check: a change in between closes it.
				changed := c.closing.wait()
				if c.idle() {
					break
				}
				<-changed
			}
			c.each(func(t *tally) {
				c.clock.stop(t.sweep)
				t.arrivals = ring.Queue[arrival]{}
			})
			c.clock.leave()
			if c.ownsClock {
				_ = c.clock.Shutdown(context.Background())
			}
			close(c.closing.done)
		}()
	})
}

// idle reports whether no operation is left and no work of the core runs on workers.
func (c *core) idle() bool {
	n := 0
	c.each(func(t *tally) { n += t.pending + t.working })
	return n == 0
}

func waitFor(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endAll ends operations as Closed, each of them whatever the Complete of others does.
func endAll(all []Pending) { goexit.Each(all, func(h Pending) { h.end(Closed) }) }

// wait returns a channel that is closed by the next notify.
func (c *closing) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

func (c *closing) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

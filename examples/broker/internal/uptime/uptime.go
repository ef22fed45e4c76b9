// Package uptime counts the time in which this process, or a part of it, has run.
package uptime

import (
	"context"
	"sync/atomic"
	"time"
)

// Clock is a clock that stands still while what it belongs to does not run: while the
// machine is busy with something else, while the process is stopped, while a fault holds
// it up. Who judges others by their silence measures it so: the time in which one could
// not have heard them does not count against them. The zero Clock is at 0.
type Clock struct{ now atomic.Int64 }

// Now returns the clock's time.
func (c *Clock) Now() time.Duration { return time.Duration(c.now.Load()) }

// Run drives the clock until ctx ends. Of the time between two ticks at most two ticks
// count. pass is where it may be held up; nil: nowhere.
func (c *Clock) Run(ctx context.Context, tick time.Duration, pass func(context.Context) error) {
	t := time.NewTicker(tick)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if pass != nil && pass(ctx) != nil {
			return
		}
		now := time.Now()
		c.now.Add(int64(min(now.Sub(last), 2*tick)))
		last = now
	}
}

// Package uptime measures the time in which this process, or a part of it, has run.
package uptime

import (
	"context"
	"sync/atomic"
	"time"
)

// Clock is a clock that stands still while its process or component does not run: while the machine
// is busy with something else, while the process is stopped, or while a fault holds it up. Measured
// by such a clock, a peer's silence does not include time in which this side could not have heard
// it. The zero Clock is at 0.
type Clock struct{ now atomic.Int64 }

// Now returns the clock's time.
func (c *Clock) Now() time.Duration { return time.Duration(c.now.Load()) }

// Run advances the clock until ctx ends. Between two ticks the clock advances by at most two ticks.
// pass is where a fault may hold the clock up, or nil.
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

package durable

import (
	"errors"
	"fmt"
	"time"
)

// lastWait is how long a stopping worker waits after it has ended its handlers' contexts.
const lastWait = time.Second

// drain ends a worker's work: see [Worker.Run]. It returns an error if handlers or OnDead still
// run.
//
// The worker leaves the other workers first, not last: otherwise no worker would claim from its
// shards while it waits for its handlers.
func (w *Worker) drain() error {
	w.mu.Lock()
	w.closing = true
	w.dispatchLocked()
	w.claimAgainLocked()
	w.checkIdleLocked()
	w.mu.Unlock()
	if !w.waitIdle(w.options.Grace) {
		w.mu.Lock()
		for _, r := range w.leases.All() {
			r.endContext(ErrStopped)
		}
		w.mu.Unlock()
		w.waitIdle(lastWait)
	}
	<-w.withdrawn
	w.mu.Lock()
	w.stopped = true
	running, dead := w.running, w.onDead+len(w.dead)
	unwritten := w.held - running - dead
	w.mu.Unlock()
	if unwritten > 0 {
		w.log.Warn("durable: the worker stops before all outcomes are written; those timers run again", "outcomes", unwritten)
	}
	var errs []error
	if running > 0 {
		errs = append(errs, fmt.Errorf("durable: %d handlers have not returned; their timers run again when their leases expire", running))
	}
	if dead > 0 {
		errs = append(errs, fmt.Errorf("durable: OnDead has not returned for %d dead letters", dead))
	}
	return errors.Join(errs...)
}

// waitIdle waits up to d until the worker is idle, and reports whether it is.
func (w *Worker) waitIdle(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.idle:
		return true
	case <-t.C:
		return false
	}
}

// checkIdleLocked closes idle when the worker stops and nothing is left: no claim in flight, no
// handler, no plan, no outcome to write. No more work can arrive then.
func (w *Worker) checkIdleLocked() {
	if !w.closing || w.held > 0 || w.plans > 0 || len(w.claims) > 0 {
		return
	}
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

package durable

import (
	"context"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// run is one attempt of one timer, from the claim until its outcome is written. The worker's lock
// guards the fields that change.
//
//	running ── handler returned ──▶ ending ── outcome written or dropped ──▶ finished
//	   └────── handler returned, and another worker has the lease ─────────▶ finished
type run struct {
	shard    *shard
	lease    store.Lease             // its body is released as soon as it is not needed
	cancel   context.CancelCauseFunc // of the handler's ctx; nil if it was not begun
	deadline time.Duration           // by this worker's clock; until then it holds the lease

	cancelled bool // the timer was cancelled: the lease is not extended any more
	lost      bool // another worker has the lease, or the timer is removed: there is no outcome to write
	expired   bool // the lease expired by this worker's clock

	plan     bool // it is a plan that could not be advanced
	ending   bool
	outcome  store.Outcome
	err      error // of the handler, for OnDead
	unsure   bool  // the outcome was sent, and may have been written
	finished bool
}

// startLocked calls the handler.
func (w *Worker) startLocked(r *run) {
	ctx, cancel := context.WithCancelCause(w.handlerCtx)
	r.cancel = cancel
	w.running++
	r.shard.running++
	w.stats.Late.Add(r.shard.horizon.clock.since(r.lease.Due, w.now()))
	f, deadline := r.fired(), r.deadline
	done := func(err error) { w.returned(r, err) }
	go func() {
		defer cancel(nil)
		if w.now() >= deadline && w.releaseExpired(r) {
			return
		}
		invoke(ctx, w.handler, f, done)
	}()
}

// releaseExpired releases a run whose lease expired before its handler could be called, because the
// process was paused or is overloaded: another worker may have the timer by now, so the handler
// must not be called. It reports false if the lease was extended. The process can still be paused
// between this check and the handler's first step, but that is unlikely: nothing is allocated
// there, so the goroutine cannot wait for the garbage collector. Fired.Fence covers that case.
func (w *Worker) releaseExpired(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now() < r.deadline && !r.lost {
		return false // it was extended
	}
	w.releaseLocked(r)
	w.completeLocked(r, r.outcome)
	return true
}

// fired returns the Fired for the handler.
func (r *run) fired() Fired {
	l := &r.lease
	f := Fired{
		Key: l.Key, ID: l.ID, Topic: l.Topic, Body: l.Body, Due: l.Due.Time(),
		Attempt: l.Attempt, Fence: l.Fence, LastError: l.LastError,
	}
	f.Schedule, f.Planned = plannedOf(l.Key)
	return f
}

// returned is called when the handler has returned err, on its goroutine.
func (w *Worker) returned(r *run, err error) {
	classify(err, func(res handlerResult) {
		if p := res.panicked; p != nil {
			w.log.Error("durable: a handler panicked", "key", r.lease.Key, "id", r.lease.ID.String(),
				"topic", r.lease.Topic, "attempt", r.lease.Attempt, "panic", p.value, "stack", string(p.stack))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if res.panicked != nil {
			w.stats.Panics++
		}
		r.err = err
		w.completeLocked(r, w.outcomeOf(r, res))
	})
}

// completeLocked frees the slot of a run whose handler has returned, or was not called, and queues
// its outcome.
func (w *Worker) completeLocked(r *run, outcome store.Outcome) {
	w.running--
	r.shard.running--
	if w.stopped {
		return // Run has reported that this handler did not return
	}
	r.outcome = outcome
	if r.lost {
		w.finishLocked(r)
	} else {
		w.queueOutcomeLocked(r)
	}
	w.dispatchLocked()
	w.checkIdleLocked()
}

// outcomeOf returns the outcome of a run.
func (w *Worker) outcomeOf(r *run, res handlerResult) store.Outcome {
	o := store.Outcome{Holder: r.lease.Holder, Kind: store.Done}
	if !res.failed || r.cancelled { // a cancelled timer is removed whatever the outcome
		return o
	}
	o.Error = res.text
	v := res.verdict
	switch {
	case v.kind == verdictSnooze:
		o.Kind, o.Delay, o.Error = store.Snooze, v.after, ""
	case v.kind == verdictDiscard || r.lease.Attempt >= w.options.MaxAttempts:
		o.Kind = store.DeadLetter
	case v.after >= 0:
		o.Kind, o.Delay = store.Retry, v.after
	default:
		o.Kind, o.Delay = store.Retry, backoff(w.options.Backoff, w.options.MaxBackoff, r.lease.Attempt)
	}
	return o
}

// finishLocked removes a run from the worker: its outcome is written or dropped, or there is none.
func (w *Worker) finishLocked(r *run) {
	r.finished = true
	w.leases.Remove(r.lease.Holder)
	w.held--
	if r.outcome.Kind == store.Release {
		r.shard.releasing--
	}
}

// nextDeadLocked calls OnDead with the next dead letter, if there is one and fewer than
// Concurrency calls are running.
func (w *Worker) nextDeadLocked() {
	if len(w.dead) == 0 || w.onDead >= w.options.Concurrency || w.stopped {
		return
	}
	r := w.dead[0]
	w.dead = slices.Delete(w.dead, 0, 1)
	w.onDead++
	go invoke(w.handlerCtx, func(context.Context, Fired) error {
		w.options.OnDead(r.fired(), r.err)
		return nil
	}, Fired{}, func(err error) {
		if p, ok := err.(*panicked); ok { //nolint:errorlint // only invoke makes one
			w.log.Error("durable: OnDead did not return", "key", r.lease.Key, "error", err, "stack", string(p.stack))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.onDead--
		w.held--
		w.nextDeadLocked()
		w.dispatchLocked()
		w.checkIdleLocked()
	})
}

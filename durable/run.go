package durable

import (
	"context"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// run is one attempt of one timer, from the claim until its end is written. The
// worker's lock guards what changes.
//
//	running ── handler returned ──▶ ending ── written, or given up ──▶ over
//	   └────── the lease is another's, and the handler has returned ────▶ over
type run struct {
	shard    *shard
	lease    store.Lease             // its body is let go when nobody needs it any more
	cancel   context.CancelCauseFunc // of the handler's ctx; nil if it was not begun
	deadline time.Duration           // by the own clock; until then the lease is this worker's

	cancelled bool // the timer was cancelled: nothing is extended any more
	lost      bool // another has the lease, or the timer is gone: there is no end to write
	expired   bool // the lease ran out by the own clock

	plan   bool // it is a plan that could not be advanced
	ending bool
	end    store.End
	err    error // what the handler returned, for OnDead
	unsure bool  // end was sent, and may have been done
	over   bool
}

// startLocked calls the handler.
func (w *Worker) startLocked(r *run) {
	ctx, cancel := context.WithCancelCause(w.values)
	r.cancel = cancel
	w.running++
	r.shard.running++
	w.stats.Late.Add(r.shard.horizon.clock.since(r.lease.Due, w.now()))
	f, deadline := r.fired(), r.deadline
	done := func(err error) { w.returned(r, err) }
	go func() {
		defer cancel(nil)
		if w.now() >= deadline && w.tooLate(r) {
			return
		}
		invoke(ctx, w.handler, f, done)
	}()
}

// tooLate reports whether a run's lease has ended before its handler could be called:
// the process was paused meanwhile, or has more to do than its processors can. Another
// worker may have the timer by now, so it is not called. Between this and the handler's
// first step there is still room for a pause, little of it: nothing is allocated there,
// for which a goroutine can wait for the garbage collector. Fired.Fence is for that.
func (w *Worker) tooLate(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now() < r.deadline && !r.lost {
		return false // it was extended
	}
	w.giveBackLocked(r)
	w.ranLocked(r, r.end)
	return true
}

// fired is what the handler is given.
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
	judge(err, func(j judgement) {
		if p := j.panicked; p != nil {
			w.log.Error("durable: a handler panicked", "key", r.lease.Key, "id", r.lease.ID.String(),
				"topic", r.lease.Topic, "attempt", r.lease.Attempt, "panic", p.value, "stack", string(p.stack))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if j.panicked != nil {
			w.stats.Panics++
		}
		r.err = err
		w.ranLocked(r, w.endOf(r, j))
	})
}

// ranLocked ends a run whose handler has returned, or is not called.
func (w *Worker) ranLocked(r *run, end store.End) {
	w.running--
	r.shard.running--
	if w.stopped {
		return // Run has reported that it did not wait for this one
	}
	r.end = end
	if r.lost {
		w.overLocked(r)
	} else {
		w.endLocked(r)
	}
	w.dispatchLocked()
	w.checkIdleLocked()
}

// endOf returns how a run ends.
func (w *Worker) endOf(r *run, j judgement) store.End {
	e := store.End{Holder: r.lease.Holder, Kind: store.Done}
	if !j.failed || r.cancelled { // then it is gone, however the run ends
		return e
	}
	e.Error = j.text
	v := j.verdict
	switch {
	case v.kind == verdictSnooze:
		e.Kind, e.Delay, e.Error = store.Snooze, v.after, ""
	case v.kind == verdictDiscard || r.lease.Attempt >= w.options.MaxAttempts:
		e.Kind = store.Bury
	case v.after >= 0:
		e.Kind, e.Delay = store.Retry, v.after
	default:
		e.Kind, e.Delay = store.Retry, backoff(w.options.Backoff, w.options.MaxBackoff, r.lease.Attempt)
	}
	return e
}

// overLocked lets go of a run: its end is written, or there is none to write.
func (w *Worker) overLocked(r *run) {
	r.over = true
	w.leases.Remove(r.lease.Holder)
	w.held--
	if r.end.Kind == store.GiveBack {
		r.shard.back--
	}
}

// nextDeadLocked calls OnDead with the next dead letter, if there is one and not too many
// calls are under way.
func (w *Worker) nextDeadLocked() {
	if len(w.dead) == 0 || w.onDead >= w.options.Concurrency || w.stopped {
		return
	}
	r := w.dead[0]
	w.dead = slices.Delete(w.dead, 0, 1)
	w.onDead++
	go invoke(w.values, func(context.Context, Fired) error {
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

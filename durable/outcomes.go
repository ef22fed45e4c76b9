package durable

import (
	"errors"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// linger is the longest time that an outcome waits for others of its shard: it waits while other
// handlers run there whose outcomes can be written with it.
const linger = 5 * time.Millisecond

// queueOutcomeLocked queues a run's outcome for writing.
func (w *Worker) queueOutcomeLocked(r *run) {
	s := r.shard
	r.ending = true
	if r.outcome.Kind != store.DeadLetter || w.options.OnDead == nil {
		r.lease.Body = nil
	}
	if len(s.unwritten) == 0 {
		s.unwrittenSince = w.now()
	}
	s.unwritten = append(s.unwritten, r)
	if !s.writing {
		s.writing = true
		w.group.Go(func() { w.writeOutcomes(s) })
	} else if s.batchReady() || w.closing {
		select {
		case s.writeNow <- struct{}{}:
		default:
		}
	}
}

// batchReady reports whether to write the queued outcomes now: no more are expected soon, or no
// more fit.
func (s *shard) batchReady() bool { return s.running == 0 || len(s.unwritten) >= store.MaxItems }

// writeOutcomes writes a shard's outcomes until none is queued: one request at a time, so that
// outcomes that are queued during a request are written together. It retries failed writes while
// the lease holds, which is extended as before.
func (w *Worker) writeOutcomes(s *shard) {
	for failures := 0; ; {
		runs := w.nextOutcomes(s)
		if len(runs) == 0 {
			return
		}
		outcomes := make([]store.Outcome, len(runs))
		for i, r := range runs {
			outcomes[i] = r.outcome
		}
		sent := w.now()
		ctx, cancel := w.call()
		results, h, err := w.store.End(ctx, s.number, outcomes)
		cancel()
		arrived := w.now()
		if w.answered("end", s.number, err) {
			failures = 0
			var unknown []*run
			for i, r := range runs {
				if results[i] == store.EndLost && r.unsure && r.outcome.Kind == store.DeadLetter {
					if results[i], r.unsure = w.isDead(r); r.unsure {
						unknown = append(unknown, r)
					}
				}
			}
			w.mu.Lock()
			for i, r := range runs {
				if !slices.Contains(unknown, r) {
					w.writtenLocked(r, results[i])
				}
			}
			s.horizon.reply(h, sent, arrived)
			w.scheduleClaimLocked(s)
			w.dispatchLocked()
			w.checkIdleLocked()
			w.mu.Unlock()
			if len(unknown) == 0 {
				continue
			}
			runs, err = unknown, ErrUnsure
		}
		failures++
		w.writeFailed(s, runs, err)
		if !w.sleep(min(pause(failures), w.options.Lease/16)) {
			return
		}
	}
}

// nextOutcomes waits until the outcomes of a shard need not wait for more, and removes those of the
// next request from the queue. If it returns none, the calling goroutine must end.
func (w *Worker) nextOutcomes(s *shard) []*run {
	w.mu.Lock()
	for len(s.unwritten) > 0 && !s.batchReady() && !w.closing {
		wait := s.unwrittenSince + linger - w.now()
		if wait <= 0 {
			break
		}
		w.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.writeNow:
		}
		timer.Stop()
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	n := min(len(s.unwritten), store.MaxItems)
	runs := slices.Clone(s.unwritten[:n])
	s.unwritten = slices.Delete(s.unwritten, 0, n)
	s.unwrittenSince = w.now()
	s.writing = n > 0
	return runs
}

// writtenLocked applies the result of writing an outcome.
func (w *Worker) writtenLocked(r *run, result store.EndResult) {
	w.finishLocked(r)
	kind := r.outcome.Kind
	switch {
	case result == store.EndLost && !r.unsure: // an unsure outcome was written before
		if !r.expired && !r.cancelled {
			w.stats.Lost++
		}
		return
	case r.cancelled:
		return // counted when it was cancelled
	case result == store.EndCancelled:
		w.stats.Cancelled++
		return
	case result == store.EndReplaced:
		kind = store.Done
	}
	switch kind {
	case store.Done:
		w.stats.Done++
	case store.Retry:
		if r.plan {
			return // counted as a failure
		}
		w.stats.Retried++
	case store.Snooze:
		w.stats.Snoozed++
	case store.Release:
		w.stats.Released++
	case store.DeadLetter:
		w.stats.DeadLettered++
		if w.options.OnDead != nil {
			w.held++ // until OnDead has returned
			w.dead = append(w.dead, r)
			w.nextDeadLocked()
		}
	}
}

// isDead returns the result of an outcome that was to dead-letter a timer. The first request got
// no reply, and the lease does not exist any more: the timer's state shows whether that request
// ended it. The result stays unsure if the engine does not answer.
//
// A dead letter that was since removed, replaced or requeued cannot be told from a timer with
// another outcome. Fewer attempts than the lease had would show that it was requeued, but it is
// then due at once, and most have run by now.
func (w *Worker) isDead(r *run) (result store.EndResult, unsure bool) {
	ctx, cancel := w.call()
	defer cancel()
	timer, err := w.store.Get(ctx, r.shard.number, r.lease.Key)
	removed := errors.Is(err, ErrNotFound)
	if removed {
		err = nil
	}
	switch {
	case !w.answered("get", r.shard.number, err):
		return 0, true
	case removed || timer.ID != r.lease.ID:
		return store.EndReplaced, false
	case timer.State == store.Dead:
		return store.Ended, false
	}
	return store.EndLost, false
}

// writeFailed queues outcomes whose write failed for another try. It drops those whose lease has
// expired, because another worker may hold the timer, and all of them if the store is closed.
func (w *Worker) writeFailed(s *shard, runs []*run, err error) {
	unsure, closed := errors.Is(err, ErrUnsure), w.closed.Load()
	w.mu.Lock()
	now := w.now()
	var again []*run
	for _, r := range runs {
		r.unsure = r.unsure || unsure
		if now < r.deadline && !closed {
			again = append(again, r)
			continue
		}
		w.stats.Unwritten++
		w.finishLocked(r)
	}
	s.unwritten = append(again, s.unwritten...)
	w.scheduleClaimLocked(s)
	w.dispatchLocked()
	w.checkIdleLocked()
	w.mu.Unlock()
	if n := len(runs) - len(again); n > 0 {
		w.log.Warn("durable: outcomes could not be written; the timers run again", "shard", s.number, "outcomes", n)
	}
}

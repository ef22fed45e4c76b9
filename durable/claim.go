package durable

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// claimLocked begins a claim of up to n timers.
//
// A claim whose reply was lost is repeated unchanged until it is answered, and gets the same
// leases. They count from the first request; leases that have expired by then are released, so
// that no attempt is spent on a handler that was not called.
func (w *Worker) claimLocked(s *shard, n int) {
	now := w.now()
	if s.unsure == nil {
		s.firstSent = now
	}
	c := s.unsure
	if c == nil {
		c = &store.Claim{
			Worker: w.name, Token: store.NewToken(w.name), Max: n, MaxBytes: store.MaxClaim,
			Plans: w.planCapacityLocked(), Lease: w.options.Lease, MaxAttempts: w.options.MaxAttempts, FirstLane: s.firstLane,
		}
	}
	s.claiming, s.claimedAt = true, now
	w.claims = append(w.claims, s)
	w.reserved += n
	w.group.Go(func() { w.claim(s, c, n) })
}

// claimAgainLocked repeats the unconfirmed claims of a worker that begins to stop, and releases the
// leases that they got, so that those timers need not wait for the end of their leases. It reserves
// no slots, because it begins no handlers.
func (w *Worker) claimAgainLocked() {
	for i := range w.shards {
		if s := &w.shards[i]; s.unsure != nil && !s.claiming {
			w.claimLocked(s, 0)
		}
	}
}

// claim sends a claim. A stopping worker repeats an unconfirmed claim until it is answered or the
// store is closed.
func (w *Worker) claim(s *shard, c *store.Claim, reserved int) {
	for failures := 1; ; failures++ {
		sent := w.now()
		ctx, cancel := context.WithTimeout(w.callCtx, s.claimTimeout)
		got, h, err := w.store.Claim(ctx, s.number, *c)
		cancel()
		w.answered("claim", s.number, err)
		if w.claimed(s, c, reserved, sent, got, h, err) || !w.sleep(pause(failures)) {
			return
		}
	}
}

// claimed processes the reply to a claim, and begins the leased timers. It reports false if the
// claim must be repeated at once.
func (w *Worker) claimed(s *shard, c *store.Claim, reserved int, sent time.Duration, got store.Claimed, h store.Horizon, err error) bool {
	arrived := w.now()
	ok := applied(err)

	w.mu.Lock()
	defer w.mu.Unlock()
	// If the engine answers late, its leases can be neither used nor released before the reply.
	// So each claim without a reply doubles the timeout of the next one.
	switch {
	case ok:
		s.unsure, s.claimTimeout = nil, 2*(arrived-sent)
	case errors.Is(err, ErrUnsure):
		s.unsure, s.claimTimeout = c, 2*s.claimTimeout
	}
	s.claimTimeout = min(max(s.claimTimeout, w.callTimeout), w.maxClaimTimeout)
	if w.closing && !w.stopped && s.unsure != nil && !w.closed.Load() {
		return false
	}
	s.claiming = false
	w.claims = slices.DeleteFunc(w.claims, func(other *shard) bool { return other == s })
	w.reserved -= reserved
	if ok {
		s.failures = 0
		s.horizon.reply(h, sent, arrived)
		w.pauseLocked(s, got, h, arrived)
		w.stats.Claimed += uint64(len(got.Leases))
		w.stats.DeadLetteredLost += uint64(got.DeadLettered)
		w.stats.Repaired += uint64(got.Repaired)
		deadline := s.firstSent + w.options.Lease
		var plans []store.Lease
		for i := range got.Leases {
			if l := &got.Leases[i]; store.IsPlan(l.Key) && !w.closing && arrived < deadline {
				plans = append(plans, *l)
			} else {
				w.beginLocked(s, l, deadline, arrived)
			}
		}
		if len(plans) > 0 {
			w.beginPlansLocked(s, plans, h.Now, deadline)
		}
		// Each lane, and the expired leases, come first in turn, so that none starves when there
		// is one free slot at a time.
		s.firstLane = (s.firstLane + 1) % (store.Lanes + 1)
	} else {
		s.failures++
		s.notBefore = arrived + pause(s.failures)
	}
	w.scheduleClaimLocked(s)
	w.dispatchLocked()
	w.checkIdleLocked()
	return true
}

// pauseLocked sets the earliest time of the next claim, after a claim that was answered. If that
// claim got something, the next need not wait. If it got nothing, it came too early, because of
// the error of the clock estimate, or too late, because another worker was faster. If by the
// horizon something is still due, claiming again and again would keep both workers busy.
func (w *Worker) pauseLocked(s *shard, got store.Claimed, h store.Horizon, now time.Duration) {
	next := earlier(h.NextDue, h.NextLeaseEnd)
	if next == 0 || next > h.Now {
		s.helpUntil = 0 // no help is needed
	}
	s.helpIfOverdue(h, now)
	if len(got.Leases) > 0 || got.DeadLettered > 0 || got.Repaired > 0 {
		s.emptyClaims, s.notBefore = 0, 0
		return
	}
	s.emptyClaims++
	wait := time.Millisecond
	if next != 0 && next <= h.Now {
		wait = double(time.Millisecond, 100*time.Millisecond, s.emptyClaims)
	}
	s.notBefore = now + wait
}

// beginLocked begins the run of a lease that ends, by this worker's clock, at deadline. It releases
// the lease instead if the worker has begun to stop, if there is no free slot because the claim was
// repeated, or if the lease has expired.
func (w *Worker) beginLocked(s *shard, l *store.Lease, deadline, now time.Duration) {
	r := &run{shard: s, lease: *l, deadline: deadline}
	begins := !w.closing && !store.IsPlan(l.Key) && w.running+w.reserved < w.options.Concurrency && now < deadline
	if !begins {
		w.releaseLocked(r)
	}
	w.held++
	_ = w.leases.Set(l.Holder, r, r.deadline-w.options.Lease/2-now)
	if begins {
		w.startLocked(r)
	} else {
		w.queueOutcomeLocked(r)
	}
}

// releaseLocked makes Release the outcome of a run whose handler was not called; the caller queues
// it. An expired lease can be released until another claim gets the timer. So this worker does not
// claim from the shard before the release is written, and keeps trying for another lease duration.
func (w *Worker) releaseLocked(r *run) {
	r.outcome = store.Outcome{Holder: r.lease.Holder, Kind: store.Release}
	r.shard.releasing++
	r.deadline = w.now() + w.options.Lease
}

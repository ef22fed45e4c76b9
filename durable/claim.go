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
// A claim whose reply was lost is sent again as it was, until it is answered, and gets the
// leases that it got then. They count from the first time; those that are over by then are
// given back, so that no attempt is spent on a handler that was not called.
func (w *Worker) claimLocked(s *shard, n int) {
	now := w.now()
	if s.unsure == nil {
		s.firstSent = now
	}
	c := s.unsure
	if c == nil {
		c = &store.Claim{
			Worker: w.name, Token: store.NewToken(w.name), Max: n, MaxBytes: store.MaxClaim,
			Plans: w.planRoomLocked(), Lease: w.options.Lease, MaxAttempts: w.options.MaxAttempts, FirstLane: s.firstLane,
		}
	}
	s.claiming, s.claimedAt = true, now
	w.claims = append(w.claims, s)
	w.reserved += n
	w.group.Go(func() { w.claim(s, c, n) })
}

// claimAgainLocked sends the claims again that may have been made, of a worker that begins
// to stop. What they have leased is given back: so its timers need not wait for the end
// of their leases. No room is reserved, as nothing is begun.
func (w *Worker) claimAgainLocked() {
	for i := range w.shards {
		if s := &w.shards[i]; s.unsure != nil && !s.claiming {
			w.claimLocked(s, 0)
		}
	}
}

// claim sends a claim. A worker that stops sends one that may have been made until it is
// answered, or the store is closed.
func (w *Worker) claim(s *shard, c *store.Claim, reserved int) {
	for failures := 1; ; failures++ {
		sent := w.now()
		ctx, cancel := context.WithTimeout(w.calls, s.patience)
		got, h, err := w.store.Claim(ctx, s.number, *c)
		cancel()
		w.answered("claim", s.number, err)
		if w.claimed(s, c, reserved, sent, got, h, err) || !w.sleep(pause(failures)) {
			return
		}
	}
}

// claimed takes the reply to a claim, and begins what that has got. It reports false if
// the claim is to be sent again at once.
func (w *Worker) claimed(s *shard, c *store.Claim, reserved int, sent time.Duration, got store.Claimed, h store.Horizon, err error) bool {
	arrived := w.now()
	ok := made(err)

	w.mu.Lock()
	defer w.mu.Unlock()
	// If the engine answers late, its leases can be neither used nor given back before the
	// reply. So each claim without a reply makes the next one wait longer.
	switch {
	case ok:
		s.unsure, s.patience = nil, 2*(arrived-sent)
	case errors.Is(err, ErrUnsure):
		s.unsure, s.patience = c, 2*s.patience
	}
	s.patience = min(max(s.patience, w.timeout), w.longest)
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
		w.stats.BuriedLost += uint64(got.Buried)
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
		// Each lane, and the leases that have run out, are the first in turn, so that
		// none waits for ever when there is room for one at a time.
		s.firstLane = (s.firstLane + 1) % (store.Lanes + 1)
	} else {
		s.failures++
		s.notBefore = arrived + pause(s.failures)
	}
	w.planLocked(s)
	w.dispatchLocked()
	w.checkIdleLocked()
	return true
}

// pauseLocked sets when to claim next at the earliest, after a claim that was
// answered. One that got something need not wait. One that got nothing came too
// early, by what the clocks know of each other, or too late, because another was
// faster; if something is still due by the horizon, asking again and again
// would keep both busy.
func (w *Worker) pauseLocked(s *shard, got store.Claimed, h store.Horizon, now time.Duration) {
	next := earlier(h.NextDue, h.NextLeaseEnd)
	if next == 0 || next > h.Now {
		s.helpUntil = 0 // no help is needed
	}
	s.helpIfOverdue(h, now)
	if len(got.Leases) > 0 || got.Buried > 0 || got.Repaired > 0 {
		s.fruitless, s.notBefore = 0, 0
		return
	}
	s.fruitless++
	wait := time.Millisecond
	if next != 0 && next <= h.Now {
		wait = double(time.Millisecond, 100*time.Millisecond, s.fruitless)
	}
	s.notBefore = now + wait
}

// beginLocked begins the run of a lease that ends, by this worker's own clock, at
// deadline; or gives it back, if the worker has begun to stop, has no room because the
// claim was one that was sent again, or the lease is over.
func (w *Worker) beginLocked(s *shard, l *store.Lease, deadline, now time.Duration) {
	r := &run{shard: s, lease: *l, deadline: deadline}
	begins := !w.closing && !store.IsPlan(l.Key) && w.running+w.reserved < w.options.Concurrency && now < deadline
	if !begins {
		w.giveBackLocked(r)
	}
	w.held++
	_ = w.leases.Set(l.Holder, r, r.deadline-w.options.Lease/2-now)
	if begins {
		w.startLocked(r)
	} else {
		w.endLocked(r)
	}
}

// giveBackLocked makes a run end as one whose handler was not called. A lease that is over
// can be given back as long as no claim has got it: this worker begins none before, and
// tries for another lease.
func (w *Worker) giveBackLocked(r *run) {
	r.end = store.End{Holder: r.lease.Holder, Kind: store.GiveBack}
	r.shard.back++
	r.deadline = w.now() + w.options.Lease
}

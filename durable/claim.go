package durable

import (
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// claimLocked begins a claim of up to n timers.
func (w *Worker) claimLocked(s *shard, n int) {
	now := w.now()
	first := now
	c := store.Claim{
		Worker: w.name, Token: store.NewToken(), Max: n, MaxBytes: store.MaxClaim,
		Lease: w.options.Lease, MaxAttempts: w.options.MaxAttempts, FirstLane: s.firstLane,
	}
	// A claim whose reply was lost is sent again as it was, and gets the leases that
	// it got then. They count from the first time, so once their half is over a new
	// claim is better; the old leases, if there are any, run out.
	if s.unsure != nil && now-s.unsureAt < w.options.Lease/2 {
		c, first = *s.unsure, s.unsureAt
	}
	s.unsure, s.claiming, s.claimedAt = nil, true, now
	w.claims = append(w.claims, s)
	w.reserved += n
	w.group.Go(func() { w.claim(s, c, n, first) })
}

// claim claims, and begins what it gets.
func (w *Worker) claim(s *shard, c store.Claim, reserved int, first time.Duration) {
	sent := w.now()
	ctx, cancel := w.call()
	got, h, err := w.store.Claim(ctx, s.number, c)
	cancel()
	arrived := w.now()
	ok := w.answered("claim", s.number, err)

	w.mu.Lock()
	defer w.mu.Unlock()
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
		for i := range got.Leases {
			w.beginLocked(s, &got.Leases[i], first+w.options.Lease, arrived)
		}
		// Each lane, and the leases that have run out, are the first in turn, so that
		// none waits for ever when there is room for one at a time.
		s.firstLane = (s.firstLane + 1) % (store.Lanes + 1)
	} else {
		s.failures++
		s.notBefore = arrived + pause(s.failures)
		s.unsure, s.unsureAt = &c, first
	}
	w.planLocked(s)
	w.dispatchLocked()
	w.checkIdleLocked()
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
// deadline; or gives it back, if the worker has begun to stop, or has no room
// because the claim was one that was sent again, or has been paused.
func (w *Worker) beginLocked(s *shard, l *store.Lease, deadline, now time.Duration) {
	r := &run{shard: s, lease: *l, deadline: deadline}
	w.held++
	_ = w.leases.Set(l.Holder, r, deadline-w.options.Lease/2-now)
	if w.closing || w.running+w.reserved >= w.options.Concurrency || now >= deadline {
		r.end = store.End{Holder: l.Holder, Kind: store.GiveBack}
		w.endLocked(r)
		return
	}
	w.startLocked(r)
}

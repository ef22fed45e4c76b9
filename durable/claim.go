package durable

import (
	"errors"
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
	if s.unsure != nil && w.isFresh(s.unsureAt) {
		c, first = *s.unsure, s.unsureAt
	} else {
		s.maybe = false
	}
	s.unsure, s.claiming, s.claimedAt = nil, true, now
	w.claims = append(w.claims, s)
	w.reserved += n
	w.group.Go(func() { w.claim(s, c, n, first) })
}

// isFresh reports whether a claim that was first sent then, and whose reply was lost, is to
// be sent again.
func (w *Worker) isFresh(first time.Duration) bool { return w.now()-first < w.options.Lease/2 }

// claimAgainLocked sends the claims again that may have been made, of a worker that begins
// to stop. What they have leased is given back: so its timers need not wait for the end
// of their leases, and no attempt is spent. No room is reserved, as nothing is begun.
func (w *Worker) claimAgainLocked() {
	for i := range w.shards {
		if s := &w.shards[i]; s.unsure != nil && s.maybe && w.isFresh(s.unsureAt) {
			w.claimLocked(s, 0)
		}
	}
}

// claimsAgain reports whether a worker that stops is to send a claim once more, after err.
func (w *Worker) claimsAgain(s *shard, first time.Duration, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.maybe = !made(err) && (s.maybe || errors.Is(err, ErrUnsure))
	return w.closing && !w.stopped && s.maybe && w.isFresh(first)
}

// claim claims, and begins what it gets.
func (w *Worker) claim(s *shard, c store.Claim, reserved int, first time.Duration) {
	send := func() (sent time.Duration, got store.Claimed, h store.Horizon, err error) {
		sent = w.now()
		ctx, cancel := w.call()
		defer cancel()
		got, h, err = w.store.Claim(ctx, s.number, c)
		w.answered("claim", s.number, err)
		return sent, got, h, err
	}
	sent, got, h, err := send()
	for failures := 1; w.claimsAgain(s, first, err) && w.sleep(pause(failures)); failures++ {
		sent, got, h, err = send()
	}
	arrived := w.now()
	ok := made(err)

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

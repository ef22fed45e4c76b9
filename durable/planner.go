package durable

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/planning"
	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	// maxPlans bounds the plans that a worker holds, and claimPlans those of one claim.
	maxPlans   = 2000
	claimPlans = 500
	// maxPlanPause is the longest wait before a plan that could not be advanced is tried again.
	maxPlanPause = time.Minute
)

// planRun is a plan that a worker has claimed.
type planRun struct {
	lease store.Lease
	plan  *plan
	now   store.Millis // to which it is advanced
	step  planning.Step
	swap  store.PlanSwap
}

// planCapacityLocked returns how many plans a claim may lease. Each claim in flight may get
// claimPlans.
func (w *Worker) planCapacityLocked() int {
	return max(min(claimPlans, maxPlans-w.plans-claimPlans*len(w.claims)), 0)
}

// beginPlansLocked begins to advance the plans of a claim, with now as the engine's time. They do
// not count in Concurrency: they call no handler, and take only as long as the engine does.
func (w *Worker) beginPlansLocked(s *shard, leases []store.Lease, now store.Millis, deadline time.Duration) {
	w.plans += len(leases)
	w.group.Go(func() {
		w.advancePlans(s, leases, now, deadline)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.plans -= len(leases)
		s.notBefore, s.emptyClaims = 0, 0 // claims may have left plans that are due
		w.scheduleClaimLocked(s)
		w.dispatchLocked()
		w.checkIdleLocked()
	})
}

// advancePlans advances plans of one shard. A worker that dies before it is done, or cannot reach
// the engine, has changed none or some of them; the others are claimed again after the lease.
func (w *Worker) advancePlans(s *shard, leases []store.Lease, now store.Millis, deadline time.Duration) {
	var part []*planRun
	items, bytes := 0, 0
	flush := func() {
		w.swap(s, part, deadline)
		part, items, bytes = nil, 0, 0
	}
	for _, l := range leases {
		r := &planRun{lease: l, plan: decodePlan(l.Key, l.ID, l.Body), now: now}
		if r.plan.problem != nil {
			w.retryPlan(s, l, r.plan.problem, deadline)
			continue
		}
		if err := w.decide(s, r); err != nil {
			w.retryPlan(s, l, err, deadline)
			continue
		}
		n, size := 1+len(r.swap.Entries), sizeOf(r.swap)
		if len(part) > 0 && (items+n > store.MaxItems || bytes+size > maxRequest) {
			flush()
		}
		part, items, bytes = append(part, r), items+n, bytes+size
	}
	if len(part) > 0 {
		flush()
	}
}

// decide advances the plan to now, and prepares the swap that writes it.
func (w *Worker) decide(s *shard, r *planRun) error {
	p := r.plan
	h := cmp.Or(r.lease.History, &store.History{})
	next, step, known := p.Advance(r.now, h, planning.Unknown)
	if !known {
		previous, err := w.readOccurrence(s, planning.Occurrence{Planned: p.Previous}.Key(p.key))
		if err != nil {
			return err
		}
		next, step, _ = p.Advance(r.now, h, previous)
	}
	p.Plan = next
	r.step, r.swap = step, p.swap()
	r.swap.Due, r.swap.Wake, r.swap.Seen = step.Due, step.Wake, step.Seen
	for _, o := range step.Create {
		r.swap.Entries = append(r.swap.Entries, p.entry(o, r.now))
	}
	return nil
}

// readOccurrence reads from the engine whether an occurrence has ended.
func (w *Worker) readOccurrence(s *shard, key string) (planning.Previous, error) {
	ctx, cancel := w.call()
	defer cancel()
	r, err := w.store.Get(ctx, s.number, key)
	if errors.Is(err, ErrNotFound) {
		return planning.Ended, nil
	}
	w.answered("get", s.number, err)
	if r.State == store.Dead {
		return planning.Ended, err
	}
	return planning.Pending, err
}

// swap writes plans with the occurrences that they create, and begins the occurrences that it has
// leased, as many as there are free slots. It is one request, repeated until it is answered or the
// leases have expired. Repeating it is safe: a plan that another worker has advanced, or this one
// by a request without a reply, fails the comparison, and the leases of a request without a reply
// are returned again.
func (w *Worker) swap(s *shard, runs []*planRun, deadline time.Duration) {
	var cancel []string
	swaps := make([]store.PlanSwap, len(runs))
	created := 0
	for i, r := range runs {
		swaps[i] = r.swap
		for _, o := range r.step.Cancel {
			cancel = append(cancel, o.Key(r.plan.key))
		}
		created += len(r.swap.Entries)
	}
	claim, begun := w.reserve(created), w.now()
	var leases []store.Lease
	defer func() { w.beginOccurrences(s, claim, leases, begun+w.options.Lease) }()
	for failures := 1; ; failures++ {
		err := w.cancelPrevious(s, cancel)
		var results []store.SwapResult
		if applied(err) {
			cancel = nil
			results, leases, err = w.swapOnce(s, swaps, claim)
		}
		switch {
		case applied(err):
			for i, r := range runs {
				if results[i] == store.SwapRefused {
					w.retryPlan(s, r.lease, ErrFull, deadline)
				}
			}
			w.countPlans(runs, results)
			return
		case errors.Is(err, ErrFull): // a disk, or a Redis at maxmemory
			for _, r := range runs {
				w.retryPlan(s, r.lease, err, deadline)
			}
			return
		}
		if w.now() >= deadline || w.closed.Load() || !w.sleep(min(pause(failures), w.options.Lease/16)) {
			return
		}
	}
}

func (w *Worker) cancelPrevious(s *shard, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	ctx, cancel := w.call()
	defer cancel()
	_, err := w.store.Cancel(ctx, s.number, keys)
	w.answered("cancel", s.number, err)
	return err
}

// reserve reserves slots for up to n occurrences that a swap creates. The others wait to be
// claimed.
func (w *Worker) reserve(n int) store.SwapClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(n, w.capacityLocked())
	if n <= 0 || w.closing {
		return store.SwapClaim{}
	}
	w.reserved += n
	return store.SwapClaim{Token: store.NewToken(w.name), Lease: w.options.Lease, Max: n}
}

// beginOccurrences begins the occurrences that a swap has leased, in the reserved slots.
func (w *Worker) beginOccurrences(s *shard, claim store.SwapClaim, leases []store.Lease, deadline time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reserved -= claim.Max
	w.stats.Claimed += uint64(len(leases))
	for i := range leases {
		w.beginLocked(s, &leases[i], deadline, w.now())
	}
	w.dispatchLocked()
	w.checkIdleLocked()
}

func (w *Worker) swapOnce(s *shard, swaps []store.PlanSwap, claim store.SwapClaim) ([]store.SwapResult, []store.Lease, error) {
	ctx, cancel := context.WithTimeout(w.callCtx, w.callTimeout)
	defer cancel()
	sent := w.now()
	results, leases, h, err := w.store.SwapPlans(ctx, s.number, swaps, claim)
	arrived := w.now()
	if !w.answered("swap", s.number, err) {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.horizon.reply(h, sent, arrived)
	w.scheduleClaimLocked(s)
	return results, leases, err
}

// retryPlan makes a plan that could not be advanced wait, with the reason. ScheduleInfo shows it
// as overdue; Stats does so only between two tries, so there is PlanFailures.
func (w *Worker) retryPlan(s *shard, l store.Lease, err error, deadline time.Duration) {
	w.log.Warn("durable: a schedule cannot create its occurrences", "schedule", store.ScheduleOf(l.Key), "attempt", l.Attempt, "error", err)
	r := &run{shard: s, lease: l, deadline: deadline, plan: true}
	r.outcome = store.Outcome{
		Holder: l.Holder, Kind: store.Retry, Error: store.CutError(err.Error()),
		Delay: double(time.Second, maxPlanPause, l.Attempt),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.PlanFailures++
	w.held++
	w.queueOutcomeLocked(r)
}

// countPlans counts the results of swaps.
func (w *Worker) countPlans(runs []*planRun, results []store.SwapResult) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range runs {
		if results[i] != store.Swapped {
			continue
		}
		w.stats.Planned++
		w.stats.Occurrences += uint64(len(r.step.Create))
		w.stats.Skipped += uint64(r.step.Skipped)
		for _, o := range r.step.Create {
			w.stats.PlannedLate.Add(time.Duration(r.now-o.Planned) * time.Millisecond)
		}
	}
}

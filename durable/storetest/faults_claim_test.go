package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/oracle"
	"github.com/seed-782fa212/limbo/durable/store"
)

// swapping replaces SwapPlans; do is the original.
func swapping(f func(r *rigged, swaps []store.PlanSwap, t store.SwapClaim, do func([]store.PlanSwap, store.SwapClaim) []store.Lease) []store.Lease) func(*rigged) {
	return func(r *rigged) {
		swap := r.swapPlans
		r.swapPlans = func(ctx context.Context, n int, swaps []store.PlanSwap, t store.SwapClaim) (results []store.SwapResult, leases []store.Lease, _ store.Horizon, err error) {
			leases = f(r, swaps, t, func(swaps []store.PlanSwap, t store.SwapClaim) []store.Lease {
				results, leases, _, err = swap(ctx, n, swaps, t)
				return leases
			})
			return results, leases, r.horizonOf(n), err
		}
	}
}

// ofSwapClaim changes the SwapClaims of calls.
func ofSwapClaim(set func(*store.SwapClaim)) func(*rigged) {
	return swapping(func(_ *rigged, swaps []store.PlanSwap, t store.SwapClaim, do func([]store.PlanSwap, store.SwapClaim) []store.Lease) []store.Lease {
		set(&t)
		return do(swaps, t)
	})
}

// ofSwapLease changes the leases that swaps grant: the timer, and the answer.
func ofSwapLease(set func(*oracle.Timer, *store.Lease)) func(*rigged) {
	return swapping(func(r *rigged, swaps []store.PlanSwap, t store.SwapClaim, do func([]store.PlanSwap, store.SwapClaim) []store.Lease) []store.Lease {
		leases := do(swaps, t)
		for i := range leases {
			r.timer(leases[i].Key, func(_ *oracle.Shard, t *oracle.Timer) { set(t, &leases[i]) })
		}
		return leases
	})
}

// leasesMore leases other entries, too.
func leasesMore(which func(store.Record) bool) func(*rigged) {
	return swapping(func(r *rigged, swaps []store.PlanSwap, t store.SwapClaim, do func([]store.PlanSwap, store.SwapClaim) []store.Lease) []store.Lease {
		leases := do(swaps, t)
		if t.Max == 0 {
			return leases
		}
		for _, p := range swaps {
			for _, e := range p.Entries {
				record := r.record(e.Key)
				if record.State == 0 || slices.ContainsFunc(leases, func(l store.Lease) bool { return l.Key == e.Key }) || !which(record) {
					continue
				}
				r.timer(e.Key, func(s *oracle.Shard, timer *oracle.Timer) {
					s.Fence++
					timer.State, timer.Fence, timer.Token, timer.Attempts = store.Leased, s.Fence, t.Token, timer.Attempts+1
					timer.LeaseEnd = r.ms() + store.MillisOf(t.Lease)
					leases = append(leases, store.Lease{Holder: timer.Holder(), ID: timer.ID, Topic: timer.Topic, Body: timer.Body, Due: timer.Due, Attempt: timer.Attempts, End: timer.LeaseEnd})
				})
			}
		}
		return leases
	})
}

// answeredOnce returns each lease only once.
func answeredOnce(r *rigged) {
	answered := map[store.Holder]bool{}
	swapping(func(_ *rigged, swaps []store.PlanSwap, t store.SwapClaim, do func([]store.PlanSwap, store.SwapClaim) []store.Lease) []store.Lease {
		leases := slices.DeleteFunc(do(swaps, t), func(l store.Lease) bool { return answered[l.Holder] })
		for _, l := range leases {
			answered[l.Holder] = true
		}
		return leases
	})(r)
}

var swapClaimFaults = []fault{
	{name: "a swap leases nothing", found: []string{"S10 a swap leases what it"}, rig: ofSwapClaim(func(t *store.SwapClaim) { *t = store.SwapClaim{} })},
	{name: "a swap leases one more than Max", found: []string{"S10 a swap leases what is due"}, rig: ofSwapClaim(func(t *store.SwapClaim) {
		if t.Max > 0 {
			t.Max++
		}
	})},
	{name: "a swap leases an occurrence that is not due", found: []string{"S10 a swap leases what is due"}, rig: leasesMore(func(r store.Record) bool { return r.State == store.Waiting && r.Due > 1 })},
	{name: "a swap leases an occurrence that is leased to another", found: []string{"S10 a swap leases nothing", "S10 a swap that is sent again"}, rig: leasesMore(func(r store.Record) bool { return r.State == store.Leased })},
	{name: "a lease of a swap has twice the length", found: []string{"S10 a swap leases what it"}, rig: ofSwapClaim(func(t *store.SwapClaim) { t.Lease *= 2 })},
	{name: "a lease of a swap is no attempt", found: []string{"S10 a swap leases what it"}, rig: ofSwapLease(func(t *oracle.Timer, l *store.Lease) { t.Attempts--; l.Attempt-- })},
	{name: "a lease of a swap has no topic", found: []string{"S10 a swap leases what it"}, rig: ofSwapLease(func(_ *oracle.Timer, l *store.Lease) { l.Topic = "" })},
	{name: "a lease of a swap has no body", found: []string{"S10 a swap leases what it"}, rig: ofSwapLease(func(_ *oracle.Timer, l *store.Lease) { l.Body = nil })},
	{name: "a lease of a swap is due when it was created", found: []string{"S10 a swap leases what it"}, rig: func(r *rigged) {
		ofSwapLease(func(t *oracle.Timer, l *store.Lease) { t.Due, l.Due = r.ms(), r.ms() })(r)
	}},
	{name: "a lease of a swap has an old fence", found: []string{"S10 a swap leases what it"}, rig: ofSwapLease(func(t *oracle.Timer, l *store.Lease) { t.Fence, l.Fence = 1, 1 })},
	{name: "a swap that is sent again gets no leases", found: []string{"S10 a swap that is sent again"}, rig: answeredOnce},
	{name: "a lease of a swap never expires", found: []string{"S10 a lease of a swap expires"}, rig: ofSwapLease(func(t *oracle.Timer, l *store.Lease) { t.LeaseEnd, l.End = store.MaxMillis, store.MaxMillis })},
	{name: "a lease of a swap expires sooner", found: []string{"S10 a lease of a swap expires"}, rig: ofSwapLease(func(t *oracle.Timer, _ *store.Lease) { t.LeaseEnd -= 2 * store.MillisOf(time.Second) })},
	{name: "reopening loses the timers that a swap has leased", found: []string{"S10 a lease of a swap survives"}, leasesEnd: true, rig: func(r *rigged) {
		leased := map[string]bool{}
		ofSwapLease(func(_ *oracle.Timer, l *store.Lease) { leased[l.Key] = true })(r)
		r.reopen = func() {
			r.Mu.Lock()
			defer r.Mu.Unlock()
			for n := range r.Parts {
				for key := range leased {
					delete(r.Parts[n].Timers, key)
				}
			}
		}
	}},
	{name: "a SwapClaim is not checked", found: []string{"a SwapClaim that is out of bounds"}, noModel: true, rig: ofSwapClaim(func(t *store.SwapClaim) {
		if t.Check() != nil {
			*t = store.SwapClaim{}
		}
	})},
}

package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// planTests test the plans of schedules, and the results of their occurrences.
var planTests = []test{
	{"S1 a plan is a timer that is listed separately", check(planApart)},
	{"S2 a swap creates, replaces and removes, if the plan is as its caller read it", check(planSwaps)},
	{"S2 of two swaps that were prepared together one is made", check(planOneOfTwo)},
	{"S2 a swap creates its occurrences with it, and leaves those that exist", check(planEntries)},
	{"S2 a swap ends the plan's lease", check(planLease)},
	{"S2 a swap that MaxPending refuses changes nothing", checkWith(Options{Shards: 1, Limits: store.Limits{MaxPending: 4}}, planRefused)},
	{"S2 a plan and its occurrences survive a reopening", check(planReopened)},
	{"S3 a plan is claimed when it is due, never before", check(planDue)},
	{"S3 a claim leases plans in addition to timers, and before them", check(planClaim)},
	{"S2 a claim that is sent again gets the same plans", check(planClaimAgain)},
	{"S2 a plan whose leases expire is leased again, and never dead", check(planNeverDead)},
	{"S2 a plan that is retried keeps its ID, and has the error", check(planRetried)},
	{"S4 the end of an occurrence wakes a plan that asks for it, once", check(planWakes)},
	{"S4 a plan is awake at once if it has not seen the last end", check(planSeen)},
	{"S9 the history counts how occurrences end", check(planHistory)},
	{"S9 the history lists the last ten ends", check(planLastTen)},
	{"S9 an occurrence that ends with its lease is in the history", check(planLostOccurrence)},
	{"S9 plans are listed in order, page by page", checkWith(Options{Shards: 3}, planPages)},
	{"S10 large plans are listed and claimed within bounds", check(planLarge)},
	{"a plan that is due earlier is announced", check(planAnnounced)},
}

// plan returns a swap that creates a plan, due at 1, with a unique body.
func plan(schedule string) store.PlanSwap {
	id := store.NewID()
	return store.PlanSwap{Key: store.PlanKey(schedule), ID: id, Due: 1, Body: fmt.Appendf(nil, "plan %v of %s", id, schedule)}
}

// next returns a swap of the plan that p has made.
func next(p store.PlanSwap) store.PlanSwap {
	n := plan(strings.TrimSuffix(p.Key, "\x00"))
	n.Expected, n.Due = p.ID, store.MaxMillis
	return n
}

// occurrence is an overdue entry of a schedule.
func occurrence(schedule string, i int) store.Entry {
	return entry(fmt.Sprintf("%s%d", store.PlanKey(schedule), i))
}

// swap changes plans of one shard in one call.
func (f *fixture) swap(swaps ...store.PlanSwap) []store.SwapResult {
	f.Helper()
	results, leases := f.swapWith(store.SwapClaim{}, swaps...)
	f.Empty(leases)
	return results
}

func (f *fixture) swapWith(c store.SwapClaim, swaps ...store.PlanSwap) ([]store.SwapResult, []store.Lease) {
	f.Helper()
	n := f.shardOf(swaps[0].Key)
	for _, p := range swaps {
		f.NoError(p.Check())
		f.keys[p.Key] = true
		for _, e := range p.Entries {
			f.keys[e.Key] = true
		}
	}
	results, leases, h, err := f.Store.SwapPlans(f.ctx, n, swaps, c)
	f.NoError(err)
	f.Len(results, len(swaps))
	for _, l := range leases {
		f.held = append(f.held, l.Holder)
	}
	f.checkHorizon(n, h)
	return results, leases
}

// swapped makes one swap, which must succeed.
func (f *fixture) swapped(p store.PlanSwap) store.PlanSwap {
	f.Helper()
	f.Equal([]store.SwapResult{store.Swapped}, f.swap(p))
	return p
}

// plans lists a shard's plans, limit at a time.
func (f *fixture) plans(n, limit int) []store.Record {
	f.Helper()
	var all []store.Record
	after := ""
	for {
		page, err := f.Store.Plans(f.ctx, n, after, limit)
		f.NoError(err)
		f.LessOrEqual(len(page), limit)
		if len(page) == 0 {
			return all
		}
		for _, r := range page {
			f.Greater(r.Key, after, "plans are out of order")
			after = r.Key
		}
		all = append(all, page...)
	}
}

// history returns the history of a plan.
func (f *fixture) history(schedule string) store.History {
	f.Helper()
	r := f.get(store.PlanKey(schedule))
	f.NotNil(r.History)
	return *r.History
}

// claimPlans claims plans and one timer, and returns the plans' leases.
func (f *fixture) claimPlans(max int) []store.Lease {
	f.Helper()
	c := newClaim(1)
	c.Plans = max
	claimed, _ := f.claimWith(0, c)
	return slices.DeleteFunc(claimed.Leases, func(l store.Lease) bool { return !store.IsPlan(l.Key) })
}

func planApart(f *fixture) {
	p := f.swapped(plan("report"))
	f.putAll("report") // another key, of the same shard
	r := f.get(p.Key)
	f.Equal(store.Record{
		Key: p.Key, ID: p.ID, Body: p.Body, State: store.Waiting, Due: 1, History: &store.History{},
	}, r)
	f.Equal([]store.Record{r}, f.plans(0, 10))
	st := f.stats(0)
	f.Equal([]int{1, 1, 1, 1}, []int{st.Waiting, st.Overdue, st.Plans, st.PlansOverdue})
	f.Len(f.list(0, store.Waiting, 10), 1)
	f.verify()
	for _, shards := range []int{1, 7, 1024} {
		f.Equal(store.ShardOf("report", shards), store.ShardOf(p.Key, shards))
		f.Equal(store.ShardOf("report", shards), store.ShardOf(p.Key+"1", shards))
	}
}

func planSwaps(f *fixture) {
	mismatched := plan("report")
	mismatched.Expected = store.NewID()
	f.Equal([]store.SwapResult{store.SwapLost}, f.swap(mismatched))
	f.absent(mismatched.Key)

	created := f.swapped(plan("report"))
	f.Equal([]store.SwapResult{store.SwapLost}, f.swap(plan("report")), "it exists")
	f.Equal([]store.SwapResult{store.SwapLost}, f.swap(mismatched))
	f.Equal(created.ID, f.get(created.Key).ID)

	replaced := f.swapped(next(created))
	r := f.get(created.Key)
	f.Equal([]any{replaced.ID, store.MaxMillis, string(replaced.Body)}, []any{r.ID, r.Due, string(r.Body)})

	remove := store.PlanSwap{Key: created.Key, Expected: created.ID}
	f.Equal([]store.SwapResult{store.SwapLost}, f.swap(remove))
	remove.Expected = replaced.ID
	f.swapped(remove)
	f.absent(created.Key)
	f.Empty(f.plans(0, 10))
	f.Equal([]store.SwapResult{store.SwapLost}, f.swap(remove))
	f.swapped(plan("report"))
	f.Zero(f.history("report").Ended(), "a history outlives its plan")
}

func planOneOfTwo(f *fixture) {
	first := f.swapped(plan("report"))
	one, two := next(first), next(first)
	one.Entries = []store.Entry{occurrence("report", 1)}
	two.Entries = []store.Entry{occurrence("report", 2)}
	f.Equal([]store.SwapResult{store.Swapped, store.SwapLost}, f.swap(one, two))
	f.absent(two.Entries[0].Key)
	f.Equal([]store.SwapResult{store.SwapLost}, f.swap(two))
	f.absent(two.Entries[0].Key)
	f.Equal(one.Entries[0].ID, f.get(one.Entries[0].Key).ID)
}

func planEntries(f *fixture) {
	p := plan("report")
	later := occurrence("report", 2)
	later.At, later.Topic, later.Body = f.readHorizon(0).Now+1e9, otherLane("topic"), slices.Repeat([]byte("large "), 2000)
	at0 := occurrence("report", 3)
	at0.At, at0.After = 0, time.Hour
	p.Due, p.Entries = store.MaxMillis, []store.Entry{occurrence("report", 1), later, at0}
	before := f.readHorizon(0)
	f.swapped(p)
	f.Equal(later.Body, f.get(later.Key).Body)
	f.Equal(later.Topic, f.get(later.Key).Topic)
	f.Equal(later.At, f.get(later.Key).Due)
	f.counted(f.get(at0.Key).Due, time.Hour, before, f.readHorizon(0))
	f.verify()

	l := f.claimOne(p.Entries[0].Key)
	other := next(p)
	other.Entries = slices.Clone(p.Entries)
	for i := range other.Entries {
		other.Entries[i].ID, other.Entries[i].Body = store.NewID(), []byte("another")
	}
	other.Entries = append(other.Entries, occurrence("report", 4))
	f.swapped(other)
	f.Equal(later.ID, f.get(later.Key).ID, "one that waits is replaced")
	f.Zero(f.get(l.Key).SuccessorDue, "one that runs gets a successor")
	f.ended(l, store.DeadLetter)
	third := next(other)
	third.Entries = other.Entries
	f.swapped(third)
	f.Equal(store.Dead, f.get(l.Key).State, "a dead letter is replaced")
	f.NotZero(f.get(other.Entries[3].Key).State)
	// Removing the plan leaves its occurrences.
	f.swapped(store.PlanSwap{Key: p.Key, Expected: third.ID, Entries: []store.Entry{occurrence("report", 5)}})
	f.Equal(later.ID, f.get(later.Key).ID)
	f.absent(occurrence("report", 5).Key)
	f.Equal([]store.CancelResult{store.Cancelled}, f.cancel(later.Key))
}

func planLease(f *fixture) {
	p := f.swapped(plan("report"))
	l := f.claimPlans(1)[0]
	f.Equal([]any{p.ID, string(p.Body), store.Millis(1), 1}, []any{l.ID, string(l.Body), l.Due, l.Attempt})
	f.Equal(&store.History{}, l.History)
	f.Equal(store.Leased, f.get(p.Key).State)
	st := f.stats(0)
	f.Equal([]int{0, 1, 1, 0}, []int{st.Waiting, st.Leased, st.Plans, st.PlansOverdue})
	f.Len(f.plans(0, 10), 1)
	swap := next(p)
	swap.Due = 2
	f.swapped(swap)
	f.Equal(store.EndLost, f.end(store.Outcome{Holder: l.Holder, Kind: store.Release}))
	extended, _ := f.extend(l.Holder, testLease)
	f.Equal(store.ExtendLost, extended)
	r := f.get(p.Key)
	f.Equal([]any{store.Waiting, store.Millis(2), 0}, []any{r.State, r.Due, r.Attempts})
	again := f.claimPlans(1)[0]
	f.Equal([]any{swap.ID, 1}, []any{again.ID, again.Attempt})
	f.swapped(store.PlanSwap{Key: p.Key, Expected: swap.ID})
	f.absent(p.Key)
	f.Zero(f.readHorizon(0).NextLeaseEnd)
}

func planRefused(f *fixture) {
	f.putAll("a", "b")
	p := f.swapped(plan("report")) // the third of four
	l := f.claimPlans(1)[0]
	two := next(p)
	two.Entries = []store.Entry{occurrence("report", 1), occurrence("report", 2)}
	f.Equal([]store.SwapResult{store.SwapRefused}, f.swap(two))
	f.Equal(p.ID, f.get(p.Key).ID)
	f.absent(two.Entries[0].Key, two.Entries[1].Key)
	f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.Release}), "a swap that is refused ends the lease")
	mismatched := two
	mismatched.Expected = store.NewID()
	f.Equal([]store.SwapResult{store.SwapLost}, f.swap(mismatched), "MaxPending goes before Expected")
	one := two
	one.Entries = two.Entries[:1]
	f.swapped(one)
	f.Equal([]store.SwapResult{store.SwapRefused}, f.swap(plan("other")))
	f.Equal(store.Refused, f.put(entry("c")).Kind, "MaxPending does not count plans")
	again := next(one)
	again.Entries = one.Entries // exists
	f.swapped(again)
	last := f.swapped(next(again))
	f.swapped(store.PlanSwap{Key: p.Key, Expected: last.ID, Entries: two.Entries})
	f.absent(p.Key, two.Entries[1].Key)
}

func planReopened(f *fixture) {
	if f.Reopen == nil {
		f.Skip("the engine cannot be reopened")
	}
	p := plan("report")
	p.Wake, p.Due, p.Entries = store.WakeOnEnd, store.MaxMillis, []store.Entry{occurrence("report", 1), occurrence("report", 2)}
	f.swapped(p)
	f.ended(f.claimOne(p.Entries[0].Key), store.DeadLetter)
	q := next(p)
	q.Wake, q.Seen, q.Body = store.WakeOnEnd, 1, slices.Repeat([]byte("large "), 2000)
	f.swapped(q)
	before := f.get(p.Key)
	f.Store = f.Reopen(f.TB)
	f.Equal(before, f.get(p.Key))
	f.Equal([]store.Record{before}, f.plans(0, 10))
	f.ended(f.claimOne(p.Entries[1].Key), store.Done)
	f.Equal(uint64(2), f.history("report").Ended())
	f.LessOrEqual(f.get(p.Key).Due, f.readHorizon(0).Now, "the plan forgot to wake")
}

func planDue(f *fixture) {
	p := plan("report")
	p.Due = f.readHorizon(0).Now + 60_000
	f.swapped(p)
	f.Equal(p.Due, f.readHorizon(0).NextDue)
	f.Empty(f.claimPlans(1))
	f.advance(59 * time.Second)
	if f.Frozen {
		f.advance(999 * time.Millisecond)
		f.Empty(f.claimPlans(1))
		f.advance(time.Millisecond)
	} else {
		f.advance(time.Second)
	}
	leases := f.claimPlans(1)
	f.Len(leases, 1)
	f.Equal(p.Due, leases[0].Due)
}

func planClaim(f *fixture) {
	f.putAll("a", "b", "c")
	for i := range 4 {
		p := plan(name("report", i))
		p.Due = store.Millis(10 - i)
		f.swapped(p)
	}
	c := newClaim(1)
	claimed, _ := f.claimWith(0, c)
	f.Equal([]string{"a"}, keysOf(claimed.Leases), "the claim leases plans that it did not request")
	c = newClaim(1)
	c.Plans = 1
	claimed, _ = f.claimWith(0, c)
	f.Equal([]string{store.PlanKey("report0003"), "b"}, keysOf(claimed.Leases))
	c = newClaim(1)
	c.Plans, c.MaxBytes = 2, 1
	claimed, _ = f.claimWith(0, c)
	f.Equal([]string{store.PlanKey("report0002"), "c"}, keysOf(claimed.Leases), "the bytes of plans and of timers are not bounded separately")
	c = newClaim(1)
	c.Plans = 5
	claimed, _ = f.claimWith(0, c)
	f.Equal([]string{store.PlanKey("report0001"), store.PlanKey("report0000")}, keysOf(claimed.Leases))
}

func planClaimAgain(f *fixture) {
	p := f.swapped(plan("report"))
	c := newClaim(1)
	c.Plans = 1
	first, _ := f.claimWith(0, c)
	f.Len(first.Leases, 1)
	again, _ := f.claimWith(0, c)
	f.Equal(first.Leases, again.Leases)
	f.swapped(next(p))
	again, _ = f.claimWith(0, c)
	f.Empty(again.Leases, "a swapped plan is still leased")
}

func planNeverDead(f *fixture) {
	p := f.swapped(plan("report"))
	var last store.Lease
	for attempt := 1; attempt < 4; attempt++ {
		c := newClaim(1)
		c.Plans, c.MaxAttempts = 1, 1
		claimed, _ := f.claimWith(0, c)
		f.Zero(claimed.DeadLettered)
		f.Len(claimed.Leases, 1)
		f.Equal([]any{p.ID, attempt}, []any{claimed.Leases[0].ID, claimed.Leases[0].Attempt})
		f.Greater(claimed.Leases[0].Fence, last.Fence)
		last = claimed.Leases[0]
		if attempt == 1 {
			f.swapped(plan("other")) // is due, and comes after expired leases
		}
		f.advance(testLease + time.Second)
	}
	f.Empty(f.claim(2), "a claim leases a plan that it did not request")
	// The worker was only paused: nothing has happened since, so its swap counts.
	f.swapped(next(p))
	f.Equal([]string{store.PlanKey("other")}, keysOf(f.claimPlans(2)))
}

func planRetried(f *fixture) {
	p := f.swapped(plan("report"))
	l := f.claimPlans(1)[0]
	f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.Retry, Delay: time.Hour, Error: "no such zone"}))
	r := f.get(p.Key)
	f.Equal([]any{p.ID, store.Waiting, "no such zone", 1}, []any{r.ID, r.State, r.LastError, r.Attempts})
	f.Empty(f.claimPlans(1))
	f.Equal("no such zone", f.plans(0, 1)[0].LastError)
	f.swapped(next(p))
	f.Zero(f.get(p.Key).LastError)
	f.verify()
}

// claimBoth claims the due plan and an occurrence.
func (f *fixture) claimBoth() (plan, occurrence store.Lease) {
	f.Helper()
	c := newClaim(1)
	c.Plans = 1
	claimed, _ := f.claimWith(0, c)
	f.Len(claimed.Leases, 2)
	f.True(store.IsPlan(claimed.Leases[0].Key))
	return claimed.Leases[0], claimed.Leases[1]
}

// postpone claims the due plan, and retries it in an hour.
func (f *fixture) postpone(p store.PlanSwap) {
	f.Helper()
	l := f.claimPlans(1)[0]
	f.Equal(p.ID, l.ID)
	f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.Retry, Delay: time.Hour}))
}

// runOccurrence schedules an occurrence with a swap of p, and claims it.
func (f *fixture) runOccurrence(p store.PlanSwap, i int) (store.PlanSwap, store.Lease) {
	f.Helper()
	p.Entries = []store.Entry{occurrence(strings.TrimSuffix(p.Key, "\x00"), i)}
	f.swapped(p)
	return p, f.claimOne(p.Entries[0].Key)
}

func planPages(f *fixture) {
	var want [3][]string
	for i := range 40 {
		p := plan(name("report", i*7%40))
		p.Due = store.Millis(i + 1)
		f.swapped(p)
		n := f.shardOf(p.Key)
		want[n] = append(want[n], p.Key)
	}
	// A plan whose key sorts right after another's.
	for i := range 40 {
		p := plan(name("report", i) + "\x01")
		if n := f.shardOf(p.Key); n == f.shardOf(name("report", i)) {
			f.swapped(p)
			want[n] = append(want[n], p.Key)
			break
		}
	}
	for n, keys := range want {
		slices.Sort(keys)
		for _, limit := range []int{1, 3, 500} {
			var got []string
			for _, r := range f.plans(n, limit) {
				got = append(got, r.Key)
				f.Equal(f.get(r.Key), r)
			}
			f.Equal(keys, got)
		}
		page, err := f.Store.Plans(f.ctx, n, keys[0], 1)
		f.NoError(err)
		f.Equal(keys[1], page[0].Key)
	}
}

func planLarge(f *fixture) {
	for i := range 20 {
		p := plan(name("report", i))
		p.Body = slices.Repeat([]byte{byte(i)}, store.MaxBody)
		f.swapped(p)
	}
	page, err := f.Store.Plans(f.ctx, 0, "", 500)
	f.NoError(err)
	f.Len(page, store.MaxClaim/store.MaxBody)
	f.Len(f.plans(0, 500), 20)
	leases := f.claimPlans(100)
	f.Len(leases, store.MaxClaim/store.MaxBody)
	for _, l := range leases {
		f.Len(l.Body, store.MaxBody)
	}
}

func planAnnounced(f *fixture) {
	l := f.listen()
	p := plan("report")
	p.Due = f.readHorizon(0).Now + 60_000
	f.swapped(p)
	l.expect(store.Event{Kind: store.Earlier, Due: p.Due})
	q := next(p)
	q.Due, q.Wake, q.Seen = store.MaxMillis, store.WakeOnEnd, 1000
	q.Entries = []store.Entry{occurrence("report", 1)}
	f.swapped(q)
	l.expect(store.Event{Kind: store.Earlier, Due: 1})
	f.ended(f.claimOne(q.Entries[0].Key), store.Done)
	l.expect(store.Event{Kind: store.Earlier, Due: f.get(p.Key).Due})
	r := next(q)
	r.Due, r.Wake, r.Seen = store.MaxMillis, store.WakeOnEnd, 1000
	r.Entries = []store.Entry{occurrence("report", 2)}
	r.Entries[0].At = f.readHorizon(0).Now + 60_000
	f.swapped(r)
	f.cancel(r.Entries[0].Key)
	l.expect(store.Event{Kind: store.Earlier, Due: f.get(p.Key).Due})
	l.close()
}

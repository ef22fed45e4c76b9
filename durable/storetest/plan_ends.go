package storetest

import (
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

func planWakes(f *fixture) {
	asleep := func(p store.PlanSwap) { f.Helper(); f.Equal(store.MaxMillis, f.get(p.Key).Due) }
	awake := func(p store.PlanSwap) {
		f.Helper()
		due, now := f.get(p.Key).Due, f.readHorizon(0).Now
		f.True(due > 1 && due <= now, "due at %d, and it is %d", due, now)
	}
	i := 0
	start := func(p store.PlanSwap, wake store.Wake) (store.PlanSwap, store.Lease) {
		f.Helper()
		i++
		p.Due, p.Wake, p.Seen = store.MaxMillis, wake, uint64(1000)
		return f.runOccurrence(p, i)
	}
	p, l := start(plan("report"), store.WakeNever)
	f.ended(l, store.Done)
	asleep(p)
	p, l = start(next(p), store.WakeOnDead)
	f.ended(l, store.Done)
	asleep(p)
	p, l = start(next(p), store.WakeOnDead)
	f.ended(l, store.Retry)
	asleep(p)
	f.ended(f.claimOne(l.Key), store.DeadLetter)
	awake(p)
	p, l = start(next(p), store.WakeOnEnd)
	f.ended(l, store.Snooze)
	asleep(p)
	f.ended(f.claimOne(l.Key), store.Done)
	awake(p)
	p, l = start(next(p), store.WakeOnEnd)
	f.cancel(l.Key)
	asleep(p)
	f.ended(l, store.Retry) // it was cancelled
	awake(p)
	p, l = start(next(p), store.WakeOnEnd)
	f.ended(l, store.DeadLetter)
	awake(p)

	// Cancelling a waiting occurrence wakes, too; and the second end finds the plan awake.
	p = next(p)
	p.Wake, p.Seen = store.WakeOnEnd, 1000
	p.Entries = []store.Entry{occurrence("report", 98), occurrence("report", 99)}
	f.swapped(p)
	asleep(p)
	f.cancel(p.Entries[0].Key)
	awake(p)
	due := f.get(p.Key).Due
	f.Equal(p.ID, f.claimPlans(1)[0].ID)
	f.cancel(p.Entries[1].Key)
	f.Equal(due, f.get(p.Key).Due)
	f.Equal(store.Leased, f.get(p.Key).State)
	f.verify()

	// It wakes once, unless a swap asks for it again; and not at all if the swap does not ask.
	p, l = start(next(p), store.WakeOnEnd)
	f.ended(l, store.Done)
	awake(p)
	f.postpone(p)
	f.put(occurrence("report", 100))
	f.ended(f.claimOne(occurrence("report", 100).Key), store.Done)
	f.Greater(f.get(p.Key).Due, f.readHorizon(0).Now+1_000_000, "the plan wakes twice")
	p, l = start(next(p), store.WakeOnEnd)
	p, l2 := start(next(p), store.WakeNever)
	f.ended(l, store.Done)
	f.ended(l2, store.Done)
	asleep(p)

	// The end finds the plan leased: it does nothing, and the next one wakes it.
	p = next(p)
	p.Due, p.Wake, p.Seen = 1, store.WakeOnEnd, 1000
	p.Entries = []store.Entry{occurrence("report", 101), occurrence("report", 102)}
	f.swapped(p)
	plan, l := f.claimBoth()
	f.ended(l, store.Done)
	f.Equal(store.Millis(1), f.get(p.Key).Due, "a leased plan wakes")
	f.Equal(store.Ended, f.end(store.Outcome{Holder: plan.Holder, Kind: store.Retry, Delay: time.Hour}))
	f.Greater(f.get(p.Key).Due, f.readHorizon(0).Now+1_000_000)
	f.cancel(p.Entries[0].Key, p.Entries[1].Key)
	awake(p)
}

func planSeen(f *fixture) {
	p, l := f.runOccurrence(plan("report"), 1)
	f.ended(l, store.Done)
	for _, c := range []struct {
		wake  store.Wake
		seen  uint64
		awake bool
	}{
		{store.WakeNever, 0, false},
		{store.WakeOnEnd, 0, true},
		{store.WakeOnEnd, 1, false},
		{store.WakeOnDead, 0, false},
	} {
		p = next(p)
		p.Wake, p.Seen = c.wake, c.seen
		f.swapped(p)
		f.Equal(c.awake, f.get(p.Key).Due != store.MaxMillis, "%+v", c)
	}
	p, l = f.runOccurrence(next(p), 2)
	f.ended(l, store.DeadLetter)
	p = next(p)
	p.Wake, p.Seen, p.Entries = store.WakeOnDead, 0, []store.Entry{occurrence("report", 3)}
	f.swapped(p)
	f.NotEqual(store.MaxMillis, f.get(p.Key).Due)
	plan, l := f.claimBoth()
	f.Equal(store.Ended, f.end(store.Outcome{Holder: plan.Holder, Kind: store.Retry, Delay: time.Hour}))
	f.ended(l, store.DeadLetter)
	f.Greater(f.get(p.Key).Due, f.readHorizon(0).Now+1_000_000, "the plan wakes twice")
}

func planHistory(f *fixture) {
	p := plan("report")
	p.Due = store.MaxMillis
	for i := range 5 {
		p.Entries = append(p.Entries, occurrence("report", i))
	}
	f.swapped(p)
	begun := f.readHorizon(0).Now
	leases := f.claim(4)
	f.Len(leases, 4)
	f.ended(leases[0], store.Done)
	f.Equal(store.Ended, f.end(store.Outcome{Holder: leases[1].Holder, Kind: store.DeadLetter, Error: strings.Repeat("long ", 100)}))
	f.cancel(leases[2].Key)
	f.Equal(uint64(0), f.history("report").Cancelled, "it still runs")
	f.ended(leases[2], store.Done)
	f.ended(leases[3], store.Retry)
	f.cancel(p.Entries[4].Key)
	h := f.history("report")
	ended := f.readHorizon(0).Now
	f.Equal([]uint64{1, 1, 2}, []uint64{h.Done, h.Dead, h.Cancelled})
	f.Len(h.Last, 4)
	for i, want := range []store.Note{
		{Key: leases[0].Key, Outcome: store.OccurrenceDone, Attempts: 1},
		{Key: leases[1].Key, Outcome: store.OccurrenceDead, Attempts: 1, Error: strings.Repeat("long ", 20)},
		{Key: leases[2].Key, Outcome: store.OccurrenceCancelled, Attempts: 1},
		{Key: p.Entries[4].Key, Outcome: store.OccurrenceCancelled},
	} {
		n := h.Last[i]
		if i < 3 {
			f.True(n.Begun >= begun && n.Begun <= n.Ended, "%+v", n)
			f.Equal(store.Begun(leases[i].Fence), n.Begun)
		} else {
			f.Zero(n.Begun)
		}
		f.True(n.Ended >= begun && n.Ended <= ended, "%+v", n)
		n.Begun, n.Ended = 0, 0
		f.Equal(want, n)
	}
	// The note of a retried run has its last error and attempts.
	if f.Advance != nil {
		f.Advance(time.Second)
	}
	f.ended(f.claimOne(leases[3].Key), store.Snooze)
	f.ended(f.claimOne(leases[3].Key), store.Release)
	again := f.claimOne(leases[3].Key)
	f.Equal(uint64(4), f.history("report").Ended(), "a run that ends otherwise is in the history")
	f.ended(again, store.Done)
	last := f.history("report").Last[4]
	f.Equal([]any{store.OccurrenceDone, 2, "error of " + again.Key}, []any{last.Outcome, last.Attempts, last.Error})
	f.Equal(store.Begun(again.Fence), last.Begun)
	f.Equal(store.EndLost, f.end(store.Outcome{Holder: again.Holder, Kind: store.Done}))
	// A requeued dead letter ends again; a purged one does not.
	f.requeue(leases[1].Key)
	f.ended(f.claimOne(leases[1].Key), store.Done)
	h = f.history("report")
	f.Equal([]uint64{3, 1, 2}, []uint64{h.Done, h.Dead, h.Cancelled})
	f.Equal(h, *f.plans(0, 1)[0].History)
	p.Expected, p.ID, p.Due, p.Entries = p.ID, store.NewID(), 1, nil
	f.swapped(p)
	f.Equal(h, f.history("report"), "a swap changes the history")
	f.Equal(&h, f.claimPlans(1)[0].History)
	// A replaced run is not in the history; a retry that is cancelled while it waits has no Begun.
	p, l := f.runOccurrence(next(p), 5)
	f.Equal(store.Succeeds, f.put(occurrence("report", 5)).Kind)
	f.Equal(store.EndReplaced, f.end(store.Outcome{Holder: l.Holder, Kind: store.Done}))
	f.Equal(h, f.history("report"), "a run that was replaced is in the history")
	f.ended(f.claimOne(l.Key), store.Retry)
	f.cancel(l.Key)
	h = f.history("report")
	last = h.Last[len(h.Last)-1]
	f.Equal([]any{store.OccurrenceCancelled, 1, store.Millis(0)}, []any{last.Outcome, last.Attempts, last.Begun})
	p, l = f.runOccurrence(next(p), 6)
	f.ended(l, store.DeadLetter)
	h = f.history("report")
	f.Equal([]uint64{3, 2, 3}, []uint64{h.Done, h.Dead, h.Cancelled})
	f.Equal(1, f.purge(l.Key))
	f.Equal(h, f.history("report"))
	// Without the plan there is no history.
	r := f.get(p.Key)
	e := occurrence("report", 9)
	swap := next(p)
	swap.Expected, swap.Entries = r.ID, []store.Entry{e}
	f.swapped(swap)
	f.swapped(store.PlanSwap{Key: p.Key, Expected: swap.ID})
	f.ended(f.claimOne(e.Key), store.Done)
	f.absent(p.Key)
	f.swapped(plan("report"))
	f.Zero(f.history("report").Ended())
}

func planLastTen(f *fixture) {
	p := plan("report")
	p.Due = store.MaxMillis
	for i := range 12 {
		p.Entries = append(p.Entries, occurrence("report", 10+i))
	}
	f.swapped(p)
	leases := f.claim(12)
	var outcomes []store.Outcome
	for _, l := range leases {
		outcomes = append(outcomes, store.Outcome{Holder: l.Holder, Kind: store.Done})
	}
	results, _, err := f.Store.End(f.ctx, 0, outcomes)
	f.NoError(err)
	f.Len(results, 12)
	h := f.history("report")
	f.Equal(uint64(12), h.Done)
	var keys []string
	for _, n := range h.Last {
		keys = append(keys, n.Key)
	}
	f.Equal(keysOf(leases[2:]), keys)
}

func planLostOccurrence(f *fixture) {
	p := plan("report")
	p.Due, p.Wake, p.Entries = store.MaxMillis, store.WakeOnEnd, []store.Entry{
		occurrence("report", 1), occurrence("report", 2), occurrence("report", 3),
	}
	f.swapped(p)
	leases := f.claim(3)
	later := occurrence("report", 3)
	later.At = store.MaxMillis
	f.Equal(store.Succeeds, f.put(later).Kind)
	f.advance(testLease + time.Second)
	again := f.claimOne(leases[0].Key) // it is leased again, and the third is replaced
	f.Equal(2, again.Attempt)
	f.Zero(f.history("report").Ended())
	f.cancel(again.Key)
	f.advance(testLease + time.Second)
	c := newClaim(1)
	c.MaxAttempts = 1
	claimed, _ := f.claimWith(0, c)
	f.Equal(1, claimed.DeadLettered)
	h := f.history("report")
	f.Equal([]uint64{0, 1, 1}, []uint64{h.Done, h.Dead, h.Cancelled})
	for _, n := range h.Last {
		f.Equal(map[string]int{leases[0].Key: 2, leases[1].Key: 1}[n.Key], n.Attempts)
		f.NotZero(n.Begun)
		f.Greater(n.Ended, n.Begun)
	}
	f.LessOrEqual(f.get(p.Key).Due, f.readHorizon(0).Now)
}

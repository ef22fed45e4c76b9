package storetest

import (
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// swapClaimTests test the leases that swaps grant on the occurrences that they create.
var swapClaimTests = []test{
	{"S10 a swap leases what it creates", check(swapClaimLeases)},
	{"S10 a swap leases what is due, and at most Max", check(swapClaimMax)},
	{"S10 a swap leases nothing that it does not create", checkWith(Options{Shards: 1, Limits: store.Limits{MaxPending: 5}}, swapClaimNothing)},
	{"S10 a swap that is sent again gets the same leases", check(swapClaimResent)},
	{"S10 a lease of a swap expires as that of a claim", check(swapClaimExpires)},
	{"S10 a lease of a swap survives a reopening", check(swapClaimReopened)},
	{"a SwapClaim that is out of bounds is refused", check(swapClaimChecked)},
}

func newSwapClaim(max int) store.SwapClaim {
	return store.SwapClaim{Token: store.NewToken("worker"), Lease: testLease, Max: max}
}

// swapAndClaim makes swaps, which must succeed, and returns the leases.
func (f *fixture) swapAndClaim(c store.SwapClaim, swaps ...store.PlanSwap) []store.Lease {
	f.Helper()
	results, leases := f.swapWith(c, swaps...)
	f.Equal(slices.Repeat([]store.SwapResult{store.Swapped}, len(swaps)), results)
	return leases
}

func swapClaimLeases(f *fixture) {
	f.putAll("before")
	earlier := f.claimOne("before")
	p, q := plan("report"), plan("other")
	large := occurrence("report", 2)
	large.At, large.Topic, large.Body = 2, otherLane("topic"), slices.Repeat([]byte("large "), 2000)
	p.Due, p.Entries = store.MaxMillis, []store.Entry{occurrence("report", 1), large}
	q.Due, q.Entries = store.MaxMillis, []store.Entry{occurrence("other", 1)}
	t, before := newSwapClaim(10), f.readHorizon(0)
	leases := f.swapAndClaim(t, p, q)
	f.Len(leases, 3)
	for i, e := range []store.Entry{p.Entries[0], large, q.Entries[0]} {
		l := leases[i]
		f.counted(l.End, testLease, before, f.readHorizon(0))
		f.Greater(l.Fence, earlier.Fence)
		earlier = l
		f.Equal(store.Lease{
			Holder: store.Holder{Key: e.Key, Fence: l.Fence, Token: t.Token},
			ID:     e.ID, Topic: e.Topic, Body: e.Body, Due: e.At, Attempt: 1, End: l.End,
		}, l)
		f.Equal(store.Record{
			Key: e.Key, ID: e.ID, Topic: e.Topic, Body: e.Body, State: store.Leased, Due: e.At, Attempts: 1,
			LeaseEnd: l.End, Fence: l.Fence, Token: l.Token,
		}, f.get(e.Key))
	}
	f.Empty(f.claim(10), "a timer that a swap has leased is claimed")
	f.verify()

	f.ended(leases[0], store.Done)
	f.ended(leases[1], store.Retry)
	f.ended(leases[2], store.DeadLetter)
	f.absent(p.Entries[0].Key)
	note := f.history("report").Last[0]
	f.Equal([]any{store.OccurrenceDone, store.Begun(leases[0].Fence), 1}, []any{note.Outcome, note.Begun, note.Attempts})
	again := f.claimOne(large.Key)
	f.Equal([]any{2, "error of " + large.Key}, []any{again.Attempt, again.LastError})
	f.Greater(again.Fence, earlier.Fence)
	f.Equal(uint64(1), f.history("other").Dead)
}

func swapClaimMax(f *fixture) {
	p := plan("report")
	later, now := occurrence("report", 1), occurrence("report", 2)
	later.At = f.readHorizon(0).Now + 1e9
	now.At = 0 // and no After
	soon := now
	soon.Key, soon.After = occurrence("report", 3).Key, time.Hour
	p.Due, p.Entries = store.MaxMillis, []store.Entry{later, now, soon, occurrence("report", 4), occurrence("report", 5)}
	leases := f.swapAndClaim(newSwapClaim(2), p)
	f.Equal([]string{now.Key, p.Entries[3].Key}, keysOf(leases))
	for _, e := range []store.Entry{later, soon, p.Entries[4]} {
		f.Equal(store.Waiting, f.get(e.Key).State)
	}
	f.claimOne(p.Entries[4].Key)

	for i, t := range []store.SwapClaim{{}, newSwapClaim(0)} {
		q := plan(name("another", i))
		q.Due, q.Entries = store.MaxMillis, []store.Entry{occurrence(name("another", i), 1)}
		f.Empty(f.swapAndClaim(t, q))
		f.claimOne(q.Entries[0].Key)
	}
}

func swapClaimNothing(f *fixture) {
	p := plan("report")
	p.Due, p.Entries = store.MaxMillis, []store.Entry{occurrence("report", 1), occurrence("report", 2)}
	f.swapped(p)
	claimed := f.claim(1)[0]

	exists := next(p) // one is leased to another, and one waits
	exists.Entries = p.Entries
	f.Empty(f.swapAndClaim(newSwapClaim(10), exists))
	f.Equal(claimed.Fence, f.get(claimed.Key).Fence)
	f.Equal(store.Waiting, f.get(occurrence("report", 2).Key).State)

	lost := next(p)
	lost.Entries = []store.Entry{occurrence("report", 3)}
	refused := next(exists)
	for i := range 3 {
		refused.Entries = append(refused.Entries, occurrence("report", 4+i))
	}
	removes := store.PlanSwap{Key: p.Key, Expected: exists.ID, Entries: []store.Entry{occurrence("report", 7)}}
	results, leases := f.swapWith(newSwapClaim(10), lost, refused, removes)
	f.Equal([]store.SwapResult{store.SwapLost, store.SwapRefused, store.Swapped}, results)
	f.Empty(leases)
	for _, p := range []store.PlanSwap{lost, refused, removes} {
		for _, e := range p.Entries {
			f.absent(e.Key)
		}
	}
}

func swapClaimResent(f *fixture) {
	p, q := plan("report"), plan("other")
	p.Due, p.Entries = store.MaxMillis, []store.Entry{occurrence("report", 1), occurrence("report", 2), occurrence("report", 3)}
	q.Due, q.Entries = store.MaxMillis, []store.Entry{occurrence("other", 1)}
	t := newSwapClaim(10)
	first := f.swapAndClaim(t, p, q)
	lost := []store.SwapResult{store.SwapLost, store.SwapLost}
	results, again := f.swapWith(t, p, q)
	f.Equal(lost, results)
	f.Equal(first, again)

	_, other := f.swapWith(newSwapClaim(10), p, q)
	f.Empty(other, "another call gets its leases")
	_, none := f.swapWith(store.SwapClaim{}, p, q)
	f.Empty(none)

	// A repeated swap returns only the leases that still exist, with their present ends.
	f.ended(first[0], store.Done)
	f.ended(first[1], store.Retry)
	result, end := f.extend(first[3].Holder, 3*testLease)
	f.Equal(store.Extended, result)
	first[3].End = end
	retried := f.claimOne(first[1].Key)
	results, again = f.swapWith(t, p, q)
	f.Equal(lost, results)
	f.Equal(first[2:], again)
	f.Equal(retried.Fence, f.get(retried.Key).Fence)
	f.absent(first[0].Key)
}

func swapClaimExpires(f *fixture) {
	p := plan("report")
	p.Due, p.Entries = store.MaxMillis, []store.Entry{occurrence("report", 1)}
	leases := f.swapAndClaim(newSwapClaim(1), p)
	f.Equal(leases[0].End, f.readHorizon(0).NextLeaseEnd)
	f.advance(testLease - time.Second)
	f.Empty(f.claim(1))
	f.advance(time.Second + time.Millisecond)
	l := f.claimOne(p.Entries[0].Key)
	f.Equal(2, l.Attempt)
	f.Greater(l.Fence, leases[0].Fence)
	f.Equal(store.EndLost, f.end(store.Outcome{Holder: leases[0].Holder, Kind: store.Done}))
	f.ended(l, store.Done)
}

func swapClaimReopened(f *fixture) {
	if f.Reopen == nil {
		f.Skip("the engine cannot be reopened")
	}
	p := plan("report")
	p.Due, p.Entries = store.MaxMillis, []store.Entry{occurrence("report", 1), occurrence("report", 2)}
	p.Entries[1].Body = slices.Repeat([]byte("large "), 2000)
	leases := f.swapAndClaim(newSwapClaim(2), p)
	f.Store = f.Reopen(f.TB)
	f.ended(leases[0], store.Done)
	f.Equal(uint64(1), f.history("report").Done)
	f.advance(testLease + time.Millisecond)
	l := f.claimOne(p.Entries[1].Key)
	f.Equal([]any{2, string(p.Entries[1].Body)}, []any{l.Attempt, string(l.Body)})
}

func swapClaimChecked(f *fixture) {
	p := plan("report")
	token := store.NewToken("worker")
	for want, t := range map[string]store.SwapClaim{
		"durable: SwapClaim.Max is 501, must be 0 to 500":                   {Token: token, Lease: testLease, Max: store.MaxItems + 1},
		"durable: SwapClaim.Max is -1, must be 0 to 500":                    {Token: token, Lease: testLease, Max: -1},
		"durable: SwapClaim.Token is zero, must be drawn for the call":      {Lease: testLease, Max: 1},
		"durable: SwapClaim.Lease is 0s, must be 100ms to 24h0m0s":          {Token: token, Max: 1},
		"durable: SwapClaim.Lease is 24h0m0.001s, must be 100ms to 24h0m0s": {Token: token, Lease: store.MaxLease + time.Millisecond, Max: 1},
	} {
		_, _, _, err := f.Store.SwapPlans(f.ctx, 0, []store.PlanSwap{p}, t)
		f.EqualError(err, want)
	}
	f.absent(p.Key)
}

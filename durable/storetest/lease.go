package storetest

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// leaseTests test fences and tokens, extensions, and expired leases.
var leaseTests = []test{
	{"D5 fences grow", checkWith(Options{Shards: 2}, fencesGrow)},
	{"D5 case 23 case 27: another fence or token changes nothing", check(holderCompared)},
	{"D5 case 13: leased again, the old holder has lost", check(leasedAgain)},
	{"D5 case 22: ended and used again, the old holder has lost", check(endedAndReused)},
	{"D5 an expired lease is not lost", check(expiredNotLost)},
	{"D5 requeued, the old holder has lost", check(requeuedLost)},
	{"D6 D7 case 3: a timer whose lease expired is leased again, and the attempt counts", check(leaseExpires)},
	{"D6 a lease holds to its last millisecond", check(leaseHolds)},
	{"D6 an extension counts from now", check(extensionCounts)},
	{"D7 case 16: a claim sent again gets the same leases", check(claimResent)},
	{"D9 without attempts left it is a dead letter, error and body intact", check(poison)},
	{"D9 the claim that finds an expired lease decides whether attempts are left", check(attemptsOfClaim)},
}

func fencesGrow(f *fixture) {
	last := make([]uint64, f.Store.Shards())
	seen := map[store.Holder]bool{}
	for round := range 10 {
		for i := range 6 {
			f.put(entry(name("k", i)))
		}
		for n := range f.Store.Shards() {
			highest := last[n]
			for {
				claimed, _ := f.claimWith(n, newClaim(2))
				if len(claimed.Leases) == 0 {
					break
				}
				before := highest
				for _, l := range claimed.Leases {
					f.Greater(l.Fence, before, "D5: not higher than in an earlier claim")
					f.False(seen[l.Holder])
					seen[l.Holder] = true
					highest = max(highest, l.Fence)
					f.Equal(l.Fence, f.get(l.Key).Fence)
					f.ended(l, outcomeKinds[(round+len(seen))%2*3]) // Done and Release
					f.cancel(l.Key)
				}
			}
			last[n] = highest
		}
		f.empty() // the fence is kept for good
	}
	f.Len(seen, 60)
}

// others are holders that are not h.
func others(h store.Holder) map[string]store.Holder {
	with := func(change func(*store.Holder)) store.Holder {
		h := h
		change(&h)
		return h
	}
	return map[string]store.Holder{
		"fence above":    with(func(h *store.Holder) { h.Fence++ }),
		"fence below":    with(func(h *store.Holder) { h.Fence-- }),
		"no fence":       with(func(h *store.Holder) { h.Fence = 0 }),
		"token's begin":  with(func(h *store.Holder) { h.Token[0]++ }),
		"token's end":    with(func(h *store.Holder) { h.Token[15]++ }),
		"another token":  with(func(h *store.Holder) { h.Token = store.NewToken("worker") }),
		"no token":       with(func(h *store.Holder) { h.Token = store.Token{} }),
		"another key":    with(func(h *store.Holder) { h.Key = "b" }),
		"a waiting key":  with(func(h *store.Holder) { h.Key = "waiting" }),
		"a dead key":     with(func(h *store.Holder) { h.Key = "dead" }),
		"an absent key":  with(func(h *store.Holder) { h.Key = "absent" }),
		"nothing at all": {Key: "waiting"},
	}
}

// lost fails the test unless all calls of a holder are refused.
func (f *fixture) lost(h store.Holder, why string) {
	f.Helper()
	old := f.get(h.Key)
	extended, _ := f.extend(h, 2*testLease)
	f.Equal(store.ExtendLost, extended, why)
	for _, kind := range outcomeKinds {
		f.Equal(store.EndLost, f.end(store.Outcome{Holder: h, Kind: kind, Delay: time.Minute, Error: "not mine"}), why)
	}
	f.Equal(old, f.get(h.Key), why)
}

func holderCompared(f *fixture) {
	f.putAll("dead", "a")
	f.ended(f.claimOne("dead"), store.DeadLetter)
	a := f.claimOne("a")
	f.putAll("b")
	f.claimOne("b")
	f.putAll("waiting")
	for why, h := range others(a.Holder) {
		f.lost(h, why)
	}
	f.verify()
	// In one call with the right one.
	var holders []store.Holder
	for _, h := range others(a.Holder) {
		holders = append(holders, h)
	}
	holders = append(holders, a.Holder)
	extended, _, err := f.Store.Extend(f.ctx, 0, holders, testLease)
	f.NoError(err)
	var outcomes []store.Outcome
	for _, h := range holders {
		outcomes = append(outcomes, store.Outcome{Holder: h, Kind: store.Done})
	}
	ended, _, err := f.Store.End(f.ctx, 0, append(outcomes, outcomes[len(outcomes)-1]))
	f.NoError(err)
	last := len(holders) - 1
	for i := range last {
		f.Equal(store.ExtendLost, extended[i])
		f.Equal(store.EndLost, ended[i])
	}
	f.Equal(store.Extended, extended[last])
	f.Equal([]store.EndResult{store.Ended, store.EndLost}, ended[last:])
	f.absent("a")
}

func leasedAgain(f *fixture) {
	for _, kind := range outcomeKinds {
		f.putAll("a")
		old := f.claimOne("a")
		f.advance(testLease + time.Second)
		l := f.claimOne("a")
		f.lost(old.Holder, "leased again")
		f.ended(l, kind)
		f.lost(old.Holder, fmt.Sprint("ended by ", kind))
		f.cancel("a")
		f.purge("a")
	}
}

func endedAndReused(f *fixture) {
	f.putAll("a")
	old := f.claimOne("a")
	f.ended(old, store.Done)
	f.lost(old.Holder, "removed")
	f.putAll("a")
	f.lost(old.Holder, "waiting again")
	l := f.claimOne("a")
	f.lost(old.Holder, "leased again")
	f.put(entry("a"))
	f.lost(old.Holder, "leased again, with a successor")
	f.cancel("a")
	f.lost(old.Holder, "leased again and cancelled")
	f.ended(l, store.Retry)
	f.absent("a")
}

func expiredNotLost(f *fixture) {
	for _, kind := range outcomeKinds {
		f.putAll("a")
		l := f.claimOne("a")
		f.advance(2 * testLease)
		r := f.get("a")
		f.Equal(store.Leased, r.State)
		f.Equal(l.End, r.LeaseEnd)
		f.verify()
		f.ended(l, kind)
		f.cancel("a")
		f.purge("a")
		// Extended after its end, the timer is not leased again.
		f.putAll("a")
		l = f.claimOne("a")
		f.advance(2 * testLease)
		extended, _ := f.extend(l.Holder, testLease)
		f.Equal(store.Extended, extended)
		f.Empty(f.claim(1))
		f.ended(l, store.Done)
	}
}

func requeuedLost(f *fixture) {
	f.putAll("a")
	l := f.claimOne("a")
	f.ended(l, store.DeadLetter)
	f.lost(l.Holder, "dead")
	f.Equal([]store.RequeueResult{store.Requeued}, f.requeue("a"))
	f.lost(l.Holder, "requeued")
	second := f.claimOne("a")
	f.lost(l.Holder, "leased again")
	f.ended(second, store.Done)
}

func leaseExpires(f *fixture) {
	f.putAll("a")
	f.ended(f.claimOne("a"), store.Retry)
	due := f.get("a").Due
	l := f.claimOne("a")
	f.Equal(2, l.Attempt)
	f.advance(testLease + time.Second)
	before := f.readHorizon(0)
	again := f.claimOne("a")
	f.Greater(again.Fence, l.Fence)
	f.counted(again.End, testLease, before, f.readHorizon(0))
	want := l
	want.Holder, want.End, want.Attempt = again.Holder, again.End, 3
	f.Equal(want, again)
	f.Equal(due, again.Due)
	f.Equal("error of a", again.LastError)
	f.Empty(f.claim(1))
	f.ended(again, store.Retry)
	f.Equal(3, f.get("a").Attempts)
}

func leaseHolds(f *fixture) {
	f.putAll("a")
	c := newClaim(1)
	c.Lease = store.MinLease
	claimed, _ := f.claimWith(0, c)
	end := claimed.Leases[0].End
	f.advance(store.MinLease - time.Millisecond)
	for range 5 {
		claimed, h := f.claimWith(0, newClaim(1))
		if h.Now < end {
			f.Empty(claimed.Leases, "D6: leased to another before its end")
			f.advance(time.Millisecond)
			continue
		}
		f.Len(claimed.Leases, 1, "D6: not leased again when it expired")
		return
	}
	f.Fatal("the lease does not expire")
}

func extensionCounts(f *fixture) {
	f.putAll("a", "b")
	a := f.claim(2)[0]
	for _, lease := range []time.Duration{3 * testLease, testLease, store.MinLease, store.MaxLease, time.Second + 1} {
		before := f.readHorizon(0)
		extended, end := f.extend(a.Holder, lease)
		f.Equal(store.Extended, extended)
		f.counted(end, lease, before, f.readHorizon(0))
		f.Equal(end, f.get("a").LeaseEnd)
		f.verify()
	}
	f.Equal(a.Due, f.get("a").Due)
	f.Equal(1, f.get("a").Attempts)
	// It holds for that long, and b's does not.
	f.extend(a.Holder, 3*testLease)
	f.advance(2 * testLease)
	f.Equal([]string{"b"}, keysOf(f.claim(5)))
	f.advance(testLease + time.Second)
	f.Equal([]string{"a", "b"}, keysOf(f.claim(5)))
}

func claimResent(f *fixture) {
	f.putAll("a", "b", "c", "d", "e")
	c := newClaim(3)
	claimed, _ := f.claimWith(0, c)
	f.Equal([]string{"a", "b", "c"}, keysOf(byDueTime(claimed.Leases)))
	for range 3 {
		again, _ := f.claimWith(0, c)
		f.Equal(byDueTime(claimed.Leases), byDueTime(again.Leases), "case 16: sent again, the claim gets other leases")
	}
	f.Equal(3, f.stats(0).Leased)
	f.Equal(1, f.get("a").Attempts)
	f.Equal([]string{"d", "e"}, keysOf(f.claim(3)))
	for _, l := range claimed.Leases {
		f.ended(l, store.Done)
	}
}

func poison(f *fixture) {
	e := entry("a")
	e.Body = []byte("poison\x00\xff")
	f.put(e)
	f.ended(f.claimOne("a"), store.Retry)
	due := f.get("a").Due
	for attempt := 2; attempt <= testAttempts; attempt++ {
		f.Equal(attempt, f.claimOne("a").Attempt)
		f.advance(testLease + time.Second) // its worker dies
	}
	claimed, h := f.claimWith(0, newClaim(1))
	f.Empty(claimed.Leases)
	f.Equal(1, claimed.DeadLettered)
	f.Equal(store.Record{
		Key: "a", ID: e.ID, Topic: e.Topic, Body: e.Body, State: store.Dead, Due: due,
		Attempts: testAttempts, LastError: "error of a", Died: h.Now,
	}, f.get("a"))
	f.Equal(1, f.stats(0).Dead)
	f.verify()
	claimed, _ = f.claimWith(0, newClaim(1))
	f.Empty(claimed.Leases)
	f.Zero(claimed.DeadLettered)
	f.lost(f.held[len(f.held)-1], "dead")
	f.Equal([]store.RequeueResult{store.Requeued}, f.requeue("a"))
	l := f.claimOne("a")
	f.Equal(1, l.Attempt)
	f.Equal(e.Body, l.Body)
}

func attemptsOfClaim(f *fixture) {
	f.putAll("lost", "retried")
	for range testAttempts {
		leases := f.claim(2)
		f.Equal([]string{"lost", "retried"}, keysOf(leases))
		f.Equal(store.Ended, f.end(store.Outcome{Holder: leases[1].Holder, Kind: store.Retry}))
		f.advance(testLease + time.Second)
	}
	// The worker dead-letters a waiting retry, not the claim.
	c := newClaim(2)
	c.MaxAttempts = testAttempts + 1
	claimed, _ := f.claimWith(0, c)
	f.Zero(claimed.DeadLettered)
	f.Len(claimed.Leases, 2)
	for _, l := range claimed.Leases {
		f.Equal(testAttempts+1, l.Attempt)
	}
	f.advance(testLease + time.Second)
	claimed, _ = f.claimWith(0, newClaim(2))
	f.Equal(2, claimed.DeadLettered)
	f.Empty(claimed.Leases)
}

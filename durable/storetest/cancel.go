package storetest

import (
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// cancelTests test Cancel in each state of a timer, and the outcome of its run.
var cancelTests = []test{
	{"D4 case 5: Cancelled needs no due time, and no handler will run", check(cancelWaiting)},
	{"D4 NotFound: absent and dead", check(cancelAbsent)},
	{"D4 Running: no retry, however the run ends", check(cancelLeased)},
	{"D4 Running: an expired lease is not granted again", check(cancelExpired)},
	{"D4 case 14: an extension does not revive a cancelled timer", check(cancelExtended)},
	{"D4 one call for timers in all states", check(cancelBatch)},
}

func cancelWaiting(f *fixture) {
	f.putAll("due", "retrying", "requeued")
	leases := f.claim(3)
	f.ended(leases[0], store.Release)
	f.ended(leases[1], store.Retry)
	f.ended(leases[2], store.DeadLetter)
	f.Equal([]store.RequeueResult{store.Requeued}, f.requeue("requeued"))
	later := entry("later")
	later.At = store.MaxMillis
	f.Equal(store.Created, f.put(later).Kind)
	for _, key := range []string{"due", "retrying", "requeued", "later"} {
		f.Equal([]store.CancelResult{store.Cancelled}, f.cancel(key), key)
		f.absent(key)
		f.Equal([]store.CancelResult{store.NotFound}, f.cancel(key), key)
	}
	f.Empty(f.claim(10))
	f.empty()
}

func cancelAbsent(f *fixture) {
	f.Equal([]store.CancelResult{store.NotFound}, f.cancel("absent"))
	f.putAll("dead")
	f.ended(f.claimOne("dead"), store.DeadLetter)
	dead := f.get("dead")
	f.Equal([]store.CancelResult{store.NotFound}, f.cancel("dead"))
	f.Equal(dead, f.get("dead"))
	f.putAll("done")
	f.ended(f.claimOne("done"), store.Done)
	f.Equal([]store.CancelResult{store.NotFound}, f.cancel("done"))
}

// outcomeKinds are the kinds of outcomes with which End can end a run.
var outcomeKinds = []store.OutcomeKind{store.Done, store.Retry, store.Snooze, store.Release, store.DeadLetter}

func cancelLeased(f *fixture) {
	for _, kind := range outcomeKinds {
		f.putAll("a")
		l := f.claimOne("a")
		for range 2 {
			f.Equal([]store.CancelResult{store.Running}, f.cancel("a"))
			r := f.get("a")
			f.Equal(store.Leased, r.State)
			f.True(r.Cancelled)
			f.Equal(l.End, r.LeaseEnd)
		}
		f.Empty(f.claim(1))
		f.verify()
		f.ended(l, kind)
		f.absent("a")
		f.Empty(f.claim(1), "D4: it runs again after %v", kind)
		f.Equal(store.EndLost, f.end(store.Outcome{Holder: l.Holder, Kind: kind}))
		f.empty()
	}
}

func cancelExpired(f *fixture) {
	f.putAll("a", "b", "c")
	leases := f.claim(3)
	f.Equal([]store.CancelResult{store.Running}, f.cancel("a"))
	f.advance(testLease + time.Second)
	f.Equal([]store.CancelResult{store.Running, store.Running}, f.cancel("a", "b"))
	r, _ := f.extend(leases[0].Holder, testLease)
	f.Equal(store.ExtendCancelled, r)
	f.Equal([]string{"c"}, keysOf(f.claim(3)))
	f.absent("a", "b")
	for _, l := range leases[:2] {
		r, _ := f.extend(l.Holder, testLease)
		f.Equal(store.ExtendLost, r)
		f.Equal(store.EndLost, f.end(store.Outcome{Holder: l.Holder, Kind: store.Retry}))
		f.absent(l.Key)
	}
}

func cancelExtended(f *fixture) {
	f.putAll("a")
	l := f.claimOne("a")
	f.Equal([]store.CancelResult{store.Running}, f.cancel("a"))
	marked := f.get("a")
	for range 3 {
		r, _ := f.extend(l.Holder, 10*testLease)
		f.Equal(store.ExtendCancelled, r)
		f.Equal(marked, f.get("a"))
	}
	f.ended(l, store.Retry)
	f.absent("a")
	// A later run of the same key does not keep the mark.
	f.putAll("a")
	l = f.claimOne("a")
	f.False(f.get("a").Cancelled)
	r, _ := f.extend(l.Holder, testLease)
	f.Equal(store.Extended, r)
	f.ended(l, store.Retry)
	f.Equal(store.Waiting, f.get("a").State)
	// Nor if the lease has expired.
	f.claimOne("a")
	f.Equal([]store.CancelResult{store.Running}, f.cancel("a"))
	f.advance(testLease + time.Second)
	f.Empty(f.claim(1))
	f.putAll("a")
	r, _ = f.extend(f.claimOne("a").Holder, testLease)
	f.Equal(store.Extended, r)
}

func cancelBatch(f *fixture) {
	f.putAll("dead", "leased")
	leases := f.claim(2)
	f.ended(leases[0], store.DeadLetter)
	f.putAll("waiting")
	f.Equal([]store.CancelResult{
		store.NotFound, store.Running, store.Cancelled, store.NotFound, store.NotFound, store.Running,
	}, f.cancel("dead", "leased", "waiting", "absent", "waiting", "leased"))
	f.Equal(store.Dead, f.get("dead").State)
	f.True(f.get("leased").Cancelled)
	f.absent("waiting", "absent")
	f.verify()
	f.ended(leases[1], store.Done)
	var keys []string
	for i := range store.MaxItems {
		keys = append(keys, fmt.Sprint(i))
	}
	for _, r := range f.cancel(keys...) {
		f.Equal(store.NotFound, r)
	}
}

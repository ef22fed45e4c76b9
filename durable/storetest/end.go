package storetest

import (
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// endTests test each kind of End, and the state in which it leaves the timer.
var endTests = []test{
	{"D7 Done: the timer is removed, and ends once", check(endDone)},
	{"case 8 case 15: Retry waits for its delay, attempts and error kept", check(endRetry)},
	{"Snooze waits for its delay, and does not count", check(endSnooze)},
	{"case 21: Release waits as before, and does not count", check(endRelease)},
	{"D9 DeadLetter: a dead letter, error and body kept", check(endDeadLetter)},
	{"outcomes of all kinds in one call", check(endBatch)},
}

func endDone(f *fixture) {
	f.putAll("a")
	l := f.claimOne("a")
	results, _, err := f.Store.End(f.ctx, 0, []store.Outcome{{Holder: l.Holder, Kind: store.Done}, {Holder: l.Holder, Kind: store.Retry}})
	f.NoError(err)
	f.Equal([]store.EndResult{store.Ended, store.EndLost}, results)
	f.absent("a")
	f.Equal(store.EndLost, f.end(store.Outcome{Holder: l.Holder, Kind: store.Done}))
	f.empty()
}

// endWith claims a, ends it and returns its record. It checks the record except for attempts, last
// error and due time.
func (f *fixture) endWith(e store.Entry, kind store.OutcomeKind, delay time.Duration, text string) (r store.Record, before store.Horizon) {
	f.Helper()
	l := f.claimOne("a")
	before = f.readHorizon(0)
	f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: kind, Delay: delay, Error: text}))
	r = f.get("a")
	f.Equal(store.Record{
		Key: e.Key, ID: e.ID, Topic: e.Topic, Body: e.Body,
		State: store.Waiting, Due: r.Due, Attempts: r.Attempts, LastError: r.LastError,
	}, r)
	return r, before
}

func endRetry(f *fixture) {
	e := entry("a")
	f.put(e)
	for i, d := range []time.Duration{0, -time.Second, 1, time.Millisecond, time.Millisecond + 1, time.Minute} {
		r, before := f.endWith(e, store.Retry, d, name("error", i))
		f.counted(r.Due, d, before, f.readHorizon(0))
		f.Equal(i+1, r.Attempts)
		f.Equal(name("error", i), r.LastError)
		if d > 0 {
			claimed, h := f.claimWith(0, newClaim(1))
			if h.Now < r.Due {
				f.Empty(claimed.Leases, "D2: a retry is early")
			} else {
				f.ended(claimed.Leases[0], store.Release)
			}
			f.advance(d.Truncate(time.Millisecond) + 2*time.Millisecond)
		}
	}
	// LastError is that of the last attempt that failed, even if that is empty.
	r, _ := f.endWith(e, store.Retry, 0, "")
	f.Empty(r.LastError)
	f.Equal(7, r.Attempts)
}

func endSnooze(f *fixture) {
	e := entry("a")
	f.put(e)
	f.endWith(e, store.Retry, 0, "failed")
	for _, d := range []time.Duration{time.Minute, 1, 0} {
		r, before := f.endWith(e, store.Snooze, d, "ignored")
		f.counted(r.Due, d, before, f.readHorizon(0))
		f.Equal(1, r.Attempts)
		f.Equal("failed", r.LastError)
		if d > 0 {
			f.advance(d.Truncate(time.Millisecond) + 2*time.Millisecond)
		}
	}
	f.Equal(2, f.claimOne("a").Attempt)
}

func endRelease(f *fixture) {
	e := entry("a")
	f.put(e)
	for range 3 {
		r, _ := f.endWith(e, store.Release, time.Minute, "ignored")
		f.fresh(e)
		f.Zero(r.Attempts)
	}
	r, _ := f.endWith(e, store.Retry, 0, "failed")
	back, _ := f.endWith(e, store.Release, 0, "")
	f.Equal(r, back)
	l := f.claimOne("a")
	f.Equal(2, l.Attempt)
	f.Equal("failed", l.LastError)
	// Even if it is late.
	f.advance(2 * testLease)
	f.ended(l, store.Release)
	f.Equal(r, f.get("a"))
}

func endDeadLetter(f *fixture) {
	e := entry("a")
	f.put(e)
	r, _ := f.endWith(e, store.Retry, 0, "first")
	l := f.claimOne("a")
	before := f.readHorizon(0)
	f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.DeadLetter, Delay: time.Minute, Error: "second"}))
	dead := f.get("a")
	f.GreaterOrEqual(dead.Died, before.Now)
	f.LessOrEqual(dead.Died, f.readHorizon(0).Now)
	want := r
	want.State, want.Attempts, want.LastError, want.Died = store.Dead, 2, "second", dead.Died
	f.Equal(want, dead)
	f.Empty(f.claim(1))
	f.verify()
}

func endBatch(f *fixture) {
	keys := []string{"done", "retry", "snooze", "release", "dead", "cancelled", "succeeded"}
	f.putAll(keys...)
	leases := f.claim(len(keys))
	f.cancel("cancelled")
	next := entry("succeeded")
	f.put(next)
	var outcomes []store.Outcome
	for i, l := range leases {
		outcomes = append(outcomes, store.Outcome{Holder: l.Holder, Kind: outcomeKinds[i%len(outcomeKinds)], Delay: time.Minute, Error: "failed"})
	}
	outcomes[6].Kind = store.Retry
	before := f.readHorizon(0)
	results, h, err := f.Store.End(f.ctx, 0, outcomes)
	f.NoError(err)
	f.Equal(h.NextDue, store.Millis(1))
	want := slices.Repeat([]store.EndResult{store.Ended}, len(outcomes))
	want[5], want[6] = store.EndCancelled, store.EndReplaced
	f.Equal(want, results)
	f.absent("done", "cancelled")
	f.fresh(next)
	f.counted(f.get("retry").Due, time.Minute, before, f.readHorizon(0))
	f.counted(f.get("snooze").Due, time.Minute, before, f.readHorizon(0))
	f.Equal(leases[3].Due, f.get("release").Due)
	f.Equal(store.Dead, f.get("dead").State)
	f.Equal([]int{1, 0, 0, 1}, []int{
		f.get("retry").Attempts, f.get("snooze").Attempts, f.get("release").Attempts, f.get("dead").Attempts,
	})
}

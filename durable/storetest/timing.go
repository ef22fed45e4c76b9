package storetest

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// timeTests test due times, to the millisecond, by a clock that the test moves.
var timeTests = []test{
	{"D2 case 1: never early, and at once when due", check(neverEarly)},
	{"D2 never early by a part of a millisecond", check(neverEarlyByLess)},
	{"D2 case 6: a delay is counted from the engine's present, not the caller's", check(afterPresent)},
	{"case 2: timers due while no process ran are not lost", check(dueLongAgo)},
	{"case 12: thousands are due in one millisecond", check(thousandsAtOnce)},
	{"due times from the first millisecond to the last", check(extremeDueTimes)},
	{"case 17: a clock that goes back makes nothing early, and fences grow", check(clockBack)},
}

// neverEarly moves the clock up to each due time and past it.
func neverEarly(f *fixture) {
	now := f.readHorizon(0).Now
	at := map[string]store.Millis{}
	for i, d := range []store.Millis{1, 2, 999, 1000, 1001, 1999, 59_999, 60_000, 60_001, 3_600_000} {
		e := entry(name("k", i))
		e.At = now + d
		at[e.Key] = e.At
		f.Equal(store.Receipt{Kind: store.Created, Due: e.At}, f.put(e))
	}
	for len(at) > 0 {
		claimed, h := f.claimWith(0, newClaim(store.MaxItems))
		for _, l := range claimed.Leases {
			f.LessOrEqual(at[l.Key], h.Now, "D2: %s is early", l.Key)
			f.Equal(at[l.Key], l.Due)
			delete(at, l.Key)
			f.ended(l, store.Done)
		}
		for key, due := range at {
			f.Greater(due, h.Now, "%s is due and was not leased", key)
		}
		if len(at) > 0 {
			// To the millisecond before the next, and then to it.
			wait := max(time.Duration(h.NextDue-h.Now)*time.Millisecond, time.Millisecond)
			if wait > time.Millisecond {
				wait -= time.Millisecond
			}
			f.advance(wait)
		}
	}
}

// neverEarlyByLess schedules with delays of a few milliseconds in real time, and compares with the
// clock of this process: whatever clock the engine has, it must not run faster. The part of a
// millisecond in which each call is made is random.
//
// A clock that loses parts of a millisecond is early in most of the rounds.
func neverEarlyByLess(f *fixture) {
	if f.Frozen {
		f.Skip("the engine's clock is frozen")
	}
	rounds := 30
	if long() {
		rounds = 1000
	}
	// leased claims until there is a lease, not before d has passed since asked.
	leased := func(what string, d time.Duration, asked time.Time) store.Lease {
		f.Helper()
		c := newClaim(1)
		c.MaxAttempts = 10
		for {
			c.Token = store.NewToken("worker")
			if claimed, _ := f.claimWith(0, c); len(claimed.Leases) > 0 {
				f.GreaterOrEqual(time.Since(asked), d, "D2: early: %s", what)
				return claimed.Leases[0]
			}
			f.Less(time.Since(asked), patience, "what was %s does not become due", what)
		}
	}
	for i := range rounds {
		d := time.Duration(1+i%3) * time.Millisecond
		e := entry("a")
		e.At, e.After = 0, d
		asked := time.Now()
		f.Equal(store.Created, f.put(e).Kind)
		l := leased("scheduled", d, asked)
		for _, kind := range []store.OutcomeKind{store.Retry, store.Snooze} {
			asked = time.Now()
			f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: kind, Delay: d}))
			l = leased(kind.String(), d, asked)
		}
		f.ended(l, store.Release)
		asked = time.Now()
		f.Equal([]store.MoveResult{store.Moved}, f.reschedule(store.Move{Key: "a", After: d}))
		l = leased("rescheduled", d, asked)
		if f.Advance != nil {
			// D8: nor does a lease end early.
			f.ended(l, store.Release)
			c := newClaim(1)
			c.Lease = store.MinLease
			asked = time.Now()
			claimed, _ := f.claimWith(0, c)
			f.advance(store.MinLease - time.Millisecond)
			l = leased("leased", time.Millisecond, asked)
			f.Greater(l.Fence, claimed.Leases[0].Fence)
			asked = time.Now()
			f.extend(l.Holder, store.MinLease)
			f.advance(store.MinLease - time.Millisecond)
			l = leased("extended", time.Millisecond, asked)
		}
		f.ended(l, store.Done)
	}
}

func afterPresent(f *fixture) {
	if f.Advance != nil {
		f.advance(10 * time.Hour)
	}
	for _, d := range []time.Duration{time.Millisecond, 1, time.Millisecond + 1, time.Second, time.Hour, 365 * 24 * time.Hour, 0, -time.Hour} {
		before := f.readHorizon(0)
		e := entry("a")
		e.At, e.After = 0, d
		receipt := f.put(e)
		f.counted(receipt.Due, d, before, f.readHorizon(0))
		f.Equal(receipt.Due, f.get("a").Due)
	}
	f.Equal("a", f.claimOne("a").Key) // due before now: at once
	// A successor's delay, too, counts from its scheduling.
	before := f.readHorizon(0)
	e := entry("a")
	e.At, e.After = 0, time.Minute
	receipt := f.put(e)
	f.Equal(store.Succeeds, receipt.Kind)
	f.counted(receipt.Due, time.Minute, before, f.readHorizon(0))
	f.Equal(receipt.Due, f.get("a").SuccessorDue)
}

func dueLongAgo(f *fixture) {
	now := f.readHorizon(0).Now
	var keys []string
	for i := range 100 {
		e := entry(name("k", i))
		e.At = now + store.Millis(1+i*613) // over a minute
		keys = append(keys, e.Key)
		f.Equal(store.Created, f.put(e).Kind)
	}
	f.advance(30 * 24 * time.Hour)
	f.Equal(100, f.stats(0).Overdue)
	f.Equal(keys, keysOf(f.claim(store.MaxItems)))
}

func thousandsAtOnce(f *fixture) {
	const n = 3000
	due := f.readHorizon(0).Now - 1
	var entries []store.Entry
	for i := range n {
		e := entry(name("k", i*7%n))
		e.At, e.Topic = due, name("topic", i%8)
		entries = append(entries, e)
	}
	for batch := range slices.Chunk(entries, store.MaxItems) {
		f.schedule(batch...)
	}
	f.Equal(n, f.stats(0).Overdue)
	for _, limit := range []int{7, store.MaxItems} {
		f.Len(f.list(0, store.Waiting, limit), n)
	}
	seen := map[string]bool{}
	for _, want := range []int{499, 500, 500, 500, 500, 500, 1, 0} {
		c := newClaim(500)
		if want > 0 {
			c.Max = want
		}
		claimed, _ := f.claimWith(0, c)
		f.Len(claimed.Leases, want)
		for _, l := range claimed.Leases {
			f.False(seen[l.Key], "case 12: %s is leased twice", l.Key)
			seen[l.Key] = true
		}
	}
	f.Len(seen, n)
}

func extremeDueTimes(f *fixture) {
	for i, at := range []store.Millis{1, 2, 999, 1 << 31, 1 << 32, 1 << 33, store.MaxMillis - 1, store.MaxMillis} {
		e := entry(name("k", i))
		e.At = at
		f.Equal(store.Receipt{Kind: store.Created, Due: at}, f.put(e))
		f.Equal(at, f.get(e.Key).Due)
	}
	e := entry("forever")
	e.At, e.After = 0, 1<<63-1
	f.Equal(store.MaxMillis, f.put(e).Due)
	var dues []store.Millis
	for _, r := range f.list(0, store.Waiting, 2) {
		dues = append(dues, r.Due)
	}
	f.Equal([]store.Millis{1, 2, 999, 1 << 31, 1 << 32, 1 << 33, store.MaxMillis - 1, store.MaxMillis, store.MaxMillis}, dues)
	f.Len(f.claim(20), 6)
	f.Equal(store.MaxMillis-1, f.readHorizon(0).NextDue)
	l := func() store.Lease {
		f.Equal(store.Replaced, f.put(entry("forever")).Kind)
		return f.claimOne("forever")
	}()
	f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.Retry, Delay: 1<<63 - 1}))
	f.Equal(store.MaxMillis, f.get("forever").Due)
}

func clockBack(f *fixture) {
	f.putAll("a", "b")
	first := f.claimOne("a")
	e := entry("c")
	e.At, e.After = 0, time.Minute
	due := f.put(e).Due
	f.advance(-time.Hour)
	l := f.claimOne("b")
	f.Greater(l.Fence, first.Fence, "D5: a fence is not higher than the last")
	f.ended(first, store.Release)
	f.Greater(f.claimOne("a").Fence, l.Fence)
	f.advance(time.Hour)
	f.Equal([]string{"a", "b"}, keysOf(f.claim(10)), "D2: early")
	f.advance(2 * time.Minute)
	claimed, h := f.claimWith(0, newClaim(10))
	f.Equal([]string{"a", "b", "c"}, keysOf(slices.SortedFunc(slices.Values(claimed.Leases), byKey)))
	f.LessOrEqual(due, h.Now)
}

func byKey(a, b store.Lease) int { return strings.Compare(a.Key, b.Key) }

package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// scheduleTests test Schedule and Reschedule in each state of the key.
var scheduleTests = []test{
	{"D1 a scheduled timer waits, and is removed once it has run", check(scheduleAndRun)},
	{"D8 a key schedules again: waiting, retrying or dead, it is replaced, attempts from 0", check(scheduleReplaces)},
	{"D8 IfAbsent refuses waiting, leased, cancelled and dead", check(scheduleIfAbsent)},
	{"D8 a key occurs twice in one call", check(scheduleTwiceInOneCall)},
	{"D1 a call has 500 items", check(scheduleMany)},
	{"D12 a call has 16 MiB of bodies", check(scheduleLarge)},
	{"MaxPending refuses new keys, and nothing else", checkWith(Options{Shards: 1, Limits: store.Limits{MaxPending: 3}}, maxPending)},
	{"case 4: a cancelled key that is used again runs", check(scheduleAfterCancel)},
	{"D13 shards do not see each other's timers", checkWith(Options{Shards: 4}, shardsApart)},
	{"Reschedule moves waiting and retrying timers, and keeps attempts", check(rescheduleMoves)},
	{"Reschedule changes nothing of leased, dead and absent timers", check(rescheduleRefuses)},
}

func scheduleAndRun(f *fixture) {
	e := entry("a")
	e.At = 7
	f.Equal(store.Receipt{Kind: store.Created, Due: 7}, f.put(e))
	r := store.Record{Key: "a", ID: e.ID, Topic: e.Topic, Body: e.Body, State: store.Waiting, Due: 7}
	f.Equal(r, f.get("a"))
	f.verify()

	before := f.readHorizon(0)
	l := f.claimOne("a")
	f.Equal(e.ID, l.ID)
	f.Equal(e.Topic, l.Topic)
	f.Equal(e.Body, l.Body)
	f.Equal(store.Millis(7), l.Due)
	f.Equal(1, l.Attempt)
	f.Empty(l.LastError)
	f.NotZero(l.Fence)
	f.counted(l.End, testLease, before, f.readHorizon(0))
	r.State, r.Attempts, r.LeaseEnd, r.Fence, r.Token = store.Leased, 1, l.End, l.Fence, l.Token
	f.Equal(r, f.get("a"))
	f.verify()

	f.ended(l, store.Done)
	f.absent("a")
	f.Empty(f.claim(1))
}

// fresh fails the test unless e waits as if it were new.
func (f *fixture) fresh(e store.Entry) {
	f.Helper()
	f.Equal(store.Record{Key: e.Key, ID: e.ID, Topic: e.Topic, Body: e.Body, State: store.Waiting, Due: e.At}, f.get(e.Key))
}

func scheduleReplaces(f *fixture) {
	a := entry("a")
	f.Equal(store.Created, f.put(a).Kind)
	// Waiting. The new one is due later, in another lane, with a shorter body.
	a = store.Entry{Key: "a", ID: store.NewID(), Topic: "other", Body: []byte("b"), At: 9}
	f.Equal(store.Receipt{Kind: store.Replaced, Due: 9}, f.put(a))
	f.fresh(a)
	f.verify()
	// Retrying.
	f.ended(f.claimOne("a"), store.Retry)
	f.Equal(1, f.get("a").Attempts)
	a = entry("a")
	f.Equal(store.Receipt{Kind: store.Replaced, Due: 1}, f.put(a))
	f.fresh(a)
	f.verify()
	// Dead.
	l := f.claimOne("a")
	f.Equal(a.ID, l.ID)
	f.Equal(1, l.Attempt)
	f.ended(l, store.DeadLetter)
	a = entry("a")
	f.Equal(store.Receipt{Kind: store.ReplacedDead, Due: 1}, f.put(a))
	f.fresh(a)
	f.verify()
	l = f.claimOne("a")
	f.Equal(a.ID, l.ID)
	f.Equal(1, l.Attempt)
	f.Empty(l.LastError)
}

func scheduleIfAbsent(f *fixture) {
	// attempt schedules over the existing timer, and checks that it is unchanged.
	attempt := func() {
		f.Helper()
		old := f.get("a")
		e := entry("a")
		e.At, e.IfAbsent, e.Body = 99, true, nil
		f.Equal(store.Receipt{Kind: store.Exists}, f.put(e))
		f.Equal(old, f.get("a"))
	}
	e := entry("a")
	e.IfAbsent = true
	f.Equal(store.Receipt{Kind: store.Created, Due: 1}, f.put(e))
	attempt()
	l := f.claimOne("a")
	attempt()
	f.ended(l, store.Retry)
	attempt()
	l = f.claimOne("a")
	f.Equal(2, l.Attempt)
	f.ended(l, store.DeadLetter)
	attempt()
	f.Equal([]store.RequeueResult{store.Requeued}, f.requeue("a"))
	l = f.claimOne("a")
	f.Equal([]store.CancelResult{store.Running}, f.cancel("a"))
	attempt()
	f.ended(l, store.Done)
	f.absent("a")
}

func scheduleTwiceInOneCall(f *fixture) {
	at := func(ms store.Millis, ifAbsent bool) store.Entry {
		e := entry("a")
		e.At, e.IfAbsent, e.Body = ms, ifAbsent, []byte{byte(ms)}
		return e
	}
	first := []store.Entry{at(5, false), at(3, false), at(4, true), entry("b"), at(6, false)}
	f.Equal([]store.Receipt{
		{Kind: store.Created, Due: 5}, {Kind: store.Replaced, Due: 3}, {Kind: store.Exists},
		{Kind: store.Created, Due: 1}, {Kind: store.Replaced, Due: 6},
	}, f.schedule(first...))
	f.fresh(first[4])
	f.verify()
	f.ended(f.claimOne("b"), store.Done)
	l := f.claimOne("a")
	f.Equal([]byte{6}, l.Body)

	second := []store.Entry{at(2, false), at(7, true), at(8, false)}
	f.Equal([]store.Receipt{{Kind: store.Succeeds, Due: 2}, {Kind: store.Exists}, {Kind: store.Succeeds, Due: 8}}, f.schedule(second...))
	f.Equal(store.Millis(8), f.get("a").SuccessorDue)
	f.ended(l, store.Done)
	f.fresh(second[2])
	f.Equal([]string{"a"}, keysOf(f.claim(5)))
}

func scheduleMany(f *fixture) {
	entries := make([]store.Entry, store.MaxItems)
	keys := make([]string, store.MaxItems)
	moves := make([]store.Move, store.MaxItems)
	for i := range entries {
		entries[i] = entry(name("k", i))
		keys[i] = entries[i].Key
		moves[i] = store.Move{Key: keys[i], At: store.Millis(i + 1)}
	}
	for i, r := range f.schedule(entries...) {
		f.Equal(store.Receipt{Kind: store.Created, Due: 1}, r, "entry %d", i)
	}
	for i, r := range f.reschedule(moves...) {
		f.Equal(store.Moved, r, "move %d", i)
	}
	leases := f.claim(store.MaxItems)
	f.Equal(keys, keysOf(leases))
	outcomes := make([]store.Outcome, store.MaxItems)
	holders := make([]store.Holder, store.MaxItems)
	for i, l := range leases {
		outcomes[i] = store.Outcome{Holder: l.Holder, Kind: store.DeadLetter}
		holders[i] = l.Holder
	}
	extended, _, err := f.Store.Extend(f.ctx, 0, holders, testLease)
	f.NoError(err)
	f.Equal(slices.Repeat([]store.ExtendResult{store.Extended}, store.MaxItems), extended)
	results, _, err := f.Store.End(f.ctx, 0, outcomes)
	f.NoError(err)
	f.Equal(slices.Repeat([]store.EndResult{store.Ended}, store.MaxItems), results)
	f.Equal(slices.Repeat([]store.RequeueResult{store.Requeued}, store.MaxItems), f.requeue(keys...))
	f.Equal(slices.Repeat([]store.CancelResult{store.Cancelled}, store.MaxItems), f.cancel(keys...))
}

func scheduleLarge(f *fixture) {
	const n = 16 << 20 / store.MaxBody
	body := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, store.MaxBody) }
	var entries []store.Entry
	for i := range n {
		e := entry(name("k", i))
		e.At, e.Body = store.Millis(i+1), body(i)
		entries = append(entries, e)
	}
	last := entries[0] // which occurs twice, far apart
	last.ID, last.At, last.Body = store.NewID(), n+1, []byte("last")
	receipts := f.schedule(append(entries, last)...)
	for i := range n {
		f.Equal(store.Receipt{Kind: store.Created, Due: store.Millis(i + 1)}, receipts[i], "entry %d", i)
	}
	f.Equal(store.Receipt{Kind: store.Replaced, Due: last.At}, receipts[n])
	f.fresh(last)
	for i := 1; i <= n; {
		leases := f.claim(store.MaxItems)
		f.Len(leases, min(store.MaxClaim/store.MaxBody, n-i+1))
		for _, l := range leases {
			f.Equal(store.Millis(i+1), l.Due)
			if i++; l.Key != last.Key {
				f.True(bytes.Equal(body(i-1), l.Body), "the body of %s", l.Key)
			}
			f.ended(l, store.Done)
		}
	}
	f.empty()
}

func maxPending(f *fixture) {
	f.putAll("a", "b")
	l := f.claimOne("a")
	f.Equal(store.Succeeds, f.put(entry("a")).Kind) // a, its successor, b
	f.Equal(store.Receipt{Kind: store.Refused}, f.put(entry("c")))
	f.absent("c")
	f.Equal(store.Replaced, f.put(entry("b")).Kind)
	f.Equal(store.Succeeds, f.put(entry("a")).Kind)
	// In one call, too, each is counted.
	f.ended(l, store.Done) // a, b
	receipts := f.schedule(entry("c"), entry("d"), entry("c"))
	f.Equal([]store.Receipt{{Kind: store.Created, Due: 1}, {Kind: store.Refused}, {Kind: store.Replaced, Due: 1}}, receipts)
	// A dead letter does not count, and is refused like a new key.
	l = f.claimOne("a")
	f.ended(l, store.DeadLetter) // b, c
	f.Equal(store.Created, f.put(entry("d")).Kind)
	old := f.get("a")
	f.Equal(store.Receipt{Kind: store.Refused}, f.put(entry("a")))
	f.Equal(old, f.get("a"))
	f.Equal([]store.CancelResult{store.Cancelled}, f.cancel("d"))
	f.Equal(store.ReplacedDead, f.put(entry("a")).Kind)
	f.Equal(store.Refused, f.put(entry("d")).Kind)
	// A successor is not refused.
	l = f.claimOne("a")
	f.Equal(store.Succeeds, f.put(entry("a")).Kind)
	// A successor that replaces another counts once.
	f.Equal([]store.CancelResult{store.Cancelled, store.Cancelled}, f.cancel("b", "c"))
	receipts = f.schedule(entry("a"), entry("a"), entry("d"))
	f.Equal([]store.ReceiptKind{store.Succeeds, store.Succeeds, store.Created}, []store.ReceiptKind{receipts[0].Kind, receipts[1].Kind, receipts[2].Kind})
	f.ended(l, store.Done)
}

func scheduleAfterCancel(f *fixture) {
	for range 3 {
		e := entry("a")
		f.Equal(store.Created, f.put(e).Kind)
		f.Equal([]store.CancelResult{store.Cancelled}, f.cancel("a"))
		f.Empty(f.claim(1))
		e = entry("a")
		f.Equal(store.Created, f.put(e).Kind)
		l := f.claimOne("a")
		f.Equal(e.ID, l.ID)
		f.ended(l, store.Done)
		f.absent("a")
	}
}

func shardsApart(f *fixture) {
	inShard := map[string]int{}
	for i := range 40 {
		key := name("k", i)
		inShard[key] = f.shardOf(key)
		f.Equal(store.Created, f.put(entry(key)).Kind)
	}
	for n := range f.Store.Shards() {
		claimed, _ := f.claimWith(n, newClaim(store.MaxItems))
		for _, l := range claimed.Leases {
			f.Equal(n, inShard[l.Key])
			delete(inShard, l.Key)
		}
		f.Equal(len(claimed.Leases), f.stats(n).Leased)
	}
	f.Empty(inShard)
	all := []int{3, 0, 2, 1, 0}
	horizons, err := f.Store.Horizons(f.ctx, all)
	f.NoError(err)
	for i, n := range all {
		want := f.readHorizon(n)
		want.Now = horizons[i].Now
		f.Equal(want, horizons[i])
	}
}

func rescheduleMoves(f *fixture) {
	f.putAll("a", "b")
	e := f.get("a")
	f.Equal([]store.MoveResult{store.Moved}, f.reschedule(store.Move{Key: "a", At: 9}))
	e.Due = 9
	f.Equal(e, f.get("a"))
	f.verify()
	f.ended(f.claimOne("b"), store.Retry)
	retrying := f.get("b")
	f.Equal([]store.MoveResult{store.Moved, store.Moved}, f.reschedule(store.Move{Key: "b", At: 9}, store.Move{Key: "b", At: 8}))
	retrying.Due = 8
	f.Equal(retrying, f.get("b"))
	f.Equal(1, retrying.Attempts)
	f.Equal("error of b", retrying.LastError)
	before := f.readHorizon(0)
	f.Equal([]store.MoveResult{store.Moved}, f.reschedule(store.Move{Key: "b", After: time.Hour}))
	f.counted(f.get("b").Due, time.Hour, before, f.readHorizon(0))
	f.Equal([]string{"a"}, keysOf(f.claim(5)))
	f.Equal([]store.MoveResult{store.Moved}, f.reschedule(store.Move{Key: "b", After: -time.Hour}))
	l := f.claimOne("b")
	f.Equal(2, l.Attempt)
	f.Equal("error of b", l.LastError)
}

func rescheduleRefuses(f *fixture) {
	f.putAll("dead", "leased", "succeeded", "cancelled")
	leases := f.claim(4)
	f.ended(leases[0], store.DeadLetter)
	f.Equal(store.Succeeds, f.put(entry("succeeded")).Kind)
	f.Equal([]store.CancelResult{store.Running}, f.cancel("cancelled"))
	var moves []store.Move
	var old []store.Record
	for _, key := range []string{"dead", "leased", "succeeded", "cancelled", "absent"} {
		moves = append(moves, store.Move{Key: key, At: 77})
		old = append(old, f.get(key))
	}
	f.Equal([]store.MoveResult{
		store.MoveAbsent, store.MoveRunning, store.MoveRunning, store.MoveRunning, store.MoveAbsent,
	}, f.reschedule(moves...))
	for i, m := range moves {
		f.Equal(old[i], f.get(m.Key))
	}
}

package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// readTests test the calls that change nothing: pages, counts and horizons.
var readTests = []test{
	{"pages of waiting timers, by due time and key", check(scanPages)},
	{"pages of waiting timers, of long keys that are due together", check(scanLongKeys)},
	{"pages of dead letters, by time of death and key", check(scanDeadPages)},
	{"pages of leased timers, by the end of the lease and key", check(leasedPages)},
	{"a leased timer shows the token of its claim", check(tokensShown)},
	{"a filter selects by prefix, topic and error", check(filters)},
	{"D12 a filter scans a bounded number of timers for each page", check(filterScans)},
	{"a query that is out of bounds is refused", check(queryChecked)},
	{"D12 timers that change between pages", check(scanWhileChanging)},
	{"Stats counts by state, and the overdue timers", check(statsCount)},
	{"Stats counts scheduled timers", checkWith(Options{Shards: 1, Limits: store.Limits{MaxPending: 5}}, scheduledCount)},
	{"CountDue counts waiting timers, by due time", check(dueCounts)},
	{"edges that are out of bounds are refused", check(edgesChecked)},
	{"horizons after each call", check(horizons)},
}

func scanPages(f *fixture) {
	due := []store.Millis{30, 10, 20, 10, 20, 10, 40}
	var entries []store.Entry
	for i, at := range due {
		e := entry(name("k", i))
		e.At, e.Topic = at, topicOf(i%store.Lanes)
		entries = append(entries, e)
	}
	f.schedule(entries...)
	want := []string{"k0001", "k0003", "k0005", "k0002", "k0004", "k0000", "k0006"}
	for limit := 1; limit < 9; limit++ {
		var keys []string
		for _, r := range f.list(0, store.Waiting, limit) {
			keys = append(keys, r.Key)
		}
		f.Equal(want, keys, "pages of %d", limit)
	}
	// A cursor need not be that of a timer.
	for _, c := range []struct {
		after store.Cursor
		want  []string
	}{
		{store.Cursor{At: 10}, want},
		{store.Cursor{At: 9, Key: "zzz"}, want},
		{store.Cursor{At: 10, Key: "k0001x"}, want[1:]},
		{store.Cursor{At: 10, Key: "k0004"}, want[2:]},
		{store.Cursor{At: 10, Key: "\xff"}, want[3:]},
		{store.Cursor{At: 25}, want[5:]},
		{store.Cursor{At: 40, Key: "k0006"}, nil},
		{store.Cursor{At: store.MaxMillis}, nil},
	} {
		page, err := f.Store.List(f.ctx, 0, store.Query{State: store.Waiting, After: c.after, Limit: 20})
		f.NoError(err)
		var keys []string
		for _, r := range page.Records {
			keys = append(keys, r.Key)
		}
		f.Equal(c.want, keys, "after %+v", c.after)
	}
	// The pages do not have leased and dead timers.
	leases := f.claim(3)
	f.ended(leases[0], store.DeadLetter)
	f.Len(f.list(0, store.Waiting, 3), 4)
	f.Len(f.list(0, store.Dead, 3), 1)
}

// scanLongKeys has keys of up to 65 bytes that differ in at least one byte, or are prefixes of one
// another.
func scanLongKeys(f *fixture) {
	var want []string
	for _, size := range []int{1, 31, 32, 33, 63, 64, 65} {
		key := bytes.Repeat([]byte{'m'}, size)
		want = append(want, string(key))
		for _, at := range []int{0, 1, 30, 31, 32, 33, 62, 63, 64} {
			for _, other := range []byte{0, 'a', 'z', 0xff} {
				if at < size && (other != 0 || at < size-1) { // that would be a plan's
					key[at] = other
					want = append(want, string(key))
					key[at] = 'm'
				}
			}
		}
	}
	var entries []store.Entry
	for i, key := range want {
		e := entry(key)
		e.Topic = topicOf(i % store.Lanes)
		entries = append(entries, e)
	}
	f.schedule(entries...)
	slices.Sort(want)
	for _, limit := range []int{1, 2, 7, len(want)} {
		var keys []string
		for _, r := range f.list(0, store.Waiting, limit) {
			keys = append(keys, r.Key)
		}
		f.Equal(want, keys, "pages of %d", limit)
	}
}

func scanDeadPages(f *fixture) {
	f.putAll("a", "b", "c", "d", "e")
	leases := f.claim(5)
	for _, i := range []int{3, 1} { // d and b, at different times if time can be moved
		f.ended(leases[i], store.DeadLetter)
		if f.Advance != nil {
			f.advance(time.Second)
		}
	}
	f.ended(leases[0], store.DeadLetter)
	f.ended(leases[2], store.DeadLetter)
	whole := f.list(0, store.Dead, store.MaxItems)
	f.Len(whole, 4)
	if f.Frozen {
		f.Equal([]string{"d", "b", "a", "c"}, []string{whole[0].Key, whole[1].Key, whole[2].Key, whole[3].Key})
	}
	for limit := 1; limit < 5; limit++ {
		f.Equal(whole, f.list(0, store.Dead, limit))
	}
	f.ended(leases[4], store.Done)
}

func leasedPages(f *fixture) {
	f.putAll("a", "b", "c", "d", "e", "waits")
	f.swapped(plan("report"))
	c := newClaim(3)
	c.Lease *= 2
	late, _ := f.claimWith(0, c)
	c = newClaim(2)
	c.Plans = 1
	f.claimWith(0, c)
	f.Equal(store.Leased, f.get(store.PlanKey("report")).State)
	f.cancel("e")
	next := entry("b")
	next.At = 77
	f.put(next)
	var want []store.Record
	for _, key := range []string{"d", "e", "a", "b", "c"} {
		r := f.get(key)
		r.Body = nil
		want = append(want, r)
	}
	for limit := 1; limit < 7; limit++ {
		f.Equal(want, f.list(0, store.Leased, limit), "pages of %d", limit)
	}
	f.True(want[1].Cancelled)
	f.Equal(store.Millis(77), want[3].SuccessorDue)
	f.Equal(late.Leases[0].End, want[2].LeaseEnd)
	f.Equal([]store.Record{want[2]}, f.query(0, store.Query{State: store.Leased, Limit: 5, Filter: store.Filter{Prefix: "a"}}))
}

func tokensShown(f *fixture) {
	f.putAll("a", "b")
	p := plan("report")
	e := occurrence("report", 1)
	p.Entries = []store.Entry{e}
	claim := newSwapClaim(1)
	f.Len(f.swapAndClaim(claim, p), 1)
	a := f.claimOne("a")
	shown := func(key string, token store.Token) {
		f.Helper()
		f.Equal(token, f.get(key).Token, "Get")
		for _, state := range []store.State{store.Waiting, store.Leased, store.Dead} {
			for _, r := range f.list(0, state, 10) {
				if r.Key == key {
					f.Equal(token, r.Token, "List")
				}
			}
		}
	}
	shown("a", a.Token)
	shown(e.Key, claim.Token)
	shown("b", store.Token{})
	f.advance(testLease + time.Second)
	leases := f.claim(3)
	f.Len(leases, 3)
	f.NotEqual(a.Token, leases[0].Token)
	for i, l := range leases {
		shown(l.Key, l.Token)
		f.ended(l, []store.OutcomeKind{store.Retry, store.DeadLetter, store.Release}[i])
		shown(l.Key, store.Token{})
	}
}

func filters(f *fixture) {
	var entries []store.Entry
	for i := range 8 {
		e := entry(fmt.Sprintf("%s/%d", []string{"mail", "mails", "sms"}[i%3], i))
		e.At, e.Topic = store.Millis(100-i), []string{"out", "", otherLane("out")}[i%3]
		entries = append(entries, e)
	}
	for _, key := range []string{"mail\xff", "mail\xff\xff1", "mail\xff\xff2"} {
		e := entry(key)
		e.At = 200
		entries = append(entries, e)
	}
	f.schedule(entries...)
	p := plan("mail/")
	p.Due = store.MaxMillis
	f.swapped(p)
	var leases []store.Lease
	for _, state := range []store.State{store.Waiting, store.Leased, store.Dead} {
		query := func(filter store.Filter) (keys []string) {
			whole := f.query(0, store.Query{State: state, Limit: 500, Filter: filter})
			for _, limit := range []int{1, 2, 3} {
				f.Equal(whole, f.query(0, store.Query{State: state, Limit: limit, Filter: filter}))
			}
			for _, r := range whole {
				keys = append(keys, r.Key)
			}
			slices.Sort(keys) // other tests check the order
			return keys
		}
		f.Equal([]string{"mail/0", "mail/3", "mail/6"}, query(store.Filter{Prefix: "mail/"}), state)
		for other := store.Waiting; other <= store.Dead; other++ {
			if other != state {
				f.Empty(f.query(0, store.Query{State: other, Limit: 500, Filter: store.Filter{Prefix: "mail/"}}), "%v, which are %v", other, state)
			}
		}
		f.Equal([]string{"mail/0", "mail/3", "mail/6", "mails/1", "mails/4", "mails/7", "mail\xff", "mail\xff\xff1", "mail\xff\xff2"}, query(store.Filter{Prefix: "mail"}), state)
		f.Equal([]string{"mail\xff\xff1", "mail\xff\xff2"}, query(store.Filter{Prefix: "mail\xff\xff"}), state)
		f.Empty(query(store.Filter{Prefix: "mailx"}), state)
		f.Equal([]string{"sms/2", "sms/5"}, query(store.Filter{Topic: otherLane("out")}), state)
		f.Equal([]string{"mail/3"}, query(store.Filter{Prefix: "mail/3", Topic: "out"}), state)
		f.Empty(query(store.Filter{Prefix: "mail/", Topic: otherLane("out")}), state)
		if state == store.Waiting {
			f.Empty(query(store.Filter{Error: "e"}))
			for _, l := range f.claim(20) {
				f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.Retry, Error: errorOf(l.Key)}))
			}
		}
		f.Equal([]string{"mail/3", "mails/4"}, query(store.Filter{Error: "Time-out [%d"}), state)
		f.Equal([]string{"mail/3", "mails/4"}, query(store.Filter{Error: "time-OUT"}), state)
		f.Equal([]string{"mail/3"}, query(store.Filter{Prefix: "mail/", Error: "t", Topic: "out"}), state)
		f.Equal([]string{"sms/2"}, query(store.Filter{Error: "\xffÄ"}), state)
		f.Empty(query(store.Filter{Error: "ä"}), state)
		switch state {
		case store.Waiting:
			leases = f.claim(20)
		case store.Leased:
			for _, l := range leases {
				f.Equal(store.Ended, f.end(store.Outcome{Holder: l.Holder, Kind: store.DeadLetter, Error: errorOf(l.Key)}))
			}
		}
	}
}

// errorOf is the error of some of the timers of filters.
func errorOf(key string) string {
	switch key {
	case "mail/3", "mails/4":
		return "TIME-out [%d of " + key
	case "sms/2":
		return "\xffÄ"
	}
	return ""
}

func filterScans(f *fixture) {
	const n = store.MaxScan + store.MaxScan/2
	for i := range n / store.MaxItems {
		var entries []store.Entry
		for j := range store.MaxItems {
			e := entry(name("k", i*store.MaxItems+j))
			e.Topic = topicOf(j % store.Lanes)
			entries = append(entries, e)
		}
		f.schedule(entries...)
	}
	last := name("k", n-1)
	for _, q := range []store.Query{
		{State: store.Waiting, Limit: 10, Filter: store.Filter{Topic: "absent"}},
		{State: store.Waiting, Limit: 10, Filter: store.Filter{Error: "absent"}},
		{State: store.Waiting, Limit: 10, Filter: store.Filter{Prefix: "k", Topic: "absent"}},
	} {
		page, err := f.Store.List(f.ctx, 0, q)
		f.NoError(err)
		f.Empty(page.Records)
		f.True(page.More, "%+v", q)
		f.Less(page.Next.Key, last)
		f.Empty(f.query(0, q))
	}
	found := f.query(0, store.Query{State: store.Waiting, Limit: 1, Filter: store.Filter{Prefix: last}})
	f.Len(found, 1)
	found = f.query(0, store.Query{State: store.Waiting, Limit: store.MaxItems, Filter: store.Filter{Topic: topicOf(1)}})
	f.Len(found, n/store.Lanes)
}

func queryChecked(f *fixture) {
	long := strings.Repeat("x", 2000)
	for want, q := range map[string]store.Query{
		"durable: Query.State is State(0), must be waiting, leased or dead":                                {Limit: 1},
		"durable: Query.State is State(4), must be waiting, leased or dead":                                {State: 4, Limit: 1},
		"durable: Query.Limit is 0, must be 1 to 500":                                                      {State: store.Dead},
		"durable: Query.Limit is 501, must be 1 to 500":                                                    {State: store.Dead, Limit: 501},
		"durable: Query.After is -1 ms and a key of 0 bytes, must be 0 to 9223372036854 and at most 512":   {State: store.Dead, Limit: 1, After: store.Cursor{At: -1}},
		"durable: Query.After is 0 ms and a key of 2000 bytes, must be 0 to 9223372036854 and at most 512": {State: store.Dead, Limit: 1, After: store.Cursor{Key: long}},
		"durable: Query.Prefix is 2000 bytes long, must be at most 512":                                    {State: store.Dead, Limit: 1, Filter: store.Filter{Prefix: long}},
		"durable: Query.Topic is 2000 bytes long, must be at most 128":                                     {State: store.Dead, Limit: 1, Filter: store.Filter{Topic: long}},
		"durable: Query.Error is 2000 bytes long, must be at most 1024":                                    {State: store.Dead, Limit: 1, Filter: store.Filter{Error: long}},
	} {
		_, err := f.Store.List(f.ctx, 0, q)
		f.EqualError(err, want)
	}
}

func scanWhileChanging(f *fixture) {
	f.fill(0, 20)
	first, err := f.Store.List(f.ctx, 0, store.Query{State: store.Waiting, Limit: 10})
	f.NoError(err)
	f.True(first.More)
	f.cancel(first.Records[9].Key, first.Records[0].Key)
	f.ended(f.claim(1)[0], store.Done)
	rest, err := f.Store.List(f.ctx, 0, store.Query{State: store.Waiting, After: first.Next, Limit: 20})
	f.NoError(err)
	f.Len(rest.Records, 10)
	f.False(rest.More)
	f.Equal(name("0-", 10), rest.Records[0].Key)
}

func statsCount(f *fixture) {
	f.fill(0, 4)
	leases := f.claim(3)
	f.ended(leases[0], store.DeadLetter)
	f.put(entry(leases[1].Key)) // a successor is not counted
	e := entry("later")
	e.At = f.readHorizon(0).Now + 3_600_000
	f.put(e)
	want := store.Stats{
		Horizon: store.Horizon{NextDue: 4, NextLeaseEnd: min(leases[1].End, leases[2].End)},
		Waiting: 2, Overdue: 1, Leased: 2, Dead: 1, Scheduled: 6,
	}
	st := f.stats(0)
	want.Now = st.Now
	f.Equal(want, st)
	f.verify()
	f.advance(time.Hour + time.Second)
	want.Overdue = 2
	st = f.stats(0)
	want.Now = st.Now
	f.Equal(want, st)
}

func scheduledCount(f *fixture) {
	is := func(want int, after string) {
		f.Helper()
		f.EqualValues(want, f.stats(0).Scheduled, after)
	}
	is(0, "opening")
	f.schedule(entry("a"), entry("b"), entry("b")) // created, created, replaced
	is(3, "creating and replacing")
	absent := entry("a")
	absent.IfAbsent = true
	f.Equal(store.Exists, f.put(absent).Kind)
	is(3, "an existing key")
	leases := f.claim(2)
	f.put(entry("a"))
	f.put(entry("a")) // another successor
	is(5, "a successor, and another")
	for _, l := range leases {
		f.ended(l, map[string]store.OutcomeKind{"a": store.Done, "b": store.DeadLetter}[l.Key])
	}
	f.requeue("b")
	f.reschedule(store.Move{Key: "b", At: 7})
	is(5, "calls that schedule nothing")
	for _, l := range f.claim(2) {
		f.ended(l, store.DeadLetter)
	}
	f.put(entry("b"))
	is(6, "replacing a dead letter")
	p := plan("report")
	p.Entries = []store.Entry{occurrence("report", 1), occurrence("report", 2)}
	f.Len(f.swapAndClaim(newSwapClaim(1), p), 1)
	is(8, "a swap that leases one of two occurrences")
	q := next(p)
	q.Entries = []store.Entry{occurrence("report", 2), occurrence("report", 3)}
	f.swapped(q)
	is(9, "an occurrence that existed")
	f.Equal(store.SwapLost, f.swap(next(p))[0])
	f.Equal(store.Refused, f.put(entry("c")).Kind)
	is(9, "a lost swap and a refused timer")
	f.cancel("b")
}

func dueCounts(f *fixture) {
	due := []store.Millis{1, 10, 10, 11, 19, 20, 29, 30, 30, 31, store.MaxMillis}
	var entries []store.Entry
	for i, at := range due {
		e := entry(name("k", i))
		e.At, e.Topic = at, topicOf(i%store.Lanes)
		entries = append(entries, e)
	}
	f.schedule(entries...)
	for _, at := range []store.Millis{10, 20, 30} {
		p := plan(fmt.Sprint("report", at))
		p.Due = at
		f.swapped(p)
	}
	is := func(want []int, edges ...store.Millis) {
		f.Helper()
		got, err := f.Store.CountDue(f.ctx, 0, edges)
		f.NoError(err)
		f.Equal(store.DueCounts{Counts: want}, got, "%v", edges)
	}
	is([]int{4, 2, 2}, 10, 20, 30, 31)
	is([]int{1, 0, 2, 7}, 0, 9, 9, 11, 32)
	is([]int{0, 0, 0}, 2, 9, 10, 10)
	is([]int{11 - 1}, 0, store.MaxMillis)
	is([]int{0, 0}, 32, store.MaxMillis, store.MaxMillis)
	every := make([]store.Millis, store.MaxEdges)
	want := make([]int, store.MaxEdges-1)
	for i := range every {
		every[i] = store.Millis(i)
	}
	for _, at := range due[:len(due)-1] {
		want[at]++
	}
	is(want, every...)
	// Leased and dead timers do not count, nor does a successor before its run ends.
	leases := f.claim(2)
	next := entry(leases[0].Key)
	next.At = 15
	f.put(next)
	f.ended(leases[1], store.DeadLetter)
	left := 0
	for _, r := range f.list(0, store.Waiting, 20) {
		if r.Due < 20 {
			left++
		}
	}
	f.Equal(3, left)
	is([]int{left}, 0, 20)
	f.ended(leases[0], store.Done)
	is([]int{left + 1}, 0, 20)
}

func edgesChecked(f *fixture) {
	for want, edges := range map[string][]store.Millis{
		"durable: there are 0 edges, must be 2 to 200":                                 nil,
		"durable: there are 1 edges, must be 2 to 200":                                 {1},
		"durable: there are 201 edges, must be 2 to 200":                               make([]store.Millis, 201),
		"durable: edges[0] is -1 ms after 1970, must be 0 to 9223372036854":            {-1, 1},
		"durable: edges[2] is 6 ms after 1970, must be 7 to 9223372036854":             {1, 7, 6},
		"durable: edges[1] is 9223372036855 ms after 1970, must be 5 to 9223372036854": {5, store.MaxMillis + 1},
	} {
		_, err := f.Store.CountDue(f.ctx, 0, edges)
		f.EqualError(err, want)
	}
}

// horizons makes the calls that move a horizon. The fixture compares each reply with Horizons; this
// test compares Horizons with the known times.
func horizons(f *fixture) {
	is := func(due, leaseEnd store.Millis) {
		f.Helper()
		h := f.readHorizon(0)
		f.NotZero(h.Now)
		f.Equal([]store.Millis{due, leaseEnd}, []store.Millis{h.NextDue, h.NextLeaseEnd})
	}
	is(0, 0)
	far := entry("far")
	far.At = store.MaxMillis
	f.put(far)
	is(store.MaxMillis, 0)
	f.putAll("a", "b")
	is(1, 0)
	a := f.claim(1)[0]
	is(2, a.End)
	b := f.claim(1)[0]
	is(store.MaxMillis, min(a.End, b.End))
	_, end := f.extend(a.Holder, 3*testLease)
	is(store.MaxMillis, min(b.End, end))
	f.ended(b, store.Release)
	is(2, end)
	f.reschedule(store.Move{Key: "b", At: 77})
	is(77, end)
	f.cancel("b")
	is(store.MaxMillis, end)
	f.cancel("a") // its lease continues
	is(store.MaxMillis, end)
	next := entry("a")
	next.At = 5
	f.put(next)
	is(store.MaxMillis, end)
	f.ended(a, store.Done)
	is(5, 0)
	a = f.claimOne("a")
	f.ended(a, store.DeadLetter)
	is(store.MaxMillis, 0)
	f.requeue("a")
	is(f.get("a").Due, 0)
	a = f.claimOne("a")
	f.advance(testLease + time.Second)
	is(store.MaxMillis, a.End) // in the past
	a = f.claimOne("a")
	is(store.MaxMillis, a.End)
	f.cancel("far")
	f.ended(a, store.Done)
	is(0, 0)
	hs, err := f.Store.Horizons(f.ctx, slices.Repeat([]int{0}, 3))
	f.NoError(err)
	f.Len(hs, 3)
	hs, err = f.Store.Horizons(f.ctx, nil)
	f.NoError(err)
	f.Empty(hs)
}

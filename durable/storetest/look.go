package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// lookTests test the calls that change nothing: pages, counts and horizons.
var lookTests = []test{
	{"pages of Scan, by due time and key", check(scanPages)},
	{"pages of Scan, of long keys that are due together", check(scanLongKeys)},
	{"pages of ScanDead, by time of death and key", check(scanDeadPages)},
	{"D12 what changes between pages", check(scanWhileChanging)},
	{"Stats counts by home, and what is overdue", check(statsCount)},
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
		for _, r := range f.scan(0, false, limit) {
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
		page, err := f.Store.Scan(f.ctx, 0, c.after, 20)
		f.NoError(err)
		var keys []string
		for _, r := range page {
			keys = append(keys, r.Key)
		}
		f.Equal(c.want, keys, "after %+v", c.after)
	}
	// Leased and dead ones are not among them.
	leases := f.claim(3)
	f.ended(leases[0], store.Bury)
	f.Len(f.scan(0, false, 3), 4)
	f.Len(f.scan(0, true, 3), 1)
}

// scanLongKeys has keys of up to 65 bytes that differ in one place at least, or are the
// beginning of another.
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
		for _, r := range f.scan(0, false, limit) {
			keys = append(keys, r.Key)
		}
		f.Equal(want, keys, "pages of %d", limit)
	}
}

func scanDeadPages(f *fixture) {
	f.putAll("a", "b", "c", "d", "e")
	leases := f.claim(5)
	for _, i := range []int{3, 1} { // d and b, at different times if time can be moved
		f.ended(leases[i], store.Bury)
		if f.Advance != nil {
			f.advance(time.Second)
		}
	}
	f.ended(leases[0], store.Bury)
	f.ended(leases[2], store.Bury)
	whole := f.scan(0, true, store.MaxItems)
	f.Len(whole, 4)
	if f.Frozen {
		f.Equal([]string{"d", "b", "a", "c"}, []string{whole[0].Key, whole[1].Key, whole[2].Key, whole[3].Key})
	}
	for limit := 1; limit < 5; limit++ {
		f.Equal(whole, f.scan(0, true, limit))
	}
	f.ended(leases[4], store.Done)
}

func scanWhileChanging(f *fixture) {
	f.fill(0, 20)
	first, err := f.Store.Scan(f.ctx, 0, store.Cursor{}, 10)
	f.NoError(err)
	last := first[9]
	f.cancel(last.Key, first[0].Key)
	f.ended(f.claim(1)[0], store.Done)
	rest, err := f.Store.Scan(f.ctx, 0, store.Cursor{At: last.Due, Key: last.Key}, 20)
	f.NoError(err)
	f.Len(rest, 10)
	f.Equal(name("0-", 10), rest[0].Key)
}

func statsCount(f *fixture) {
	f.fill(0, 4)
	leases := f.claim(3)
	f.ended(leases[0], store.Bury)
	f.put(entry(leases[1].Key)) // a successor counts in none
	e := entry("later")
	e.At = f.look(0).Now + 3_600_000
	f.put(e)
	want := store.Stats{
		Horizon: store.Horizon{NextDue: 4, NextLeaseEnd: min(leases[1].End, leases[2].End)},
		Waiting: 2, Overdue: 1, Leased: 2, Dead: 1,
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

// horizons has the calls that move a horizon; the fixture compares each reply with
// Look, and this test Look with what is known.
func horizons(f *fixture) {
	is := func(due, leaseEnd store.Millis) {
		f.Helper()
		h := f.look(0)
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
	f.ended(b, store.GiveBack)
	is(2, end)
	f.reschedule(store.Move{Key: "b", At: 77})
	is(77, end)
	f.cancel("b")
	is(store.MaxMillis, end)
	f.cancel("a") // its lease goes on
	is(store.MaxMillis, end)
	next := entry("a")
	next.At = 5
	f.put(next)
	is(store.MaxMillis, end)
	f.ended(a, store.Done)
	is(5, 0)
	a = f.claimOne("a")
	f.ended(a, store.Bury)
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
	hs, err := f.Store.Look(f.ctx, slices.Repeat([]int{0}, 3))
	f.NoError(err)
	f.Len(hs, 3)
	hs, err = f.Store.Look(f.ctx, nil)
	f.NoError(err)
	f.Empty(hs)
}

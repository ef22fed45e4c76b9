package pebblestore

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// A successor that begins to wait in a claim and is not due can be the first of its lane, ahead of
// the timers that the claim has read there.
func TestSuccessorBeginsItsLane(t *testing.T) {
	f := newFixture(t)
	now := store.Millis(f.clock.Now().UnixMilli())
	at := func(i int, due store.Millis) store.Entry {
		e := entry(keyIn(0, i), 0)
		e.At = due
		return e
	}
	f.put(at(0, 1))
	f.Len(f.claim(0, 1), 1)
	f.clock.Advance(time.Minute)
	f.put(at(0, now+1_000_000), at(1, 1), at(2, now+2_000_000))
	claimed, h, err := f.Claim(f.ctx, 0, newClaim(10))
	f.NoError(err)
	f.Len(claimed.Leases, 1)
	f.Equal(now+1_000_000, h.NextDue)
	verify(t, f.Store)
}

// No removed timer moves the front of a lane past a waiting one.
func TestFrontsFollow(t *testing.T) {
	f := newFixture(t)
	var keys []string
	for i := range 40 {
		e := entry(keyIn(0, i), 0)
		e.At, e.Topic = store.Millis(1000+i%7), fmt.Sprint(i%3)
		f.put(e)
		keys = append(keys, e.Key)
	}
	for i := range keys {
		switch key := keys[i*17%len(keys)]; i % 3 {
		case 0:
			_, err := f.Cancel(f.ctx, 0, []string{key})
			f.NoError(err)
		case 1:
			_, h, err := f.Reschedule(f.ctx, 0, []store.Move{{Key: key, At: store.Millis(990 + i%20)}})
			f.NoError(err)
			f.Equal(f.shards[0].next, h.NextDue)
		case 2:
			f.end(f.claim(0, 1)[0], []store.OutcomeKind{store.Done, store.Release, store.Retry}[i%9/3])
		}
		verify(t, f.Store)
	}
}

// D9: a claim that dead-letters more than MaxDead keeps the youngest.
func TestClaimDeadLettersMoreThanMaxDead(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Limits.MaxDead = 1 })
	for i := range 3 {
		f.put(entry(keyIn(0, i), 1000))
	}
	f.Len(f.claim(0, 3), 3)
	f.clock.Advance(time.Minute)
	c := newClaim(3)
	c.MaxAttempts = 1
	claimed, _, err := f.Claim(f.ctx, 0, c)
	f.NoError(err)
	f.Equal(3, claimed.DeadLettered)
	f.Empty(claimed.Leases)
	st, err := f.Stats(f.ctx, 0)
	f.NoError(err)
	f.Equal(1, st.Dead)
	f.EqualValues(2, st.Dropped)
	verify(t, f.Store)
	dead, err := f.List(f.ctx, 0, store.Query{State: store.Dead, Limit: 10})
	f.NoError(err)
	f.Len(dead.Records, 1)
}

// MaxDeadAge is how long a dead letter is kept, at least: to the millisecond.
func TestDeadLettersAreKeptForTheirAge(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Limits.MaxDeadAge = time.Minute })
	f.put(entry(keyIn(0, 0), 0))
	f.end(f.claim(0, 1)[0], store.DeadLetter)
	f.clock.Advance(time.Minute)
	for _, want := range []int{1, 0} {
		f.claim(0, 1)
		st, err := f.Stats(f.ctx, 0)
		f.NoError(err)
		f.Equal(want, st.Dead)
		f.clock.Advance(time.Millisecond)
	}
}

// A claim that is kept because one of its leases continues does not keep the others.
func TestClaimsForgetLeases(t *testing.T) {
	ls := newLeases()
	token := store.NewToken("worker")
	var all []*lease
	for i := range 500 {
		l := &lease{t: &timer{key: fmt.Sprint(i)}, token: token, fence: uint64(i)}
		ls.add(l)
		all = append(all, l)
	}
	for i, l := range all[:499] {
		ls.remove(l)
		live := 499 - i
		require.LessOrEqual(t, len(ls.byClaim[token].leases), 2*live+1)
		require.Len(t, ls.claimed(token), live)
	}
	ls.remove(all[499])
	require.Empty(t, ls.byClaim)
}

// A caller that changes a body that it passed or received does not change the store.
func TestBodiesAreCopied(t *testing.T) {
	f := newFixture(t)
	key := keyIn(0, 0)
	e := entry(key, 20)
	f.put(e)
	clear(e.Body)
	l := f.claim(0, 1)[0]
	f.Equal(bodyOf(e.ID, 20), l.Body)
	clear(l.Body)
	clear(f.get(key).Body)
	f.Equal(bodyOf(e.ID, 20), f.get(key).Body)
	f.end(l, store.Retry)
	f.Equal(bodyOf(e.ID, 20), f.get(key).Body)

	l = f.claim(0, 1)[0]
	next := entry(key, 20)
	f.put(next)
	clear(next.Body)
	f.end(l, store.Done)
	f.Equal(bodyOf(next.ID, 20), f.get(key).Body)
}

// A page begins with the key right after the cursor's, even if that is the cursor's and two bytes.
func TestPageBeginsAfterCursor(t *testing.T) {
	f := newFixture(t)
	key := ""
	for i := 0; key == "" || store.ShardOf(key+"\x00\x01", testShards) != 0; i++ {
		key = keyIn(0, i)
	}
	f.put(entry(key, 0), entry(key+"\x00\x01", 0))
	page, err := f.List(f.ctx, 0, store.Query{State: store.Waiting, Limit: 1})
	f.NoError(err)
	f.Equal(key, page.Records[0].Key)
	page, err = f.List(f.ctx, 0, store.Query{State: store.Waiting, After: store.Cursor{At: 1, Key: key}, Limit: 10})
	f.NoError(err)
	f.Len(page.Records, 1)
	f.Equal(key+"\x00\x01", page.Records[0].Key)
}

// Case 25: a subscriber so slow that events are dropped gets a Gap, before any later event.
func TestSlowSubscriber(t *testing.T) {
	f := newFixture(t)
	heard, resume := make(chan store.Event), make(chan struct{})
	go func() {
		_ = f.Subscribe(f.ctx, func(e store.Event) {
			heard <- e
			<-resume
		})
	}()
	f.Equal(store.Event{Kind: store.Gap}, <-heard)
	for i := range maxQueued + 1 {
		f.NoError(f.Announce(f.ctx, store.Event{Kind: store.Busy, From: fmt.Sprint(i)}))
	}
	close(resume)
	f.Equal(store.Event{Kind: store.Gap}, <-heard)
	for i := range maxQueued {
		f.Equal(fmt.Sprint(i), (<-heard).From)
	}
	f.NoError(f.Announce(f.ctx, store.Event{Kind: store.Busy, From: "last"}))
	f.Equal("last", (<-heard).From)
}

// D10: a shard's record stays small, whatever the counts.
func TestShardRecordIsSmall(t *testing.T) {
	m := meta{number: 1 << 63, dead: 1 << 40, dropped: 1 << 63}
	for i := range m.waiting {
		m.waiting[i], m.fronts[i] = 1<<40, store.MaxMillis
	}
	v := appendMeta(nil, &m)
	require.LessOrEqual(t, len(metaKey(nil, 0))+len(v), 200)
	back, err := decodeMeta(v)
	require.NoError(t, err)
	require.Equal(t, m, back)
}

// A damaged record is an error, not a panic: each record is cut at each byte.
func TestDamagedRecords(t *testing.T) {
	tm := &timer{key: "k", topic: "topic", due: 1 << 40, attempts: 300, lastError: "why", body: body{length: 3, inline: []byte("abc")}}
	v := appendTimer(nil, tm)
	back, err := decodeTimer("k", v)
	require.NoError(t, err)
	require.Equal(t, tm, back)
	for i := range v {
		_, err := decodeTimer("k", v[:i])
		require.ErrorIs(t, err, errRecord)
	}
	_, err = decodeTimer("k", append(v, 0))
	require.ErrorIs(t, err, errRecord)
	v = appendLease(nil, &lease{fence: 1 << 60, attempt: 7, cancelled: true})
	for i := range v {
		_, err := decodeLease(v[:i])
		require.ErrorIs(t, err, errRecord)
	}
	m := appendMeta(nil, &meta{number: 5})
	for i := range m {
		_, err := decodeMeta(m[:i])
		require.ErrorIs(t, err, errRecord)
	}
}

// The lifecycle of a timer sets or removes six keys, apart from the shard's record.
func TestKeysOfALifecycle(t *testing.T) {
	f := newFixture(t)
	all := func() map[string]string {
		it, err := f.db.NewIter(nil)
		f.NoError(err)
		defer it.Close()
		keys := map[string]string{}
		for it.First(); it.Valid(); it.Next() {
			keys[string(it.Key())] = "=" + string(it.Value()) // some are empty
		}
		return keys
	}
	before, n := all(), 0
	changed := func() {
		now := all()
		for key := range maps.Keys(now) {
			if _, ok := before[key]; !ok {
				before[key] = ""
			}
		}
		for key, value := range before {
			if now[key] != value && key != string(metaKey(nil, 0)) {
				n++
			}
		}
		before = now
	}
	f.put(entry(keyIn(0, 0), 0))
	changed()
	lease := f.claim(0, 1)[0]
	changed()
	f.end(lease, store.Done)
	changed()
	f.Equal(6, n)
}

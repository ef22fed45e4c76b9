package storetest

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// deadTests test Requeue and Purge, and the limits that remove dead letters.
var deadTests = []test{
	{"D9 dead letters are requeued, attempts from 0", check(requeueDead)},
	{"D9 requeue is refused if the key is waiting or leased", check(requeueRefused)},
	{"D9 purge removes dead letters, and only these", check(purgeDead)},
	{"D9 MaxDead: the oldest are removed, and counted", checkWith(Options{Shards: 1, Limits: store.Limits{MaxDead: 3}}, maxDead)},
	{"D9 MaxDeadAge: old ones are removed, and counted", checkWith(Options{Shards: 1, Limits: store.Limits{MaxDeadAge: time.Hour}}, maxDeadAge)},
	{"D9 MaxDead and MaxDeadAge: whichever drops more", checkWith(Options{Shards: 1, Limits: store.Limits{MaxDead: 2, MaxDeadAge: time.Hour}}, maxDeadAndAge)},
}

// deadLetter schedules an overdue timer and makes it a dead letter.
func (f *fixture) deadLetter(key string) {
	f.Helper()
	f.putAll(key)
	f.ended(f.claimOne(key), store.DeadLetter)
}

func requeueDead(f *fixture) {
	f.putAll("a")
	f.ended(f.claimOne("a"), store.Retry)
	f.ended(f.claimOne("a"), store.DeadLetter)
	dead := f.get("a")
	f.Equal(2, dead.Attempts)
	before := f.readHorizon(0)
	f.Equal([]store.RequeueResult{store.Requeued, store.RequeueExists}, f.requeue("a", "a"))
	r := f.get("a")
	f.counted(r.Due, 0, before, f.readHorizon(0))
	dead.State, dead.Died, dead.Attempts, dead.Due = store.Waiting, 0, 0, r.Due
	f.Equal(dead, r)
	f.verify()
	l := f.claimOne("a")
	f.Equal(1, l.Attempt)
	f.Equal(dead.ID, l.ID)
	f.Equal("error of a", l.LastError)
	f.ended(l, store.Done)
}

func requeueRefused(f *fixture) {
	f.putAll("leased")
	f.claimOne("leased")
	f.deadLetter("dead")
	f.putAll("waiting")
	old := []store.Record{f.get("leased"), f.get("waiting")}
	f.Equal([]store.RequeueResult{store.RequeueExists, store.RequeueExists, store.Requeued, store.RequeueAbsent},
		f.requeue("leased", "waiting", "dead", "absent"))
	f.Equal(old, []store.Record{f.get("leased"), f.get("waiting")})
	f.absent("absent")
}

func purgeDead(f *fixture) {
	f.putAll("leased")
	f.claimOne("leased")
	f.deadLetter("a")
	f.deadLetter("b")
	f.deadLetter("c")
	f.putAll("waiting")
	f.Equal(2, f.purge("a", "leased", "waiting", "absent", "b", "a"))
	f.absent("a", "b")
	f.Equal(store.Dead, f.get("c").State)
	f.Equal(store.Leased, f.get("leased").State)
	f.Equal(store.Waiting, f.get("waiting").State)
	f.Zero(f.purge("a"))
	f.Zero(f.stats(0).Dropped)
}

func maxDead(f *fixture) {
	deadKeys := func() (keys []string) {
		f.Empty(f.claim(1)) // which applies the limit
		for _, r := range f.list(0, store.Dead, 10) {
			keys = append(keys, r.Key)
		}
		return keys
	}
	for _, key := range []string{"z", "y", "x"} {
		f.deadLetter(key)
		f.advance(time.Second)
	}
	f.Equal([]string{"z", "y", "x"}, deadKeys())
	f.deadLetter("a")
	f.Equal([]string{"y", "x", "a"}, deadKeys())
	f.absent("z")
	f.Equal(uint64(1), f.stats(0).Dropped)
	f.verify()
	// The same for a claim that dead-letters.
	f.advance(time.Second)
	f.putAll("b", "c")
	c := newClaim(2)
	c.MaxAttempts = 1
	f.claimWith(0, c)
	f.advance(testLease + time.Second)
	c.Token = store.NewToken("worker")
	claimed, _ := f.claimWith(0, c)
	f.Equal(2, claimed.DeadLettered)
	f.Equal([]string{"a", "b", "c"}, deadKeys())
	f.absent("x", "y")
	f.Equal(uint64(3), f.stats(0).Dropped)
	// Requeued and purged dead letters are not dropped.
	f.requeue("a")
	f.purge("b")
	f.Equal(uint64(3), f.stats(0).Dropped)
}

func maxDeadAge(f *fixture) {
	f.deadLetter("a")
	f.advance(30 * time.Minute)
	f.deadLetter("b")
	f.advance(29 * time.Minute)
	f.Empty(f.claim(1))
	f.Equal(2, f.stats(0).Dead)
	f.advance(2 * time.Minute)
	f.Empty(f.claim(1))
	f.absent("a")
	f.Equal(store.Dead, f.get("b").State)
	f.Equal(uint64(1), f.stats(0).Dropped)
	f.advance(time.Hour)
	f.Empty(f.claim(1))
	f.Equal(uint64(2), f.stats(0).Dropped)
	f.empty()
	if !f.Frozen {
		return
	}
	f.deadLetter("c")
	f.advance(time.Hour) // the minimum time for which it is kept
	f.Empty(f.claim(1))
	f.Equal(store.Dead, f.get("c").State)
	f.advance(time.Millisecond)
	f.Empty(f.claim(1))
	f.absent("c")
}

func maxDeadAndAge(f *fixture) {
	f.deadLetter("a")
	f.advance(30 * time.Minute)
	f.deadLetter("b")
	f.schedule(entry("c"), entry("d"))
	leases := f.claim(2)
	f.advance(31 * time.Minute) // a is too old now, and two are too many
	f.ended(leases[0], store.DeadLetter)
	f.ended(leases[1], store.DeadLetter)
	f.Empty(f.claim(1))
	f.absent("a")
	f.absent("b")
	f.Equal(2, f.stats(0).Dead)
	f.Equal(uint64(2), f.stats(0).Dropped)
}

package storetest

import (
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// successorTests test scheduling under a key whose timer is leased.
var successorTests = []test{
	{"D8 a successor waits when the run ends, however it ends", check(successorWaits)},
	{"D8 it never runs concurrently with the run, and has its own body", check(successorApart)},
	{"D8 the last of several successors counts", check(successorReplaced)},
	{"D4 D8 Cancel removes the successor, and a later one stays", check(successorAndCancel)},
	{"D8 a timer that schedules itself recurs", check(successorRecurs)},
}

// otherLane returns a topic in another lane than topic's.
func otherLane(topic string) string {
	for i := 0; ; i++ {
		if other := name("other", i); store.LaneOf(other) != store.LaneOf(topic) {
			return other
		}
	}
}

// leaseExpired stands for a run that ends because its lease expires.
const leaseExpired = store.OutcomeKind(0)

// endBy ends the only run, of key a.
func (f *fixture) endBy(l store.Lease, kind store.OutcomeKind) {
	f.Helper()
	if kind != leaseExpired {
		f.ended(l, kind)
		return
	}
	f.advance(testLease + time.Second)
	c := newClaim(1)
	c.MaxAttempts = 1 // without the cancel and the successor it would become a dead letter
	claimed, _ := f.claimWith(0, c)
	f.Empty(claimed.Leases, "D8: it is leased again")
	f.Zero(claimed.DeadLettered)
}

// allOutcomeKinds are outcomeKinds, and leaseExpired if time can be moved.
func (f *fixture) allOutcomeKinds() []store.OutcomeKind {
	if f.Advance == nil {
		return outcomeKinds
	}
	return append(outcomeKinds[:len(outcomeKinds):len(outcomeKinds)], leaseExpired)
}

// runOf claims a, and returns the lease and an entry that could succeed it.
func (f *fixture) runOf() (store.Lease, store.Entry) {
	f.Helper()
	f.putAll("a")
	next := entry("a")
	next.Topic, next.At, next.Body = otherLane(next.Topic), f.readHorizon(0).Now+1e9, []byte("next")
	return f.claimOne("a"), next
}

func successorWaits(f *fixture) {
	for _, kind := range f.allOutcomeKinds() {
		l, next := f.runOf()
		f.Equal(store.Receipt{Kind: store.Succeeds, Due: next.At}, f.put(next))
		r := f.get("a")
		f.Equal(l.ID, r.ID)
		f.Equal(next.At, r.SuccessorDue)
		f.Equal(store.Millis(1), r.Due)
		f.Equal("body of a", string(r.Body))
		st := f.stats(0)
		f.Equal([]int{0, 1, 0}, []int{st.Waiting, st.Leased, st.Dead})
		f.Zero(st.NextDue)
		f.verify()
		f.endBy(l, kind)
		f.fresh(next)
		f.verify()
		f.Equal(store.EndLost, f.end(store.Outcome{Holder: l.Holder, Kind: store.Done}))
		extended, _ := f.extend(l.Holder, testLease)
		f.Equal(store.ExtendLost, extended)
		f.fresh(next)
		f.Equal([]store.CancelResult{store.Cancelled}, f.cancel("a"))
		f.empty()
	}
}

func successorApart(f *fixture) {
	for _, kind := range f.allOutcomeKinds() {
		f.putAll("a")
		c := newClaim(3)
		claimed, _ := f.claimWith(0, c)
		l := claimed.Leases[0]
		next := entry("a")
		next.At, next.Body = 5, []byte("next")
		f.Equal(store.Succeeds, f.put(next).Kind)
		f.Empty(f.claim(5), "D8: the successor runs concurrently")
		again, _ := f.claimWith(0, c)
		f.Equal(claimed.Leases, again.Leases, "the claim sent again gets the successor's body")
		extended, _ := f.extend(l.Holder, testLease)
		f.Equal(store.Extended, extended)
		if kind == leaseExpired {
			// It is due, so the claim that ends the old run leases it.
			f.advance(testLease + time.Second)
		} else {
			f.ended(l, kind)
			f.fresh(next)
		}
		second := f.claimOne("a")
		f.Equal(next.ID, second.ID)
		f.Equal("next", string(second.Body))
		f.Equal(1, second.Attempt)
		f.Empty(second.LastError)
		f.Greater(second.Fence, l.Fence)
		f.ended(second, store.Done)
		f.empty()
	}
}

func successorReplaced(f *fixture) {
	l, first := f.runOf()
	last := first
	last.ID, last.At, last.Topic, last.Body = store.NewID(), first.At+1e6, "topic", nil
	f.Equal(store.Succeeds, f.put(first).Kind)
	f.Equal(store.Receipt{Kind: store.Succeeds, Due: last.At}, f.put(last))
	f.Equal(last.At, f.get("a").SuccessorDue)
	f.ended(l, store.Retry)
	r := f.get("a")
	f.Equal(last.ID, r.ID)
	f.Equal(last.At, r.Due)
	f.Equal("topic", r.Topic)
	f.Empty(r.Body)
}

func successorAndCancel(f *fixture) {
	running := []store.CancelResult{store.Running}
	for _, kind := range f.allOutcomeKinds() {
		// Cancelled after it was scheduled: both are removed.
		l, next := f.runOf()
		f.Equal(store.Succeeds, f.put(next).Kind)
		f.Equal(running, f.cancel("a"))
		f.Zero(f.get("a").SuccessorDue)
		f.endBy(l, kind)
		f.absent("a")
		f.empty()
		// Cancelled before: the run's mark stays, and the successor waits.
		l, next = f.runOf()
		f.Equal(running, f.cancel("a"))
		f.Equal(store.Receipt{Kind: store.Succeeds, Due: next.At}, f.put(next))
		r := f.get("a")
		f.True(r.Cancelled)
		f.Equal(next.At, r.SuccessorDue)
		extended, _ := f.extend(l.Holder, testLease)
		f.Equal(store.ExtendCancelled, extended)
		f.endBy(l, kind)
		f.fresh(next)
		f.Equal([]store.CancelResult{store.Cancelled}, f.cancel("a"))
		f.empty()
		// One before and one after: the later one.
		l, next = f.runOf()
		before := next
		before.ID, before.At = store.NewID(), next.At+1
		f.Equal(store.Succeeds, f.put(before).Kind)
		f.Equal(running, f.cancel("a"))
		f.Equal(store.Succeeds, f.put(next).Kind)
		f.endBy(l, kind)
		f.fresh(next)
		f.Equal([]store.CancelResult{store.Cancelled}, f.cancel("a"))
		f.empty()
	}
}

func successorRecurs(f *fixture) {
	f.putAll("a")
	fence := uint64(0)
	for i := range 20 {
		l := f.claimOne("a")
		f.Greater(l.Fence, fence)
		fence = l.Fence
		next := entry("a")
		next.At = store.Millis(i + 2)
		f.Equal(store.Succeeds, f.put(next).Kind)
		f.ended(l, outcomeKinds[i%len(outcomeKinds)])
		f.fresh(next)
	}
}

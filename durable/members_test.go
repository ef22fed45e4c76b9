package durable

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Each shard has one preferred worker, they are spread evenly, and when a worker leaves only its
// shards move.
func TestPreferredWorkers(t *testing.T) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprint("host-", i))
	}
	const shards = 10_000
	counts := map[string]int{}
	for shard := range shards {
		all := preferredOf(names, shard)
		counts[all]++
		without := preferredOf(names[1:], shard)
		if all != names[0] {
			require.Equal(t, all, without)
		}
	}
	for _, name := range names {
		require.InDelta(t, shards/10, counts[name], 5*30) // five standard deviations
	}
	require.Equal(t, "one", preferredOf([]string{"one"}, 3))
}

// pairOn starts two workers, the first of which is preferred for the only shard, 0.
func pairOn(r *rig, first, second Handler, o WorkerOptions) (a, b *member) {
	for {
		a, b = r.prepare(first, o), r.prepare(second, o)
		if preferredOf([]string{a.Name(), b.Name()}, 0) == a.Name() {
			break
		}
	}
	a.run()
	b.run()
	pass(2 * time.Second) // both know each other
	require.Equal(r.t, 1, a.Stats().Preferred)
	require.Zero(r.t, b.Stats().Preferred)
	require.Equal(r.t, 2, a.Stats().Members)
	return a, b
}

// A worker that becomes preferred for a shard again polls it before it claims, because its
// knowledge of the shard may be old.
func TestPreferredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		var a, b *member
		for {
			a, b = r.prepare(j.handle, WorkerOptions{}), r.prepare(j.handle, WorkerOptions{})
			if preferredOf([]string{a.Name(), b.Name()}, 0) == b.Name() {
				break
			}
		}
		a.run()
		r.schedule("k", 11*time.Second)
		pass(2 * time.Second)
		require.Equal(t, 1, a.Stats().Preferred)
		b.run()
		pass(2 * time.Second)
		require.Zero(t, a.Stats().Preferred)
		pass(7*time.Second + 100*time.Millisecond) // between two turns in which a polls the shard
		require.Len(t, j.all(), 1)                 // by b
		require.NoError(t, b.stop())
		pass(2 * time.Second)
		require.Equal(t, 1, a.Stats().Preferred)
		require.Zero(t, a.faults.count("claim"))
		r.schedule("k2", 0)
		pass(time.Second)
		require.Len(t, j.all(), 2)
	})
}

// Only the preferred worker claims.
func TestOneWorkerClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ja, jb := &journal{}, &journal{}
		a, b := pairOn(r, ja.handle, jb.handle, WorkerOptions{})
		a.faults.countAll()
		b.faults.countAll()
		for i := range 20 {
			r.schedule(fmt.Sprint(i), time.Duration(i)*100*time.Millisecond)
		}
		pass(10 * time.Second)
		require.Len(t, ja.all(), 20)
		require.Equal(t, map[string]int{"heartbeat": 10, "poll": 2}, b.faults.countAll()) // one in five seconds
	})
}

// Case 26: the preferred worker is stopped, and due timers run within 3.5 s.
func TestPreferredWorkerStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 10 {
			r := newRig(t, 1, store.Limits{}, 0)
			ja, jb := &journal{}, &journal{}
			a, _ := pairOn(r, ja.handle, jb.handle, WorkerOptions{})
			pass(time.Duration(i) * 100 * time.Millisecond)
			thawed := make(chan struct{})
			freeze(a, thawed)
			r.schedule("k", 10*time.Millisecond)
			due := time.Now().Add(10 * time.Millisecond)
			pass(5 * time.Second)
			require.Empty(t, ja.all())
			require.Len(t, jb.all(), 1)
			require.LessOrEqual(t, jb.times()[0].Sub(due), 3500*time.Millisecond)
			close(thawed)
			pass(5 * time.Second)
			r.schedule("k2", 0) // the first is back
			pass(time.Second)
			require.Equal(t, []string{"k2"}, ja.keys())
		}
	})
}

// A leaving worker announces that: the others take its shards with their next heartbeat, and until
// then it announces due timers.
func TestLeavingWorkerTransfersItsShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		ja, jb := &journal{}, &journal{}
		ja.then = func(_ context.Context, f Fired) error { time.Sleep(time.Minute); return nil }
		a, b := pairOn(r, ja.handle, jb.handle, WorkerOptions{Grace: 2 * time.Minute})
		r.schedule("long", 0)
		pass(time.Millisecond)
		a.cancel()
		pass(time.Millisecond)
		at := time.Now()
		r.schedule("k", 0)
		pass(50 * time.Millisecond)
		require.Equal(t, []string{"k"}, jb.keys())
		require.Less(t, jb.times()[0].Sub(at), 5*time.Millisecond)
		pass(time.Second)
		require.Equal(t, 1, b.Stats().Preferred)
		require.Equal(t, 1, a.faults.count("leave"))
		n := a.faults.count("announce")
		pass(30 * time.Second)
		r.schedule("k2", 0)
		pass(30 * time.Second)
		require.Equal(t, []string{"k", "k2"}, jb.keys())
		require.Equal(t, n, a.faults.count("announce"))
		require.NoError(t, a.stop())
		require.Equal(t, []string{"long"}, ja.keys()) // its completion was waited for
		r.requireRemoved("long")
	})
}

// The preferred worker is full and announces that: workers with free slots claim at once, and
// others do once they have one.
func TestBusyWorkerIsHelped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		slow := func(context.Context, Fired) error { time.Sleep(10 * time.Second); return nil }
		ja, jb := &journal{then: slow}, &journal{then: slow}
		a, _ := pairOn(r, ja.handle, jb.handle, WorkerOptions{Concurrency: 2})
		began := time.Now()
		for i := range 6 {
			r.schedule(fmt.Sprint(i), 0)
			pass(200 * time.Millisecond)
		}
		require.Len(t, ja.all(), 2)
		require.Len(t, jb.all(), 2)
		for i := range 2 { // at once
			require.Less(t, jb.times()[i].Sub(began.Add(time.Duration(2+i)*200*time.Millisecond)), 5*time.Millisecond)
		}
		pass(20 * time.Second)
		require.Len(t, append(ja.all(), jb.all()...), 6)
		require.Less(t, a.faults.count("announce"), 30) // once a second while timers are due
	})
}

// A worker that stays full announces that every 50 ms, not with each handler that returns.
func TestAnnouncementsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		quick := func(context.Context, Fired) error { time.Sleep(5 * time.Millisecond); return nil }
		a, b := pairOn(r, quick, quick, WorkerOptions{Concurrency: 1})
		var timers []Timer
		for i := range 400 {
			timers = append(timers, Timer{Key: fmt.Sprint(i)})
		}
		_, err := r.timers.ScheduleMany(context.Background(), timers)
		require.NoError(t, err)
		pass(500 * time.Millisecond)
		require.LessOrEqual(t, a.faults.count("announce"), 500/50+1) // the first at 0
		require.Zero(t, b.faults.count("announce"))
		pass(time.Minute)
		require.Zero(t, r.stats().Waiting)
	})
}

// If heartbeats fail, all workers claim.
func TestUnreadableHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 8, store.Limits{}, 0)
		j := &journal{}
		w := r.prepare(j.handle, WorkerOptions{})
		w.faults.fail(errBoom, "heartbeat")
		r.worker((&journal{}).handle, WorkerOptions{})
		w.run()
		pass(time.Second)
		require.Equal(t, 8, w.Stats().Preferred)
		require.Zero(t, w.Stats().Members)
		require.Len(t, r.logs.with("calls to the engine fail", "call=heartbeat"), 1)
		pass(time.Minute)
		require.LessOrEqual(t, w.faults.count("heartbeat"), 62)
		w.faults.fail(nil)
		pass(3 * time.Second)
		require.Less(t, w.Stats().Preferred, 8)
		require.Equal(t, 2, w.Stats().Members)
		require.Len(t, r.logs.with("succeed again", "call=heartbeat"), 1)
		// A worker that could read them keeps the members for as long as that reading is valid.
		w.faults.fail(errBoom, "heartbeat")
		pass(time.Second)
		require.Equal(t, 2, w.Stats().Members)
		pass(5 * time.Second)
		require.Zero(t, w.Stats().Members)
	})
}

// Case 25: a silent subscription costs at most a second: the poll finds what events did not
// announce.
func TestSilentSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, store.Limits{}, 0)
		j := &journal{}
		w := r.worker(j.handle, WorkerOptions{})
		pass(time.Second)
		w.faults.dropEvents.Store(true)
		for i := range 10 {
			at := time.Now()
			r.schedule(fmt.Sprint(i), 0)
			pass(1100 * time.Millisecond)
			require.Len(t, j.all(), i+1)
			require.LessOrEqual(t, j.times()[i].Sub(at), time.Second+5*time.Millisecond)
		}
	})
}

// A subscription that ends is renewed, with backoff, and the worker polls for missed events.
func TestSubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, store.Limits{}, 0)
		j := &journal{}
		w := r.prepare(j.handle, WorkerOptions{})
		w.faults.fail(errBoom, "subscribe")
		w.run()
		pass(time.Minute)
		n := w.faults.count("subscribe")
		require.Greater(t, n, 10)
		require.Less(t, n, 40)
		require.Len(t, r.logs.with("calls to the engine fail", "call=subscribe"), 1)
		w.faults.fail(nil)
		pass(10 * time.Second)
		require.Len(t, r.logs.with("succeed again", "call=subscribe"), 1)
		at := time.Now()
		r.schedule("k", 0)
		pass(100 * time.Millisecond)
		require.Len(t, j.all(), 1)
		require.Less(t, j.times()[0].Sub(at), 5*time.Millisecond)
	})
}

// Without announcements, as in an old Cluster, a worker with free slots still serves the shards of
// a full one, each in its turn.
func TestFullWorkerIsHelpedUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 16, store.Limits{}, 0)
		release := make(chan struct{})
		defer close(release)
		j := &journal{then: func(_ context.Context, f Fired) error {
			if f.Topic == "long" {
				<-release
			}
			return nil
		}}
		a := r.prepare(j.handle, WorkerOptions{Concurrency: 1})
		a.faults.dropEvents.Store(true)
		a.run()
		r.add(Timer{Key: "long", Topic: "long"})
		pass(2 * time.Second)
		require.Equal(t, 1, a.Stats().Running)
		b := r.prepare(j.handle, WorkerOptions{})
		b.faults.dropEvents.Store(true)
		b.run()
		pass(5 * time.Second)
		for _, m := range []*member{a, b} {
			require.Equal(t, 2, m.Stats().Members)
			require.NotZero(t, m.Stats().Preferred)
		}
		began := time.Now()
		for shard := range 16 {
			r.add(Timer{Key: keysOf(shard, 16, 1)[0]})
		}
		pass(helpAfter + turnEvery + pollEvery)
		require.Len(t, j.all(), 17)
		for _, at := range j.times()[1:] {
			require.LessOrEqual(t, at.Sub(began), helpAfter+turnEvery+pollEvery)
		}
		// Timers that now come due there are found by the next poll, not by the next turn.
		began = time.Now()
		for shard := range 16 {
			r.add(Timer{Key: keysOf(shard, 16, 1)[0]})
		}
		pass(10 * time.Second)
		require.Len(t, j.all(), 33)
		for _, at := range j.times()[17:] {
			require.LessOrEqual(t, at.Sub(began), helpAfter+pollEvery)
		}
	})
}

// A worker that sends heartbeats but cannot claim, because its connections to one server are
// broken, is helped, even if only one of many others has free slots.
func TestWorkerThatCannotClaimIsHelped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 8, store.Limits{}, 0)
		release := make(chan struct{})
		defer close(release)
		j, full := &journal{}, &journal{then: func(context.Context, Fired) error { <-release; return nil }}
		for i := range 2 { // each takes one; the second may do so as the first's helper
			other := r.worker(full.handle, WorkerOptions{Concurrency: 1})
			pass(5 * time.Second)
			r.schedule(fmt.Sprint("first", i), 0)
			pass(20 * time.Second)
			require.Equal(t, 1, other.Stats().Running)
		}
		a := r.worker(j.handle, WorkerOptions{})
		b := r.worker(j.handle, WorkerOptions{})
		pass(5 * time.Second)
		require.Equal(t, 4, a.Stats().Members)
		a.faults.fail(errBoom, "claim")
		before, began := len(j.all()), time.Now()
		for i := range 40 {
			r.schedule(fmt.Sprint(i), 0)
		}
		pass(time.Minute)
		require.Len(t, j.all(), before+40)
		for _, at := range j.times()[before:] { // b has one turn of three at each shard
			require.LessOrEqual(t, at.Sub(began), helpAfter+3*turnEvery+pollEvery)
		}
		require.Positive(t, b.Stats().Done)
	})
}

// One of several servers does not answer: a worker that starts then runs the timers of the others
// at once, and the rest when that server is back.
func TestUnresponsiveServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4, store.Limits{}, 0)
		j := &journal{}
		w := r.prepare(j.handle, WorkerOptions{})
		w.faults.dropEvents.Store(true) // only polls find timers
		w.faults.setUnresponsive(1, 3)
		keys := make([]string, 4)
		for shard := range keys {
			keys[shard] = keysOf(shard, 4, 1)[0]
			r.schedule(keys[shard], 0)
		}
		began := time.Now()
		w.run()
		pass(2 * time.Second)
		require.ElementsMatch(t, []string{keys[0], keys[2]}, j.keys())
		require.LessOrEqual(t, j.times()[1].Sub(began), 1100*time.Millisecond) // the engine's wait for the other shards
		for shard := range 4 {
			require.Len(t, r.logs.with("calls to the engine fail", "call=poll", fmt.Sprint("shard=", shard)), shard%2)
		}
		pass(30 * time.Second)
		// Polls of the other shards continue each second, and do not wait for these.
		for i := range 10 {
			at := time.Now()
			r.schedule(keys[0], 0)
			pass(1100 * time.Millisecond)
			require.Len(t, j.all(), 3+i)
			require.LessOrEqual(t, j.times()[2+i].Sub(at), time.Second+5*time.Millisecond)
		}
		w.faults.setUnresponsive(3)
		pass(15 * time.Second)
		require.Contains(t, j.keys(), keys[1])
		require.NotContains(t, j.keys(), keys[3])
		w.faults.setUnresponsive()
		pass(15 * time.Second)
		require.Contains(t, j.keys(), keys[3])
		require.Len(t, r.logs.with("succeed again", "call=poll", "shard=1"), 1)
		require.Len(t, r.logs.with("succeed again", "call=poll", "shard=3"), 1)
		// They are polled with the others again.
		w.faults.countAll()
		pass(10 * time.Second)
		require.Equal(t, map[string]int{"heartbeat": 10, "poll": 10}, w.faults.countAll())
	})
}

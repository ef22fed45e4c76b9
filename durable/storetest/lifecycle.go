package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// lifecycleTests test heartbeats, calls whose context has ended, and stores that are closed or
// opened again.
var lifecycleTests = []test{
	{"D10 heartbeats: the live workers by name, until their heartbeats expire", check(heartbeats)},
	{"D10 Workers lists live and dead workers, with their last heartbeats", check(listWorkers)},
	{"D10 dead workers are listed for an hour, the last thousand of them", check(deadWorkers)},
	{"a heartbeat that is out of bounds is refused", check(heartbeatChecked)},
	{"D12 no call outlasts its ctx", check(endedContext)},
	{"a closed store answers ErrClosed", closedStore},
	{"D3 acknowledged changes survive", reopened},
	{"D6 reopened, leases have expired or continue", reopenedLeases},
	{"D3 D5 fences do not restart when reopened", reopenedFences},
}

// beat sends a heartbeat, and returns the live workers.
func (f *fixture) beat(worker string, ttl time.Duration, status ...byte) []string {
	f.Helper()
	names, err := f.Store.Heartbeat(f.ctx, store.Heartbeat{Worker: worker, TTL: ttl, Status: status})
	f.NoError(err)
	return names
}

func (f *fixture) workers() []store.Worker {
	f.Helper()
	workers, err := f.Store.Workers(f.ctx)
	f.NoError(err)
	return workers
}

const oddWorker = "a\x00{b}\xff"

func heartbeats(f *fixture) {
	f.Equal([]string{"m"}, f.beat("m", time.Minute))
	f.Equal([]string{"m", "z"}, f.beat("z", time.Hour))
	f.Equal([]string{oddWorker, "m", "z"}, f.beat(oddWorker, time.Hour))
	f.Equal([]string{oddWorker, "m", "z"}, f.beat("m", time.Minute))
	f.Equal([]string{"m", "z"}, f.beat(oddWorker, 0))
	f.Equal([]string{"m", "z"}, f.beat("absent", 0))
	if f.Advance != nil {
		f.advance(30 * time.Second)
		f.Equal([]string{"m", "z"}, f.beat("m", time.Minute)) // another minute
		f.advance(40 * time.Second)
		f.Equal([]string{"m", "z"}, f.beat("z", time.Hour))
		f.advance(20 * time.Second)
		f.Equal([]string{"z"}, f.beat("z", time.Minute))
	}
	f.beat("m", 0)
	f.Empty(f.beat("z", 0))
}

// listed compares the workers with want, in which Heartbeat is the engine's time just before the
// heartbeat was sent; after is a time after all were sent.
func (f *fixture) listed(after store.Millis, want ...store.Worker) {
	f.Helper()
	got := f.workers()
	for i := range min(len(got), len(want)) {
		if f.Frozen {
			after = want[i].Heartbeat
		}
		f.GreaterOrEqual(got[i].Heartbeat, want[i].Heartbeat, got[i].Name)
		f.LessOrEqual(got[i].Heartbeat, after, got[i].Name)
		want[i].Heartbeat = got[i].Heartbeat
		if len(got[i].Status) == 0 {
			got[i].Status = nil
		}
	}
	f.Equal(want, got)
}

func listWorkers(f *fixture) {
	f.Empty(f.workers())
	first := f.readHorizon(0).Now
	f.beat("z", time.Hour, 'x', 0, 255)
	f.beat(oddWorker, time.Minute)
	f.beat("leaves", time.Hour)
	f.beat("leaves", 0)
	odd, z := store.Worker{Name: oddWorker, Live: true, Heartbeat: first}, store.Worker{Name: "z", Live: true, Heartbeat: first, Status: []byte{'x', 0, 255}}
	f.listed(f.readHorizon(0).Now, odd, z)
	f.advance(59 * time.Second)
	second := f.readHorizon(0).Now
	z.Heartbeat, z.Status = second, slices.Repeat([]byte{7}, store.MaxStatus)
	f.beat("z", time.Hour, z.Status...)
	f.listed(f.readHorizon(0).Now, odd, z)
	f.advance(time.Second)
	odd.Live = false
	f.listed(f.readHorizon(0).Now, odd, z)
	f.beat("z", 0)
	f.listed(f.readHorizon(0).Now, odd)
	third := f.readHorizon(0).Now
	f.beat(oddWorker, time.Minute, 1)
	f.listed(f.readHorizon(0).Now, store.Worker{Name: oddWorker, Live: true, Heartbeat: third, Status: []byte{1}})
	f.advance(2 * time.Minute)
	f.beat(oddWorker, 0)
	f.Empty(f.workers())
}

func deadWorkers(f *fixture) {
	f.beat("dies", time.Minute)
	f.advance(time.Minute + store.KeepWorker - time.Second)
	f.Len(f.workers(), 1)
	f.beat("live", time.Hour)
	f.Len(f.workers(), 2)
	f.advance(time.Second)
	f.Len(f.workers(), 1)
	f.Equal([]string{"live"}, f.beat("live", time.Hour))
	f.beat("live", 0)
	f.Empty(f.workers())

	const more = 5
	for i := range store.MaxDeadWorkers + more {
		f.beat(name("w", store.MaxDeadWorkers+more-i), time.Second+time.Duration(i)*time.Millisecond)
	}
	f.Len(f.workers(), store.MaxDeadWorkers+more)
	f.advance(10 * time.Second)
	for range 2 {
		list := f.workers()
		list = slices.DeleteFunc(list, func(w store.Worker) bool { return w.Live })
		f.Len(list, store.MaxDeadWorkers)
		f.Equal(name("w", 1), list[0].Name, "the last to die is listed")
		f.Equal(name("w", store.MaxDeadWorkers), list[len(list)-1].Name, "the first to die is not")
		f.Equal([]string{"live"}, f.beat("live", time.Hour))
	}
	f.Len(f.workers(), store.MaxDeadWorkers+1)
	f.beat("live", 0)
}

func heartbeatChecked(f *fixture) {
	for want, h := range map[string]store.Heartbeat{
		"durable: a worker's name is 0 bytes long, must be 1 to 128":                 {TTL: time.Second},
		"durable: a worker's name is 129 bytes long, must be 1 to 128":               {Worker: strings.Repeat("w", 129), TTL: time.Second},
		`durable: Heartbeat.TTL of "w" is -1ns, must be 0 to 24h0m0s`:                {Worker: "w", TTL: -1},
		`durable: Heartbeat.TTL of "w" is 24h0m0.000000001s, must be 0 to 24h0m0s`:   {Worker: "w", TTL: store.MaxLease + 1},
		`durable: the status of worker "w" is 4097 bytes long, must be at most 4096`: {Worker: "w", TTL: time.Second, Status: make([]byte, 4097)},
	} {
		_, err := f.Store.Heartbeat(f.ctx, h)
		f.EqualError(err, want)
	}
	f.Empty(f.workers())
}

func endedContext(f *fixture) {
	f.putAll("a")
	old := f.get("a")
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	calls := map[string]func() error{
		"Schedule": func() error { _, _, err := f.Store.Schedule(ctx, 0, []store.Entry{entry("a")}); return err },
		"Cancel":   func() error { _, err := f.Store.Cancel(ctx, 0, []string{"a"}); return err },
		"Reschedule": func() error {
			_, _, err := f.Store.Reschedule(ctx, 0, []store.Move{{Key: "a", At: 5}})
			return err
		},
		"Get":       func() error { _, err := f.Store.Get(ctx, 0, "a"); return err },
		"List":      func() error { _, err := f.Store.List(ctx, 0, store.Query{State: store.Waiting, Limit: 1}); return err },
		"Claim":     func() error { _, _, err := f.Store.Claim(ctx, 0, newClaim(1)); return err },
		"Stats":     func() error { _, err := f.Store.Stats(ctx, 0); return err },
		"CountDue":  func() error { _, err := f.Store.CountDue(ctx, 0, []store.Millis{0, 1}); return err },
		"Heartbeat": func() error { _, err := f.Store.Heartbeat(ctx, store.Heartbeat{Worker: "w"}); return err },
		"Workers":   func() error { _, err := f.Store.Workers(ctx); return err },
		"Subscribe": func() error { return f.Store.Subscribe(ctx, func(store.Event) {}) },
	}
	for name, call := range calls {
		f.ErrorIs(call(), context.Canceled, name)
	}
	f.Equal(old, f.get("a"))
}

func closedStore(f *fixture) {
	f.open(Options{Shards: 2})
	f.put(entry(f.keyIn(0)))
	l := f.listen()
	f.NoError(f.Store.Close())
	select {
	case err := <-l.done:
		f.ErrorIs(err, store.ErrClosed)
	case <-time.After(patience):
		f.Fatal("a subscription outlasts Close")
	}
	s, ctx := f.Store, f.ctx
	holder := store.Holder{Key: f.keyIn(0)}
	calls := map[string]func() error{
		"Schedule": func() error { _, _, err := s.Schedule(ctx, 0, []store.Entry{entry(f.keyIn(0))}); return err },
		"Cancel":   func() error { _, err := s.Cancel(ctx, 0, []string{f.keyIn(0)}); return err },
		"Reschedule": func() error {
			_, _, err := s.Reschedule(ctx, 0, []store.Move{{Key: f.keyIn(0), At: 5}})
			return err
		},
		"Get":     func() error { _, err := s.Get(ctx, 0, f.keyIn(0)); return err },
		"List":    func() error { _, err := s.List(ctx, 0, store.Query{State: store.Waiting, Limit: 1}); return err },
		"dead":    func() error { _, err := s.List(ctx, 0, store.Query{State: store.Dead, Limit: 1}); return err },
		"leased":  func() error { _, err := s.List(ctx, 0, store.Query{State: store.Leased, Limit: 1}); return err },
		"Requeue": func() error { _, _, err := s.Requeue(ctx, 0, []string{f.keyIn(0)}); return err },
		"Purge":   func() error { _, err := s.Purge(ctx, 0, []string{f.keyIn(0)}); return err },
		"Claim":   func() error { _, _, err := s.Claim(ctx, 0, newClaim(1)); return err },
		"Extend":  func() error { _, _, err := s.Extend(ctx, 0, []store.Holder{holder}, testLease); return err },
		"End": func() error {
			_, _, err := s.End(ctx, 0, []store.Outcome{{Holder: holder, Kind: store.Done}})
			return err
		},
		"Horizons":  func() error { _, err := s.Horizons(ctx, []int{0, 1}); return err },
		"Stats":     func() error { _, err := s.Stats(ctx, 0); return err },
		"CountDue":  func() error { _, err := s.CountDue(ctx, 0, []store.Millis{0, 1}); return err },
		"Heartbeat": func() error { _, err := s.Heartbeat(ctx, store.Heartbeat{Worker: "w"}); return err },
		"Workers":   func() error { _, err := s.Workers(ctx); return err },
		"Announce":  func() error { return s.Announce(ctx, store.Event{Kind: store.Busy}) },
		"Subscribe": func() error { return s.Subscribe(ctx, func(store.Event) {}) },
	}
	for name, call := range calls {
		f.ErrorIs(call(), store.ErrClosed, name)
	}
	f.NoError(f.Store.Close())
	f.Equal(2, f.Store.Shards())
}

// reopen ends the store as a crash would.
func (f *fixture) reopen() {
	f.Helper()
	if f.Reopen == nil {
		f.Skip("the engine cannot be reopened")
	}
	f.Store = f.Reopen(f.TB)
}

func reopened(f *fixture) {
	f.open(Options{Shards: 3, Limits: store.Limits{MaxDead: 5}})
	all := map[string]store.Record{}
	remember := func() {
		for key := range f.keys {
			all[key] = f.get(key)
		}
	}
	for n := range f.Store.Shards() {
		var entries []store.Entry
		for i := 0; len(entries) < 40; i++ {
			if key := name("k", i); f.shardOf(key) == n {
				e := entry(key)
				e.At = store.Millis(i + 1)
				e.Topic = topicOf(i % store.Lanes)
				entries = append(entries, e)
			}
		}
		f.schedule(entries...)
		claimed, _ := f.claimWith(n, newClaim(25))
		for i, l := range claimed.Leases {
			switch {
			case i < 15:
				f.ended(l, outcomeKinds[i%len(outcomeKinds)])
			case i < 18:
				f.put(entry(l.Key))
			case i < 20:
				f.cancel(l.Key)
			}
		}
		keys := f.list(n, store.Waiting, 10)
		f.cancel(keys[9].Key, keys[10].Key)
		f.reschedule(store.Move{Key: keys[11].Key, At: 5})
		f.claimWith(n, newClaim(1)) // applies MaxDead
	}
	remember()
	stats := []store.Stats{f.stats(0), f.stats(1), f.stats(2)}
	for range 2 {
		f.reopen()
		for key, r := range all {
			if f.LeasesEnd && r.State == store.Leased {
				r.LeaseEnd = f.get(key).LeaseEnd
			}
			f.Equal(r, f.get(key), "D3: %q did not survive", key)
		}
		for n, want := range stats {
			st := f.stats(n)
			want.Now, want.Overdue = st.Now, st.Overdue
			f.NotZero(want.Scheduled)
			if f.LeasesEnd {
				want.NextLeaseEnd, st.Scheduled = st.NextLeaseEnd, want.Scheduled-st.Scheduled
			}
			f.Equal(want, st)
		}
		f.verify()
	}
	f.drain()
	f.reopen()
	for key := range all {
		f.absent(key)
	}
	f.empty()
}

func reopenedLeases(f *fixture) {
	f.open(Options{Shards: 1})
	f.putAll("a", "b", "c", "d")
	leases := f.claim(4)
	next := entry("b")
	next.At = store.MaxMillis
	f.put(next)
	f.cancel("c")
	f.reopen()
	if f.LeasesEnd {
		h := f.readHorizon(0)
		f.NotZero(h.NextLeaseEnd)
		f.LessOrEqual(h.NextLeaseEnd, h.Now, "D6: not at once")
	} else {
		f.Empty(f.claim(4))
		f.Equal(leases[0].End, f.get("a").LeaseEnd)
	}
	// The holder has not lost its run merely because the engine was down.
	f.ended(leases[3], store.Done)
	if f.LeasesEnd {
		again := f.claim(4)
		f.Equal([]string{"a"}, keysOf(again))
		f.Equal(2, again[0].Attempt)
		f.Greater(again[0].Fence, leases[0].Fence)
		f.lost(leases[0].Holder, "leased again")
		f.fresh(next)
		f.absent("c")
	} else {
		f.ended(leases[1], store.Retry)
		f.fresh(next)
		f.ended(leases[2], store.Retry)
		f.absent("c")
	}
	f.verify()
	f.drain()
}

func reopenedFences(f *fixture) {
	f.open(Options{Shards: 1})
	last := uint64(0)
	for range 3 {
		for range 2 {
			f.putAll("a")
			l := f.claimOne("a")
			f.Greater(l.Fence, last, "D5: a fence is not higher than before the engine ended")
			last = l.Fence
			f.ended(l, store.Done)
		}
		f.empty()
		if f.Advance != nil {
			f.advance(-time.Hour) // so that only stored data tells the last fence
		}
		f.reopen()
	}
	f.drain()
}

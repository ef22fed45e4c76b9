package storetest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// eventTests test which events a subscription receives, and in which order.
var eventTests = []test{
	{"case 25: a subscription begins with a Gap, and ends with its cause", check(subscribeEnds)},
	{"an earlier timer is announced", checkWith(Options{Shards: 3}, announceEarlier)},
	{"D4 a cancelled run is announced to its holder", check(announceCancel)},
	{"a busy worker is announced to all", check(announceBusy)},
	{"events come one at a time", check(eventsOneAtATime)},
}

// listener is a subscription and the events that it has received.
type listener struct {
	f      *fixture
	events chan store.Event
	end    context.CancelCauseFunc
	done   chan error
}

// listen subscribes, and returns after the first Gap.
func (f *fixture) listen() *listener {
	f.Helper()
	ctx, end := context.WithCancelCause(f.ctx)
	l := &listener{f: f, events: make(chan store.Event, 1000), end: end, done: make(chan error, 1)}
	go func() { l.done <- f.Store.Subscribe(ctx, func(e store.Event) { l.events <- e }) }()
	f.Equal(store.Event{Kind: store.Gap}, l.next())
	return l
}

// patience bounds a wait for an expected event. It decides when a failing test fails, and nothing
// else.
const patience = time.Minute

func (l *listener) next() store.Event {
	l.f.Helper()
	select {
	case e := <-l.events:
		return e
	case err := <-l.done:
		l.f.Fatalf("the subscription has ended: %v", err)
	case <-time.After(patience):
		l.f.Fatal("no event came")
	}
	return store.Event{}
}

// expect reads events until it receives the wanted one: there may be others, and one may arrive
// twice.
func (l *listener) expect(want store.Event) {
	l.f.Helper()
	for l.next() != want {
	}
}

var errEnough = errors.New("enough events")

func (l *listener) close() {
	l.f.Helper()
	l.end(errEnough)
	select {
	case err := <-l.done:
		l.f.ErrorIs(err, errEnough)
	case <-time.After(patience):
		l.f.Fatal("Subscribe outlasts its ctx")
	}
}

func subscribeEnds(f *fixture) {
	one, two := f.listen(), f.listen()
	one.close()
	f.putAll("a")
	two.expect(store.Event{Kind: store.Earlier, Due: 1})
	two.close()
	three := f.listen()
	f.cancel("a")
	f.putAll("a")
	three.expect(store.Event{Kind: store.Earlier, Due: 1})
	three.close()
}

func announceEarlier(f *fixture) {
	l := f.listen()
	for n := range f.Store.Shards() {
		key := f.keyIn(n)
		due := f.readHorizon(n).Now + 1_000_000
		earlier := func(by store.Millis) {
			f.Helper()
			due -= by
			l.expect(store.Event{Kind: store.Earlier, Shard: n, Due: due})
		}
		e := entry(key)
		e.At = due
		f.put(e)
		earlier(0)
		e.At = due - 10
		f.put(e) // replaced
		earlier(10)
		f.reschedule(store.Move{Key: key, At: due - 20})
		earlier(20)
		f.reschedule(store.Move{Key: key, At: 7})
		due = 7
		earlier(0)
		claimed, _ := f.claimWith(n, newClaim(1))
		f.Len(claimed.Leases, 1)
		f.Equal(store.Succeeds, f.put(entry(key)).Kind) // it waits only when the run ends
		f.ended(claimed.Leases[0], store.Done)
		due = 1
		earlier(0)
		claimed, _ = f.claimWith(n, newClaim(1))
		f.ended(claimed.Leases[0], store.DeadLetter)
		f.requeue(key)
		due = f.get(key).Due
		earlier(0)
		f.cancel(key)
	}
	l.close()
}

// keyIn returns a key of a shard.
func (f *fixture) keyIn(n int) string {
	for i := 0; ; i++ {
		if key := name("k", i); f.shardOf(key) == n {
			return key
		}
	}
}

func announceCancel(f *fixture) {
	one, two := f.listen(), f.listen()
	f.putAll("a", "b\x00{}\xff")
	leases := f.claim(2)
	f.cancel("a", "b\x00{}\xff")
	for _, l := range []*listener{one, two} {
		heard := map[store.Holder]bool{}
		for len(heard) < 2 {
			if e := l.next(); e.Kind == store.CancelRun {
				f.Zero(e.Shard)
				heard[e.Holder] = true
			}
		}
		f.True(heard[leases[0].Holder] && heard[leases[1].Holder], "heard %v", heard)
		l.close()
	}
}

func announceBusy(f *fixture) {
	one, two := f.listen(), f.listen()
	e := store.Event{Kind: store.Busy, Shard: 0, From: "worker \x00{é}"}
	f.NoError(f.Store.Announce(f.ctx, e))
	one.expect(e)
	two.expect(e)
	one.close()
	two.close()
}

func eventsOneAtATime(f *fixture) {
	const n = 50
	ctx, end := context.WithCancel(f.ctx)
	defer end()
	var calls sync.Mutex
	var wg sync.WaitGroup
	ready, heard := make(chan bool), 0
	wg.Go(func() {
		_ = f.Store.Subscribe(ctx, func(e store.Event) {
			if !calls.TryLock() {
				f.TB.Error("two events at a time")
				return
			}
			defer calls.Unlock()
			runtime.Gosched() // so that a concurrent call would interleave
			switch e.Kind {
			case store.Gap:
				close(ready)
			case store.Busy:
				if heard++; heard == n {
					end()
				}
			}
		})
	})
	select {
	case <-ready:
	case <-time.After(patience):
		f.Fatal("no event came")
	}
	for range n {
		go func() { _ = f.Store.Announce(f.ctx, store.Event{Kind: store.Busy, From: "w"}) }()
	}
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		f.Fatal("events are missing")
	}
	wg.Wait()
}

package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// events subscribes, and returns what comes.
func (r *rig) events(s *Store) <-chan store.Event {
	r.t.Helper()
	ctx, cancel := context.WithCancelCause(r.ctx)
	cause := errors.New("enough")
	events := make(chan store.Event, 1000)
	done := make(chan error, 1)
	go func() { done <- s.Subscribe(ctx, func(e store.Event) { events <- e }) }()
	r.t.Cleanup(func() {
		cancel(cause)
		select {
		case err := <-done:
			if s.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				r.ErrorIs(err, cause)
			}
		case <-time.After(10 * time.Second):
			r.Fail("Subscribe does not end with its context")
		}
	})
	return events
}

// next returns the next event of a kind.
func (r *rig) next(events <-chan store.Event, k store.EventKind) store.Event {
	r.t.Helper()
	for {
		select {
		case e := <-events:
			if e.Kind == k {
				return e
			}
		case <-time.After(10 * time.Second):
			r.FailNow("no event", "of kind %d", k)
		}
	}
}

func TestEvents(t *testing.T) {
	r := newRig(t, startServer(t), Options{Shards: 3})
	events := r.events(r.s)
	r.Equal(store.Gap, (<-events).Kind, "a Gap comes first")
	key := "a"
	n := store.ShardOf(key, 3)
	e := r.entry(key)
	e.At = 5000
	schedule := func(at store.Millis) {
		t.Helper()
		e.At = at
		_, _, err := r.s.Schedule(r.ctx, n, []store.Entry{e})
		r.NoError(err)
	}
	schedule(5000)
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: 5000}, <-events)
	schedule(6000) // later
	schedule(4000)
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: 4000}, <-events)
	claimed, _, err := r.s.Claim(r.ctx, n, newClaim(1))
	r.NoError(err)
	_, err = r.s.Cancel(r.ctx, n, []string{key})
	r.NoError(err)
	r.Equal(store.Event{Kind: store.CancelRun, Shard: n, Holder: claimed.Leases[0].Holder}, <-events)
	// The lease runs out, and what comes after the run waits.
	schedule(store.MaxMillis)
	r.clock.advance(time.Minute)
	_, _, err = r.s.Claim(r.ctx, n, newClaim(1))
	r.NoError(err)
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: store.MaxMillis}, <-events)
	// What is leased at once is not announced, nor what is later than another.
	schedule(1)
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: 1}, <-events)
	for _, at := range []store.Millis{2, store.MaxMillis} {
		_, _, err = r.s.Claim(r.ctx, n, newClaim(1))
		r.NoError(err)
		schedule(at)
		r.clock.advance(time.Minute)
		if at == store.MaxMillis {
			r.putIn(n, store.Entry{Key: key + "2", At: store.MaxMillis - 1})
			r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: store.MaxMillis - 1}, <-events)
		}
	}
	_, _, err = r.s.Claim(r.ctx, n, newClaim(1))
	r.NoError(err)
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, Shard: 2, From: "me\x00"}))
	r.Equal(store.Event{Kind: store.Busy, Shard: 2, From: "me\x00"}, <-events)
	r.Empty(events)
}

func (r *rig) putIn(n int, entries ...store.Entry) {
	r.t.Helper()
	_, _, err := r.s.Schedule(r.ctx, n, entries)
	r.NoError(err)
}

// Case 25: a subscription that is lost is renewed, and a Gap says so: cut, silent, or
// with the server gone for a while.
func TestSubscriptionIsRenewed(t *testing.T) {
	srv := startServer(t)
	r, p, _ := behind(t, srv, Options{})
	events := r.events(r.s)
	r.next(events, store.Gap)
	r.Equal(int64(1), r.raw.ClientKillByFilter(r.ctx, "TYPE", "pubsub").Val())
	r.next(events, store.Gap)
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, From: "1"}))
	r.Equal("1", r.next(events, store.Busy).From)

	p.hang(true)
	time.AfterFunc(4*silence, func() { p.hang(false) })
	r.next(events, store.Gap)

	srv.kill()
	srv.start(t)
	r.next(events, store.Gap)
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, From: "2"}))
	r.Equal("2", r.next(events, store.Busy).From)
	_ = r.s.Close()
}

// Without pub/sub, in an old Cluster, there is one Gap.
func TestSubscribeWithoutAnnouncements(t *testing.T) {
	r := newRig(t, startServer(t), Options{})
	r.s.publish = ""
	events := r.events(r.s)
	r.Equal(store.Event{Kind: store.Gap}, <-events)
	r.put(r.entry("a"))
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, From: "1"}))
	r.NoError(r.s.Close())
	r.Empty(events)
}

// Whatever anybody publishes on the channel breaks nothing.
func TestForeignMessages(t *testing.T) {
	s := &subscription{numbers: map[string]int{"c": 3}}
	var got []store.Event
	s.f = func(e store.Event) { got = append(got, e) }
	for _, text := range []string{"", "E", "Ex", "C", "Cshort", "C" + string(make([]byte, 25)) + "\xff", "X", "B", "E12"} {
		s.deliver(&redis.Message{Channel: "c", Payload: text})
	}
	s.deliver(&redis.Message{Channel: "d", Payload: "E1"})
	require.Equal(t, []store.Event{{Kind: store.Busy, Shard: 3}, {Kind: store.Earlier, Shard: 3, Due: 12}}, got)
	require.Len(t, decodeHolders(string(make([]byte, 26))+string(make([]byte, 26))), 2)
}

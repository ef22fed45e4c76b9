package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// events subscribes, and returns the events.
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
		case <-time.After(time.Minute):
			r.Fail("Subscribe does not end with its context")
		}
	})
	return events
}

func (r *rig) event(events <-chan store.Event) store.Event {
	r.t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(time.Minute):
		r.FailNow("no event")
		return store.Event{}
	}
}

// next returns the next event of a kind.
func (r *rig) next(events <-chan store.Event, k store.EventKind) store.Event {
	r.t.Helper()
	for {
		if e := r.event(events); e.Kind == k {
			return e
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{Shards: 3})
	events := r.events(r.s)
	r.Equal(store.Gap, r.event(events).Kind, "a Gap comes first")
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
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: 5000}, r.event(events))
	schedule(6000) // later
	schedule(4000)
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: 4000}, r.event(events))
	claimed, _, err := r.s.Claim(r.ctx, n, newClaim(1))
	r.NoError(err)
	_, err = r.s.Cancel(r.ctx, n, []string{key})
	r.NoError(err)
	r.Equal(store.Event{Kind: store.CancelRun, Shard: n, Holder: claimed.Leases[0].Holder}, r.event(events))
	// The lease expires, and the timer's successor waits.
	schedule(store.MaxMillis)
	r.clock.advance(time.Minute)
	_, _, err = r.s.Claim(r.ctx, n, newClaim(1))
	r.NoError(err)
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: store.MaxMillis}, r.event(events))
	// A timer that is leased at once is not announced, nor is one later than another.
	schedule(1)
	r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: 1}, r.event(events))
	for _, at := range []store.Millis{2, store.MaxMillis} {
		_, _, err = r.s.Claim(r.ctx, n, newClaim(1))
		r.NoError(err)
		schedule(at)
		r.clock.advance(time.Minute)
		if at == store.MaxMillis {
			r.putIn(n, store.Entry{Key: key + "2", At: store.MaxMillis - 1})
			r.Equal(store.Event{Kind: store.Earlier, Shard: n, Due: store.MaxMillis - 1}, r.event(events))
		}
	}
	_, _, err = r.s.Claim(r.ctx, n, newClaim(1))
	r.NoError(err)
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, Shard: 2, From: "me\x00"}))
	r.Equal(store.Event{Kind: store.Busy, Shard: 2, From: "me\x00"}, r.event(events))
	r.Empty(events)
}

// The engine announces the earliest of the timers that one request adds.
func TestEventsOfSeveral(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, order := range [][]int{{1, 2}, {2, 1}} {
		r := newRig(t, srv, Options{})
		events := r.events(r.s)
		r.next(events, store.Gap)
		now := store.Millis(r.clock.ms.Load())
		announced := func(due store.Millis) {
			t.Helper()
			r.Equal(store.Event{Kind: store.Earlier, Due: due}, r.event(events))
		}
		var first, later, overdue []store.Move
		var entries []store.Entry
		for i, hours := range order {
			key := fmt.Sprint("k", i)
			after := time.Duration(hours) * time.Hour
			first = append(first, store.Move{Key: key, After: after})
			later = append(later, store.Move{Key: key, After: 9 * time.Hour})
			overdue = append(overdue, store.Move{Key: key, At: 1})
			entries = append(entries, store.Entry{Key: key, After: after})
		}
		r.put(entries...)
		announced(store.After(now, time.Hour))
		for _, moves := range [][]store.Move{later, first, overdue} {
			_, _, err := r.s.Reschedule(r.ctx, 0, moves)
			r.NoError(err)
		}
		announced(store.After(now, time.Hour))
		announced(1)

		r.put(store.Entry{Key: "done", At: 1})
		ends := make([]store.Outcome, 3)
		for _, l := range r.claim(3).Leases {
			i := slices.Index([]string{"k0", "k1", "done"}, l.Key)
			ends[i] = store.Outcome{Holder: l.Holder, Kind: store.Done}
			if i < 2 {
				ends[i].Kind, ends[i].Delay = store.Retry, first[i].After
			}
		}
		_, _, err := r.s.End(r.ctx, 0, ends)
		r.NoError(err)
		announced(store.After(now, time.Hour))

		// A timer that is no earlier is not announced.
		same := []store.Move{{Key: "same", After: time.Hour}}
		r.put(store.Entry{Key: "same", After: time.Hour})
		_, _, err = r.s.Reschedule(r.ctx, 0, same)
		r.NoError(err)
		for _, kind := range []store.OutcomeKind{store.Retry, store.DeadLetter} {
			r.put(store.Entry{Key: "same", At: 1})
			announced(1)
			_, _, err = r.s.End(r.ctx, 0, []store.Outcome{{Holder: r.claim(1).Leases[0].Holder, Kind: kind, Delay: time.Hour}})
			r.NoError(err)
		}
		r.put(store.Entry{Key: "now", At: now})
		announced(now)
		_, _, err = r.s.Requeue(r.ctx, 0, []string{"same"})
		r.NoError(err)
		r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy}))
		r.Equal(store.Busy, r.event(events).Kind)

		// A run is announced once, and only necessary messages are published.
		l := r.claim(1).Leases[0]
		r.NoError(r.raw.ConfigResetStat(r.ctx).Err())
		_, err = r.s.Cancel(r.ctx, 0, []string{"k0", l.Key, "k1", l.Key})
		r.NoError(err)
		r.Equal(store.Event{Kind: store.CancelRun, Holder: l.Holder}, r.event(events))
		_, err = r.s.Cancel(r.ctx, 0, []string{"same"})
		r.NoError(err)
		r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy}))
		r.Equal(store.Busy, r.event(events).Kind)
		r.Contains(r.raw.Info(r.ctx, "commandstats").Val(), "cmdstat_publish:calls=2,")
	}
}

func (r *rig) putIn(n int, entries ...store.Entry) {
	r.t.Helper()
	_, _, err := r.s.Schedule(r.ctx, n, entries)
	r.NoError(err)
}

// Case 25: a subscription that is lost (cut, silent, or with its server down for a while) is
// renewed, and a Gap follows.
func TestSubscriptionIsRenewed(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	r, p, _ := behind(t, srv, Options{})
	r.s.pingAfter = 100 * time.Millisecond
	events := r.events(r.s)
	r.next(events, store.Gap)
	r.Equal(int64(1), r.raw.ClientKillByFilter(r.ctx, "TYPE", "pubsub").Val())
	r.next(events, store.Gap)
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, From: "1"}))
	r.Equal("1", r.next(events, store.Busy).From)

	p.hangOnce()
	r.next(events, store.Gap)

	srv.Kill()
	srv.start(t)
	r.next(events, store.Gap)
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, From: "2"}))
	r.Equal("2", r.next(events, store.Busy).From)
	_ = r.s.Close()
}

// Without pub/sub, in an old Cluster, there is one Gap.
func TestSubscribeWithoutAnnouncements(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.s.publish = ""
	events := r.events(r.s)
	r.Equal(store.Event{Kind: store.Gap}, r.event(events))
	r.put(r.entry("a"))
	r.NoError(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, From: "1"}))
	r.NoError(r.s.Close())
	r.Empty(events)
}

// Foreign messages on the channel do no harm.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
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

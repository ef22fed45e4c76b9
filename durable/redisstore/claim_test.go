package redisstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-782fa212/limbo/durable/store"
)

// A claim sent again leases no more timers, even if more are due.
func TestClaimSentAgainLeasesNoMore(t *testing.T) {
	t.Parallel()
	r, p, _ := behind(t, startServer(t), Options{})
	r.put(r.entry("b"), r.entry("c"))
	p.next(fault{dropReply: true}, fault{dropReply: true})
	first := r.claim(1)
	r.Len(first.Leases, 1)
	r.counts(2, 2, 1)
	r.Len(r.claim(5).Leases, 2, "the next claim is another")
}

// A claim sent again gets the leases that it still has and no others, even if it has none.
func TestRepeatedClaimGetsItsLeases(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	keys := func(c store.Claimed) (keys []string) {
		for _, l := range c.Leases {
			keys = append(keys, l.Key)
		}
		return keys
	}
	for _, key := range []string{"done", "again", "kept", "retried", "long"} {
		e := r.entry(key)
		if key == "long" {
			e.Body = make([]byte, inline+1)
		}
		r.put(e)
	}
	c := newClaim(5)
	again := func() store.Claimed {
		t.Helper()
		claimed, h, err := r.s.Claim(r.ctx, 0, c)
		r.NoError(err)
		look, err := r.s.Horizons(r.ctx, []int{0})
		r.NoError(err)
		r.Equal(look[0], h)
		return claimed
	}
	first := again()
	r.Equal([]string{"again", "done", "kept", "long", "retried"}, keys(first))
	r.Equal(first, again())
	r.end(store.Done, first.Leases[1])
	r.end(store.Retry, first.Leases[4])
	_, err := r.s.Cancel(r.ctx, 0, []string{"retried"})
	r.NoError(err)
	// Another worker has one of them by now, and the successor of another.
	r.end(store.Release, first.Leases[0])
	other := newClaim(5)
	other.Worker = "other"
	claimed, _, err := r.s.Claim(r.ctx, 0, other)
	r.NoError(err)
	r.Equal([]string{"again"}, keys(claimed))
	left := again()
	r.Equal([]string{"kept", "long"}, keys(left))
	r.Equal([]store.Lease{first.Leases[2], first.Leases[3]}, left.Leases)
	r.end(store.Release, first.Leases[2], first.Leases[3])
	r.Empty(again().Leases)
	r.counts(2, 1, 0)
	r.Equal([]string{"kept", "long"}, keys(r.claim(5)))
	r.Equal([]store.EndResult{store.EndLost}, r.end(store.Done, first.Leases[2]))

	// The dead letters of the claim are reported again.
	c = newClaim(5)
	c.MaxAttempts = 1
	r.put(r.entry("due"))
	r.clock.advance(time.Minute)
	first = again()
	r.Equal([]string{"due"}, keys(first))
	r.Equal(3, first.DeadLettered)
	r.Equal(first, again())
	r.clock.advance(time.Minute)
	for _, want := range []store.Claimed{{DeadLettered: 1}, {Repaired: 1}} { // even without leases
		c.Token = store.NewToken("worker")
		first = again()
		r.Equal(want, first)
		r.Equal(first, again())
		r.put(r.entry("lost"))
		r.NoError(r.raw.HDel(r.ctx, r.s.shards[0].names[5], "lost").Err())
	}
}

// A claim that is repeated after its log has expired gets its leases again, although they have
// expired, as the same attempts: no handler was called. It leases nothing else, and treats the
// leases of others as any claim does.
func TestClaimSentAgainAfterItsLog(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, most := range []int{1, 3} {
		r := newRig(t, srv, Options{})
		long := r.entry("long")
		long.Body = make([]byte, inline+1)
		r.put(r.entry("a"), long, r.entry("cancelled"), r.entry("replaced"))
		c := newClaim(4)
		c.MaxAttempts = most
		first, _, err := r.s.Claim(r.ctx, 0, c)
		r.NoError(err)
		r.Len(first.Leases, 4)
		r.put(r.entry("other"))
		other := newClaim(1)
		other.Worker = "other"
		r.claimAs(other, "other")
		r.put(r.entry("due"), r.entry("replaced"))
		_, err = r.s.Cancel(r.ctx, 0, []string{"cancelled"})
		r.NoError(err)

		r.clock.advance(time.Hour)
		r.NoError(r.raw.Del(r.ctx, r.s.shards[0].names[len(suffixes)]).Err()) // as its expiry does
		again := r.claimAs(c, "a", "long")
		for i, l := range again.Leases {
			r.Equal(1, l.Attempt)
			r.Greater(l.End, store.Millis(r.clock.ms.Load()))
			was := first.Leases[slices.IndexFunc(first.Leases, func(f store.Lease) bool { return f.Key == l.Key })]
			r.Greater(l.Fence, was.Fence)
			r.Equal([]any{was.ID, was.Body, was.Due, was.Token}, []any{l.ID, l.Body, l.Due, l.Token})
			r.Equal([]store.EndResult{store.Ended}, r.end(store.Release, again.Leases[i]))
			record, err := r.s.Get(r.ctx, 0, l.Key)
			r.NoError(err)
			r.Zero(record.Attempts)
		}
		if most == 1 { // the lease of the other worker
			r.Equal(1, again.DeadLettered)
			r.counts(4, 0, 1)
		} else {
			r.Zero(again.DeadLettered)
			r.counts(4, 1, 0)
		}
		_, err = r.s.Get(r.ctx, 0, "cancelled")
		r.ErrorIs(err, store.ErrNotFound)
	}
}

// The log does not keep the replies to workers that are gone: each worker's first claim removes
// those whose time is over. A reply's time is a minute, or the lease if that is longer.
func TestLogOfManyWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	log := r.s.shards[0].names[len(suffixes)]
	claim := func(worker string, lease time.Duration) {
		t.Helper()
		c := newClaim(1)
		c.Worker, c.Lease = worker, lease
		_, _, err := r.s.Claim(r.ctx, 0, c)
		r.NoError(err)
	}
	r.put(r.entry("a"))
	claim("leases", time.Hour)
	claim("leases", time.Hour) // none: its reply is still that to the claim before
	for i := range 300 {
		claim(fmt.Sprint("w", i), time.Hour)
	}
	r.EqualValues(304, r.raw.HLen(r.ctx, log).Val(), "n, o and schedule, too")
	r.clock.advance(time.Minute)
	claim("w0", time.Hour)
	claim("last", time.Hour)
	r.EqualValues(305, r.raw.HLen(r.ctx, log).Val(), "a minute is not over")
	r.clock.advance(time.Millisecond)
	for i := range 60 {
		claim(fmt.Sprint("x", i), time.Hour)
	}
	var kept []string
	for _, name := range r.raw.HKeys(r.ctx, log).Val() {
		if !strings.HasPrefix(name, "claim x") {
			kept = append(kept, name)
		}
	}
	r.ElementsMatch([]string{"n", "o", "schedule", "claim leases", "claim w0", "claim last"}, kept)
	r.clock.advance(time.Hour)
	claim("x0", time.Hour)
	claim("y", time.Hour)
	r.EqualValues(5, r.raw.HLen(r.ctx, log).Val(), "n, o, schedule, x0 and y")
}

// A claim that changes no timer writes its reply to the log only.
func TestClaimOfNothing(t *testing.T) {
	t.Parallel()
	r, _, _ := behind(t, startServer(t), Options{})
	_, _, err := r.s.Reschedule(r.ctx, 0, []store.Move{{Key: "waiting", After: time.Hour}})
	r.NoError(err)
	c := newClaim(9)
	keys := r.s.shards[0].names[:len(suffixes)]
	dump := func() (values []string) {
		t.Helper()
		for _, key := range keys {
			values = append(values, r.raw.Dump(r.ctx, key).Val())
		}
		return values
	}
	r.clock.advance(time.Second)
	before := dump()
	claimed, _, err := r.s.Claim(r.ctx, 0, c)
	r.NoError(err)
	r.Equal(store.Claimed{}, claimed)
	r.Equal(before, dump())
}

// D1: a claim removes and counts records without a state, and states without a record. Everything
// else stays.
func TestClaimRepairs(t *testing.T) {
	t.Parallel()
	const b, blobs, runs, succ = 5, 6, 7, 8
	r, _, l := behind(t, startServer(t), Options{})
	names := r.s.shards[0].names
	other := r.entry("other")
	other.At = store.MaxMillis
	r.put(other)
	for lane := range store.Lanes { // one in each, which stays
		e := r.entry(fmt.Sprint("lane", lane))
		e.Topic, e.At = topicOf(lane), store.MaxMillis
		r.put(e)
	}
	r.NoError(r.raw.ConfigResetStat(r.ctx).Err())
	claimed := r.claim(1)
	r.Equal("waiting", claimed.Leases[0].Key)
	r.NotContains(r.raw.Info(r.ctx, "commandstats").Val(), "hscan", "looked for something lost")
	r.end(store.Release, claimed.Leases...)
	claim := func(repaired int, leased ...string) {
		t.Helper()
		claimed := r.claim(50)
		r.Equal(repaired, claimed.Repaired)
		var keys []string
		for _, l := range claimed.Leases {
			keys = append(keys, l.Key)
		}
		r.Equal(leased, keys)
	}
	removed := func(key string) {
		t.Helper()
		_, err := r.s.Get(r.ctx, 0, key)
		r.ErrorIs(err, store.ErrNotFound)
		for _, n := range []int{0, 1, 2, 3, 4, 9} {
			r.ErrorIs(r.raw.ZScore(r.ctx, names[n], key).Err(), redis.Nil)
		}
		for _, n := range []int{b, runs, succ} {
			r.False(r.raw.HExists(r.ctx, names[n], key).Val())
		}
	}
	lane := names[store.LaneOf("topic")]

	r.NoError(r.raw.ZRem(r.ctx, lane, "waiting").Err()) // a record without a state
	claim(1)
	removed("waiting")

	r.put(r.entry("waiting"))
	r.end(store.Retry, r.claim(1).Leases...)
	r.NoError(r.raw.HSet(r.ctx, names[succ], "waiting", "x").Err())
	r.NoError(r.raw.HDel(r.ctx, names[b], "waiting").Err()) // a state without a record
	claim(1)
	removed("waiting")

	other.At = 1
	r.put(other)
	r.end(store.Retry, r.claim(1).Leases...)
	other.At = store.MaxMillis - 1
	_, _, err := r.s.Reschedule(r.ctx, 0, []store.Move{{Key: "other", At: other.At}})
	r.NoError(err)
	second := names[store.LaneOf(topicOf((store.LaneOf("topic")+1)%store.Lanes))]
	r.NoError(r.raw.ZAdd(r.ctx, second, redis.Z{Score: 1, Member: "other"}).Err()) // two states
	claim(1)
	r.ErrorIs(r.raw.ZScore(r.ctx, second, "other").Err(), redis.Nil)
	record, err := r.s.Get(r.ctx, 0, "other")
	r.NoError(err)
	r.Equal(other.At, record.Due)
	r.EqualValues(1, record.Attempts)
	r.Equal("failed", record.LastError)

	r.put(r.entry("leased"))                               // a successor
	r.NoError(r.raw.HDel(r.ctx, names[b], "leased").Err()) // which the lost record leaves
	r.clock.advance(time.Minute)
	claim(1, "leased")

	r.NoError(r.raw.HDel(r.ctx, names[b], "leased").Err())
	r.clock.advance(time.Minute)
	claim(1)
	removed("leased")

	r.put(r.entry("leased"))
	claim(0, "leased")
	r.NoError(r.raw.HDel(r.ctx, names[runs], "leased").Err()) // a lease without a holder
	r.Equal([]store.EndResult{store.EndLost}, r.end(store.Done, l))
	r.clock.advance(time.Minute)
	r.put(r.entry("first"))
	one := r.claim(1)
	r.Equal(1, one.Repaired)
	r.Equal("first", one.Leases[0].Key)
	r.end(store.Done, one.Leases...)
	record, err = r.s.Get(r.ctx, 0, "leased")
	r.NoError(err)
	r.Equal(store.Waiting, record.State)
	claim(0, "leased")
	r.put(r.entry("leased"))                    // a successor
	r.NoError(r.raw.Del(r.ctx, names[4]).Err()) // all leases
	claim(1)
	removed("leased")

	e := r.entry("long")
	e.Body = make([]byte, store.MaxBody)
	r.put(e)
	r.NoError(r.raw.Del(r.ctx, names[blobs]).Err()) // a body
	claim(1)
	removed("long")
	r.put(e)
	claim(0, "long")
	r.NoError(r.raw.Del(r.ctx, names[blobs]).Err())
	r.clock.advance(time.Minute)
	claim(1)
	removed("long")

	// Many, over several claims.
	var entries []store.Entry
	for i := range 400 {
		e := r.entry(fmt.Sprint("k", i))
		e.At = store.MaxMillis
		e.Body = make([]byte, 100)
		entries = append(entries, e)
	}
	r.put(entries...)
	for i := range 300 {
		r.NoError(r.raw.ZRem(r.ctx, lane, fmt.Sprint("k", i)).Err())
	}
	repaired, claims := 0, 0
	for ; repaired < 300; claims++ {
		r.Less(claims, 50)
		repaired += r.claim(1).Repaired
	}
	r.Equal(300, repaired)
	claim(0)
	r.counts(105, 0, 1)
	r.False(r.raw.HExists(r.ctx, names[10], "h").Val())
	for i := range 10 { // a single one, on any page
		r.NoError(r.raw.ZRem(r.ctx, lane, fmt.Sprint("k", 300+i)).Err())
		for r.claim(1).Repaired == 0 {
			claims++
			r.Less(claims, 200)
		}
		r.False(r.raw.HExists(r.ctx, names[10], "h").Val())
	}

	// All keys.
	r.NoError(r.raw.Del(r.ctx, slices.Concat(names[:6], names[9:10])...).Err())
	r.NoError(r.raw.HSet(r.ctx, names[blobs], "x", "y").Err())
	claim(0)
	r.Empty(left(t, r.raw, r.o.Namespace))
}

func topicOf(lane int) string {
	for i := 0; ; i++ {
		if topic := fmt.Sprint("topic", i); store.LaneOf(topic) == lane {
			return topic
		}
	}
}

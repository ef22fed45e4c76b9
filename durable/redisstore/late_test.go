package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// load loads all scripts into the server, so that a held request is the only one of its call.
func (r *rig) load() {
	r.t.Helper()
	for _, sc := range []*script{
		scheduleScript, cancelScript, rescheduleScript, requeueScript, purgeScript, claimScript, extendScript, endScript,
		swapScript, heartbeatScript,
	} {
		r.NoError(r.raw.ScriptLoad(r.ctx, sc.src).Err())
	}
}

// timers dumps all keys of the shard about timers.
func (r *rig) timers() (dump []string) {
	r.t.Helper()
	for _, name := range slices.Concat(r.s.workers[:], r.s.shards[0].names[:len(suffixes)]) {
		dump = append(dump, r.raw.Dump(r.ctx, name).Val())
	}
	return dump
}

// abandon makes a call whose request is held, and whose caller gives up.
func (r *rig) abandon(p *proxy, c call, l store.Lease) *heldRequest {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.s.attemptTimeout = time.Minute // of an attempt: there is one
	p.next(fault{hold: true})
	done := make(chan error, 1)
	go func() {
		_, err := c.f(r, ctx, l)
		done <- err
	}()
	request := p.holding(r.t)
	cancel()
	r.ErrorIs(<-done, store.ErrUnsure, c.name)
	p.next()
	return request
}

// numberedCalls are the calls whose requests have numbers.
func numberedCalls() (list []call) {
	for _, c := range calls {
		if c.name != "extend" && c.name != "heartbeat" {
			list = append(list, c)
		}
	}
	return list
}

// A request of a call that returned ErrUnsure changes nothing after a later change of any kind:
// after Cancelled nothing runs, accepted timers stay, and nothing is moved.
func TestLateRequestAfterLaterOne(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, first := range numberedCalls() {
		for _, second := range numberedCalls() {
			t.Run(first.name+" after "+second.name, func(t *testing.T) {
				r, p, l := behind(t, srv, Options{})
				r.load()
				request := r.abandon(p, first, l)
				second.check(r, l)
				before := r.timers()
				r.Contains(request.release(t), "-OVERTAKEN")
				r.Equal(before, r.timers())
			})
		}
	}
}

// The same holds while an older request of another kind is in flight, which still takes effect.
func TestLateRequestAmongOthers(t *testing.T) {
	t.Parallel()
	r, p, l := behind(t, startServer(t), Options{})
	r.load()
	r.s.attemptTimeout = time.Minute // the oldest is sent once
	p.next(fault{hold: true})
	oldest := make(chan []store.CancelResult, 1)
	go func() {
		results, _ := r.s.Cancel(r.ctx, 0, []string{"dead", "waiting"})
		oldest <- results
	}()
	first := p.holding(t)

	request := r.abandon(p, calls[0], l)
	_, _, err := r.s.Reschedule(r.ctx, 0, []store.Move{{Key: "waiting", At: 2}})
	r.NoError(err)
	before := r.timers()
	r.Contains(request.release(t), "-OVERTAKEN")
	r.Equal(before, r.timers())

	first.release(t)
	r.Equal([]store.CancelResult{store.NotFound, store.Cancelled}, <-oldest)
	r.counts(0, 1, 1)
	r.Contains(request.releaseTo(t, r.srv), "-OVERTAKEN")
	r.counts(0, 1, 1)
}

// A request changes nothing once the time of its call is up, by the clock of the server: for other
// clients too, and even if its client sends nothing more.
func TestLateRequestAfterItsCall(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, srv, Options{})
			r.load()
			p := startProxy(t, srv.addr)
			r.clock = &clock{} // runs
			r.s = r.open(clientOf(t, p.addr))
			r.beat("w", 0)
			r.put(r.entry("dead"), r.entry("leased"))
			leases := r.claim(2).Leases
			r.end(store.DeadLetter, leases[0])
			r.put(r.entry("waiting"))
			r.s.attemptTimeout = time.Minute
			var err error
			for patience := 100 * time.Millisecond; p.holds() == 0; patience *= 2 {
				r.Less(patience, maxCall)
				p.next(fault{hold: true})
				ctx, cancel := context.WithTimeout(r.ctx, patience)
				_, err = c.f(r, ctx, leases[1])
				cancel()
			}
			r.ErrorIs(err, store.ErrUnsure)
			before := r.timers()
			r.Contains(p.holding(t).release(t), "-EXPIRED")
			r.Equal(before, r.timers())
		})
	}
}

// The deadline is exact, and a reply is repeated after it.
func TestDeadlineOfARequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	now := store.Millis(r.clock.ms.Load())
	ask := func(number uint64, deadline store.Millis) error {
		req := r.s.changes(r.s.shards[0], cancelScript, []any{"a"})
		req.args[orderAt] = order{number: number}.text(deadline)
		_, err := r.s.attempt(r.ctx, req, target{})
		return err
	}
	r.put(r.entry("a"))
	r.EqualError(ask(9, now), fmt.Sprint("EXPIRED ", now))
	r.EqualError(ask(9, 0), fmt.Sprint("EXPIRED ", now))
	r.counts(1, 0, 0)
	r.NoError(ask(9, now+1))
	r.counts(0, 0, 0)
	r.NoError(ask(9, now), "it was carried out")
	r.ErrorContains(ask(8, now+1), "OVERTAKEN")
}

// A request that arrives after its deadline only because the server's clock was set, or another
// server has replaced it, is sent again with another deadline while its call goes on.
func TestServersClockIsSetForward(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, c := range calls {
		r, p, l := behind(t, srv, Options{})
		r.load()
		r.s.attemptTimeout = time.Minute // of an attempt: none is sent twice
		r.clock.advance(time.Hour)
		p.next()
		v, err := c.f(r, r.ctx, l)
		r.NoError(err, c.name)
		r.NotEmpty(v)
		r.Equal(2, p.scripts(), c.name)
		_, err = c.f(r, r.ctx, l)
		r.NoError(err)
		r.Equal(3, p.scripts(), "%s: the new clock is known", c.name)
	}
}

// Open tells the store the server's clock, and so does each reply: no change takes a second round
// trip.
func TestOneRoundTripForAChange(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.load()
	p := startProxy(t, r.srv.addr)
	r.s = r.open(clientOf(t, p.addr))
	r.s.attemptTimeout = time.Minute // of an attempt: none is sent twice
	p.next()
	r.put(r.entry("a"))
	r.Equal(1, p.scripts())
	r.clock.advance(time.Hour)
	_, err := r.s.Horizons(r.ctx, []int{0})
	r.NoError(err)
	p.next()
	r.end(store.Done, r.claim(1).Leases...)
	r.Equal(2, p.scripts())
}

// The first heartbeat of a Store has a deadline, too. Open has learned the clock of a lone server;
// in a Cluster, one more round trip tells the Store.
func TestFirstHeartbeatHasADeadline(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	r := newRig(t, srv, Options{})
	r.load()
	p := startProxy(t, srv.addr)
	r.s = r.open(clientOf(t, p.addr))
	r.s.attemptTimeout = time.Minute // of an attempt: none is sent twice
	p.next()
	r.Equal([]string{"w"}, r.beat("w", time.Second))
	r.Equal(1, p.scripts())
	r.s.heartbeatClock.sent = 0 // as Open leaves it in a Cluster
	p.next()
	r.Equal([]string{"w"}, r.beat("w", time.Second))
	r.Equal(2, p.scripts())

	r.s = r.open(clientOf(t, p.addr))
	r.s.attemptTimeout = time.Minute
	heartbeat := calls[slices.IndexFunc(calls, func(c call) bool { return c.name == "heartbeat" })]
	request := r.abandon(p, heartbeat, store.Lease{})
	sent := r.clock.text() // the server takes its time from the request
	r.clock.advance(2 * maxCall)
	request.request = bytes.Replace(request.request, []byte(sent), []byte(r.clock.text()), 1)
	before := r.timers()
	r.Contains(request.release(t), "-EXPIRED")
	r.Equal(before, r.timers())
}

// A serverClock is a lower bound; before the first reply it is a lower bound of any clock.
func TestServerClock(t *testing.T) {
	t.Parallel()
	var c serverClock
	now := time.Now()
	require.Zero(t, (&order{}).number)
	require.Zero(t, c.at(now.Add(time.Hour)))
	c.observe(1000)
	require.EqualValues(t, 1000, c.at(c.received))
	require.EqualValues(t, 1000, c.at(c.received.Add(time.Millisecond-1)))
	require.EqualValues(t, 3000, c.at(c.received.Add(2*time.Second)))
	require.False(t, c.received.Before(now))
	c.observe(500)
	require.EqualValues(t, 500, c.at(c.received), "the clock has gone back")
	require.Equal(t, "7", order{}.text(7))
	require.Equal(t, "12 7,3,4,", order{12, ",3,4,"}.text(7))
}

// A claim's first request arrives after its second was answered and the leases of that have ended:
// it leases nothing, even if the second found nothing.
func TestLateClaim(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, due := range []int{0, 1} {
		for _, later := range []bool{false, true} { // another claim was executed
			t.Run(fmt.Sprint(due, later), func(t *testing.T) {
				r := newRig(t, srv, Options{})
				r.load()
				p := startProxy(t, srv.addr)
				r.s = r.open(clientOf(t, p.addr))
				if due > 0 {
					r.put(r.entry("a"))
				}
				p.next(fault{hold: true})
				r.s.attemptTimeout = 100 * time.Millisecond // of the first
				claimed := r.claim(1)
				r.s.attemptTimeout = time.Minute
				r.Len(claimed.Leases, due)
				if due > 0 {
					r.end(store.Done, claimed.Leases...)
				}
				if later {
					r.Empty(r.claim(1).Leases)
				}
				other := r.open(r.raw)
				_, _, err := other.Schedule(r.ctx, 0, []store.Entry{r.entry("b")})
				r.NoError(err)
				r.NotContains(p.holding(t).release(t), "body of")
				r.counts(1, 0, 0)
				r.Len(r.claim(1).Leases, 1)
			})
		}
	}
}

// A claim that leased nothing does not report the dead letters of the claim before it again.
func TestClaimOfNothingSentAgain(t *testing.T) {
	t.Parallel()
	r, p, _ := behind(t, startServer(t), Options{})
	r.clock.advance(time.Minute)
	c := newClaim(1)
	c.MaxAttempts = 1
	claimed, _, err := r.s.Claim(r.ctx, 0, c)
	r.NoError(err)
	r.Equal(1, claimed.DeadLettered)
	r.Len(claimed.Leases, 1)
	p.next(fault{dropReply: true})
	r.Equal(store.Claimed{}, r.claim(1))
}

// A later call can repeat the same claim as long as its worker leases nothing else; then an earlier
// request of the claim is refused as any other.
func TestClaimByTwoCalls(t *testing.T) {
	t.Parallel()
	r, p, _ := behind(t, startServer(t), Options{})
	r.load()
	c := newClaim(1)
	claim := func(worker string) store.Claimed {
		t.Helper()
		d := c
		d.Worker = worker
		claimed, _, err := r.s.Claim(r.ctx, 0, d)
		r.NoError(err)
		return claimed
	}
	first := claim("one")
	r.Len(first.Leases, 1)
	d := c
	c.Token = store.NewToken("worker")
	r.Empty(claim("two").Leases)
	c = d
	r.put(r.entry("more"))
	request := r.abandon(p, call{name: "claim", f: func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		_, _, err := r.s.Claim(ctx, 0, c)
		return nil, err
	}}, store.Lease{})
	c.Token = store.NewToken("worker")
	c.Max = 0
	r.Empty(claim("one").Leases)
	c = d
	r.Equal(first, claim("one"))
	r.Contains(request.release(t), "-OVERTAKEN")
	r.counts(1, 2, 1)
}

// A client's log has one reply of each kind, under the number of its request. The log expires one
// to two minutes after the last request, even if that was a repeated one, and not before the leases
// of a claim: the claim may be repeated for as long.
func TestLog(t *testing.T) {
	t.Parallel()
	r, p, l := behind(t, startServer(t), Options{})
	sh := r.s.shards[0]
	log := sh.names[len(suffixes)]
	for _, c := range calls {
		_, err := c.f(r, r.ctx, l)
		r.NoError(err, c.name)
	}
	fields := r.raw.HGetAll(r.ctx, log).Val()
	var names []string
	for name := range fields {
		names = append(names, name)
	}
	r.ElementsMatch([]string{"n", "o", "schedule", "cancel", "reschedule", "requeue", "purge", "end", "claim worker", "swap"}, names)
	r.Equal(fmt.Sprint(sh.last), fields["n"])
	r.Empty(fields["o"])
	expiry := func() {
		t.Helper()
		ttl := r.raw.PTTL(r.ctx, log).Val()
		r.Greater(ttl, 2*maxCall-30*time.Second, "it must outlive all requests under way")
		r.LessOrEqual(ttl, 2*time.Minute)
	}
	expiry()
	r.NoError(r.raw.PExpire(r.ctx, log, time.Hour).Err())
	written := func() int {
		m := regexp.MustCompile(`cmdstat_pexpire:calls=(\d+)`).FindStringSubmatch(r.raw.Info(r.ctx, "commandstats").Val())
		n, err := strconv.Atoi(m[1])
		r.NoError(err)
		return n
	}
	before := written()
	r.put(r.entry("w"))
	r.Equal(before, written(), "enough time is left")
	p.next(fault{dropReply: true})
	r.put(r.entry("v"))
	r.Equal(before+1, written(), "a repeated request has a write, for which WAIT waits")
	r.Greater(r.raw.PTTL(r.ctx, log).Val(), time.Hour-30*time.Second, "it never expires earlier than before")
	r.NoError(r.raw.PExpire(r.ctx, log, maxCall).Err())
	p.next(fault{dropReply: true}, fault{before: func() { _ = r.raw.PExpire(r.ctx, log, maxCall).Err() }})
	r.put(r.entry("x"))
	expiry()

	lease := func() {
		t.Helper()
		ttl := r.raw.PTTL(r.ctx, log).Val()
		r.Greater(ttl, time.Hour-30*time.Second)
		r.LessOrEqual(ttl, time.Hour+time.Minute)
	}
	c := newClaim(1)
	c.Lease = time.Hour
	_, _, err := r.s.Claim(r.ctx, 0, c)
	r.NoError(err)
	lease()

	// An older reply has been removed.
	r.put(r.entry("y"))
	lease()
	r.Equal(byte(sh.last), r.raw.HGet(r.ctx, log, "schedule").Val()[0])
	r.Len(r.raw.HGet(r.ctx, log, "schedule").Val(), 8+9)
}

// Requests of all kinds are in flight concurrently, and two of one kind are not.
func TestKindsRunConcurrently(t *testing.T) {
	t.Parallel()
	sh := newShard("x", 0, "y")
	ctx, cancel := context.WithCancel(t.Context())
	var open []string
	for k := range kinds {
		o, err := sh.begin(ctx, k)
		require.NoError(t, err)
		require.EqualValues(t, k+1, o.number)
		want := ""
		if len(open) > 0 {
			want = "," + strings.Join(open, ",") + ","
		}
		require.Equal(t, want, o.open)
		open = append(open, fmt.Sprint(o.number))
	}
	cancel()
	for k := range kinds {
		_, err := sh.begin(ctx, k)
		require.ErrorIs(t, err, context.Canceled)
	}
	for k := range kinds - 1 {
		sh.end(k)
	}
	o, err := sh.begin(t.Context(), scheduling)
	require.NoError(t, err)
	require.Equal(t, order{number: uint64(kinds) + 1, open: fmt.Sprintf(",%d,", kinds)}, o)
}

// A schedule whose script ends midway, and whose error is lost, gets no answer of success: it is
// executed when it is sent again, or the error is ErrUnsure.
func TestScriptFailsMidwayAndItsErrorIsLost(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, again := range []bool{false, true} { // it can succeed the second time
		r := newRig(t, srv, Options{})
		r.user()
		p := startProxy(t, srv.addr)
		r.s = r.open(newClient(t, redis.Options{Addr: p.addr, Username: "app", Password: "secret"}))
		r.put(r.entry("x"))
		r.end(store.Done, r.claim(1).Leases...)
		r.rights("-hset")
		second := fault{}
		if again {
			second.before = func() { r.rights("+hset") }
		}
		p.next(fault{dropReply: true}, second)
		e := r.entry("a")
		e.IfAbsent = true
		receipts, _, err := r.s.Schedule(r.ctx, 0, []store.Entry{e})
		r.rights("+hset")
		claimed := r.claim(9)
		if again {
			r.NoError(err)
			r.Equal([]store.Receipt{{Kind: store.Created, Due: 1}}, receipts)
			r.Len(claimed.Leases, 1)
			r.Zero(claimed.Repaired)
		} else {
			r.ErrorIs(err, store.ErrUnsure)
			r.Empty(claimed.Leases)
			r.Equal(1, claimed.Repaired)
		}
	}
}

// If the server's clock goes back, a heartbeat still expires when its remaining time has passed
// after the next request.
func TestHeartbeatsWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.beat("dies", 2*time.Second)
	r.beat("long", time.Minute)
	r.clock.advance(-time.Hour)
	r.Equal([]string{"dies", "lives", "long"}, r.beat("lives", time.Minute))
	workers, err := r.s.Workers(r.ctx)
	r.NoError(err)
	r.Len(workers, 3)
	for _, w := range workers {
		r.Equal(workers[1].Heartbeat, w.Heartbeat, "the clock has gone back, and the heartbeats with it")
	}
	r.clock.advance(2*time.Second - time.Millisecond)
	r.Equal([]string{"dies", "lives", "long"}, r.beat("lives", time.Minute))
	r.clock.advance(time.Millisecond)
	r.Equal([]string{"lives", "long"}, r.beat("lives", time.Minute))
	r.clock.advance(-time.Millisecond)
	r.Equal([]string{"long"}, r.beat("lives", 0))
	r.clock.advance(58*time.Second - time.Millisecond)
	r.Equal([]string{"long"}, r.beat("lives", 0))
	r.clock.advance(time.Millisecond)
	r.Empty(r.beat("lives", 0))
}

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

// behind is a rig whose store reaches the server through a proxy. It has one waiting, one leased
// and one dead timer, with these names, and no others.
func behind(t *testing.T, srv *server, o Options) (*rig, *proxy, store.Lease) {
	t.Helper()
	r := newRig(t, srv, o)
	p := startProxy(t, srv.addr)
	r.s = r.open(clientOf(t, p.addr))
	r.put(r.entry("dead"), r.entry("leased"))
	leases := r.claim(2).Leases
	r.end(store.DeadLetter, leases[0])
	r.put(r.entry("waiting"))
	r.counts(1, 1, 1)
	r.beat("w", 0) // it knows the server's clock then
	return r, p, leases[1]
}

// call is a call of the store with its result, and a check of its effect.
type call struct {
	name   string
	f      func(r *rig, ctx context.Context, l store.Lease) (any, error)
	want   any
	counts [3]int
}

// calls are all calls that change something; sent twice without the log, each would give another
// answer the second time.
var calls = []call{
	{"schedule", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		e := r.entry("new")
		e.IfAbsent = true
		v, _, err := r.s.Schedule(ctx, 0, []store.Entry{e})
		return v, err
	}, []store.Receipt{{Kind: store.Created, Due: 1}}, [3]int{2, 1, 1}},
	{"cancel", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		return r.s.Cancel(ctx, 0, []string{"waiting", "leased", "dead"})
	}, []store.CancelResult{store.Cancelled, store.Running, store.NotFound}, [3]int{0, 1, 1}},
	{"reschedule", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		v, _, err := r.s.Reschedule(ctx, 0, []store.Move{{Key: "waiting", After: time.Second}})
		return v, err
	}, []store.MoveResult{store.Moved}, [3]int{1, 1, 1}},
	{"requeue", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		v, _, err := r.s.Requeue(ctx, 0, []string{"dead"})
		return v, err
	}, []store.RequeueResult{store.Requeued}, [3]int{2, 1, 0}},
	{"purge", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		return r.s.Purge(ctx, 0, []string{"dead"})
	}, 1, [3]int{1, 1, 0}},
	{"claim", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		v, _, err := r.s.Claim(ctx, 0, newClaim(9))
		var keys []string
		for _, l := range v.Leases {
			keys = append(keys, l.Key)
		}
		return keys, err
	}, []string{"waiting"}, [3]int{0, 2, 1}},
	{"extend", func(r *rig, ctx context.Context, l store.Lease) (any, error) {
		v, _, err := r.s.Extend(ctx, 0, []store.Holder{l.Holder}, time.Second)
		return v, err
	}, []store.ExtendResult{store.Extended}, [3]int{1, 1, 1}},
	{"end", func(r *rig, ctx context.Context, l store.Lease) (any, error) {
		v, _, err := r.s.End(ctx, 0, []store.Outcome{{Holder: l.Holder, Kind: store.Done}})
		return v, err
	}, []store.EndResult{store.Ended}, [3]int{1, 0, 1}},
	{"swap", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		v, _, _, err := r.s.SwapPlans(ctx, 0, []store.PlanSwap{r.plan("plan", 1)}, store.SwapClaim{})
		return v, err
	}, []store.SwapResult{store.Swapped}, [3]int{2, 1, 1}},
	{"heartbeat", func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		return r.s.Heartbeat(ctx, store.Heartbeat{Worker: "w", TTL: time.Second})
	}, []string{"w"}, [3]int{1, 1, 1}},
}

// check makes the call, and checks that it was executed once.
func (c call) check(r *rig, l store.Lease) {
	r.t.Helper()
	v, err := c.f(r, r.ctx, l)
	r.NoError(err, c.name)
	r.Equal(c.want, v, c.name)
	r.counts(c.counts[0], c.counts[1], c.counts[2])
}

// Case 16, D4: a request that is sent again, because its connection was cut, gets the first answer.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for name, faults := range map[string][]fault{
		"before the reply":         {{dropReply: true}},
		"before the request":       {{dropRequest: true}},
		"many times":               {{dropReply: true}, {dropRequest: true}, {dropReply: true}, {dropReply: true}},
		"with an error in between": {{dropReply: true}, {answer: "-LOADING Redis is loading the dataset in memory\r\n"}},
	} {
		for _, c := range calls {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				r, p, l := behind(t, srv, Options{})
				p.next(faults...)
				c.check(r, l)
				r.GreaterOrEqual(p.scripts(), len(faults)+1)
			})
		}
	}
}

// Case 19: the store waits out a temporary error of the server, and returns a permanent one at
// once.
func TestErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, text := range []string{
		"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script.",
		"READONLY You can't write against a read only replica.", "CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot", "MASTERDOWN Link with MASTER is down",
		"ERR max number of clients reached", "NOREPLICAS Not enough good replicas to write.",
		"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -READONLY You can't write against a read only replica.",
	} {
		for _, c := range calls {
			r, p, l := behind(t, srv, Options{})
			d := fault{answer: "-" + text + "\r\n"}
			p.next(d, d, d)
			c.check(r, l)
			r.GreaterOrEqual(p.scripts(), 3+1+1, text) // and the count
		}
	}
	for _, text := range []string{"NOAUTH Authentication required.", "WRONGPASS invalid username-password pair", "NOPERM no", "ERR unknown command"} {
		for _, c := range calls {
			r, p, l := behind(t, srv, Options{})
			d := fault{answer: "-" + text + "\r\n"}
			p.next(d, d)
			_, err := c.f(r, r.ctx, l)
			r.ErrorContains(err, text)
			r.NotErrorIs(err, store.ErrUnsure)
			r.Equal(1, p.scripts())
			p.next()
			c.check(r, l) // nothing was changed
		}
	}
}

// Case 16: scripts are loaded again, even in the middle of a pipeline.
func TestScriptsFlushed(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	flush := func(r *rig) { r.NoError(r.raw.ScriptFlush(r.ctx).Err()) }
	for _, c := range calls {
		r, _, l := behind(t, srv, Options{})
		flush(r)
		c.check(r, l)
	}
	r := newRig(t, srv, Options{Shards: 8})
	for range 3 {
		flush(r)
		horizons, err := r.s.Horizons(r.ctx, []int{0, 1, 2, 3, 4, 5, 6, 7})
		r.NoError(err)
		r.Len(horizons, 8)
	}
	flush(r)
	_, err := r.s.List(r.ctx, 0, store.Query{State: store.Waiting, Limit: 10})
	r.NoError(err)
	// While a thousand pipelines are in flight.
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = r.raw.ScriptFlush(context.Background()).Err()
			}
		}
	}()
	for i := range 300 {
		horizons, err := r.s.Horizons(r.ctx, []int{0, 1, 2, 3, 4, 5, 6, 7})
		r.NoError(err)
		r.Len(horizons, 8)
		key := fmt.Sprint("k", i)
		e := r.entry(key)
		e.IfAbsent = true
		receipts, _, err := r.s.Schedule(r.ctx, store.ShardOf(key, 8), []store.Entry{e})
		r.NoError(err)
		r.Equal(store.Created, receipts[0].Kind)
	}
	close(stop)
	<-done
}

// trial is a call with its own rig.
type trial struct {
	call
	*rig
	p *proxy
	l store.Lease

	v    any
	err  error
	done chan struct{} // closed when it has returned
}

// trials makes a rig for each of calls.
func trials(t *testing.T, srv *server, o Options) (list []*trial) {
	t.Helper()
	for _, c := range calls {
		r, p, l := behind(t, srv, o)
		p.next()
		list = append(list, &trial{call: c, rig: r, p: p, l: l, done: make(chan struct{})})
	}
	return list
}

// together calls f for all trials concurrently.
func together(list []*trial, f func(*trial)) {
	var wg sync.WaitGroup
	for _, tr := range list {
		wg.Go(func() { f(tr) })
	}
	wg.Wait()
}

// run makes the call, and keeps its results.
func (tr *trial) run(ctx context.Context) { tr.v, tr.err = tr.f(tr.rig, ctx, tr.l) }

// made checks that the call was executed once.
func (tr *trial) made() {
	tr.t.Helper()
	tr.NoError(tr.err, tr.name)
	tr.Equal(tr.want, tr.v, tr.name)
	tr.rig.counts(tr.call.counts[0], tr.call.counts[1], tr.call.counts[2])
}

// A server that is suspended for less than the call's time executes the change once.
func TestServerPaused(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	list := trials(t, srv, Options{})
	for _, tr := range list {
		tr.s.attemptTimeout = 250 * time.Millisecond
	}
	require.NoError(t, srv.Suspend())
	for _, tr := range list {
		go func() {
			defer close(tr.done)
			tr.run(tr.ctx)
		}()
	}
	for _, tr := range list {
		tr.Eventually(func() bool { return tr.p.requests() >= 3 }, time.Minute, time.Millisecond, "it is not sent again")
	}
	require.NoError(t, srv.Resume())
	for _, tr := range list {
		<-tr.done
		tr.made()
	}
}

// A call that is not answered in time returns in time, with ErrUnsure if it is a change.
func TestServerGone(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	list := trials(t, srv, Options{})
	require.NoError(t, srv.Suspend())
	together(list, func(tr *trial) {
		for patience := 500 * time.Millisecond; tr.p.scripts() == 0 && patience < time.Minute; patience *= 2 {
			ctx, cancel := context.WithTimeout(tr.ctx, patience)
			tr.run(ctx)
			cancel()
		}
	})
	for _, tr := range list {
		tr.ErrorIs(tr.err, store.ErrUnsure, tr.name)
		tr.ErrorIs(tr.err, context.DeadlineExceeded)
		tr.Empty(tr.v)
	}
	// begun calls f once a request of tr has reached the proxy.
	begun := func(tr *trial, f func()) {
		tr.p.next()
		go func() {
			for tr.p.requests() == 0 && tr.ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			f()
		}()
	}
	together(list, func(tr *trial) {
		ctx, cancel := context.WithCancel(tr.ctx)
		begun(tr, cancel)
		_, tr.err = tr.s.Get(ctx, 0, "waiting")
	})
	for _, tr := range list {
		tr.ErrorIs(tr.err, context.Canceled)
		tr.NotErrorIs(tr.err, store.ErrUnsure)
	}
	// Closed while it waits.
	together(list, func(tr *trial) {
		closing := tr.sibling()
		begun(tr, func() { _ = closing.Close() })
		_, tr.err = closing.Cancel(tr.ctx, 0, []string{"waiting"})
	})
	for _, tr := range list {
		tr.ErrorIs(tr.err, store.ErrUnsure)
		tr.ErrorIs(tr.err, store.ErrClosed)
	}
}

// A server that cannot be reached has not received anything.
func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.s.alone = clientOf(t, "127.0.0.1:1")
	_, err := r.s.attempt(r.ctx, r.s.read(r.s.shards[0], horizonsScript), target{})
	r.Error(err)
	r.Equal(errorClass{retriable: true, reload: true}, classify(err))
	r.s.alone = clientOf(t, r.srv.addr)
	r.NoError(r.s.alone.Close())
	_, _, err = r.s.Schedule(r.ctx, 0, []store.Entry{r.entry("a")})
	r.ErrorIs(err, store.ErrClosed)
	r.NotErrorIs(err, store.ErrUnsure)
}

// sibling is the rig's store once more, without asking the server.
func (r *rig) sibling() *Store {
	s := &Store{o: r.s.o, alone: r.s.alone, attemptTimeout: r.s.attemptTimeout, clock: r.s.clock, shards: r.s.shards, publish: r.s.publish}
	s.ctx, s.close = context.WithCancel(context.Background())
	return s
}

// A move by a delay that is sent again later does not move again.
func TestMoveSentAgainMovesOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.put(r.entry("a"))
	sh := r.s.shards[0]
	due := store.After(store.Millis(r.clock.ms.Load()), time.Hour)
	move := r.s.changes(sh, rescheduleScript, []any{"a", when(nil, 0, time.Hour)})
	move.order = order{number: sh.last + 1}
	for range 2 {
		_, err := r.s.call(r.ctx, move)
		r.NoError(err)
		record, err := r.s.Get(r.ctx, 0, "a")
		r.NoError(err)
		r.Equal(due, record.Due)
		r.clock.advance(time.Minute)
		move.args[0] = r.clock.text()
	}
}

// Case 18: at maxmemory a schedule is refused as a whole, and calls that free memory go on.
func TestMaxMemory(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	for _, c := range calls {
		r, _, l := behind(t, srv, Options{})
		r.put(r.entry("waiting")) // so that there is a log
		before := r.raw.Keys(r.ctx, "*").Val()
		srv.config(t, "maxmemory", "1")
		e := r.entry("new")
		e.Body = make([]byte, store.MaxBody)
		for _, entry := range []store.Entry{e, r.entry("waiting"), r.entry("leased"), r.entry("dead")} {
			_, _, err := r.s.Schedule(r.ctx, 0, []store.Entry{r.entry("x"), entry})
			r.ErrorIs(err, store.ErrFull)
			r.NotErrorIs(err, store.ErrUnsure)
			r.counts(1, 1, 1)
		}
		after := r.raw.Keys(r.ctx, "*").Val()
		slices.Sort(before)
		slices.Sort(after)
		r.Equal(before, after)
		again := r.open(r.raw) // opening an existing store needs no memory
		r.NoError(again.Close())
		if c.name == "swap" {
			_, err := c.f(r, r.ctx, l)
			r.ErrorIs(err, store.ErrFull)
			r.NotErrorIs(err, store.ErrUnsure)
			r.counts(1, 1, 1)
		} else if c.name != "schedule" {
			// Nothing to free.
			absent := []string{"absent"}
			_, err := r.s.Cancel(r.ctx, 0, absent)
			r.NoError(err)
			_, _, err = r.s.Requeue(r.ctx, 0, absent)
			r.NoError(err)
			_, err = r.s.Purge(r.ctx, 0, absent)
			r.NoError(err)
			_, _, err = r.s.Reschedule(r.ctx, 0, []store.Move{{Key: "absent", At: 1}})
			r.NoError(err)
			r.Equal([]store.EndResult{store.EndLost}, r.end(store.Done, store.Lease{Holder: store.Holder{Key: "absent"}}))
			c.check(r, l)
			r.claim(5)
			r.s.drain(r)
		}
		srv.config(t, "maxmemory", "0")
	}
}

// drain ends all timers.
func (s *Store) drain(r *rig) {
	r.t.Helper()
	r.clock.advance(time.Hour)
	leases := r.claim(9).Leases
	r.end(store.Done, leases...)
	_, err := s.Purge(r.ctx, 0, []string{"dead"})
	r.NoError(err)
	r.counts(0, 0, 0)
}

// D3: replicas confirm a change, or the caller gets ErrUnconfirmed, even if it was sent again.
func TestWaitReplicas(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	host, port, _ := net.SplitHostPort(srv.addr)
	replica := startServer(t, "--replicaof", host, port)
	ctx := t.Context()
	require.Eventually(t, func() bool { return srv.client(t).Wait(ctx, 1, time.Second).Val() == 1 }, time.Minute, 50*time.Millisecond)
	o := Options{WaitReplicas: 1, WaitTimeout: 25 * time.Second, CallTimeout: maxCall}
	for _, c := range calls {
		r, p, l := behind(t, srv, o)
		p.next(fault{dropReply: true})
		c.check(r, l)
	}
	// With no replicas.
	list := trials(t, srv, o)
	for _, tr := range list {
		tr.s.o.WaitTimeout = 500 * time.Millisecond
		tr.p.next(fault{dropReply: true})
	}
	require.NoError(t, replica.Suspend())
	together(list, func(tr *trial) { tr.run(tr.ctx) })
	for _, tr := range list {
		if tr.name != "claim" && tr.name != "extend" && tr.name != "heartbeat" {
			tr.ErrorIs(tr.err, store.ErrUnconfirmed, tr.name)
			tr.NotErrorIs(tr.err, store.ErrUnsure)
			tr.err = nil
		}
		tr.made()
	}
	require.NoError(t, replica.Resume())
	// A store on the replica is refused; on a replica that becomes master it is not.
	_, err := Open(ctx, replica.client(t), Options{CallTimeout: maxCall})
	require.ErrorContains(t, err, "is a replica")
}

// D3: every acknowledged change survives a kill of the server with appendfsync always.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	srv := startServer(t, "--appendfsync", "always")
	r := newRig(t, srv, Options{CallTimeout: 20 * time.Second})
	kills := 3
	if long() {
		kills = 30
	}
	acknowledged := make(map[string]bool)
	for k := range kills {
		process := srv.Process
		stop := time.AfterFunc(time.Duration(20+k%7*10)*time.Millisecond, process.Kill)
		ctx, cancel := context.WithCancel(r.ctx)
		for i := 0; ; i++ {
			key := fmt.Sprint(k, "-", i)
			short, done := context.WithTimeout(ctx, 300*time.Millisecond)
			_, _, err := r.s.Schedule(short, 0, []store.Entry{r.entry(key)})
			done()
			if err != nil {
				break
			}
			acknowledged[key] = true
		}
		cancel()
		stop.Stop()
		srv.Kill()
		srv.start(t)
		for key := range acknowledged {
			_, err := r.s.Get(r.ctx, 0, key)
			if errors.Is(err, store.ErrNotFound) {
				t.Fatalf("D3: %s is lost", key)
			}
			r.NoError(err)
		}
	}
	st := r.stats()
	r.GreaterOrEqual(st.Waiting, len(acknowledged))
	r.LessOrEqual(st.Waiting, len(acknowledged)+kills)
}

// user returns a client of a user that may do everything, except as rights change that.
func (r *rig) user(rights ...any) *redis.Client {
	r.t.Helper()
	r.rights(append([]any{"reset", "on", ">secret", "~*", "&*", "+@all"}, rights...)...)
	c := redis.NewClient(&redis.Options{
		Addr: r.srv.addr, Username: "app", Password: "secret", MaxRetries: -1, ContextTimeoutEnabled: true,
	})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) rights(rights ...any) {
	r.t.Helper()
	r.NoError(r.raw.Do(r.ctx, append([]any{"acl", "setuser", "app"}, rights...)...).Err())
}

// A user that may not publish is refused by name of the right. A user that loses the right later
// gets correct answers to its changes, which are then not announced.
func TestUserThatMayNotPublish(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	r := newRig(t, srv, Options{})
	for _, lacks := range []string{"resetchannels", "-publish"} {
		_, err := Open(r.ctx, r.user(lacks), r.o)
		r.ErrorContains(err, "its rights must have +publish and &{"+r.o.Namespace+":* in them", lacks)
		r.NotErrorIs(err, store.ErrUnsure)
	}
	for _, lost := range []string{"resetchannels", "-publish"} {
		r = newRig(t, srv, Options{})
		r.s = r.open(r.user("resetchannels", "&{"+r.o.Namespace+":*"))
		events := r.events(r.s)
		r.next(events, store.Gap)
		r.put(r.entry("a")) // announced
		r.next(events, store.Earlier)
		leases := r.claim(1).Leases
		r.rights(lost)
		e := r.entry("b")
		e.IfAbsent = true
		r.Equal(store.Created, r.put(e)[0].Kind)
		r.Equal(store.Exists, r.put(e)[0].Kind)
		cancelled, err := r.s.Cancel(r.ctx, 0, []string{"a", "b"})
		r.NoError(err)
		r.Equal([]store.CancelResult{store.Running, store.Cancelled}, cancelled)
		r.Equal([]store.EndResult{store.EndCancelled}, r.end(store.Retry, leases...))
		r.counts(0, 0, 0)
		r.Error(r.s.Announce(r.ctx, store.Event{Kind: store.Busy, From: "me"}))
	}
}

// An error that ends a script midway does not mean that nothing was changed.
func TestScriptFailsMidway(t *testing.T) {
	t.Parallel()
	r := newRig(t, startServer(t), Options{})
	r.s = r.open(r.user())
	r.rights("-hset")
	_, _, err := r.s.Schedule(r.ctx, 0, []store.Entry{r.entry("a")})
	r.ErrorContains(err, "user_script")
	r.ErrorIs(err, store.ErrUnsure)
	r.counts(1, 0, 0) // it has a state and no record: a claim repairs that
	r.rights("+hset")
	r.Equal(1, r.claim(1).Repaired)
	r.counts(0, 0, 0)
	r.rights("-zrange")
	_, err = r.s.Horizons(r.ctx, []int{0})
	r.ErrorContains(err, "user_script")
	r.NotErrorIs(err, store.ErrUnsure, "it changes nothing")
	full := explained(fmt.Errorf("%w: %w", store.ErrUnsure, serverError("OOM command not allowed")))
	r.ErrorIs(full, store.ErrFull)
	r.ErrorIs(full, store.ErrUnsure, "an attempt before was not answered")
	// Refused before the first write.
	for _, text := range []string{
		"OOM command not allowed when used memory > 'maxmemory'. script: f, on @user_script:9.",
		"ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -MISCONF Errors writing to the AOF file",
		"SHARDS 3",
		"EXPIRED 1764000000000",
	} {
		r.False(classify(serverError(text)).received, text)
	}
	r.True(classify(serverError("ERR user_script:3: attempt to index a nil value script: f, on @user_script:3.")).received)
	r.True(classify(serverError("ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -WRONGTYPE Operation")).received)
}

// serverError is an error as a server sends it.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

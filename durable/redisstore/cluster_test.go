package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
)

const slots = 16384

// cluster is three masters and three replicas that a test has started.
type cluster struct {
	t       testing.TB
	servers []*server
	raw     []*redis.Client
	ids     []string
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	ctx := context.Background()
	c := &cluster{t: t}
	for i := range 6 {
		srv := startServer(t, "--cluster-enabled", "yes", "--cluster-replica-validity-factor", "0")
		c.servers = append(c.servers, srv)
		raw := srv.client(t)
		c.raw = append(c.raw, raw)
		require.NoError(t, raw.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		c.ids = append(c.ids, raw.ClusterMyID(ctx).Val())
		host, port, _ := net.SplitHostPort(srv.addr)
		require.NoError(t, c.raw[0].ClusterMeet(ctx, host, port).Err())
	}
	c.timeout(brief) // or the masters wait longer before they begin
	for i := range 3 {
		require.NoError(t, c.raw[i].ClusterAddSlotsRange(ctx, i*slots/3, (i+1)*slots/3-1).Err())
	}
	c.eventually(func() bool {
		for _, raw := range c.raw {
			if strings.Count(raw.ClusterNodes(ctx).Val(), "connected") != 6 || !c.ok(raw) {
				return false
			}
		}
		return true
	})
	c.timeout(never)
	for i := range 3 {
		require.NoError(t, c.raw[3+i].ClusterReplicate(ctx, c.ids[i]).Err())
	}
	c.healthy()
	return c
}

// Values of cluster-node-timeout. It is brief only while masters fail over, so that a busy machine
// does not declare a master dead.
const (
	brief = 2 * time.Second
	never = 10 * time.Minute
)

func (c *cluster) timeout(d time.Duration) {
	for _, raw := range c.raw { // one of them may be down
		_ = raw.ConfigSet(context.Background(), "cluster-node-timeout", fmt.Sprint(d.Milliseconds())).Err()
	}
}

func (c *cluster) ok(node *redis.Client) bool {
	return strings.Contains(node.ClusterInfo(context.Background()).Val(), "cluster_state:ok")
}

func (c *cluster) eventually(f func() bool) {
	c.t.Helper()
	require.Eventually(c.t, f, time.Minute, 20*time.Millisecond)
}

// healthy waits until all slots have a master, and each master a replica that follows.
func (c *cluster) healthy() {
	c.t.Helper()
	ctx := context.Background()
	c.eventually(func() bool {
		for _, raw := range c.raw {
			if !c.ok(raw) {
				return false
			}
		}
		masters := c.masters()
		if len(masters) != 3 {
			return false
		}
		for _, i := range masters {
			if !strings.Contains(c.raw[i].Info(ctx, "replication").Val(), "state=online") {
				return false
			}
		}
		for i, raw := range c.raw {
			if !slices.Contains(masters, i) && !strings.Contains(raw.Info(ctx, "replication").Val(), "master_link_status:up") {
				return false
			}
		}
		return true
	})
}

// masters returns the numbers of the servers that report the role of a master.
func (c *cluster) masters() (list []int) {
	for i, raw := range c.raw {
		info := raw.Info(context.Background(), "replication").Val()
		if strings.Contains(info, "role:master") && raw.ClusterSlots(context.Background()).Err() == nil && c.owns(i) {
			list = append(list, i)
		}
	}
	return list
}

// another returns another master.
func (c *cluster) another(master int) int {
	return slices.DeleteFunc(c.masters(), func(i int) bool { return i == master })[0]
}

// announces reports whether the servers have sharded pub/sub, as from Redis 7.0.
func (c *cluster) announces() bool {
	c.t.Helper()
	info, err := c.raw[0].Do(context.Background(), "command", "info", "spublish").Slice()
	require.NoError(c.t, err)
	return info[0] != nil
}

// owns reports whether a server is master of any slot.
func (c *cluster) owns(i int) bool {
	for _, s := range c.raw[i].ClusterSlots(context.Background()).Val() {
		if len(s.Nodes) > 0 && s.Nodes[0].ID == c.ids[i] {
			return true
		}
	}
	return false
}

// masterOf is the number of the server that has a slot.
func (c *cluster) masterOf(slot int) int {
	c.t.Helper()
	found := -1
	c.eventually(func() bool {
		for i, raw := range c.raw {
			for _, s := range raw.ClusterSlots(context.Background()).Val() {
				if s.Start <= slot && slot <= s.End && len(s.Nodes) > 0 && s.Nodes[0].ID == c.ids[i] {
					found = i
					return true
				}
			}
		}
		return false
	})
	return found
}

func (c *cluster) client(t testing.TB) *redis.ClusterClient {
	var addrs []string
	for _, srv := range c.servers {
		addrs = append(addrs, srv.addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 16,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// move moves a slot to another master, three keys at each turn of pace, so that it is half moved
// for a while.
func (c *cluster) move(slot, to int, pace time.Duration) {
	c.t.Helper()
	turn := time.NewTicker(pace)
	defer turn.Stop()
	ctx := context.Background()
	from := c.masterOf(slot)
	if from == to {
		return
	}
	require.NoError(c.t, c.raw[to].Do(ctx, "cluster", "setslot", slot, "importing", c.ids[from]).Err())
	require.NoError(c.t, c.raw[from].Do(ctx, "cluster", "setslot", slot, "migrating", c.ids[to]).Err())
	host, port, _ := net.SplitHostPort(c.servers[to].addr)
	for {
		keys := c.raw[from].ClusterGetKeysInSlot(ctx, slot, 3).Val()
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 60_000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		require.NoError(c.t, c.raw[from].Do(ctx, args...).Err())
		<-turn.C
	}
	for _, i := range []int{to, from} {
		require.NoError(c.t, c.raw[i].Do(ctx, "cluster", "setslot", slot, "node", c.ids[to]).Err())
	}
	for _, i := range c.masters() {
		_ = c.raw[i].Do(ctx, "cluster", "setslot", slot, "node", c.ids[to]).Err()
	}
	// MIGRATE does not wait for replicas; the client that moves slots does.
	var sent int64
	_, _ = fmt.Sscanf(field(c.raw[to], "master_repl_offset"), "%d", &sent)
	c.eventually(func() bool {
		var got int64
		_, after, _ := strings.Cut(field(c.raw[to], "slave0"), ",offset=")
		_, _ = fmt.Sscanf(after, "%d", &got)
		return got >= sent
	})
}

// field returns a field of INFO replication.
func field(c *redis.Client, name string) string {
	_, after, _ := strings.Cut(c.Info(context.Background(), "replication").Val(), name+":")
	line, _, _ := strings.Cut(after, "\r\n")
	return line
}

// crash kills the master of a slot, waits until a replica has replaced it, and starts it again.
// While a master is missing the other two cannot fail over: without either of them there is no
// majority.
func (c *cluster) crash(slot int) {
	c.t.Helper()
	old := c.masterOf(slot)
	c.servers[old].Kill()
	c.timeout(brief)
	c.eventually(func() bool {
		for i, raw := range c.raw {
			if i == old {
				continue
			}
			for _, s := range raw.ClusterSlots(context.Background()).Val() {
				if s.Start <= slot && slot <= s.End && len(s.Nodes) > 0 && s.Nodes[0].ID == c.ids[i] {
					return true
				}
			}
		}
		return false
	})
	c.servers[old].start(c.t)
	c.timeout(never)
}

// ledger records the answers to the load of a test.
type ledger struct {
	mu        sync.Mutex
	scheduled map[string]bool // acknowledged
	sent      map[string]bool // whatever the result
	ended     map[string]int  // acknowledged
	maybe     map[string]bool // the acknowledgement had an error: it may have succeeded
	early     []string
	again     []string // leased after their end was acknowledged
	errs      map[string]int
}

func newLedger() *ledger {
	return &ledger{scheduled: map[string]bool{}, sent: map[string]bool{}, ended: map[string]int{}, maybe: map[string]bool{}, errs: map[string]int{}}
}

func (l *ledger) fail(what string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs[what+": "+err.Error()]++
}

// missing returns the confirmed timers that have not run.
func (l *ledger) missing() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.scheduled {
		if l.ended[key] == 0 && !l.maybe[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// unsure counts the acknowledgements with an error.
func (l *ledger) unsure() (n int) {
	for _, maybe := range l.maybe {
		if maybe {
			n++
		}
	}
	return n
}

// produce schedules until ctx ends.
func (l *ledger) produce(ctx context.Context, s *Store, name string) {
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		key := fmt.Sprint(name, i)
		l.mu.Lock()
		l.sent[key] = true
		l.mu.Unlock()
		e := store.Entry{Key: key, ID: store.NewID(), Topic: fmt.Sprint(i % 7), Body: []byte(key), After: time.Duration(rand.IntN(300)) * time.Millisecond}
		_, _, err := s.Schedule(context.Background(), store.ShardOf(key, s.Shards()), []store.Entry{e})
		if err != nil {
			l.fail("schedule", err)
			continue
		}
		l.mu.Lock()
		l.scheduled[key] = true
		l.mu.Unlock()
		<-pace.C
	}
}

// wait returns when at least d has passed and n more confirmed timers have ended.
func (l *ledger) wait(t *testing.T, n int, d time.Duration) {
	t.Helper()
	ended := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for key := range l.scheduled {
			n += min(l.ended[key], 1)
		}
		return n
	}
	begun, before := time.Now(), ended()
	require.Eventually(t, func() bool { return time.Since(begun) >= d && ended()-before >= n }, d+time.Minute, 20*time.Millisecond)
}

// work claims and ends until ctx ends.
func (l *ledger) work(ctx context.Context, s *Store, name string) {
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		for n := range s.Shards() {
			c := newClaim(50)
			c.Worker, c.Lease, c.MaxAttempts = name, 3*time.Second, 1000
			claimed, h, err := s.Claim(context.Background(), n, c)
			if err != nil {
				l.fail("claim", err)
				continue
			}
			if len(claimed.Leases) == 0 {
				continue
			}
			ends := make([]store.Outcome, len(claimed.Leases))
			l.mu.Lock()
			for i, lease := range claimed.Leases {
				ends[i] = store.Outcome{Holder: lease.Holder, Kind: store.Done}
				if lease.Due > h.Now || time.Now().UnixMilli() < int64(lease.Due) {
					l.early = append(l.early, lease.Key)
				}
				if l.ended[lease.Key] > 0 {
					l.again = append(l.again, lease.Key)
				}
			}
			l.mu.Unlock()
			results, _, err := s.End(context.Background(), n, ends)
			if err != nil {
				l.fail("end", err)
			}
			l.mu.Lock()
			for _, e := range ends {
				l.maybe[e.Key] = l.maybe[e.Key] || err != nil
			}
			for i, r := range results {
				if r != store.EndLost && err == nil {
					l.ended[ends[i].Key]++
				}
			}
			l.mu.Unlock()
		}
		<-pace.C
	}
}

// D2, D3, D7, D10, D13: a Cluster under load, whose masters are killed, whose slots move and
// whose scripts are flushed: no timer that a replica has confirmed is lost, none is early, none
// is acknowledged twice, and none remains.
func TestClusterUnderLoad(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	o := Options{Namespace: "load", Shards: 8, WaitReplicas: 1, WaitTimeout: 500 * time.Millisecond, CallTimeout: 20 * time.Second}
	var stores []*Store
	for range 3 {
		s, err := Open(t.Context(), c.client(t), o)
		require.NoError(t, err)
		require.Equal(t, c.announces(), s.publish == "SPUBLISH")
		defer s.Close()
		stores = append(stores, s)
	}
	l := newLedger()
	producing, stopProducing := context.WithCancel(t.Context())
	working, stopWorking := context.WithCancel(t.Context())
	var producers, workers sync.WaitGroup
	for i := range 2 {
		producers.Go(func() { l.produce(producing, stores[i], fmt.Sprint("p", i, "-")) })
		workers.Go(func() { l.work(working, stores[1+i], fmt.Sprint("w", i)) })
	}
	slot := func(n int) int { return int(c.raw[0].ClusterKeySlot(t.Context(), stores[0].shards[n].tag).Val()) }
	rounds, pause := 1, time.Duration(0)
	if long() {
		rounds, pause = 10, 50*time.Second
	}
	for range rounds {
		l.wait(t, 100, 0)
		for n := range 4 { // slots move
			masters := c.masters()
			c.move(slot(n), masters[rand.IntN(len(masters))], time.Duration(1+n)*20*time.Millisecond)
			for _, raw := range c.raw {
				_ = raw.ScriptFlush(t.Context()).Err()
			}
		}
		c.crash(slot(5))
		c.healthy()
		l.wait(t, 500, pause)
	}
	stopProducing()
	producers.Wait()
	defer func() {
		t.Logf("%d scheduled, %d sent, %d ended, %d perhaps; errors: %v", len(l.scheduled), len(l.sent), len(l.ended), l.unsure(), l.errs)
	}()
	assert.Eventually(t, func() bool { return len(l.missing()) == 0 }, time.Minute, 50*time.Millisecond)
	for _, key := range l.missing() {
		n := store.ShardOf(key, o.Shards)
		r, err := stores[0].Get(t.Context(), n, key)
		t.Errorf("D3: %s of shard %d was confirmed and is lost: %v, %v", key, n, r, err)
	}
	// A timer that was not acknowledged may exist or not, but runs if it exists.
	empty := func() bool {
		for n := range o.Shards {
			st, err := stores[0].Stats(t.Context(), n)
			if err != nil || st.Waiting+st.Leased+st.Dead > 0 {
				return false
			}
		}
		return true
	}
	require.Eventually(t, empty, time.Minute, 50*time.Millisecond)
	stopWorking()
	workers.Wait()
	require.Greater(t, len(l.scheduled), 500)
	require.Empty(t, l.early, "D2")
	require.Empty(t, l.again, "D7: leased after its end was acknowledged")
	for key, n := range l.ended {
		require.Equal(t, 1, n, "D7: %s was acknowledged twice", key)
		require.True(t, l.sent[key])
	}
	for _, i := range c.masters() {
		require.Empty(t, left(t, c.raw[i], o.Namespace), "D10")
	}
}

// D13: subscriptions follow the slots, and requests are answered while they move.
func TestClusterFollowsSlots(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	r := &rig{Assertions: require.New(t), t: t, ctx: t.Context()}
	client, err := NewClient("redis+cluster://" + c.servers[4].addr + "?read_timeout=60s")
	r.NoError(err)
	defer client.Close()
	s, err := Open(t.Context(), client, Options{Namespace: "slots", Shards: 12, CallTimeout: 20 * time.Second})
	r.NoError(err)
	r.s = s
	defer s.Close()
	events := r.events(s)
	r.next(events, store.Gap)
	heard := func() {
		t.Helper()
		if !c.announces() {
			return
		}
		// A message can be lost while the subscription moves, so each is sent until it is heard.
		for n := range 12 {
			r.Eventually(func() bool {
				if s.Announce(r.ctx, store.Event{Kind: store.Busy, Shard: n, From: "me"}) != nil {
					return false
				}
				deadline := time.After(200 * time.Millisecond)
				for {
					select {
					case e := <-events:
						if e == (store.Event{Kind: store.Busy, Shard: n, From: "me"}) {
							return true
						}
					case <-deadline:
						return false
					}
				}
			}, time.Minute, time.Millisecond, "shard %d", n)
		}
	}
	heard()
	// ASK, TRYAGAIN, MOVED.
	for n := range 3 {
		e := r.entry("a")
		_, _, err := s.Schedule(r.ctx, n, []store.Entry{e})
		r.NoError(err)
		plan := r.plan("plan", 1)
		_, _, _, err = s.SwapPlans(r.ctx, n, []store.PlanSwap{plan}, store.SwapClaim{})
		r.NoError(err)
		slot := int(c.raw[0].ClusterKeySlot(r.ctx, s.shards[n].tag).Val())
		from := c.masterOf(slot)
		to := c.another(from)
		done := make(chan error, 1)
		time.AfterFunc(100*time.Millisecond, func() { // while the slot moves
			_, err := s.Get(r.ctx, n, "a")
			done <- err
		})
		c.move(slot, to, 100*time.Millisecond)
		r.NoError(<-done)
		r.Equal(to, c.masterOf(slot))
		claim := newClaim(2)
		claim.Plans = 1
		claimed, _, err := s.Claim(r.ctx, n, claim)
		r.NoError(err)
		r.Len(claimed.Leases, 3)
		r.Equal(plan.Key, claimed.Leases[0].Key)
		_, _, err = s.End(r.ctx, n, []store.Outcome{{Holder: claimed.Leases[2].Holder, Kind: store.Done}})
		r.NoError(err)
		plans, err := s.Plans(r.ctx, n, "", 9)
		r.NoError(err)
		r.Len(plans, 1)
		r.EqualValues(1, plans[0].History.Done)
	}
	if c.announces() {
		r.next(events, store.Gap)
	}
	heard()
	// A shard without any key, in a slot that is moving: ASK.
	empty := newShard("slots", 99, "x")
	slot := int(c.raw[0].ClusterKeySlot(r.ctx, empty.tag).Val())
	from := c.masterOf(slot)
	to := c.another(from)
	r.NoError(c.raw[to].Do(r.ctx, "cluster", "setslot", slot, "importing", c.ids[from]).Err())
	r.NoError(c.raw[from].Do(r.ctx, "cluster", "setslot", slot, "migrating", c.ids[to]).Err())
	one := newScript("redis.call('SET', KEYS[1], ARGV[2]) return {0, ARGV[2]}") // of one key, so that it need not wait for the move
	req := &request{script: one, keys: []string{empty.tag}, args: []any{"", "w", 1000, nil}, clock: &serverClock{}, wait: true}
	for _, replicas := range []int{0, 1} {
		s.o.WaitReplicas = replicas
		s.o.WaitTimeout = 15 * time.Second
		s.attemptTimeout = 20 * time.Second
		v, err := s.call(r.ctx, req)
		r.NoError(err)
		r.Equal("w", v.([]any)[1])
	}
	r.Zero(c.raw[from].Exists(r.ctx, empty.tag).Val())
}

// pairOf opens a store of 16 shards on two independent servers, as if they were the masters of a
// Cluster. It returns the server without the workers' heartbeats, and the numbers of the shards of
// the other server and of this one.
func pairOf(t *testing.T) (s *Store, second *server, shards [2][]int) {
	t.Helper()
	servers := map[string]*server{"first:1": startServer(t), "second:1": startServer(t)}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		ReadTimeout: time.Second, // of a subscription that hangs
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, servers[addr].addr)
		},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: slots/2 - 1, Nodes: []redis.ClusterNode{{Addr: "first:1"}}},
				{Start: slots / 2, End: slots - 1, Nodes: []redis.ClusterNode{{Addr: "second:1"}}},
			}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	at := func(key string) string {
		node, err := client.MasterForKey(t.Context(), key)
		require.NoError(t, err)
		return node.Options().Addr
	}
	s, err := Open(t.Context(), client, Options{Shards: 16, CallTimeout: maxCall})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	for n, sh := range s.shards {
		of := 0
		if at(sh.tag) != at(s.workers[0]) {
			of = 1
		}
		shards[of] = append(shards[of], n)
	}
	require.NotEmpty(t, shards[0])
	require.NotEmpty(t, shards[1])
	for addr, srv := range servers {
		if addr != at(s.workers[0]) {
			second = srv
		}
	}
	return s, second, shards
}

// A node that is stopped, or does not answer, does not hide the shards of the others: Horizons
// returns their horizons together with the error, and a worker that starts then runs their timers.
func TestHorizonsWithoutOneNode(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*server){"gone": func(srv *server) { srv.Kill() }, "silent": func(srv *server) { _ = srv.Suspend() }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, second, shards := pairOf(t)
			for _, n := range append(shards[0], shards[1]...) {
				_, _, err := s.Schedule(t.Context(), n, []store.Entry{{Key: keyIn(n, 16), ID: store.NewID()}})
				require.NoError(t, err)
			}
			lose(second)
			all := make([]int, 16)
			for n := range all {
				all[n] = n
			}
			h, err := s.Horizons(t.Context(), all)
			require.Error(t, err)
			require.Len(t, h, 16)
			for _, n := range shards[0] {
				require.NotZero(t, h[n].Now)
				require.NotZero(t, h[n].NextDue)
			}
			for _, n := range shards[1] {
				require.Zero(t, h[n])
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			h, err = s.Horizons(ctx, shards[1])
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Nil(t, h)

			timers, err := durable.New(s, durable.Options{Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ran := make(chan string, 16)
			w, err := timers.NewWorker(func(_ context.Context, f durable.Fired) error { ran <- f.Key; return nil }, durable.WorkerOptions{})
			require.NoError(t, err)
			run, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- w.Run(run) }()
			for range shards[0] {
				select {
				case key := <-ran:
					require.Contains(t, shards[0], store.ShardOf(key, 16))
				case <-time.After(time.Minute):
					t.Fatal("what is on the node that answers does not run")
				}
			}
			stop()
			require.NoError(t, <-done)
		})
	}
}

// The clients of addresses to which a Cluster once redirected requests are closed when new ones
// appear and no request can use them any more.
func TestTargetsAreForgotten(t *testing.T) {
	t.Parallel()
	s, _, _ := pairOf(t)
	node := func(addr string) *redis.Client {
		t.Helper()
		c, err := s.node(t.Context(), "", target{addr: addr})
		require.NoError(t, err)
		return c
	}
	old, busy := node("127.0.0.1:1"), node("127.0.0.1:2")
	require.Same(t, old, node("127.0.0.1:1"))
	s.targets["127.0.0.1:1"].used = time.Now().Add(-time.Hour)
	s.targets["127.0.0.1:2"].used = time.Now().Add(-maxCall / 2)
	node("127.0.0.1:3")
	require.Len(t, s.targets, 2)
	require.ErrorIs(t, old.Ping(t.Context()).Err(), redis.ErrClosed)
	require.NotErrorIs(t, busy.Ping(t.Context()).Err(), redis.ErrClosed)
	require.NotSame(t, old, node("127.0.0.1:1"))
}

// keyIn returns a key of a shard.
func keyIn(shard, shards int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); store.ShardOf(key, shards) == shard {
			return key
		}
	}
}

// A request of a call that returned ErrUnsure takes effect neither after a later request nor after
// its call, even if it reaches the server that has replaced its own.
func TestClusterFailsOverBeforeALateRequest(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	proxies := make(map[string]*proxy)
	for _, srv := range c.servers {
		proxies[srv.addr] = startProxy(t, srv.addr)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{c.servers[0].addr}, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Minute,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, proxies[addr].addr)
		},
	})
	defer client.Close()
	r := &rig{Assertions: require.New(t), t: t, ctx: t.Context()}
	s, err := Open(r.ctx, client, Options{Namespace: "late", Shards: 1, CallTimeout: maxCall})
	r.NoError(err)
	defer s.Close()
	r.s = s
	slot := int(c.raw[0].ClusterKeySlot(r.ctx, s.shards[0].tag).Val())
	master := c.masterOf(slot)
	p := proxies[c.servers[master].addr]
	r.raw = c.raw[master]
	r.load()

	// Each schedules its own timer.
	schedule := func(key string) call {
		return call{name: key, f: func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
			_, _, err := r.s.Schedule(ctx, 0, []store.Entry{r.entry(key)})
			return nil, err
		}}
	}
	overtaken := r.abandon(p, schedule("overtaken"), store.Lease{})
	r.put(r.entry("kept"))
	first := r.plan("plan", 1)
	r.swap(first)
	second := r.plan("plan", 2)
	second.Expected = first.ID
	lateSwap := r.abandon(p, call{name: "swap", f: func(r *rig, ctx context.Context, _ store.Lease) (any, error) {
		_, _, _, err := r.s.SwapPlans(ctx, 0, []store.PlanSwap{second}, store.SwapClaim{})
		return nil, err
	}}, store.Lease{})
	other, err := Open(r.ctx, c.client(t), Options{Namespace: "late", Shards: 1, CallTimeout: maxCall})
	r.NoError(err)
	defer other.Close()
	third := r.plan("plan")
	third.Expected = first.ID
	_, _, _, err = other.SwapPlans(r.ctx, 0, []store.PlanSwap{third}, store.SwapClaim{})
	r.NoError(err)
	expired := &heldRequest{}
	for patience := 100 * time.Millisecond; expired.request == nil; patience *= 2 {
		r.Less(patience, maxCall)
		p.next(fault{hold: true})
		ctx, cancel := context.WithTimeout(r.ctx, patience)
		_, err = schedule("expired").f(r, ctx, store.Lease{})
		cancel()
		if p.holds() > 0 {
			expired = p.holding(t)
		}
	}
	r.ErrorIs(err, store.ErrUnsure)
	r.Positive(r.raw.Wait(r.ctx, 1, time.Minute).Val())

	c.crash(slot)
	successor := c.servers[c.masterOf(slot)]
	r.NotEqual(c.servers[master], successor)
	for _, sc := range []*script{scheduleScript, swapScript} {
		r.NoError(successor.client(t).ScriptLoad(r.ctx, sc.src).Err())
	}
	r.Contains(overtaken.releaseTo(t, successor), "-OVERTAKEN")
	r.Contains(lateSwap.releaseTo(t, successor), string(rune(store.SwapLost)), "another has swapped the plan")
	r.Contains(expired.releaseTo(t, successor), "-EXPIRED")
	page, err := s.List(r.ctx, 0, store.Query{State: store.Waiting, Limit: 9})
	r.NoError(err)
	records := page.Records
	r.Len(records, 2)
	r.Equal("kept", records[0].Key)
	r.Equal(first.Entries[0].Key, records[1].Key)
	plans, err := s.Plans(r.ctx, 0, "", 9)
	r.NoError(err)
	r.Len(plans, 1)
	r.Equal(third.ID, plans[0].ID)
}

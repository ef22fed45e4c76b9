package redisstore

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/seed-782fa212/limbo/internal/programs"
)

// server is a redis-server, or valkey-server, that a test has started on a separate loopback port.
type server struct {
	*programs.Process
	addr string
	dir  string
	args []string
}

// serverPath returns the path of the server, or skips the test.
func serverPath(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("LIMBO_REDIS_SERVER"); path != "" {
		return path
	}
	return need.Program(t, "redis-server", "redis-server", "valkey-server")
}

// startServer starts a server with an append-only file, which ends with the test.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	addr, err := programs.Addr()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "redis") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	srv := &server{addr: addr, dir: dir, args: args}
	srv.start(t)
	t.Cleanup(func() { srv.Kill() })
	return srv
}

func (srv *server) start(t testing.TB) {
	t.Helper()
	host, _, _ := net.SplitHostPort(srv.addr)
	p, err := programs.StartRedis(serverPath(t), srv.addr, srv.dir, append([]string{
		"--unixsocket", srv.socket(), "--appendonly", "yes", "--repl-diskless-sync-delay", "0", "--cluster-announce-ip", host,
	}, srv.args...)...)
	require.NoError(t, err)
	srv.Process = p
}

// socket is the path of the server's Unix socket, which costs less than TCP.
func (srv *server) socket() string { return filepath.Join(srv.dir, "socket") }

// client returns a client of the server that is fit for Open.
func (srv *server) client(t testing.TB) *redis.Client { return clientOf(t, srv.addr) }

// clientOf returns a client with timeouts of a minute, which only a hanging server exceeds.
func clientOf(t testing.TB, addr string) *redis.Client {
	return newClient(t, redis.Options{Addr: addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
}

func newClient(t testing.TB, o redis.Options) *redis.Client {
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries, o.PoolSize = -1, true, 1, 16
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (srv *server) config(t testing.TB, name, value string) {
	t.Helper()
	require.NoError(t, srv.client(t).ConfigSet(context.Background(), name, value).Err())
}

// clock is the engine's clock in tests: it is frozen at a millisecond, or runs with TIME, moved
// by some milliseconds.
type clock struct {
	frozen bool
	ms     atomic.Int64
}

// frozenClock returns a clock that is frozen at the present.
func frozenClock() *clock {
	c := &clock{frozen: true}
	c.ms.Store(time.Now().UnixMilli())
	return c
}

func (c *clock) text() string {
	if c.frozen {
		return "=" + strconv.FormatInt(c.ms.Load(), 10)
	}
	if ms := c.ms.Load(); ms != 0 {
		return strconv.FormatInt(ms, 10)
	}
	return "" // as in programs
}

func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

var namespaces atomic.Int64

// rig is a store on a server, with a clock.
type rig struct {
	*require.Assertions
	t     testing.TB
	ctx   context.Context
	srv   *server
	raw   *redis.Client // bypasses the store
	clock *clock
	s     *Store
	o     Options
}

// newRig opens a store of one shard in a new namespace.
func newRig(t testing.TB, srv *server, o Options) *rig {
	t.Helper()
	r := &rig{Assertions: require.New(t), t: t, ctx: t.Context(), srv: srv, raw: srv.client(t), clock: frozenClock()}
	o.Namespace = fmt.Sprint("test", namespaces.Add(1))
	if o.Shards == 0 {
		o.Shards = 1
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = maxCall // a busy machine is not a server that hangs
	}
	r.o = o
	r.s = r.open(r.raw)
	return r
}

// open opens the store again, with another client.
func (r *rig) open(c redis.UniversalClient) *Store {
	r.t.Helper()
	s, err := open(r.ctx, c, r.o, r.clock.text)
	r.NoError(err)
	r.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (r *rig) entry(key string) store.Entry {
	return store.Entry{Key: key, ID: store.NewID(), Topic: "topic", Body: []byte("body of " + key), At: 1}
}

func (r *rig) put(entries ...store.Entry) []store.Receipt {
	r.t.Helper()
	receipts, _, err := r.s.Schedule(r.ctx, 0, entries)
	r.NoError(err)
	return receipts
}

func newClaim(max int) store.Claim {
	return store.Claim{
		Worker: "worker", Token: store.NewToken("worker"), Max: max, MaxBytes: store.MaxClaim,
		Lease: 10 * time.Second, MaxAttempts: 3,
	}
}

func (r *rig) claim(max int) store.Claimed {
	r.t.Helper()
	claimed, _, err := r.s.Claim(r.ctx, 0, newClaim(max))
	r.NoError(err)
	return claimed
}

// claimAs makes a claim, which must lease these keys.
func (r *rig) claimAs(c store.Claim, want ...string) store.Claimed {
	r.t.Helper()
	claimed, _, err := r.s.Claim(r.ctx, 0, c)
	r.NoError(err)
	var keys []string
	for _, l := range claimed.Leases {
		keys = append(keys, l.Key)
	}
	r.ElementsMatch(want, keys)
	return claimed
}

func (r *rig) beat(worker string, ttl time.Duration) []string {
	r.t.Helper()
	names, err := r.s.Heartbeat(r.ctx, store.Heartbeat{Worker: worker, TTL: ttl})
	r.NoError(err)
	return names
}

func (r *rig) end(kind store.OutcomeKind, leases ...store.Lease) []store.EndResult {
	r.t.Helper()
	ends := make([]store.Outcome, len(leases))
	for i, l := range leases {
		ends[i] = store.Outcome{Holder: l.Holder, Kind: kind, Error: "failed"}
	}
	results, _, err := r.s.End(r.ctx, 0, ends)
	r.NoError(err)
	return results
}

func (r *rig) stats() store.Stats {
	r.t.Helper()
	st, err := r.s.Stats(r.ctx, 0)
	r.NoError(err)
	return st
}

// counts checks the numbers of waiting, leased and dead timers.
func (r *rig) counts(waiting, leased, dead int) {
	r.t.Helper()
	st := r.stats()
	r.Equal([]int{waiting, leased, dead}, []int{st.Waiting, st.Leased, st.Dead})
}

// left names the keys of the namespace that stay: all that do not expire, except the shards'
// records.
func left(t testing.TB, c *redis.Client, namespace string) (names []string) {
	t.Helper()
	ctx := context.Background()
	for iter := c.Scan(ctx, 0, "{"+namespace+":*", 1000).Iterator(); iter.Next(ctx); {
		key := iter.Val()
		ttl, err := c.PTTL(ctx, key).Result()
		require.NoError(t, err)
		if ttl > 0 || ttl == -2 {
			continue
		}
		if key[len(key)-2:] == ":m" {
			used, err := c.MemoryUsage(ctx, key).Result()
			require.NoError(t, err)
			require.LessOrEqual(t, used, int64(200), "D10: %s", key)
			continue
		}
		names = append(names, key)
	}
	return names
}

func long() bool { return os.Getenv("LIMBO_LONG") != "" }

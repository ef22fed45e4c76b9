package redisstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/storetest"
)

// servers are the servers of a suite, whose tests run in parallel. A test has its own server,
// because a reopening kills it.
type servers struct {
	suite testing.TB

	mu    sync.Mutex
	free  []*server
	taken map[testing.TB]*server
}

// of returns the server of a test, which the test has until its end.
func (s *servers) of(t testing.TB) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if srv := s.taken[t]; srv != nil {
		return srv
	}
	var srv *server
	if n := len(s.free); n > 0 {
		srv, s.free = s.free[n-1], s.free[:n-1]
	} else {
		srv = startServer(s.suite, "--appendfsync", "always")
	}
	s.taken[t] = srv
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.taken, t)
		s.free = append(s.free, srv)
	})
	return srv
}

// engine opens stores on the server of each test, each in a new namespace.
func engine(serverOf func(testing.TB) *server, frozen bool) storetest.Engine {
	return storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
		srv := serverOf(t)
		clock := &clock{}
		if frozen {
			clock = frozenClock()
		}
		options := Options{Namespace: fmt.Sprint("suite", namespaces.Add(1)), Shards: o.Shards, Limits: o.Limits, CallTimeout: maxCall}
		raw := newClient(t, redis.Options{Network: "unix", Addr: srv.socket(), ReadTimeout: time.Minute})
		reopen := func(t testing.TB) store.Store {
			s, err := open(t.Context(), raw, options, clock.text)
			require.NoError(t, err)
			// A change that is sent again is answered with the server's time of the second request,
			// which the Oracle would take for that of the change.
			s.attemptTimeout = time.Minute
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		i := &storetest.Instance{Store: reopen(t), Advance: clock.advance, Frozen: frozen}
		i.Reopen = func(t testing.TB) store.Store {
			require.NoError(t, i.Store.Close())
			srv.Kill()
			srv.start(t)
			i.Store = reopen(t)
			return i.Store
		}
		i.Left = func(t testing.TB) []string { return left(t, raw, options.Namespace) }
		return i
	}}
}

// D14: the suite that every engine passes, with a frozen clock and with a running one. With
// appendfsync everysec a killed server could lose changes that it has acknowledged during a sync.
func TestSuite(t *testing.T) {
	t.Parallel()
	serverPath(t) // skips this test: a server that a subtest starts belongs to the suite, which the subtest cannot skip
	for name, frozen := range map[string]bool{"frozen": true, "running": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := &servers{suite: t, taken: map[testing.TB]*server{}}
			storetest.Run(t, engine(pool.of, frozen))
		})
	}
}

// S2: plans on a Cluster. A reopening is a fail-over of the master that has the first shard, after
// its replica has received everything.
func TestPlansOnACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	storetest.RunPlans(t, storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
		clock := frozenClock()
		client := c.client(t)
		options := Options{Namespace: fmt.Sprint("suite", namespaces.Add(1)), Shards: o.Shards, Limits: o.Limits, CallTimeout: maxCall}
		s, err := open(t.Context(), client, options, clock.text)
		require.NoError(t, err)
		s.attemptTimeout = time.Minute
		t.Cleanup(func() { _ = s.Close() })
		return &storetest.Instance{Store: s, Advance: clock.advance, Frozen: true, Reopen: func(t testing.TB) store.Store {
			slot := int(c.raw[0].ClusterKeySlot(t.Context(), s.shards[0].tag).Val())
			old := c.masterOf(slot)
			// WAIT counts from the last write of its own connection.
			require.NoError(t, c.raw[old].Set(t.Context(), s.shards[0].tag+":sync", "", time.Millisecond).Err())
			replicated := c.raw[old].Wait(t.Context(), 1, time.Minute)
			require.NoError(t, replicated.Err())
			require.Positive(t, replicated.Val())
			c.crash(slot)
			require.NotEqual(t, old, c.masterOf(slot))
			return s
		}}
	}})
}

// FuzzModel compares random calls with the suite's Oracle.
func FuzzModel(f *testing.F) {
	srv := startServer(f, "--appendfsync", "always")
	storetest.Fuzz(f, engine(func(testing.TB) *server { return srv }, true))
}

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/storetest"
)

// engine opens stores on one server, each in a namespace of its own.
func engine(srv *server, frozen bool) storetest.Engine {
	return storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
		clock := &clock{}
		if frozen {
			clock = frozenClock()
		}
		options := Options{Namespace: fmt.Sprint("suite", namespaces.Add(1)), Shards: o.Shards, Limits: o.Limits, CallTimeout: maxCall}
		raw := newClient(t, redis.Options{Network: "unix", Addr: srv.socket(), ReadTimeout: time.Minute})
		reopen := func(t testing.TB) store.Store {
			s, err := open(t.Context(), raw, options, clock.text)
			require.NoError(t, err)
			// Sent again, a change is answered with the present of the second time, which the
			// Oracle would take for that of the change.
			s.longest = time.Minute
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		i := &storetest.Instance{Store: reopen(t), Advance: clock.advance, Frozen: frozen}
		i.Reopen = func(t testing.TB) store.Store {
			require.NoError(t, i.Store.Close())
			srv.kill()
			srv.start(t)
			i.Store = reopen(t)
			return i.Store
		}
		i.Left = func(t testing.TB) []string { return left(t, raw, options.Namespace) }
		return i
	}}
}

// D14: the suite that every engine passes, with a clock that stands and with one that
// goes on. With appendfsync everysec a server that is killed loses what it has answered
// while a sync was under way.
func TestSuite(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"frozen": true, "running": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, engine(startServer(t, "--appendfsync", "always"), frozen))
		})
	}
}

// S2: plans on a Cluster. A reopening is a fail-over of the master that has the first shard,
// after its replica has received everything.
func TestPlansOnACluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	storetest.RunPlans(t, storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
		clock := frozenClock()
		client := c.client(t)
		options := Options{Namespace: fmt.Sprint("suite", namespaces.Add(1)), Shards: o.Shards, Limits: o.Limits, CallTimeout: maxCall}
		s, err := open(t.Context(), client, options, clock.text)
		require.NoError(t, err)
		s.longest = time.Minute
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
	storetest.Fuzz(f, engine(startServer(f, "--appendfsync", "always"), true))
}

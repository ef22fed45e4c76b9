package redisstore

import (
	"fmt"
	"testing"

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
		options := Options{Namespace: fmt.Sprint("suite", namespaces.Add(1)), Shards: o.Shards, Limits: o.Limits}
		raw := srv.client(t)
		reopen := func(t testing.TB) store.Store {
			s, err := open(t.Context(), raw, options, clock.text)
			require.NoError(t, err)
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
	srv := startServer(t, "--appendfsync", "always")
	t.Run("frozen", func(t *testing.T) { storetest.Run(t, engine(srv, true)) })
	t.Run("running", func(t *testing.T) { storetest.Run(t, engine(srv, false)) })
}

// FuzzModel compares random calls with the suite's Oracle.
func FuzzModel(f *testing.F) {
	storetest.Fuzz(f, engine(startServer(f, "--appendfsync", "always"), true))
}

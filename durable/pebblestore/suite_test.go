package pebblestore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/storetest"
	"github.com/stretchr/testify/require"
)

// engine opens stores in a file system that forgets unsynced writes, with a frozen clock or a
// running one. Each store is verified when it is closed.
func engine(frozen bool) storetest.Engine {
	return storetest.Engine{Open: func(t testing.TB, o storetest.Options) *storetest.Instance {
		return newInstance(t, o, frozen)
	}}
}

func newInstance(t testing.TB, o storetest.Options, frozen bool) *storetest.Instance {
	c := newClock()
	c.running = !frozen
	opts := options(vfs.NewCrashableMem(), c)
	opts.Shards, opts.Limits = o.Shards, o.Limits
	var s *Store
	open := func(t testing.TB) {
		t.Helper()
		var err error
		s, err = Open("dir", opts)
		require.NoError(t, err)
	}
	closed := func(t testing.TB) {
		t.Helper()
		if !s.life.closed {
			verify(t, s)
		}
		require.NoError(t, s.Close())
	}
	open(t)
	t.Cleanup(func() { closed(t) })
	return &storetest.Instance{
		Store:   s,
		Advance: func(d time.Duration) { c.Advance(d) },
		Frozen:  frozen,
		Reopen: func(t testing.TB) store.Store {
			left := opts.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
			closed(t)
			opts.fs = left
			open(t)
			return s
		},
		LeasesEnd: true,
		Verify:    func(t testing.TB) { verify(t, s) },
		Left:      func(t testing.TB) []string { return leftIn(t, s) },
	}
}

// leftIn names the keys of a store, except those that D10 allows.
func leftIn(t testing.TB, s *Store) (keys []string) {
	it, err := s.db.NewIter(nil)
	require.NoError(t, err)
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		k := it.Key()
		if k[0] == keyShard && k[3] == kindMeta && len(k)+len(it.Value()) > 200 || k[0] == keyShard && k[3] != kindMeta {
			keys = append(keys, string(k))
		}
	}
	return keys
}

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"frozen": true, "running": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, engine(frozen))
		})
	}
}

func FuzzModel(f *testing.F) { storetest.Fuzz(f, engine(true)) }

package pebblestore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

const testShards = 4

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// clock is frozen except for Advance, or runs.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	began   time.Time
	running bool
}

func newClock() *clock {
	return &clock{now: time.UnixMilli(1_700_000_000_000), began: time.Now()}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return c.now.Add(time.Since(c.began))
	}
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// misuse ends the process: Pebble found that a key was set twice, or that a missing key was
// removed, which the layout rules out.
func misuse(err error) {
	fmt.Fprintln(os.Stderr, "misuse of Pebble:", err)
	os.Exit(6)
}

// options configure a small store in memory.
func options(fs vfs.FS, c *clock) Options {
	o := Options{
		Shards: testShards, Logger: quiet, CacheBytes: 1 << 20, MemTableBytes: 1 << 20,
		CallTimeout: time.Minute, // a busy machine is not a disk that hangs
		fs:          fs, misuse: misuse,
	}
	if c != nil {
		o.now = c.Now
	}
	return o
}

// fixture is a store with its clock and its file system.
type fixture struct {
	testing.TB
	*require.Assertions
	*Store
	clock *clock
	fs    *vfs.MemFS
	ctx   context.Context
	opts  Options
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	f := &fixture{TB: t, Assertions: require.New(t), clock: newClock(), fs: vfs.NewCrashableMem(), ctx: t.Context()}
	f.opts = options(f.fs, f.clock)
	for _, set := range change {
		set(&f.opts)
	}
	f.open()
	t.Cleanup(func() { f.NoError(f.Store.Close()) })
	return f
}

func (f *fixture) open() {
	f.Helper()
	s, err := Open("dir", f.opts)
	f.NoError(err)
	f.Store = s
}

// crash opens the store that a power failure now would leave, without unsynced writes.
func (f *fixture) crash() {
	f.Helper()
	left := f.fs.CrashClone(vfs.CrashCloneCfg{})
	f.NoError(f.Store.Close())
	f.fs, f.opts.fs = left, left
	f.open()
}

// keyIn returns the i-th key of a shard.
func keyIn(shard, i int) string {
	for n, j := 0, 0; ; n++ {
		key := fmt.Sprint("k", n)
		if store.ShardOf(key, testShards) == shard {
			if j == i {
				return key
			}
			j++
		}
	}
}

// entry is overdue, with a body of n bytes derived from its ID.
func entry(key string, n int) store.Entry {
	id := store.NewID()
	return store.Entry{Key: key, ID: id, Topic: "topic", At: 1, Body: bodyOf(id, n)}
}

func bodyOf(id store.ID, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = id[i%len(id)]
	}
	return b
}

func (f *fixture) put(entries ...store.Entry) []store.Receipt {
	f.Helper()
	receipts, _, err := f.Schedule(f.ctx, store.ShardOf(entries[0].Key, f.Shards()), entries)
	f.NoError(err)
	return receipts
}

func newClaim(max int) store.Claim {
	return store.Claim{
		Worker: "w", Token: store.NewToken("w"), Max: max, MaxBytes: store.MaxClaim,
		Lease: 10 * time.Second, MaxAttempts: 3,
	}
}

func (f *fixture) claim(shard, max int) []store.Lease {
	f.Helper()
	claimed, _, err := f.Claim(f.ctx, shard, newClaim(max))
	f.NoError(err)
	f.Zero(claimed.Repaired)
	return claimed.Leases
}

func (f *fixture) end(l store.Lease, k store.OutcomeKind) {
	f.Helper()
	results, _, err := f.End(f.ctx, store.ShardOf(l.Key, f.Shards()), []store.Outcome{{Holder: l.Holder, Kind: k, Error: "why"}})
	f.NoError(err)
	f.NotEqual([]store.EndResult{store.EndLost}, results)
}

func (f *fixture) get(key string) store.Record {
	f.Helper()
	r, err := f.Get(f.ctx, store.ShardOf(key, f.Shards()), key)
	f.NoError(err)
	return r
}

// left counts the keys on disk.
func (f *fixture) left() (n int) {
	f.Helper()
	it, err := f.db.NewIter(nil)
	f.NoError(err)
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	return n
}

package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/stretchr/testify/require"
)

// faulty fails the write with a given number, and all after it: writes, fsyncs, and creating or
// renaming files.
type faulty struct {
	at    int64 // counted from 0; below: none
	err   error
	match func(errorfs.Op) bool // nil: all writes
	n     atomic.Int64

	mu    sync.Mutex
	trace []errorfs.OpKind // of all writes, in order
}

func (*faulty) String() string { return "faulty" }

func (f *faulty) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpLock || f.match != nil && !f.match(op) {
		return nil
	}
	f.mu.Lock()
	f.trace = append(f.trace, op.Kind)
	f.mu.Unlock()
	if n := f.n.Add(1) - 1; f.at >= 0 && n >= f.at {
		return f.err
	}
	return nil
}

// D3: whichever write fails first, the call in progress returns ErrUnsure and later ones ErrClosed;
// after reopening, all acknowledged changes exist, and no timer is in two states. The process
// survives.
func TestEveryWriteFails(t *testing.T) {
	t.Parallel()
	run := func(at int64, err error) (writes []errorfs.OpKind, completed bool) {
		fs := vfs.NewCrashableMem()
		faults := &faulty{at: at, err: err}
		o := options(errorfs.Wrap(fs, faults), newClock())
		s, openErr := Open("dir", o)
		l := &ledger{}
		completed = openErr == nil
		if openErr == nil {
			w := newWorkload(s, 0, 7, l.note)
			for i := 0; i < 150 && completed; i++ {
				if callErr := w.next(t.Context()); callErr != nil {
					completed = false
					require.ErrorIs(t, callErr, err)
					if !errors.Is(callErr, store.ErrClosed) {
						require.ErrorIs(t, callErr, store.ErrUnsure)
					}
				}
			}
			if !completed {
				_, err := s.Stats(t.Context(), 0)
				require.ErrorIs(t, err, store.ErrClosed)
			}
			require.NoError(t, s.Close())
		}
		faults.mu.Lock()
		writes = slices.Clone(faults.trace)
		faults.mu.Unlock()
		for _, left := range []vfs.FS{fs.CrashClone(vfs.CrashCloneCfg{}), fs} {
			o.fs = left
			s, openErr := Open("dir", o)
			require.NoError(t, openErr)
			verify(t, s)
			l.check(t, s)
			require.NoError(t, s.Close())
		}
		return writes, completed
	}
	writes, completed := run(-1, nil)
	require.True(t, completed)
	failed := 0
	for at, kind := range writes {
		// Most are writes and fsyncs of the log: test every fourth of these.
		if (kind == errorfs.OpFileWrite || kind == errorfs.OpFileSyncData) && at%4 != 0 && !long() {
			continue
		}
		if _, completed := run(int64(at), []error{syscall.EIO, syscall.ENOSPC}[at%2]); !completed {
			failed++
		}
	}
	require.Greater(t, failed, 20)
	t.Logf("%d writes, %d runs failed", len(writes), failed)
}

// D3: one fsync alone fails; the store does not retry it.
func TestFailedSyncClosesTheStore(t *testing.T) {
	faults := &faulty{at: -1, err: syscall.EIO, match: func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	}}
	f := newFixture(t, func(o *Options) { o.fs = errorfs.Wrap(o.fs, faults) })
	kept, lost := keyIn(0, 0), keyIn(0, 1)
	f.put(entry(kept, 10))
	// A power failure loses a write that is in the machine's memory and not on the disk.
	faults.at = faults.n.Load()
	_, _, err := f.Schedule(f.ctx, 0, []store.Entry{entry(lost, 10)})
	f.ErrorIs(err, store.ErrUnsure)
	f.ErrorIs(err, syscall.EIO)
	f.allReturn(store.ErrClosed)
	faults.at = -1
	f.allReturn(store.ErrClosed)
	f.NoError(f.Store.Close())
	f.opts.fs = f.fs.CrashClone(vfs.CrashCloneCfg{})
	f.open()
	f.get(kept)
	_, err = f.Get(f.ctx, 0, lost)
	f.ErrorIs(err, store.ErrNotFound)
	verify(t, f.Store)
}

// Once a write has failed, Pebble writes nothing more, whatever it does next: another process may
// have the folder.
func TestGateStaysClosed(t *testing.T) {
	mem := vfs.NewMem()
	faults := &faulty{at: -1, err: syscall.EIO}
	failed := make(chan error, 1)
	f := &fs{FS: errorfs.Wrap(mem, faults), gate: newGate(func(err error) { failed <- err })}
	f.gate.arm()
	one, err := f.Create("one", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	two, err := f.Create("two", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	faults.at = faults.n.Load()
	returned := make(chan struct{}, 4)
	begin := func(write func()) {
		go func() {
			write()
			returned <- struct{}{}
		}()
	}
	begin(func() { _ = one.Sync() })
	require.ErrorIs(t, <-failed, syscall.EIO)
	<-f.gate.empty
	writes := faults.n.Load()
	begin(func() { _, _ = two.Write([]byte("x")) })
	begin(func() { _ = f.Remove("two") })
	begin(func() { _, _ = f.Create("three", vfs.WriteCategoryUnspecified) })
	select {
	case <-returned:
		t.Fatal("a write went on")
	case <-time.After(20 * time.Millisecond): // nothing to wait for: no event follows
	}
	require.Equal(t, writes, faults.n.Load())
}

// hanging blocks writes while hold is set.
type hanging struct {
	hold    atomic.Bool
	release chan struct{}
}

func (*hanging) String() string { return "hanging" }

func (h *hanging) MaybeError(op errorfs.Op) error {
	if h.hold.Load() && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileWrite) {
		<-h.release
	}
	return nil
}

// onRead calls f when a file is read.
type onRead struct{ f atomic.Pointer[func()] }

func (*onRead) String() string { return "onRead" }

func (o *onRead) MaybeError(op errorfs.Op) error {
	if f := o.f.Load(); op.Kind == errorfs.OpFileReadAt && f != nil {
		(*f)()
	}
	return nil
}

// A call whose ctx ends while it reads changes nothing, even after the disk has answered.
func TestCtxEndsDuringARead(t *testing.T) {
	t.Parallel()
	const timers = 300 // more than a block of a table
	var keys []string
	for i := 0; len(keys) < timers; i++ {
		if key := fmt.Sprint("k", i); store.ShardOf(key, testShards) == 0 {
			keys = append(keys, key)
		}
	}
	dead, waiting := keys[timers/3], keys[timers/2]
	for name, call := range map[string]func(*fixture, context.Context) error{
		"schedule": func(f *fixture, ctx context.Context) error {
			_, _, err := f.Schedule(ctx, 0, []store.Entry{entry(waiting, 10)})
			return err
		},
		"cancel": func(f *fixture, ctx context.Context) error {
			_, err := f.Cancel(ctx, 0, []string{waiting})
			return err
		},
		"reschedule": func(f *fixture, ctx context.Context) error {
			_, _, err := f.Reschedule(ctx, 0, []store.Move{{Key: waiting, After: time.Hour}})
			return err
		},
		"requeue": func(f *fixture, ctx context.Context) error {
			_, _, err := f.Requeue(ctx, 0, []string{dead})
			return err
		},
		"purge": func(f *fixture, ctx context.Context) error {
			_, err := f.Purge(ctx, 0, []string{dead})
			return err
		},
		"claim": func(f *fixture, ctx context.Context) error {
			_, _, err := f.Claim(ctx, 0, newClaim(timers))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := &onRead{}
			f := newFixture(t, func(o *Options) { o.fs = errorfs.Wrap(o.fs, reads) })
			f.put(entry(dead, 10))
			f.end(f.claim(0, 1)[0], store.DeadLetter)
			var entries []store.Entry
			for _, key := range keys {
				if key != dead {
					entries = append(entries, entry(key, 250))
				}
			}
			f.put(entries...)
			all := func() (records []store.Record) {
				for _, key := range keys {
					records = append(records, f.get(key))
				}
				return records
			}
			before := all()
			f.NoError(f.db.Flush())
			f.NoError(f.db.Compact(f.ctx, []byte{0}, []byte{255}, false)) // so that only calls read
			f.NoError(f.Store.Close())
			f.open()
			ctx, cancel := context.WithCancel(f.ctx)
			end := func() { cancel() }
			reads.f.Store(&end)
			err := call(f, ctx)
			f.ErrorIs(err, context.Canceled)
			f.Equal(before, all())
			verify(t, f.Store)
		})
	}
}

// A batch that Pebble refuses closes the store, because memory and disk then differ.
func TestBatchIsRefused(t *testing.T) {
	f := newFixture(t)
	fs := vfs.NewMem()
	empty, err := pebble.Open("", &pebble.Options{FS: fs})
	f.NoError(err)
	f.NoError(empty.Close())
	readOnly, err := pebble.Open("", &pebble.Options{FS: fs, ReadOnly: true})
	f.NoError(err)
	defer func() { f.NoError(readOnly.Close()) }()
	key := keyIn(0, 0)
	f.shards[0].db = readOnly
	_, _, err = f.Schedule(f.ctx, 0, []store.Entry{entry(key, 10)})
	f.ErrorIs(err, store.ErrUnsure)
	f.ErrorIs(err, pebble.ErrReadOnly)
	_, err = f.Get(f.ctx, 0, key)
	f.ErrorIs(err, store.ErrClosed)
	f.NoError(f.Close())
}

// A shard that a call keeps locked while the disk hangs does not hide the others from Horizons.
func TestHorizonsPastALockedShard(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	key := keyIn(1, 0)
	_, _, err := f.Schedule(f.ctx, 1, []store.Entry{entry(key, 10)})
	f.NoError(err)
	f.timeout = 10 * time.Millisecond
	f.shards[0].lock <- struct{}{}
	f.shards[2].lock <- struct{}{}
	h, err := f.Horizons(f.ctx, []int{0, 1, 2, 3})
	f.ErrorContains(err, "did not answer within 10ms")
	f.Len(h, 4)
	f.NotZero(h[1].NextDue)
	f.NotZero(h[1].Now)
	f.NotZero(h[3].Now)
	f.Equal([]store.Horizon{{}, {}}, []store.Horizon{h[0], h[2]})
	h, err = f.Horizons(f.ctx, []int{2, 0})
	f.ErrorContains(err, "did not answer within 10ms")
	f.Nil(h)
	f.shards[0].unlock()
	f.shards[2].unlock()
	f.timeout = time.Minute
	h, err = f.Horizons(f.ctx, []int{0, 1, 2, 3})
	f.NoError(err)
	f.NotZero(h[0].Now)
}

// D12: no call outlasts its context, or Options.CallTimeout, while the disk hangs. The order of the
// calls is kept: when the disk answers again, nothing is lost.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	disk := &hanging{release: make(chan struct{})}
	f := newFixture(t, func(o *Options) { o.fs = errorfs.Wrap(o.fs, disk) })
	a, b := keyIn(0, 0), keyIn(1, 0)
	disk.hold.Store(true)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(f.ctx)
	scheduled := make(chan error, 1)
	go func() {
		_, _, err := f.Schedule(ctx, 0, []store.Entry{entry(a, 10)})
		scheduled <- err
	}()
	f.Eventually(func() bool { return f.shards[0].peek() != 0 }, time.Minute, time.Millisecond)
	_, err := f.Horizons(f.ctx, []int{0, 1})
	f.NoError(err)
	cancel(gone)
	err = <-scheduled
	f.ErrorIs(err, store.ErrUnsure)
	f.ErrorIs(err, gone)

	// The timer is in memory and not yet on disk. A call that reads it waits, and so does a call
	// that finds nothing to change.
	f.timeout = 300 * time.Millisecond
	_, err = f.Get(f.ctx, 0, a)
	f.ErrorContains(err, "the disk did not answer within 300ms")
	f.NotErrorIs(err, store.ErrUnsure)
	_, err = f.Purge(f.ctx, 0, []string{a})
	f.ErrorIs(err, store.ErrUnsure)
	_, _, err = f.Schedule(f.ctx, 1, []store.Entry{entry(b, 10)})
	f.ErrorIs(err, store.ErrUnsure)
	f.ErrorContains(err, "the disk did not answer within 300ms")
	f.timeout = time.Minute

	disk.hold.Store(false)
	close(disk.release)
	f.get(a)
	f.get(b)
	verify(t, f.Store)
}

// peek counts the waiting timers.
func (sh *shard) peek() (n uint64) {
	sh.lock <- struct{}{}
	defer sh.unlock()
	for i := range sh.lanes {
		n += sh.lanes[i].count
	}
	return n
}

// Close does not wait for a disk for ever. While a write may still reach the disk, the folder stays
// locked.
func TestCloseWhileDiskHangs(t *testing.T) {
	t.Parallel()
	disk := &hanging{release: make(chan struct{})}
	o := options(errorfs.Wrap(vfs.Default, disk), nil)
	o.CallTimeout = 300 * time.Millisecond
	dir := t.TempDir()
	s, err := Open(dir, o)
	require.NoError(t, err)
	disk.hold.Store(true)
	_, _, err = s.Schedule(t.Context(), 0, []store.Entry{entry(keyIn(0, 0), 10)})
	require.ErrorIs(t, err, store.ErrUnsure)
	require.ErrorContains(t, s.Close(), "stays locked")
	o.fs = nil
	_, err = Open(dir, o)
	require.ErrorIs(t, err, ErrInUse)
	disk.hold.Store(false)
	close(disk.release)
}

// slowFS is a file system that does not report its free space while hangs is set.
type slowFS struct {
	vfs.FS
	hangs atomic.Bool
	asked atomic.Int64
	free  chan struct{}
}

func (s *slowFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if s.hangs.Load() {
		s.asked.Add(1)
		<-s.free
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40}, nil
}

// A file system that does not report its free space delays no Schedule beyond its ctx, and no other
// call. It is asked once at a time.
func TestFreeSpaceIsUnknown(t *testing.T) {
	slow := &slowFS{free: make(chan struct{})}
	f := newFixture(t, func(o *Options) {
		slow.FS = o.fs
		o.fs = slow
	})
	gone := errors.New("gone")
	slow.hangs.Store(true)
	for shard := range 2 {
		ctx, cancel := context.WithCancelCause(f.ctx)
		scheduled := make(chan error, 1)
		go func() {
			_, _, err := f.Schedule(ctx, shard, []store.Entry{entry(keyIn(shard, 0), 10)})
			scheduled <- err
		}()
		f.Eventually(func() bool { return slow.asked.Load() > 0 }, time.Minute, time.Millisecond)
		cancel(gone)
		select {
		case err := <-scheduled:
			f.ErrorIs(err, gone)
			f.NotErrorIs(err, store.ErrUnsure)
		case <-time.After(time.Minute):
			f.Assertions.Fail("Schedule outlasts its ctx")
		}
		f.Empty(f.claim(shard, 1))
	}
	f.timeout = time.Millisecond
	_, _, err := f.Schedule(f.ctx, 0, []store.Entry{entry(keyIn(0, 0), 10)})
	f.ErrorContains(err, "the disk did not answer within 1ms")
	f.timeout = time.Minute
	f.EqualValues(1, slow.asked.Load())
	slow.hangs.Store(false)
	close(slow.free)
	f.put(entry(keyIn(0, 0), 10))
	f.Len(f.claim(0, 1), 1)
}

// With little free disk space the store refuses new timers and executes all other calls, as Redis
// does at maxmemory.
func TestLittleFreeSpace(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MinFree = 1000 })
	key := keyIn(0, 0)
	f.put(entry(key, 10))
	f.fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 999, TotalBytes: 1, UsedBytes: 1})
	f.Store.freeSpace.checked = time.Time{}
	_, _, err := f.Schedule(f.ctx, 0, []store.Entry{entry(key, 10)})
	f.ErrorIs(err, store.ErrFull)
	f.ErrorContains(err, "the disk has 999 bytes left, Options.MinFree is 1000")
	f.end(f.claim(0, 1)[0], store.Retry)
	f.end(f.claim(0, 1)[0], store.Done)
	f.fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000, TotalBytes: 1, UsedBytes: 1})
	f.Store.freeSpace.checked = time.Time{}
	f.put(entry(key, 10))
}

// D3: power fails at random moments under load; unsynced writes are lost, or partly kept.
func TestPowerFails(t *testing.T) {
	t.Parallel()
	rounds := 20
	if long() {
		rounds = 500
	}
	for round := range rounds {
		powerFails(t, uint64(round))
	}
}

func powerFails(t *testing.T, seed uint64) {
	fs := vfs.NewCrashableMem()
	o := options(fs, newClock())
	s, err := Open("dir", o)
	require.NoError(t, err)
	const steps = 60
	rnd := rand.New(rand.NewPCG(seed, 1))
	moment, percent := rnd.IntN(testShards*steps), rnd.IntN(3)*50
	var mu sync.Mutex // orders notes and the taking of the image
	var notes, cut ledger
	done := make(chan error, testShards)
	for n := range testShards {
		w := newWorkload(s, n, seed*100+uint64(n), func(e note) {
			mu.Lock()
			defer mu.Unlock()
			notes.note(e)
			if e.Acked {
				moment--
			}
			if moment == 0 && cut == nil {
				cut = slices.Clone(notes)
				o.fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rnd})
			}
		})
		go func() {
			var err error
			for i := 0; i < steps && err == nil; i++ {
				err = w.next(t.Context())
			}
			done <- err
		}()
	}
	for range testShards {
		require.NoError(t, <-done)
	}
	require.NoError(t, s.Close())
	s, err = Open("dir", o)
	require.NoError(t, err, "seed %d", seed)
	verify(t, s)
	cut.check(t, s)
	require.NoError(t, s.Close())
}

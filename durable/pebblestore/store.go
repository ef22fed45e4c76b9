package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/seed-782fa212/limbo/durable/internal/roster"
	"github.com/seed-782fa212/limbo/durable/store"
)

// ErrInUse is returned by Open for a folder that is already open, in another process or in this
// one.
var ErrInUse = errors.New("durable: the folder is open in another process, or twice in this one")

// Store keeps timers in a folder. It implements [store.Store], and all its methods are safe for
// concurrent use.
//
// When a write or an fsync fails, the store closes itself: calls in progress return
// store.ErrUnsure, later ones store.ErrClosed, both with the cause. The folder can be opened again
// once the cause is removed and Close was called.
type Store struct {
	dir        string
	limits     store.Limits
	log        *slog.Logger
	timeout    time.Duration
	minFree    int64
	maxCounted int // store.MaxCounted, except in tests
	now        func() time.Time
	gate       *gate
	fs         *fs
	db         *pebble.DB
	shards     []*shard

	failure atomic.Pointer[error] // why failed is closed; written once, before
	failed  chan struct{}         // closed when a write failed
	closing chan struct{}         // closed when Close is called

	life struct {
		sync.Mutex
		closed bool
		calls  int           // in progress
		idle   chan struct{} // closed when closed is set and calls is 0
	}
	freeSpace struct {
		sync.Mutex
		asking  chan struct{} // closed when the file system has answered; nil: not asked
		checked time.Time     // when it last answered
		err     error         // ErrFull if its last answer is below minFree
	}
	roster roster.Roster
	subs   struct {
		sync.Mutex
		all map[*subscriber]bool
	}
}

var _ store.Store = (*Store)(nil)

// Open opens the store in a folder, which it creates if there is none. Until Close, another Open of
// the folder returns ErrInUse. All leases from before have expired.
func Open(dir string, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{
		dir: dir, limits: o.Limits, log: o.Logger, timeout: o.CallTimeout, minFree: o.MinFree, maxCounted: store.MaxCounted,
		now: o.now, failed: make(chan struct{}), closing: make(chan struct{}),
	}
	s.life.idle = make(chan struct{})
	s.subs.all = map[*subscriber]bool{}
	s.gate = newGate(s.fail)
	s.fs = &fs{FS: o.fs, gate: s.gate}

	opened := make(chan error, 1)
	go func() { opened <- s.open(o) }() // Pebble may never return
	select {
	case err = <-opened:
	case <-s.failed:
		err = s.cause()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("durable: opening %s: %w", dir, err), s.abandon())
	}
	return s, nil
}

func (s *Store) open(o Options) error {
	db, err := pebble.Open(s.dir, o.pebble(s.fs, &logger{s.log, s.fail}))
	if err != nil {
		return err
	}
	s.db = db
	n, err := s.config(o.Shards)
	now := store.Millis(s.now().UnixMilli())
	for i := 0; i < n && err == nil; i++ {
		var sh *shard
		sh, err = openShard(db, i, now)
		s.shards = append(s.shards, sh)
	}
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return nil
}

// format is the version of the layout.
const format = 2

// config reads the number of shards, or writes it into a new store.
func (s *Store) config(want int) (int, error) {
	v, closer, err := s.db.Get([]byte{keyConfig})
	if errors.Is(err, pebble.ErrNotFound) {
		if want == 0 {
			want = defaultShards
		}
		v := binary.AppendUvarint(binary.AppendUvarint(nil, format), uint64(want))
		return want, s.db.Set([]byte{keyConfig}, v, pebble.Sync)
	}
	if err != nil {
		return 0, err
	}
	r := reader{left: v}
	version := r.uvarint()
	shards := int(r.uvarint())
	switch err := closer.Close(); {
	case err != nil:
		return 0, err
	case version != format && version != 0:
		return 0, fmt.Errorf("the folder has format %d, this version reads %d", version, format)
	case r.bad || shards < 1 || shards > store.MaxShards:
		return 0, errRecord
	case want != 0 && want != shards:
		return 0, fmt.Errorf("%w: it has %d, Options.Shards is %d", store.ErrShards, shards, want)
	}
	return shards, nil
}

// Shards returns the number of shards.
func (s *Store) Shards() int { return len(s.shards) }

// fail closes the store because it cannot write. Any of Pebble's goroutines may call it, and it
// does not block.
func (s *Store) fail(err error) {
	if !s.failure.CompareAndSwap(nil, &err) {
		return
	}
	s.gate.close()
	close(s.failed)
	s.log.Error("durable: the store closes itself", "dir", s.dir, "err", err)
}

func (s *Store) cause() error { return *s.failure.Load() }

// closedError is ErrClosed, with the cause if there is one.
func (s *Store) closedError() error {
	select {
	case <-s.failed:
		return fmt.Errorf("%w: %w", store.ErrClosed, s.cause())
	default:
		return store.ErrClosed
	}
}

// Close waits for the calls in progress, at most for Options.CallTimeout, and releases the folder.
// A second Close does nothing.
func (s *Store) Close() error {
	s.life.Lock()
	if s.life.closed {
		s.life.Unlock()
		return nil
	}
	s.life.closed = true
	if s.life.calls == 0 {
		close(s.life.idle)
	}
	s.life.Unlock()
	close(s.closing)

	closed := make(chan error, 1)
	go func() {
		<-s.life.idle
		if s.failure.Load() == nil {
			closed <- s.db.Close()
		}
	}()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case err := <-closed:
		if err != nil {
			return fmt.Errorf("durable: closing %s: %w", s.dir, err)
		}
		return nil
	case <-timer.C:
		s.fail(fmt.Errorf("the disk did not answer within %v", s.timeout))
	case <-s.failed:
	}
	if err := s.abandon(); err != nil {
		return fmt.Errorf("durable: closing %s: %w", s.dir, err)
	}
	return nil
}

// abandon releases the folder without Pebble's help, once no write is in progress.
func (s *Store) abandon() error {
	s.gate.close()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case <-s.gate.empty:
	case <-timer.C:
		return errors.New("a write is still under way, so the folder stays locked until the process ends")
	}
	if s.fs.lock == nil {
		return nil
	}
	return s.fs.lock.Close()
}

// ready checks a call that touches no shard's memory.
func (s *Store) ready(ctx context.Context, shard int) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if shard < 0 || shard >= len(s.shards) {
		return fmt.Errorf("durable: the shard is %d, must be 0 to %d", shard, len(s.shards)-1)
	}
	s.life.Lock()
	defer s.life.Unlock()
	return s.readyLocked()
}

func (s *Store) readyLocked() error {
	if s.life.closed {
		return s.closedError()
	}
	select {
	case <-s.failed:
		return s.closedError()
	default:
		return nil
	}
}

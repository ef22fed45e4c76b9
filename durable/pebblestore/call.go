package pebblestore

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

type callKind bool

const (
	writes callKind = true
	reads  callKind = false
)

// call runs f, one call on a shard, in its own goroutine, so that a disk that hangs does not hold
// the caller beyond ctx.
//
// The order is: lock the shard; run f; apply the batch; find the horizon; unlock; wait for the
// fsync; publish events; run f's deferred reads (change.then); answer. The lock is released before
// the fsync, so one fsync serves the commits of all shards and the next commits of the same shard.
//
// f must not keep memory that the caller may change: after ErrUnsure f may still run. It then
// changes nothing unless ctx ended after the change had begun: see change.inTime.
func call[T any](ctx context.Context, s *Store, shard int, k callKind, f func(*change) (T, error)) (T, store.Horizon, error) {
	type answer struct {
		v   T
		h   store.Horizon
		err error
	}
	var none T
	sh, err := s.enter(ctx, shard)
	if err != nil {
		return none, store.Horizon{}, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.lock(ctx, sh); err != nil {
		s.leave()
		return none, store.Horizon{}, err
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		a.v, a.h, a.err = run(ctx, s, sh, k, f)
		answers <- a
		s.leave()
	}()
	select {
	case a := <-answers:
		return a.v, a.h, a.err
	default:
	}
	select {
	case a := <-answers:
		return a.v, a.h, a.err
	case <-ctx.Done():
		if err = context.Cause(ctx); k == writes {
			err = fmt.Errorf("%w: %w", store.ErrUnsure, err)
		}
	case <-s.failed:
		if err = s.closedError(); k == writes {
			err = fmt.Errorf("%w: %w", store.ErrUnsure, s.cause())
		}
	}
	return none, store.Horizon{}, err
}

// run makes a call on a locked shard and unlocks the shard.
func run[T any](ctx context.Context, s *Store, sh *shard, k callKind, f func(*change) (T, error)) (v T, h store.Horizon, err error) {
	c := &change{ctx: ctx, sh: sh, limits: s.limits, at: momentOf(s.now()), timers: map[string]*timer{}}
	if k == writes {
		c.batch = sh.db.NewBatch()
	}
	before := sh.last
	if v, err = f(c); err == nil {
		if err = c.apply(); err != nil { // memory has the change, and the disk may not
			s.fail(err)
			err = fmt.Errorf("%w: %w", store.ErrUnsure, err)
		}
	} else if k == writes {
		_ = c.batch.Close()
	}
	last := sh.last
	if err != nil {
		sh.unlock()
		return v, h, err
	}
	h = c.horizon()
	sh.unlock()
	switch last {
	case nil: // nothing was written since the shard was opened
	case before:
		select {
		case <-last.synced:
		case <-s.failed:
			return v, h, s.closedError()
		}
	default:
		if failed := last.sync(); failed != nil {
			s.fail(failed)
			return v, h, fmt.Errorf("%w: %w", store.ErrUnsure, failed)
		}
	}
	s.publish(c.events...)
	if c.then != nil {
		err = c.then()
	}
	return v, h, err
}

// enter counts a call, so that Close waits for it.
func (s *Store) enter(ctx context.Context, shard int) (*shard, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if shard < 0 || shard >= len(s.shards) {
		return nil, fmt.Errorf("durable: the shard is %d, must be 0 to %d", shard, len(s.shards)-1)
	}
	s.life.Lock()
	defer s.life.Unlock()
	if err := s.readyLocked(); err != nil {
		return nil, err
	}
	s.life.calls++
	return s.shards[shard], nil
}

func (s *Store) leave() {
	s.life.Lock()
	defer s.life.Unlock()
	if s.life.calls--; s.life.calls == 0 && s.life.closed {
		close(s.life.idle)
	}
}

// deadline gives ctx the store's call timeout if it has no deadline.
func (s *Store) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("the disk did not answer within %v", s.timeout))
}

// lock locks a shard, or returns an error when ctx ends or the store fails.
func (s *Store) lock(ctx context.Context, sh *shard) error {
	select {
	case sh.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case sh.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.failed:
		return s.closedError()
	}
}

func (sh *shard) unlock() { <-sh.lock }

// checkKeys refuses keys of another shard, under which no call would find them, and more than
// store.MaxItems keys.
func (s *Store) checkKeys(shard, n int, key func(int) string) error {
	if n > store.MaxItems {
		return fmt.Errorf("durable: a call has %d items, must be at most %d", n, store.MaxItems)
	}
	for i := range n {
		if err := store.CheckKey(key(i)); err != nil {
			return err
		}
		if want := store.ShardOf(key(i), len(s.shards)); want != shard {
			return fmt.Errorf("durable: key %.64q is of shard %d, not %d", key(i), want, shard)
		}
	}
	return nil
}

// checkFreeSpace returns ErrFull if the disk has less free space than Options.MinFree. It queries
// the file system at most ten times a second, in a separate goroutine, and waits for the answer
// until ctx ends.
func (s *Store) checkFreeSpace(ctx context.Context) error {
	if s.minFree < 0 {
		return nil
	}
	s.freeSpace.Lock()
	if s.freeSpace.asking == nil && time.Since(s.freeSpace.checked) > 100*time.Millisecond {
		s.freeSpace.asking = make(chan struct{})
		go s.queryFreeSpace()
	}
	asking, err := s.freeSpace.asking, s.freeSpace.err
	s.freeSpace.Unlock()
	if asking == nil {
		return err
	}
	select {
	case <-asking:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.failed:
		return s.closedError()
	}
	s.freeSpace.Lock()
	defer s.freeSpace.Unlock()
	return s.freeSpace.err
}

func (s *Store) queryFreeSpace() {
	u, err := s.fs.GetDiskUsage(s.dir)
	s.freeSpace.Lock()
	defer s.freeSpace.Unlock()
	s.freeSpace.err = nil
	if err == nil && u.AvailBytes < uint64(s.minFree) {
		s.freeSpace.err = fmt.Errorf("%w: the disk has %d bytes left, Options.MinFree is %d", store.ErrFull, u.AvailBytes, s.minFree)
	}
	s.freeSpace.checked = time.Now()
	close(s.freeSpace.asking)
	s.freeSpace.asking = nil
}

package durable

import (
	"context"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Cancel cancels a timer. Its result is exact, whatever else happens at the same time:
//
//   - Cancelled: the timer was waiting, for its first or a later attempt, and is removed. No
//     handler will run.
//   - Running: the timer is leased, so a handler runs, or did on a machine that died. The timer is
//     not retried, and its successor is removed. The handler's ctx ends, usually at once, and at
//     the latest when its lease is next extended.
//   - NotFound: there is no such timer, or it is a dead letter.
//
// [ErrUnsure] with NotFound means that the request was sent twice because the connection was cut:
// the first request may have cancelled the timer that the second did not find. ErrUnsure with 0
// means that the engine has not answered.
//
// A Schedule of the key whose ctx has ended with ErrUnsure may still be in flight. Cancel waits
// for that request to end, so that it cannot take effect after Cancel has returned. If ctx ends
// first, nothing was changed, and the error is not ErrUnsure.
func (t *Timers) Cancel(ctx context.Context, key string) (CancelResult, error) {
	ctx, cancel, shard, err := t.beginKey(ctx, key)
	if err != nil {
		return 0, err
	}
	defer cancel()
	return first(t.store.Cancel(ctx, shard, []string{key}))
}

// Reset gives a waiting timer another due time, sooner or later, counted from when the engine
// receives the request; the timer keeps its attempts. Zero or less means at once. If the timer is
// leased, Reset changes nothing and returns MoveRunning.
func (t *Timers) Reset(ctx context.Context, key string, after time.Duration) (MoveResult, error) {
	return t.move(ctx, store.Move{Key: key, After: after})
}

// ResetAt is [Timers.Reset] with a point in time, which is as in [Timer]; the zero time is an
// error.
func (t *Timers) ResetAt(ctx context.Context, key string, at time.Time) (MoveResult, error) {
	ms, err := millisOf(key, at)
	if err != nil {
		return 0, err
	}
	return t.move(ctx, store.Move{Key: key, At: ms})
}

func (t *Timers) move(ctx context.Context, m store.Move) (MoveResult, error) {
	if err := m.Check(); err != nil {
		return 0, err
	}
	ctx, cancel, shard, err := t.beginKey(ctx, m.Key)
	if err != nil {
		return 0, err
	}
	defer cancel()
	results, _, err := t.store.Reschedule(ctx, shard, []store.Move{m})
	return first(results, err)
}

// first returns the result of a call with one item. An error may come with a result.
func first[R any](results []R, err error) (r R, _ error) {
	if len(results) > 0 {
		r = results[0]
	}
	return r, err
}

// Requeue makes dead letters wait again, due at once, with no attempts used. If the key has a
// timer that waits or is leased, Requeue changes nothing and returns RequeueExists. The results are
// in the order of the keys; a key whose shard failed has the result 0, and the error tells why.
func (t *Timers) Requeue(ctx context.Context, keys ...string) ([]RequeueResult, error) {
	all := make([]RequeueResult, len(keys))
	err := t.eachShard(ctx, keys, func(ctx context.Context, shard int, keys []string, indexes []int) error {
		results, _, err := t.store.Requeue(ctx, shard, keys)
		for i, r := range results {
			all[indexes[i]] = r
		}
		return err
	})
	return all, err
}

// Purge removes dead letters, and returns how many of these keys had one; with an error, how many
// are known to be removed.
func (t *Timers) Purge(ctx context.Context, keys ...string) (int, error) {
	var mu sync.Mutex
	sum := 0
	err := t.eachShard(ctx, keys, func(ctx context.Context, shard int, keys []string, _ []int) error {
		n, err := t.store.Purge(ctx, shard, keys)
		mu.Lock()
		sum += n
		mu.Unlock()
		return err
	})
	return sum, err
}

// eachShard calls do with the keys of each shard and their indexes in keys, at most MaxItems at
// once: the shards concurrently, the calls for one shard one after the other. It joins the errors.
func (t *Timers) eachShard(ctx context.Context, keys []string, do func(ctx context.Context, shard int, keys []string, indexes []int) error) error {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	byShard := make(map[int][]int)
	for i, key := range keys {
		if err := CheckKey(key); err != nil {
			return err
		}
		shard := t.shardOf(key)
		byShard[shard] = append(byShard[shard], i)
	}
	var (
		group  sync.WaitGroup
		mu     sync.Mutex
		failed = failures{of: len(keys)} // guarded by mu
	)
	for shard, indexes := range byShard {
		group.Go(func() {
			for len(indexes) > 0 {
				n := min(len(indexes), store.MaxItems)
				part := make([]string, n)
				for i, index := range indexes[:n] {
					part[i] = keys[index]
				}
				err := t.schedules[shard].waitAbandoned(ctx, part...)
				if err == nil {
					err = do(ctx, shard, part, indexes[:n])
				}
				if err != nil {
					mu.Lock()
					failed.add(len(indexes), err) // the rest of the shard is not tried
					mu.Unlock()
					return
				}
				indexes = indexes[n:]
			}
		})
	}
	group.Wait()
	return failed.err()
}

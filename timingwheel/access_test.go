package timingwheel

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests run first: each fails with a message where another test would hang.

// Only the nodes that a packed slab holds are found by their ranks.
func TestRanks(t *testing.T) {
	var r ranks
	var kept []uint32
	for off := uint32(1); off < slabNodes; off += 1 + off%7 {
		kept = append(kept, off)
		r.words[off/64] |= 1 << (off % 64)
	}
	r.count()
	for off := range uint32(slabNodes) {
		at, has := slices.BinarySearch(kept, off)
		require.Equal(t, has, r.has(off), "offset %d", off)
		require.EqualValues(t, at, r.rank(off), "offset %d", off)
	}
}

// Deferred clearing clears each position once, and an empty bucket has no first timer.
func TestDeferredClearing(t *testing.T) {
	l := newLists[int](0)
	id, _ := l.newBucket(bucketWaiting, 0, 1)
	for range 3 {
		for range 3 * chunkSlots {
			i, n, _ := l.timers.alloc()
			l.link(i, n, l.bucket(id), id)
		}
		for off := uint32(1); off <= 3*chunkSlots; off++ {
			n := l.timers.node(off)
			l.deferUnlink(n)
			l.timers.release(off, n)
			require.Less(t, l.unlinkedLen, uint(unlinkBatch))
		}
		l.clearUnlinked()
		require.Zero(t, l.unlinkedLen)
		require.Zero(t, l.bucket(id).count)
		verifyList(t, &l, id, 0, map[uint32]bool{}, map[uint32]bool{})
		require.NotPanics(t, func() {
			i, _ := l.first(l.bucket(id))
			require.Zero(t, i)
		})
	}
}

// Workers skip or drop a freed bucket; an empty queue returns nothing.
func TestReadyQueueRemovesFreedBuckets(t *testing.T) {
	var q readyQueue
	a, b := bucketRef{seq: 1}, bucketRef{seq: 2}
	q.push(a)
	q.push(b)
	first, ok := q.front(new(bool))
	require.True(t, ok)
	require.Equal(t, a, first)
	q.skip(b)
	q.skip(a)
	require.Equal(t, 1, q.refs.Len(), "one was skipped, and it was the first")
	q.drop(b)
	require.Zero(t, q.refs.Len())
	q.closing = true
	_, ok = q.front(new(bool))
	require.False(t, ok, "a bucket from an empty queue")
}

// A timer is in the bucket of its deadline, on each level. From a bucket that expires too
// early, the advancer would remove it and put it back for ever.
func TestPlacedInItsBucket(t *testing.T) {
	for _, size := range []int{2, 256} {
		w, err := newWheel(func(int) {}, Options{Tick: time.Millisecond, WheelSize: size, Shards: 2})
		require.NoError(t, err)
		for k := range 20 {
			_, err := w.Schedule(k, time.Hour<<k/100)
			require.NoError(t, err)
			verify(t, w)
		}
	}
}

// T12: no method keeps a lock, whatever its result; nor does a turn of the advancer or of a
// worker.
func TestNoMethodKeepsALock(t *testing.T) {
	const far = time.Hour
	w, err := newWheel(func(int) {}, withTestDefaults(Options{Shards: 2, MaxPending: 100}))
	require.NoError(t, err)
	w.shared.ready.start = func() {} // the test runs the turns of all goroutines
	free := func(method string) {
		t.Helper()
		for _, s := range w.shards {
			require.True(t, s.mu.TryLock(), "%s keeps the lock of shard %d", method, s.num)
			s.mu.Unlock()
		}
		require.True(t, w.shared.ready.mu.TryLock(), "%s keeps the lock of the ready queue", method)
		w.shared.ready.mu.Unlock()
	}
	take := func(idle *worker) bool {
		t.Helper()
		taken := make(chan bool, 1)
		go func() {
			_, ok := w.workers.take(idle)
			taken <- ok
		}()
		select {
		case ok := <-taken:
			return ok
		case <-time.After(time.Minute):
			t.Fatal("a worker finds neither a due timer nor the end of the wheel")
			return false
		}
	}
	everything := func() {
		h, _ := w.Schedule(1, far)
		free("Schedule")
		_, _ = w.ScheduleAt(2, time.Now().Add(far))
		free("ScheduleAt")
		_, _ = w.Schedule(3, 0)
		free("Schedule of a due timer")
		for range 2 { // pending, and stale
			w.Value(h)
			free("Value")
			w.Deadline(h)
			free("Deadline")
			w.Reset(h, far)
			free("Reset")
			w.Reset(h, 0)
			free("Reset to now")
			w.ResetAt(h, time.Now().Add(far))
			free("ResetAt")
			w.Touch(h, 2*far)
			free("Touch")
			w.Replace(h, 4, far)
			free("Replace")
			w.ReplaceAt(h, 5, time.Now().Add(far))
			free("ReplaceAt")
			w.Len()
			free("Len")
			w.Stats()
			free("Stats")
			for _, s := range w.shards {
				s.count(0, &Level{})
				free("Levels, of a shard's level")
			}
			w.Levels()
			free("Levels")
			w.Stop(h)
			free("Stop")
		}
		w.advancer.prune()
		free("prune")
		w.advancer.cascade()
		free("cascade")
		if w.Len() == 0 {
			return // a worker would wait
		}
		require.True(t, take(&worker{searching: true}))
		free("take")
	}
	everything()
	head, ok := w.shared.queue.Peek()
	require.True(t, ok)
	w.advancer.flush(head.Value)
	free("flush")
	require.Len(t, w.advancer.cascades, 1)
	w.advancer.cascade()
	free("cascade")
	w.runAll()
	free("RunNow")
	w.returnPending()
	free("Return")
	w.closeShards(func(*shard[int]) {})
	free("closeShards")
	everything()
	w.shared.ready.close()
	free("the end")
	require.False(t, take(&worker{}), "T13: a worker takes a value when the wheel has ended")
}

// T2, T13: due timers run, whatever their level; a shutdown ends under each policy, also when
// it ends an Await.
func TestTimersAndShutdownsEnd(t *testing.T) {
	for i := range 2 * len(policies) {
		policy, awaited := policies[i/2], i%2 == 1
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Options{WheelSize: 2, Workers: 1, Shards: 2})
			for i := range 20 {
				f.schedule(i, time.Duration(i)*time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.Len(t, f.fired(), 11, "T2: values 0 to 10 have run by now")
			if awaited {
				_, err := f.Close(Await)
				require.NoError(t, err)
				synctest.Wait()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := f.Shutdown(ctx, policy)
			require.NoError(t, err, "T13: %v does not end", policy)
			if policy != Await {
				require.Equal(t, 10*time.Millisecond, f.since(), "T13: %v waits for deadlines", policy)
			}
		})
	}
}

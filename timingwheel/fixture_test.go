package timingwheel

import (
	"cmp"
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/delayqueue"
)

// fixture is a wheel of ints that records which values ran and when. Tests that move the clock
// make it inside a bubble.
type fixture struct {
	*Wheel[int]
	t       testing.TB
	created time.Time

	mu  sync.Mutex
	ran []firing

	earlierWakeups uint64        // Wakeups before the last stopAdvancer
	advancerDone   chan struct{} // closed when the advancer has ended
	substituted    bool          // there is no advancer
}

// firing is one call of the expiry function, with its time since New.
type firing struct {
	v  int
	at time.Duration
}

// withTestDefaults fills in the options that a test leaves open with values that are easy to
// calculate with and to verify.
func withTestDefaults(o Options) Options {
	o.Tick = cmp.Or(o.Tick, time.Millisecond)
	o.WheelSize = cmp.Or(o.WheelSize, 256)
	return o
}

// start makes a wheel that is verified and discarded when the test ends.
func start(t testing.TB, o Options, do ...func(v int)) *fixture {
	t.Helper()
	o = withTestDefaults(o)
	f := &fixture{t: t, created: time.Now()}
	w, err := newWheel(func(v int) {
		at := time.Since(f.created)
		f.mu.Lock()
		f.ran = append(f.ran, firing{v, at})
		f.mu.Unlock()
		for _, d := range do {
			d(v)
		}
	}, o)
	require.NoError(t, err)
	f.Wheel = w
	f.forceBatching(true)
	f.startAdvancer()
	t.Cleanup(func() {
		f.endSubstitute()
		if failing(t) && f.locked() {
			return // or this would hang, and hide the failure
		}
		_, err := w.Shutdown(context.Background(), Discard)
		require.NoError(t, err)
		require.Zero(t, w.Len())
	})
	return f
}

// failing reports, in a cleanup, whether the test has failed or is panicking, which t.Failed
// does not include yet.
func failing(t testing.TB) bool {
	return t.Failed() || strings.Contains(string(debug.Stack()), "\npanic(")
}

// locked reports whether a panic has left a lock behind.
func (f *fixture) locked() bool {
	mutexes := []*sync.Mutex{&f.shared.ready.mu}
	for _, s := range f.shards {
		mutexes = append(mutexes, &s.mu)
	}
	for _, mu := range mutexes {
		if !mu.TryLock() {
			return true
		}
		mu.Unlock()
	}
	return false
}

// forceBatching makes the wheel defer the unlinking of timers and merge chunks at any size, not
// only with many timers.
func (w *Wheel[V]) forceBatching(on bool) {
	for _, s := range w.shards {
		if s.lists.batchAbove, s.lists.mergeAbove = 1, 0; !on {
			s.lists.batchAbove, s.lists.mergeAbove = batchAbove, mergeAbove
		}
	}
}

func (f *fixture) since() time.Duration { return time.Since(f.created) }

// schedule schedules v, which must succeed.
func (f *fixture) schedule(v int, delay time.Duration) Timer {
	f.t.Helper()
	h, err := f.Schedule(v, delay)
	require.NoError(f.t, err)
	return h
}

// scheduleOn schedules v on one particular shard, instead of Schedule's choice.
func (f *fixture) scheduleOn(shard, v int, delay time.Duration) Timer {
	f.t.Helper()
	s, now := f.shards[shard], f.shared.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.add(v, now, after(now, delay))
	require.NoError(f.t, err)
	return h
}

// due returns when a timer that is scheduled now with delay must run; in virtual time that is
// exact: never early (T1), and late by at most one tick (T2).
func (f *fixture) due(delay time.Duration) time.Duration {
	now, tick := f.since(), f.options.Tick
	if delay <= 0 {
		return now
	}
	d := now + delay
	if over := d % tick; over > 0 {
		d += tick - over
	}
	return d
}

// waitIdle waits until the wheel has nothing more to do now, and verifies it.
func (f *fixture) waitIdle() {
	f.t.Helper()
	synctest.Wait()
	verify(f.t, f.Wheel)
}

func (f *fixture) advance(d time.Duration) {
	f.t.Helper()
	time.Sleep(d)
	f.waitIdle()
}

// advanceStopped is advance while the advancer is stopped. It does not verify the wheel, because
// buckets may be due.
func (f *fixture) advanceStopped(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fired returns the firings since the last call.
func (f *fixture) fired() []firing {
	f.mu.Lock()
	defer f.mu.Unlock()
	ran := f.ran
	f.ran = nil
	return ran
}

// values is fired without the times.
func (f *fixture) values() []int {
	vs := []int{}
	for _, r := range f.fired() {
		vs = append(vs, r.v)
	}
	return vs
}

// stopAdvancer ends the advancer: time passes without it, as in a stall or suspend, or the test
// runs its turns itself. startAdvancer starts another.
func (f *fixture) stopAdvancer() {
	f.t.Helper()
	// Stands for the advancer, so that a shutdown still waits for it.
	f.workers.group.Add(1)
	f.substituted = true
	buckets := f.shared.queue.Close()
	<-f.advancerDone
	f.earlierWakeups += f.shared.queue.Stats().Wakeups
	f.shared.queue = delayqueue.New[bucketRef]()
	for _, e := range buckets {
		r := e.Value
		s := f.shards[r.shard]
		s.mu.Lock()
		if b := s.lists.find(r.bucket, r.seq); b != nil { // not pruned just then
			s.enqueue(r.bucket, b)
		}
		s.mu.Unlock()
	}
}

func (f *fixture) startAdvancer() {
	done := make(chan struct{})
	f.advancerDone = done
	f.workers.group.Go(func() {
		f.advancer.run()
		close(done)
	})
	f.endSubstitute()
}

// endSubstitute ends the substitute for a stopped advancer.
func (f *fixture) endSubstitute() {
	if f.substituted {
		f.substituted = false
		f.workers.group.Done()
	}
}

// flush runs the advancer's turn for one bucket, to the end of its cascade.
func (f *fixture) flush(s *shard[int], id uint32) (empty bool) {
	empty = f.advancer.flush(f.refTo(s, id))
	for f.advancer.cascade() {
		continue
	}
	return empty
}

// refTo names a bucket as the queue does.
func (f *fixture) refTo(s *shard[int], id uint32) bucketRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ref(id)
}

// verifyStopped is verify outside a bubble, where only the advancer may still be active: when
// nothing is due.
func (f *fixture) verifyStopped() {
	f.t.Helper()
	f.stopAdvancer()
	verify(f.t, f.Wheel)
	f.startAdvancer()
}

// bucketOf returns the bucket of a pending timer.
func (f *fixture) bucketOf(h Timer) uint32 {
	s := f.shards[h.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bucketOf(h)
}

func (s *shard[V]) bucketOf(h Timer) uint32 {
	return s.lists.chunks.node(s.lists.timers.node(h.index()).pos.chunk()).pos.bucket()
}

// unlinked returns how many timers of a shard clearUnlinked will handle.
func (f *fixture) unlinked(num int) int {
	s := f.shards[num]
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.lists.unlinkedLen)
}

// head removes and returns the first bucket in the queue, due or not.
func (f *fixture) head() (*shard[int], uint32) {
	f.t.Helper()
	head, ok := f.shared.queue.Peek()
	require.True(f.t, ok)
	_, ok = f.shared.queue.Remove(head.Handle)
	require.True(f.t, ok)
	return f.shards[head.Value.shard], head.Value.bucket
}

// gate blocks the workers that run negative values until it is closed; each value sent releases
// one of them.
type gate chan struct{}

func (g gate) wait(v int) {
	if v < 0 {
		<-g
	}
}

// blockWorkers blocks n workers of a wheel whose expiry function waits at a gate.
func (f *fixture) blockWorkers(n int) {
	f.t.Helper()
	for range n {
		f.schedule(-1, 0)
	}
	synctest.Wait()
	require.Len(f.t, f.fired(), n)
}

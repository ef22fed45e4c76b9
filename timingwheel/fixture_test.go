package timingwheel

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/delayqueue"
)

// fixture is a wheel of ints that writes down what ran and when. A test that
// moves the clock makes it inside a bubble.
type fixture struct {
	*Wheel[int]
	t    testing.TB
	born time.Time

	mu  sync.Mutex
	ran []firing

	woken uint64 // Wakeups before hold
}

// firing is one call of the expiry function, at this time after New.
type firing struct {
	v  int
	at time.Duration
}

// plain gives options that a test leaves open values that are easy to reckon
// with, and to verify.
func plain(o Options) Options {
	o.Tick = cmp.Or(o.Tick, time.Millisecond)
	o.WheelSize = cmp.Or(o.WheelSize, 256)
	return o
}

// start makes a wheel, which is verified and discarded when the test ends.
func start(t testing.TB, o Options, do ...func(v int)) *fixture {
	t.Helper()
	o = plain(o)
	f := &fixture{t: t, born: time.Now()}
	w, err := New(func(v int) {
		at := time.Since(f.born)
		f.mu.Lock()
		f.ran = append(f.ran, firing{v, at})
		f.mu.Unlock()
		for _, d := range do {
			d(v)
		}
	}, o)
	require.NoError(t, err)
	f.Wheel = w
	t.Cleanup(func() {
		_, err := w.Shutdown(context.Background(), Discard)
		require.NoError(t, err)
		require.Zero(t, w.Len())
	})
	return f
}

// bubble runs a test on a virtual clock.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

func (f *fixture) since() time.Duration { return time.Since(f.born) }

// in schedules v, which must succeed.
func (f *fixture) in(v int, delay time.Duration) Timer {
	f.t.Helper()
	h, err := f.Schedule(v, delay)
	require.NoError(f.t, err)
	return h
}

// on schedules v on one shard, which Schedule would choose for itself.
func (f *fixture) on(num, v int, delay time.Duration) Timer {
	f.t.Helper()
	require.True(f.t, f.reserve())
	s, now := f.shards[num], f.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.addLocked(s, v, now, after(now, max(delay, 0)))
}

// addLocked is what Schedule does once it has chosen and locked a shard.
func (f *fixture) addLocked(s *shard[int], v int, now, deadline nanos) Timer {
	i, n := s.slabs.alloc()
	n.value = v
	s.counts.pending++
	s.counts.scheduled++
	h := makeTimer(s.num, n.gen, i)
	f.aimLocked(s, i, n, now, deadline)
	return h
}

// due is when a timer that is scheduled now with delay must run: in virtual
// time exactly then (T1, T2).
func (f *fixture) due(delay time.Duration) time.Duration {
	now, tick := f.since(), f.options.Tick
	if delay <= 0 {
		return now
	}
	d := now + delay
	if rest := d % tick; rest > 0 {
		d += tick - rest
	}
	return d
}

// rest lets everything that can happen now happen, and verifies the wheel.
func (f *fixture) rest() {
	f.t.Helper()
	synctest.Wait()
	verify(f.t, f.Wheel)
}

// pass lets time pass.
func (f *fixture) pass(d time.Duration) {
	f.t.Helper()
	time.Sleep(d)
	f.rest()
}

// fired is what has run since the last call.
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

// hold ends the advancer: time passes without it, as in a stall or suspend,
// or the test takes its turns by hand. letGo starts another.
func (f *fixture) hold() {
	f.t.Helper()
	left := f.queue.Close()
	require.NoError(f.t, f.workers.await(context.Background(), func() bool {
		f.workers.mu.Lock()
		defer f.workers.mu.Unlock()
		return !f.workers.members.advancer
	}))
	f.woken += f.queue.Stats().Wakeups
	f.queue = delayqueue.New[queued]()
	for _, e := range left {
		q := e.Value
		s := f.shards[q.shard]
		s.mu.Lock()
		if s.buckets.table[q.bucket].state == bucketWaiting { // not pruned just then
			f.enqueue(s, q.bucket)
		}
		s.mu.Unlock()
	}
}

func (f *fixture) letGo() {
	f.workers.mu.Lock()
	f.workers.members.advancer = true
	f.workers.mu.Unlock()
	go (&advancer[int]{wheel: f.Wheel}).run()
}

// flush takes the advancer's turn for one bucket, to the end of its cascade.
func (f *fixture) flush(s *shard[int], id uint32) (empty bool) {
	a := &advancer[int]{wheel: f.Wheel}
	empty = a.flush(queued{s.num, id})
	for a.cascade() {
		continue
	}
	return empty
}

// verifyHeld is verify outside of a bubble, where only the advancer may still
// be about: when nothing is due.
func (f *fixture) verifyHeld() {
	f.t.Helper()
	f.hold()
	verify(f.t, f.Wheel)
	f.letGo()
}

// bucketOf is the bucket that a pending timer is in.
func (f *fixture) bucketOf(h Timer) uint32 {
	s := f.shards[h.shard()]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bucketOf(h)
}

func (s *shard[V]) bucketOf(h Timer) uint32 {
	return s.rows.node(s.slabs.node(h.index()).place >> slotBits).place
}

// head is the first bucket in the queue, due or not, taken out of it.
func (f *fixture) head() (*shard[int], uint32) {
	f.t.Helper()
	head, ok := f.queue.Peek()
	require.True(f.t, ok)
	q := head.Value
	s := f.shards[q.shard]
	_, ok = f.queue.Remove(s.buckets.table[q.bucket].queued)
	require.True(f.t, ok)
	return s, q.bucket
}

// gate blocks the workers that run negative values until it is closed, or one
// of them for each value sent.
type gate chan struct{}

func (g gate) wait(v int) {
	if v < 0 {
		<-g
	}
}

// occupy blocks n workers of a wheel whose expiry function waits at a gate.
func (f *fixture) occupy(n int) {
	f.t.Helper()
	for range n {
		f.in(-1, 0)
	}
	synctest.Wait()
	require.Len(f.t, f.fired(), n)
}

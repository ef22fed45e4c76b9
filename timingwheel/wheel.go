package timingwheel

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/internal/limit"
)

// Wheel holds values until they expire, and then passes each to the wheel's expiry function.
// Make one with [New]: the zero Wheel is not usable, and its methods panic. A wheel runs
// goroutines until [Wheel.Shutdown] or [Wheel.Close]; without either, its goroutines and memory
// are never released.
//
// All methods are safe for use from any goroutine. All but Shutdown may be called from the
// expiry function, and only Shutdown blocks.
type Wheel[V any] struct {
	shared   shared
	options  Options
	shards   []*shard[V]
	affinity *shardAffinity // shared by all wheels, except in tests
	workers  workers[V]
	advancer advancer[V]

	finish sync.Once     // starts the goroutine that ends the others
	done   chan struct{} // closed when that goroutine ends
}

// New makes a wheel that calls expire, on one of its workers, with the value of each expired
// timer. An idle wheel costs one goroutine and, including its stack, 10 KiB with two processors
// or 39 KiB with sixteen; on Linux it has a descriptor as well, but all wheels together at most
// 64. A nil expire or an option out of range is an error that names it.
func New[V any](expire func(V), o Options) (*Wheel[V], error) {
	w, err := newWheel(expire, o)
	if err != nil {
		return nil, err
	}
	w.workers.launch(w.advancer.run)
	return w, nil
}

// newWheel makes a wheel without starting its advancer.
func newWheel[V any](expire func(V), o Options) (*Wheel[V], error) {
	if expire == nil {
		return nil, errors.New("timingwheel: the expiry function is nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Wheel[V]{
		shared: shared{
			timescale: timescale{base: time.Now(), tick: nanos(o.Tick)},
			queue:     delayqueue.New[bucketRef](),
			drained:   make(chan struct{}, 1),
			limit:     limit.Limit{Max: int64(o.MaxPending)},
		},
		options:  o,
		shards:   make([]*shard[V], o.Shards),
		affinity: &affinity,
		done:     make(chan struct{}),
	}
	for i := range w.shards {
		w.shards[i] = newShard[V](i, uint(bits.TrailingZeros(uint(o.WheelSize))), &w.shared)
	}
	ready := &w.shared.ready
	ready.wake.L = &ready.mu
	ready.limit = o.Workers
	ready.start = func() { w.workers.start(true) }
	w.workers.expire, w.workers.onPanic, w.workers.name = expire, o.OnPanic, o.Name
	w.workers.shards, w.workers.ready = w.shards, ready
	w.advancer.shards, w.advancer.shared = w.shards, &w.shared
	return w, nil
}

// Schedule holds v for delay and then passes it to the expiry function: never earlier than
// delay from now by the monotonic clock, and at most one tick later, plus the time to wake a
// goroutine and to find a free worker. Zero or a negative delay is due at once; the function
// still runs on a worker. A deadline beyond the end of time, 292 years after New, is reduced to
// that.
//
// Schedule takes constant time, and allocates nothing once the wheel has grown to its load. It
// returns ErrClosed once a shutdown has begun and ErrFull beyond [Options.MaxPending].
func (w *Wheel[V]) Schedule(v V, delay time.Duration) (Timer, error) {
	now := w.shared.now()
	s := w.lockOne()
	t, err := s.add(v, now, after(now, delay))
	s.mu.Unlock() // not deferred, here and in Stop: that costs 2 ns of 70
	return t, err
}

// ScheduleAt is Schedule for a point in time. A deadline with a monotonic reading, such as
// time.Now().Add returns, is exact by that clock; one without is converted to a delay once,
// here, by the wall clock. A deadline in the past is due at once.
func (w *Wheel[V]) ScheduleAt(v V, deadline time.Time) (Timer, error) {
	at, now := w.shared.until(deadline), w.shared.now()
	s := w.lockOne()
	defer s.mu.Unlock()
	return s.add(v, now, at)
}

// Stop removes a timer from the wheel and reports whether the expiry function will never be
// called for it. That includes a timer that is due and waits for a worker. Stop returns false
// for a stale handle and for a timer that a worker has taken, whether or not the function has
// returned. It takes constant time and does not wait for a running function.
func (w *Wheel[V]) Stop(t Timer) bool {
	_, ok := w.Remove(t)
	return ok
}

// Remove is [Wheel.Stop] that also returns the value, or the zero value with false.
func (w *Wheel[V]) Remove(t Timer) (v V, ok bool) {
	if uint(t.shard()) >= uint(len(w.shards)) {
		w.mustBeMade()
		return v, false
	}
	s := w.shards[t.shard()]
	s.mu.Lock()
	n := s.lists.timers.findUnpacked(t.index())
	if n == nil || n.gen != t.gen() || !n.inUse() {
		v, ok = s.remove(t) // its slab is packed, or it is stale
		s.mu.Unlock()
		return v, ok
	}
	v = n.value
	s.counts.stopped++
	if s.canDefer(n) && s.lists.unlinkedLen < unlinkBatch-1 {
		// The same as s.end, without a call: see deferEnd.
		s.lists.deferEnd(t.index(), n)
		s.counts.pending-- // not the last: see batchAbove
		w.shared.limit.Release(1)
	} else {
		s.end(t.index(), n)
	}
	s.mu.Unlock()
	return v, true
}

// Reset gives a pending timer a new delay, counted from now, and reports whether it was
// pending. The handle stays valid. Zero or a negative delay is due at once. Reset takes
// constant time and is cheapest when it extends the deadline.
//
// Reset returns false and arms nothing if a worker has taken the timer, or if it was stopped or
// returned. During a shutdown with RunNow it returns true for a pending timer, which still runs
// at once.
func (w *Wheel[V]) Reset(t Timer, delay time.Duration) bool {
	now := w.shared.now()
	return w.reset(t, now, after(now, delay))
}

// ResetAt is [Wheel.Reset] for a point in time; see [Wheel.ScheduleAt].
func (w *Wheel[V]) ResetAt(t Timer, deadline time.Time) bool {
	at := w.shared.until(deadline)
	return w.reset(t, w.shared.now(), at)
}

func (w *Wheel[V]) reset(t Timer, now, deadline nanos) bool {
	s, n := w.lock(t)
	if n == nil {
		return false
	}
	defer s.mu.Unlock()
	s.reset(t.index(), n, now, deadline)
	return true
}

// Touch is [Wheel.Reset], except that it never shortens the deadline: with an earlier deadline,
// or a delay of zero or less, the present one stays. It reports whether the timer was pending.
// Use it for keep-alives: a timer that is extended repeatedly is moved only when its old
// deadline arrives.
func (w *Wheel[V]) Touch(t Timer, delay time.Duration) bool {
	now := w.shared.now()
	deadline := after(now, delay)
	s, n := w.lock(t)
	if n == nil {
		return false
	}
	defer s.mu.Unlock()
	if delay > 0 && w.shared.ceil(deadline) > n.deadline {
		s.reset(t.index(), n, now, deadline)
	}
	return true
}

// Replace gives a pending timer another value and a new delay in one step, and reports whether
// it was pending. See [Wheel.Reset].
func (w *Wheel[V]) Replace(t Timer, v V, delay time.Duration) bool {
	now := w.shared.now()
	return w.replace(t, v, now, after(now, delay))
}

// ReplaceAt is [Wheel.Replace] for a point in time; see [Wheel.ScheduleAt].
func (w *Wheel[V]) ReplaceAt(t Timer, v V, deadline time.Time) bool {
	at := w.shared.until(deadline)
	return w.replace(t, v, w.shared.now(), at)
}

func (w *Wheel[V]) replace(t Timer, v V, now, deadline nanos) bool {
	s, n := w.lock(t)
	if n == nil {
		return false
	}
	defer s.mu.Unlock()
	n.value = v
	s.reset(t.index(), n, now, deadline)
	return true
}

// Value returns a pending timer's value, and whether the timer is pending.
func (w *Wheel[V]) Value(t Timer) (v V, ok bool) {
	s, n := w.lock(t)
	if n == nil {
		return v, false
	}
	defer s.mu.Unlock()
	return n.value, true
}

// Deadline returns the time from which a pending timer may run, rounded up to the tick, and
// reports whether the timer is pending. The time has a monotonic reading unless it is at the
// end of time, 292 years from now. If the timer was due when it was scheduled, the time is the
// start of the tick in which it was scheduled.
func (w *Wheel[V]) Deadline(t Timer) (deadline time.Time, ok bool) {
	s, n := w.lock(t)
	if n == nil {
		return time.Time{}, false
	}
	defer s.mu.Unlock()
	return w.shared.instant(n.deadline), true
}

// Len returns the number of timers held: scheduled, and neither taken by a worker nor stopped.
// The number is exact for one moment: Len locks all shards at once while it adds them up.
func (w *Wheel[V]) Len() int {
	w.lockAll()
	defer w.unlockAll()
	n := 0
	for _, s := range w.shards {
		n += s.counts.pending
	}
	return n
}

// lockAll locks every shard, in order of their numbers. No other function holds two of these
// locks. Locking one shard at a time could count a value twice when it moves between shards.
func (w *Wheel[V]) lockAll() {
	w.mustBeMade()
	for _, s := range w.shards {
		s.mu.Lock()
	}
}

func (w *Wheel[V]) unlockAll() {
	for _, s := range w.shards {
		s.mu.Unlock()
	}
}

// lock finds the timer that t names and locks its shard. If t is stale, it returns a nil node
// and locks nothing.
func (w *Wheel[V]) lock(t Timer) (*shard[V], *node[V]) {
	i := t.shard()
	if int(i) >= len(w.shards) {
		w.mustBeMade()
		return nil, nil
	}
	s := w.shards[i]
	s.mu.Lock()
	n := s.find(t)
	if n == nil {
		s.mu.Unlock()
		return nil, nil
	}
	return s, n
}

func (w *Wheel[V]) mustBeMade() {
	if len(w.shards) == 0 {
		panic("timingwheel: the zero Wheel is not usable, make one with New")
	}
}

// lockOne chooses a shard for a new timer and locks it.
func (w *Wheel[V]) lockOne() *shard[V] {
	w.mustBeMade()
	mask := uint32(len(w.shards) - 1)
	e, index := w.affinity.entry()
	s := w.shards[(index+e.Load())&mask]
	if s.mu.TryLock() {
		return s
	}
	at := rand.Uint32()
	for range min(len(w.shards), 4) {
		at++
		s = w.shards[at&mask]
		if s.mu.TryLock() {
			e.Store(at - index)
			return s
		}
	}
	s.mu.Lock()
	return s
}

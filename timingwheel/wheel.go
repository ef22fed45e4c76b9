package timingwheel

import (
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
)

// Wheel holds values until their time is up, and passes each to the wheel's
// expiry function then. Make one with [New]: the zero Wheel is not usable, and its
// methods panic. A wheel runs goroutines until [Wheel.Shutdown] or [Wheel.Close]; one that
// is forgotten without either keeps them, and its memory, for good.
//
// All methods are safe for use from any goroutine. All but Shutdown may be
// called from the expiry function, and none blocks but Shutdown.
type Wheel[V any] struct {
	shared   shared
	options  Options
	shards   []*shard[V]
	affinity shardAffinity
	workers  workers[V]
	advancer advancer[V]

	finish sync.Once     // starts the goroutine that ends the others
	done   chan struct{} // closed when that one ends
}

// New makes a wheel that calls expire, on one of its workers, with the value of each
// timer whose time is up. It costs one goroutine while idle, and with that one's
// stack 9 KiB if there are two processors, 39 if sixteen. A nil expire or an option
// out of range is an error that names it.
func New[V any](expire func(V), o Options) (*Wheel[V], error) {
	w, err := newWheel(expire, o)
	if err != nil {
		return nil, err
	}
	w.workers.launch(w.advancer.run)
	return w, nil
}

// newWheel makes a wheel whose advancer does not run yet.
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
			limit:     pendingLimit{max: int64(o.MaxPending)},
		},
		options: o,
		shards:  make([]*shard[V], o.Shards),
		done:    make(chan struct{}),
	}
	for i := range w.shards {
		w.shards[i] = newShard[V](i, uint(bits.TrailingZeros(uint(o.WheelSize))), &w.shared)
	}
	for i := range w.affinity {
		w.affinity[i].Store(uint32(i))
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

// Schedule holds v for delay and then passes it to the expiry function: never
// earlier than delay from now by the monotonic clock, and at most one tick
// later, plus what the machine takes to wake a goroutine and to find a free
// worker. Zero or a negative delay is due at once; the function still runs on a
// worker. A delay past the end of time, 292 years after New, is held until then.
//
// It allocates nothing once the wheel has grown to its load, and takes constant
// time. The errors are ErrClosed once a shutdown has begun and ErrFull beyond
// [Options.MaxPending].
func (w *Wheel[V]) Schedule(v V, delay time.Duration) (Timer, error) {
	now := w.shared.now()
	s := w.lockOne()
	t, err := s.add(v, now, after(now, delay))
	s.mu.Unlock() // not deferred, here and in Stop: that costs 2 ns of 70
	return t, err
}

// ScheduleAt is Schedule for a point in time. A deadline with a monotonic
// reading, as time.Now().Add gives, is exact by that clock; one without is
// turned into a delay here, once, by the wall clock. What is past is due at
// once.
func (w *Wheel[V]) ScheduleAt(v V, deadline time.Time) (Timer, error) {
	at, now := w.shared.until(deadline), w.shared.now()
	s := w.lockOne()
	defer s.mu.Unlock()
	return s.add(v, now, at)
}

// Stop takes a timer out of the wheel and reports whether the expiry function
// will never be called for it. That is so also for a timer that is due and
// waits for a worker. It returns false for one that a worker has taken, whether
// or not the function has returned, and for a stale handle. Constant time; it
// does not wait for a running function.
func (w *Wheel[V]) Stop(t Timer) bool {
	_, ok := w.Remove(t)
	return ok
}

// Remove is [Wheel.Stop] that returns the value too; the zero value beside
// false.
func (w *Wheel[V]) Remove(t Timer) (v V, ok bool) {
	if uint(t.shard()) >= uint(len(w.shards)) {
		w.mustBeMade()
		return v, false
	}
	s := w.shards[t.shard()]
	s.mu.Lock()
	n := s.lists.timers.inPlace(t.index())
	if n == nil || n.gen != t.gen() || n.place == 0 {
		v, ok = s.remove(t) // its slab is packed, or it is stale
		s.mu.Unlock()
		return v, ok
	}
	v = n.value
	s.counts.stopped++
	if s.later(n) && s.lists.unlinkedLen < unlinkBatch-1 {
		// What s.end would do, without a call: see endLater.
		s.lists.endLater(t.index(), n)
		s.counts.pending-- // not the last: see batchAbove
		w.shared.limit.release(1)
	} else {
		s.end(t.index(), n)
	}
	s.mu.Unlock()
	return v, true
}

// Reset gives a timer that is still pending a new delay, counted from now, and
// reports whether it was pending. The handle stays good. Zero or a negative
// delay is due at once. Constant time; the cheapest case is a deadline that is
// pushed out.
//
// On a timer that a worker has taken, that was stopped or handed back, it
// returns false and arms nothing. During a shutdown with RunNow it returns true
// for a pending timer, which runs at once all the same.
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
	s.move(t.index(), n, now, deadline)
	return true
}

// Touch is [Wheel.Reset], but never to a deadline that is sooner than the
// present one: that stays as it is then, as it does with a delay of zero or less. It reports whether the timer was
// pending. For keep-alives: what is pushed out again and again is moved only
// when its old deadline comes up.
func (w *Wheel[V]) Touch(t Timer, delay time.Duration) bool {
	now := w.shared.now()
	deadline := after(now, delay)
	s, n := w.lock(t)
	if n == nil {
		return false
	}
	defer s.mu.Unlock()
	if delay > 0 && w.shared.ceil(deadline) > n.deadline {
		s.move(t.index(), n, now, deadline)
	}
	return true
}

// Replace gives a timer that is still pending another value and a new delay,
// as one step, and reports whether it was pending. See [Wheel.Reset].
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
	s.move(t.index(), n, now, deadline)
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

// Deadline returns the time from which a pending timer may run, rounded up to
// the tick, with a monotonic reading unless that is at the end of time, 292 years from
// now; and whether the timer is pending. Of a timer that was due when it was scheduled, that is the tick in which it was.
func (w *Wheel[V]) Deadline(t Timer) (deadline time.Time, ok bool) {
	s, n := w.lock(t)
	if n == nil {
		return time.Time{}, false
	}
	defer s.mu.Unlock()
	return w.shared.instant(n.deadline), true
}

// Len is the number of timers held: scheduled, and neither taken by a worker
// nor stopped. It is that of one moment, exactly: all shards are locked for it
// at once, for as long as it takes to add them up.
func (w *Wheel[V]) Len() int {
	w.lockAll()
	defer w.unlockAll()
	n := 0
	for _, s := range w.shards {
		n += s.counts.pending
	}
	return n
}

// lockAll locks every shard, in order of their numbers. Nobody else holds two.
// Looking at one after the other would count a value twice that is taken out of
// a shard seen already and put into one to come.
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

// lock finds the timer that t names and locks its shard. A nil node: t is
// stale, and nothing is locked.
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
	place := w.affinity.place()
	at := place.Load()
	s := w.shards[at&mask]
	if s.mu.TryLock() {
		return s
	}
	for range min(len(w.shards), 4) {
		at++
		s = w.shards[at&mask]
		if s.mu.TryLock() {
			place.Store(at)
			return s
		}
	}
	s.mu.Lock()
	return s
}

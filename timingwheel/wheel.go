package timingwheel

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/delayqueue"
)

// Wheel holds values until their time is up, and passes each to the wheel's
// expiry function then. Make one with [New]; it runs goroutines until it is
// shut down. All methods are safe for use from any goroutine, the expiry
// function included.
type Wheel[V any] struct {
	expire  func(V)
	options Options
	base    time.Time // what nanos and ticks count from
	tick    nanos

	shards  []*shard[V]
	homes   homes
	queue   *delayqueue.Queue[queued]
	workers workers[V]

	seeThrough sync.Once // a shutdown whose caller did not wait for its end

	held    atomic.Int64  // timers, counted only under MaxPending; any goroutine writes
	emptied atomic.Uint64 // buckets that were slept for and found empty; the advancer writes
}

// New makes a wheel that calls expire, on one of its workers, with the value
// of each timer whose time is up. It costs one goroutine while idle. A nil
// expire or an option out of range is an error that names it.
func New[V any](expire func(V), o Options) (*Wheel[V], error) {
	if expire == nil {
		return nil, errors.New("timingwheel: the expiry function is nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Wheel[V]{
		expire:  expire,
		options: o,
		base:    time.Now(),
		tick:    nanos(o.Tick),
		shards:  make([]*shard[V], o.Shards),
		queue:   delayqueue.New[queued](),
	}
	for i := range w.shards {
		w.shards[i] = &shard[V]{num: uint32(i), bits: uint(bits.TrailingZeros(uint(o.WheelSize))), wheel: w}
	}
	for i := range w.homes {
		w.homes[i].Store(uint32(i))
	}
	w.workers.wheel = w
	w.workers.max = o.Workers
	w.workers.wake.L = &w.workers.mu
	w.workers.members.advancer = true
	go (&advancer[V]{wheel: w}).run()
	return w, nil
}

// Schedule holds v for delay and then passes it to the expiry function: never
// earlier than delay from now by the monotonic clock (T1), and at most one
// tick later, plus what the machine takes to wake a goroutine and to find a
// free worker (T2). Zero or a negative delay is due at once; the function
// still runs on a worker. A delay past the end of time, 292 years after New,
// is held until then.
//
// It does not block, but for a short lock, allocates nothing once the wheel
// has grown to its load, and takes constant time. The errors are ErrClosed
// once a shutdown has begun and ErrFull beyond [Options.MaxPending].
func (w *Wheel[V]) Schedule(v V, delay time.Duration) (Timer, error) {
	now := w.now()
	return w.schedule(v, now, after(now, max(delay, 0)))
}

// ScheduleAt is Schedule for a point in time. A deadline with a monotonic
// reading, as time.Now().Add gives, is exact by that clock; one without is
// turned into a delay here, once, by the wall clock. What is past is due at
// once.
func (w *Wheel[V]) ScheduleAt(v V, deadline time.Time) (Timer, error) {
	now := w.now()
	return w.schedule(v, now, w.until(now, deadline))
}

// until is a point in time as the wheel counts it, now at the earliest.
func (w *Wheel[V]) until(now nanos, deadline time.Time) nanos {
	at := nanos(deadline.Sub(w.base))
	if deadline == deadline.Round(0) { //nolint:staticcheck // not Equal: stripped of its monotonic reading it is the same, so there is none
		// The wall clock may have been set since base was read, so what
		// deadline.Sub(w.base) says is not the time that is left.
		t := time.Now()
		at = after(nanos(t.Sub(w.base)), deadline.Sub(t))
	}
	return max(now, at)
}

func (w *Wheel[V]) schedule(v V, now, deadline nanos) (Timer, error) {
	s := w.pick()
	if s.closed {
		s.mu.Unlock()
		return Timer{}, ErrClosed
	}
	if !w.reserve() {
		s.mu.Unlock()
		return Timer{}, ErrFull
	}
	i, n := s.slabs.alloc()
	n.value = v
	s.counts.pending++
	s.counts.scheduled++
	t := makeTimer(s.num, n.gen, i)
	w.aimLocked(s, i, n, now, deadline)
	s.mu.Unlock() // not deferred, nor in takeOut: that costs 2 ns of 70
	return t, nil
}

// aimLocked sets an unlinked node's deadline and puts it where it belongs.
func (w *Wheel[V]) aimLocked(s *shard[V], i uint32, n *node[V], now, deadline nanos) {
	if deadline <= now {
		n.deadline = w.floor(now)
		s.addReadyLocked(i, n)
		return
	}
	if present := w.floor(now); present-s.clock >= 1<<s.bits {
		s.catchUpLocked(present)
	}
	n.deadline = w.ceil(deadline)
	if n.deadline <= s.clock {
		s.addReadyLocked(i, n)
		return
	}
	s.placeLocked(i, n)
}

// Stop takes a timer out of the wheel and says true if and only if the expiry
// function will never be called for it (T4). That holds also for a timer that
// is due and waits for a worker. It says false for one that has been taken by
// a worker, whether or not the function has returned, and for a stale handle.
// Constant time; it does not wait for a running function.
func (w *Wheel[V]) Stop(t Timer) bool {
	_, ok := w.takeOut(t)
	return ok
}

// takeOut is Stop that gives the value back.
func (w *Wheel[V]) takeOut(t Timer) (v V, ok bool) {
	s, n := w.lock(t)
	if n == nil {
		return v, false
	}
	v = n.value
	s.counts.stopped++
	s.endLocked(t.index(), n)
	s.mu.Unlock()
	return v, true
}

// Reset gives a timer that is still pending a new delay, counted from now, and
// says true. The handle stays good. Under a Shutdown with RunNow it says true
// too, and the timer runs at once all the same. On a timer that has been taken by a
// worker, was stopped, or was handed back, it says false and does nothing
// (T5). Constant time; the cheapest case is a deadline that is pushed out.
func (w *Wheel[V]) Reset(t Timer, delay time.Duration) bool {
	now := w.now()
	s, n := w.lock(t)
	if n == nil {
		return false
	}
	defer s.mu.Unlock()
	w.moveLocked(s, t.index(), n, now, after(now, max(delay, 0)))
	return true
}

// moveLocked gives a pending timer a new deadline.
func (w *Wheel[V]) moveLocked(s *shard[V], i uint32, n *node[V], now, deadline nanos) {
	if s.urgent {
		return
	}
	// Pushed out, it is left where it is: its bucket will be flushed in time, and
	// the timer moved on from there. So a deadline that is pushed out a thousand
	// times costs one move, not a thousand.
	d := w.ceil(deadline)
	if old := n.deadline; d >= old && old-s.clock >= 2<<s.bits && old > s.latest {
		// It does not even take a look at the bucket, which is two cache misses.
		// With a deadline so far out the bucket is of a higher level, where each
		// timer is looked at; or of the lowest, and has moved set for an earlier
		// push. It is not ready: of those only latest could be that late.
		n.deadline = d
		return
	}
	if b := s.bucketLocked(n); deadline > now && b.state == bucketWaiting && d >= b.expiration {
		if d != n.deadline {
			n.deadline = d
			b.moved = true
		}
		return
	}
	if s.unlinkLocked(n).state == bucketReady {
		s.counts.ready--
	}
	w.aimLocked(s, i, n, now, deadline)
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
		return nil, nil
	}
	s := w.shards[i]
	s.mu.Lock()
	n := s.findLocked(t)
	if n == nil {
		s.mu.Unlock()
		return nil, nil
	}
	return s, n
}

// reserve counts a timer in, unless MaxPending are held.
func (w *Wheel[V]) reserve() bool {
	bound := int64(w.options.MaxPending)
	if bound == 0 {
		return true
	}
	// Not Add, and back if it was too much: a second caller would be refused
	// for the sake of one that is on its way out.
	for {
		n := w.held.Load()
		if n >= bound {
			return false
		}
		if w.held.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (w *Wheel[V]) unreserve() {
	if w.options.MaxPending > 0 {
		w.held.Add(-1)
	}
}

// instant is the start of d as time.Time, for the delay queue.
func (w *Wheel[V]) instant(d tick) time.Time {
	return w.base.Add(time.Duration(w.start(d)))
}

package timingwheel

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// workers is the bounded pool that runs the expiry function, and the ready
// list that feeds it.
//
// A worker takes one timer at a time. A batch would be cheaper, but the timers
// behind a slow one would wait for it while other workers are free (T10), and
// Stop could not reach them (T4).
//
// Waking is by relay: at most one worker is on its way (searching) at any
// moment. When it finds a timer and sees more, it wakes the next before it
// runs its own. So a trickle wakes one worker, a burst wakes all of them, and
// the advancer pays for one wake-up at most.
//
// Invariant: while the ready list is not empty and a worker is idle or can
// still be started, a worker is searching.
type workers[V any] struct {
	wheel  *Wheel[V]
	max    int           // goroutines, at most
	panics atomic.Uint64 // written by any worker

	mu   sync.Mutex
	wake sync.Cond // signalled for an idle worker; L is &mu

	// All below is guarded by mu.

	ready     runs
	idle      int // workers in wake.Wait; one that was signalled counts until it is back
	searching int // workers on their way: 0 or 1
	called    int // of these, signalled and not back yet
	closing   bool
	members   members
}

// worker is one goroutine of the pool. Only that goroutine uses it.
type worker struct {
	searching bool // counted in workers.searching
	running   bool // in the expiry function
	current   run  // the front of the ready list, when last asked; zero: ask again
	taken     int  // timers since it last let others run
}

// yieldEvery bounds how long a worker keeps its processor from goroutines
// that want it, in timers run back to back (T15).
const yieldEvery = 256

// appendReady adds one due timer. It joins the last run if that is one of its
// own shard's, and so stands behind all that came due before. s.mu is held.
func (p *workers[V]) appendReady(s *shard[V], i uint32, n *node[V]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready.n > 0 {
		if last := p.ready.back(); last.shard == s.num && s.buckets.holds(last) {
			s.linkLocked(i, n, last.bucket)
			p.wakeLocked()
			return
		}
	}
	id := s.buckets.alloc(bucketReady, 0, n.deadline)
	s.linkLocked(i, n, id)
	p.ready.push(run{s.num, id, s.buckets.table[id].seq})
	p.wakeLocked()
}

// handOver makes a whole bucket ready. s.mu is held.
func (p *workers[V]) handOver(s *shard[V], id uint32) {
	b := &s.buckets.table[id]
	b.state = bucketReady
	s.counts.ready += int(b.count)
	p.mu.Lock()
	p.ready.push(run{s.num, id, b.seq})
	p.wakeLocked()
	p.mu.Unlock()
}

// pass takes r off the front of the ready list, if it is still there: no timer
// is left in it. The shard's lock is held.
func (p *workers[V]) pass(r run) {
	p.mu.Lock()
	if p.ready.n > 0 && p.ready.front() == r {
		p.ready.pop()
	}
	p.mu.Unlock()
}

// wakeLocked sees to it that somebody comes for the ready list.
func (p *workers[V]) wakeLocked() {
	switch {
	case p.searching > 0:
	case p.idle > 0:
		p.searching++
		p.called++
		p.wake.Signal()
	case p.members.workers-p.members.inside < p.max:
		p.searching++
		p.members.workers++
		go p.loop(&worker{searching: true})
	}
}

// loop is a worker's life.
func (p *workers[V]) loop(me *worker) {
	p.mu.Lock()
	p.members.enter()
	p.mu.Unlock()
	whole := false
	defer func() {
		p.mu.Lock()
		p.members.leave()
		if !whole {
			// The expiry function called runtime.Goexit, which ends this
			// goroutine and nothing else: another takes its place.
			p.members.workers++
			go p.loop(&worker{})
		}
		p.mu.Unlock()
	}()
	for p.serve(me) {
	}
	whole = true
}

// serve runs timers until the pool closes (false) or one panics (true).
func (p *workers[V]) serve(me *worker) (panicked bool) {
	defer func() {
		if !me.running {
			return
		}
		me.running = false
		if v := recover(); v != nil {
			panicked = true
			p.report(Panic{v, debug.Stack()})
		}
	}()
	for {
		v, ok := p.take(me)
		if !ok {
			return false
		}
		me.running = true
		p.wheel.expire(v)
		me.running = false
	}
}

// report tells the hook of a panic; a hook that panics is only logged.
func (p *workers[V]) report(what Panic) {
	p.panics.Add(1)
	defer func() {
		if v := recover(); v != nil {
			logPanic(what)
			logPanic(Panic{v, debug.Stack()})
		}
	}()
	p.wheel.options.OnPanic(what)
}

// take is the value of the next ready timer, which has left the wheel with
// that: the worker runs it whatever comes. It blocks while there is none, and
// says false when the pool closes.
func (p *workers[V]) take(me *worker) (v V, ok bool) {
	if me.taken++; me.taken%yieldEvery == 0 {
		runtime.Gosched()
	}
	for {
		if me.current.seq == 0 && !p.next(me) {
			return v, false
		}
		s := p.wheel.shards[me.current.shard]
		s.mu.Lock()
		v, ok = s.takeReadyLocked(me)
		s.mu.Unlock()
		if ok {
			if me.searching {
				p.relay(me)
			}
			return v, true
		}
	}
}

// next waits for the ready list to have something and looks at its front.
//
// The front stays the front until it is empty, so a worker that still has
// timers in its current run need not ask again: that is why taking a timer
// costs the shard's lock only.
func (p *workers[V]) next(me *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ready.n == 0 {
		if me.searching {
			me.searching = false
			p.searching--
		}
		if p.closing {
			return false
		}
		me.taken = 0
		p.idle++
		p.wake.Wait()
		p.idle--
		if p.called > 0 {
			p.called--
			me.searching = true
		}
	}
	me.current = p.ready.front()
	return true
}

// relay ends a worker's search, successful, and wakes the next one if there
// is more to take.
func (p *workers[V]) relay(me *worker) {
	p.mu.Lock()
	me.searching = false
	p.searching--
	if p.ready.n > 0 {
		p.wakeLocked()
	}
	p.mu.Unlock()
}

// takeReadyLocked takes the first timer of the worker's current run. The one
// that leaves the run empty, or finds it so, drops it.
func (s *shard[V]) takeReadyLocked(me *worker) (v V, ok bool) {
	r := me.current
	if s.buckets.holds(r) {
		if i, n := s.firstLocked(&s.buckets.table[r.bucket]); i != 0 {
			v, ok = n.value, true
			s.counts.expired++
			s.endLocked(i, n)
		}
	}
	if s.dropEmptyLocked(r) {
		me.current = run{}
	}
	return v, ok
}

// dropEmptyLocked takes a run of the ready list's front off it if no timer is
// left in it, and says whether that is so. The run may be gone already: another
// worker dropped it, or Shutdown discarded it.
func (s *shard[V]) dropEmptyLocked(r run) bool {
	if s.buckets.holds(r) {
		if s.buckets.table[r.bucket].count > 0 {
			return false
		}
		s.buckets.release(r.bucket)
	}
	s.wheel.workers.pass(r)
	return true
}

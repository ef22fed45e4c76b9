package timingwheel

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
)

// workers is the bounded pool that runs the expiry function.
//
// A worker takes one timer at a time. A batch would be cheaper, but the timers behind a slow
// one would wait for it although other workers are free (callbacks are isolated, T10), and Stop
// could not reach them (Stop is exact, T4).
type workers[V any] struct {
	expire  func(V)
	onPanic func(Panic)
	shards  []*shard[V]
	ready   *readyQueue
	panics  atomic.Uint64 // written by any worker

	// group counts the goroutines: the workers and the advancer.
	group sync.WaitGroup
	name  string // Options.Name
}

// worker is the state of one goroutine of the pool. Only that goroutine uses it.
type worker struct {
	searching bool      // counted in readyQueue.searching
	running   bool      // in the expiry function
	current   bucketRef // the front of the ready queue, when last read; zero: read again
	taken     int       // timers since it last yielded
}

// yieldEvery is the number of timers run back to back after which a worker yields its processor
// to goroutines that want it (no stall, T15).
const yieldEvery = 256

// launch starts a goroutine of the wheel, with the wheel's label instead of those of the
// goroutine that happens to start it.
func (p *workers[V]) launch(f func()) {
	p.group.Go(func() { p.labelled(f) })
}

// labelled calls f with the wheel's label.
func (p *workers[V]) labelled(f func()) {
	labels := context.Background()
	if p.name != "" {
		labels = pprof.WithLabels(labels, pprof.Labels("limbo", p.name))
	}
	pprof.SetGoroutineLabels(labels)
	f()
}

// start starts a worker that the ready queue has already counted.
func (p *workers[V]) start(searching bool) {
	p.launch(func() { p.loop(&worker{searching: searching}) })
}

// loop runs a worker from start to end.
func (p *workers[V]) loop(w *worker) {
	normalReturn := false
	defer func() {
		if normalReturn {
			p.ready.mu.Lock()
			p.ready.workers--
			p.ready.mu.Unlock()
			return
		}
		// The expiry function called runtime.Goexit, which ends only this goroutine: a new one
		// takes its place in the pool and in the count.
		p.start(false)
	}()
	for p.serve(w) {
	}
	normalReturn = true
}

// serve runs timers until the pool closes (false) or one panics (true).
func (p *workers[V]) serve(w *worker) (panicked bool) {
	defer func() {
		if !w.running {
			return
		}
		w.running = false
		if v := recover(); v != nil {
			panicked = true
			p.report(Panic{v, debug.Stack()})
		}
	}()
	for {
		v, ok := p.take(w)
		if !ok {
			return false
		}
		w.running = true
		p.expire(v)
		w.running = false
	}
}

// report calls OnPanic; a panic of OnPanic itself is only logged.
func (p *workers[V]) report(recovered Panic) {
	p.panics.Add(1)
	defer func() {
		if v := recover(); v != nil {
			logPanic(recovered)
			logPanic(Panic{v, debug.Stack()})
		}
	}()
	p.onPanic(recovered)
}

// take returns the value of the next ready timer. The timer has then left the wheel, so the
// worker must run it. take blocks while there is none, and returns false when the pool closes.
func (p *workers[V]) take(w *worker) (v V, ok bool) {
	if w.taken++; w.taken%yieldEvery == 0 {
		runtime.Gosched()
	}
	for {
		if w.current.seq == 0 {
			if w.current, ok = p.ready.front(&w.searching); !ok {
				return v, false
			}
		}
		s := p.shards[w.current.shard]
		now := s.shared.now()
		var freed bool
		s.mu.Lock()
		v, ok, freed = s.take(w.current, now)
		s.mu.Unlock()
		if freed {
			w.current = bucketRef{}
		}
		if ok {
			if w.searching {
				p.ready.found(&w.searching)
			}
			return v, true
		}
	}
}

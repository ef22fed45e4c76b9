package durable

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/keyed"
)

// Worker runs timers when they are due. Make one with [Timers.NewWorker] and run it
// with [Worker.Run]. Any number of workers, in any number of processes, share a
// store, as far as its engine allows that.
//
// # How it works
//
// One lock guards what a worker knows; no call to the engine, no handler and no
// callback runs under it. What happens — a reply, an event, a wheel's call when a
// shard's time has come, a handler that returns — changes what is known under the
// lock, and dispatchLocked begins the claims for which there is a cause and room.
//
//	heartbeats ──▶ members ──▶ preferred shards ──▶ looks ─┐
//	                                     events ──────┤ horizons
//	        agenda (wheel) ◀── planLocked ◀───────────┤
//	             │ due                                │
//	             ▼                                    │
//	           ready ──▶ claims ──▶ runs ──▶ ends ────┘
//	                                 │ leases (wheel): extend at half
type Worker struct {
	store   store.Store
	handler Handler
	options WorkerOptions
	timeout time.Duration // of calls
	longest time.Duration // of claims, if the engine is slow
	name    string
	log     *slog.Logger
	health  health

	started atomic.Bool
	closed  atomic.Bool // the engine has said that it is
	born    time.Time   // own times are durations since then

	// Set by Run before its goroutines begin.
	values  context.Context // what handlers' contexts are made from
	calls   context.Context // of calls to the engine; ends when all has ended
	agenda  *keyed.Table[int, struct{}]
	leases  *keyed.Table[store.Holder, *run]
	leaving context.Context // ends when Run's ctx does, or the store is closed
	leave   context.CancelFunc
	left    chan struct{} // closed when the others know that this worker leaves
	lookNow chan struct{} // holds one token: a look is wanted before its time
	group   sync.WaitGroup

	mu         sync.Mutex
	shards     []shard       // what is known of each; guarded by mu
	ready      []*shard      // those with a cause to claim, which wait for room
	claims     []*shard      // those with a claim under way, in the order of their beginning
	members    []string      // who lives, in order, this worker included; nil: unknown
	announcing bool          // a goroutine announces
	closing    bool          // nothing is claimed or begun any more
	stopped    bool          // nothing is sent any more
	idle       chan struct{} // closed when closing and nothing is left

	// Invariant: running + reserved <= Concurrency, held + reserved <= 2*Concurrency,
	// and running <= held.
	running  int // handlers that run
	held     int // runs that have not ended in the engine, as far as is known
	reserved int // promised to claims that are under way
	plans    int // that are being advanced; at most maxPlans

	// Both count in held, so that dead letters that wait for OnDead are bounded.
	dead   []*run // dead letters that OnDead is to be called with
	onDead int    // calls of OnDead; at most Concurrency

	stats WorkerStats // the counters in it
}

// NewWorker makes a worker that calls h. A nil h or an option out of range is an
// error that names it. Nothing runs before [Worker.Run].
func (t *Timers) NewWorker(h Handler, o WorkerOptions) (*Worker, error) {
	if h == nil {
		return nil, errors.New("durable: the handler is nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	id := store.NewID()
	w := &Worker{
		store: t.store, handler: h, options: o,
		timeout: min(t.options.CallTimeout, o.Lease/4),
		longest: t.options.CallTimeout,
		name:    o.Name + "-" + hex.EncodeToString(id[:4]),
		log:     t.options.Logger,
		born:    time.Now(),
		left:    make(chan struct{}),
		lookNow: make(chan struct{}, 1),
		shards:  make([]shard, t.store.Shards()),
		idle:    make(chan struct{}),
	}
	w.log = w.log.With("worker", w.name)
	w.health.log = w.log
	for i := range w.shards {
		w.shards[i] = shard{number: i, patience: w.timeout, gathered: make(chan struct{}, 1)}
	}
	return w, nil
}

// Name returns the worker's name: what WorkerOptions.Name gives it, and a random
// end.
func (w *Worker) Name() string { return w.name }

// Run claims and runs timers until ctx ends. Then it claims no more, tells the other
// workers, gives back what it has claimed and not begun, and waits up to
// WorkerOptions.Grace for the handlers that run, for OnDead, and for claims that the
// engine did not answer, which it sends again unless the store is closed. After that it
// ends the handlers' ctx, with [ErrStopped] as the cause, and waits a second for them and
// OnDead to return, and for their ends to be written. A timer whose handler goes on even
// then keeps its lease, which is not extended: it runs again when that is over.
//
// Run returns nil when all handlers and OnDead have returned; an error with the number of
// handlers, or of dead letters, for which that is not so; or [ErrClosed], when the store
// is closed, or has closed itself because it cannot write. Other errors of the engine do
// not end it: it tries again, and logs when calls begin to fail and when they succeed
// again. Run may be called once; a second call is an error. A nil ctx panics.
func (w *Worker) Run(ctx context.Context) error {
	if ctx == nil {
		panic("durable: the context is nil")
	}
	if w.started.Swap(true) {
		return errors.New("durable: Run was called twice")
	}
	w.values = context.WithoutCancel(ctx)
	w.leaving, w.leave = context.WithCancel(ctx)
	defer w.leave()
	var endCalls context.CancelFunc
	w.calls, endCalls = context.WithCancel(w.values)
	defer endCalls()

	agenda, err := keyed.New(w.shardDue, timingwheel.Options{Workers: 1, Shards: 1})
	if err != nil {
		return err // no option is out of range
	}
	leases, err := keyed.New(w.leaseDue, timingwheel.Options{Workers: 1})
	if err != nil {
		return err
	}
	w.mu.Lock() // for Stats, which may be called at any time
	w.agenda, w.leases = agenda, leases
	w.mu.Unlock()
	w.group.Go(w.heartbeatLoop)
	w.group.Go(w.lookLoop)
	w.group.Go(w.helpLoop)
	w.group.Go(w.subscribe)

	<-w.leaving.Done()
	left := w.drain()
	endCalls()
	forever := context.Background() // neither waits for more than what runs in it
	_, _ = agenda.Shutdown(forever, timingwheel.Discard)
	_, _ = leases.Shutdown(forever, timingwheel.Discard)
	w.group.Wait()
	if w.closed.Load() {
		return ErrClosed
	}
	return left
}

// now returns the own time.
func (w *Worker) now() time.Duration { return time.Since(w.born) }

// call returns a context for a call to the engine.
func (w *Worker) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.calls, w.timeout)
}

// answered notes what came of a call, and returns whether what it asked for was
// done.
func (w *Worker) answered(name string, shard int, err error) bool {
	if errors.Is(err, ErrClosed) {
		w.closed.Store(true)
		w.leave()
	}
	if w.calls.Err() == nil {
		w.health.report(name, shard, err)
	}
	return made(err)
}

// sleep waits, and reports false if the worker has stopped meanwhile.
func (w *Worker) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.calls.Done():
		return false
	}
}

// WorkerStats are a worker's figures.
type WorkerStats struct {
	Running   int // handlers
	Ending    int // handlers that have returned, whose ends are not written yet or whose OnDead has not returned
	Preferred int // shards that this worker is the first to claim from
	Members   int // workers that live, with this one; 0: unknown

	Claimed   uint64 // leases
	Done      uint64 // ended: the timer is gone; also one that failed, if a successor waits in its place; see Buried
	Retried   uint64 // ended: it waits for another attempt
	Snoozed   uint64
	GivenBack uint64 // not begun
	// Buried counts runs that ended: the timer is a dead letter. If the reply was lost, and the
	// dead letter was removed, replaced or requeued before the worker sent the end again, it
	// does not count here, but in Done, or in Lost if it waits or is leased after a Requeue.
	Buried     uint64
	BuriedLost uint64 // dead letters that claims have made of leases that ran out
	Cancelled  uint64 // runs that were cancelled
	Lost       uint64 // leases that another worker got, or that ran out
	Unwritten  uint64 // ends that could not be written while the lease held
	Panics     uint64 // of handlers
	Repaired   uint64 // records without a home that claims have removed
	// Late is how long after timers were due their handlers were started, for each attempt: of a
	// retry, after the time of the retry. It is measured by the engine's clock, as far as its
	// replies have told the worker: the true value, less at most what a reply takes to arrive.
	Late histogram.Durations

	Planned      uint64 // schedules advanced
	Occurrences  uint64 // that planned times have created
	Skipped      uint64 // planned times, by Overlap or Missed
	PlanFailures uint64 // schedules that could not be advanced, and are tried again
	// PlannedLate is how long after their planned times occurrences were created.
	PlannedLate histogram.Durations
}

// Stats returns the worker's figures, of one moment.
func (w *Worker) Stats() WorkerStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := w.stats
	st.Running, st.Ending, st.Members = w.running, w.held-w.running, len(w.members)
	for i := range w.shards {
		if w.shards[i].preferred {
			st.Preferred++
		}
	}
	return st
}

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

// How a worker works. One lock guards its state; no call to the engine, no handler and no callback
// runs under it. Each input — a reply, an event, a wheel's callback when a shard is due, a handler
// that returns — changes the state under the lock, and dispatchLocked begins the claims for which
// there is a cause and a free slot.
//
//	heartbeats ──▶ members ──▶ preferred shards ──▶ polls ─┐
//	                                               events ─┤ horizons
//	    shardTimers (wheel) ◀── scheduleClaimLocked ◀──────┤
//	             │ due                                     │
//	             ▼                                         │
//	           ready ──▶ claims ──▶ runs ──▶ outcomes ─────┘
//	                                 │ leases (wheel): extend at half

// Worker runs timers when they are due. Make one with [Timers.NewWorker] and run it with
// [Worker.Run]. Any number of workers, in any number of processes, share a store, as far as its
// engine allows that.
type Worker struct {
	store           store.Store
	handler         Handler
	options         WorkerOptions
	callTimeout     time.Duration
	maxClaimTimeout time.Duration // of claims, if the engine is slow
	name            string
	log             *slog.Logger
	health          health

	started atomic.Bool
	closed  atomic.Bool // the engine has returned ErrClosed
	born    time.Time   // own times are durations since then

	// Set by Run before its goroutines begin.
	handlerCtx  context.Context                  // parent of the handlers' contexts
	callCtx     context.Context                  // for calls to the engine; ends when the worker has stopped
	shardTimers *keyed.Table[int, struct{}]      // when each shard is next due
	leases      *keyed.Table[store.Holder, *run] // when each lease must be extended
	leaving     context.Context                  // ends when Run's ctx does, or the store is closed
	leave       context.CancelFunc
	withdrawn   chan struct{} // closed after the last heartbeat, which withdraws this worker
	pollNow     chan struct{} // holds one token: a poll is wanted before its time
	group       sync.WaitGroup

	mu         sync.Mutex
	shards     []shard       // guarded by mu
	ready      []*shard      // shards with a cause to claim that wait for free slots
	claims     []*shard      // shards with a claim in flight, the oldest first
	members    []string      // live workers in order, this one included; nil: unknown
	announcing bool          // a goroutine announces
	closing    bool          // nothing is claimed or begun any more
	stopped    bool          // nothing is sent any more
	idle       chan struct{} // closed when closing and nothing is left

	// Invariant: running + reserved <= Concurrency, held + reserved <= 2*Concurrency,
	// and running <= held.
	running  int // handlers that run
	held     int // runs that have not ended in the engine, as far as is known
	reserved int // slots of claims in flight
	plans    int // that are being advanced; at most maxPlans

	// Both count in held, which bounds the dead letters that wait for OnDead.
	dead   []*run // dead letters that wait for OnDead
	onDead int    // calls of OnDead; at most Concurrency

	stats WorkerStats // the counters in it
}

// NewWorker makes a worker that calls h. A nil h or an option out of range is an error that names
// it. The worker does nothing before [Worker.Run].
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
		callTimeout:     min(t.options.CallTimeout, o.Lease/4),
		maxClaimTimeout: t.options.CallTimeout,
		name:            o.Name + "-" + hex.EncodeToString(id[:4]),
		log:             t.options.Logger,
		born:            time.Now(),
		withdrawn:       make(chan struct{}),
		pollNow:         make(chan struct{}, 1),
		shards:          make([]shard, t.store.Shards()),
		idle:            make(chan struct{}),
	}
	w.log = w.log.With("worker", w.name)
	w.health.log = w.log
	for i := range w.shards {
		w.shards[i] = shard{number: i, claimTimeout: w.callTimeout, writeNow: make(chan struct{}, 1)}
	}
	return w, nil
}

// Name returns the worker's name: WorkerOptions.Name and a random suffix.
func (w *Worker) Name() string { return w.name }

// Run claims and runs timers until ctx ends. Then it stops claiming, tells the other workers,
// releases the timers that it has claimed and not begun, and waits up to WorkerOptions.Grace for
// running handlers, for OnDead, and for claims that the engine did not answer, which it repeats
// unless the store is closed. After that it ends the handlers' ctx, with [ErrStopped] as the
// cause, and waits a second for them and OnDead to return, and for their outcomes to be written. A
// timer whose handler still runs then keeps its lease, which is not extended: it runs again when
// the lease expires.
//
// Run returns nil when all handlers and OnDead have returned; an error with the number of
// handlers, or of dead letters, that are still running; or [ErrClosed], when the store is closed,
// or has closed itself because it cannot write. After other errors of the engine Run retries, and
// logs when calls begin to fail and when they succeed again. Run may be called once; a second call
// is an error. A nil ctx panics.
func (w *Worker) Run(ctx context.Context) error {
	if ctx == nil {
		panic("durable: the context is nil")
	}
	if w.started.Swap(true) {
		return errors.New("durable: Run was called twice")
	}
	w.handlerCtx = context.WithoutCancel(ctx)
	w.leaving, w.leave = context.WithCancel(ctx)
	defer w.leave()
	var endCalls context.CancelFunc
	w.callCtx, endCalls = context.WithCancel(w.handlerCtx)
	defer endCalls()

	shardTimers, err := keyed.New(w.shardDue, timingwheel.Options{Workers: 1, Shards: 1})
	if err != nil {
		return err // no option is out of range
	}
	leases, err := keyed.New(w.leaseDue, timingwheel.Options{Workers: 1})
	if err != nil {
		return err
	}
	w.mu.Lock() // for Stats, which may be called at any time
	w.shardTimers, w.leases = shardTimers, leases
	w.mu.Unlock()
	w.group.Go(w.heartbeatLoop)
	w.group.Go(w.pollLoop)
	w.group.Go(w.helpLoop)
	w.group.Go(w.subscribe)

	<-w.leaving.Done()
	err = w.drain()
	endCalls()
	forever := context.Background() // neither waits longer than its running callbacks
	_, _ = shardTimers.Shutdown(forever, timingwheel.Discard)
	_, _ = leases.Shutdown(forever, timingwheel.Discard)
	w.group.Wait()
	if w.closed.Load() {
		return ErrClosed
	}
	return err
}

// now returns the own time.
func (w *Worker) now() time.Duration { return time.Since(w.born) }

// call returns a context for a call to the engine.
func (w *Worker) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.callCtx, w.callTimeout)
}

// answered records the result of a call, and reports whether the engine has applied the change.
func (w *Worker) answered(name string, shard int, err error) bool {
	if errors.Is(err, ErrClosed) {
		w.closed.Store(true)
		w.leave()
	}
	if w.callCtx.Err() == nil {
		w.health.report(name, shard, err)
	}
	return applied(err)
}

// sleep waits for d, and reports false if the worker stops first.
func (w *Worker) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.callCtx.Done():
		return false
	}
}

// WorkerStats are a worker's statistics.
type WorkerStats struct {
	Running   int // handlers
	Ending    int // handlers that have returned, whose outcomes are not written or whose OnDead has not returned
	Preferred int // shards that this worker is the first to claim from
	Members   int // live workers, this one included; 0: unknown

	Claimed  uint64 // leases
	Done     uint64 // runs that removed the timer, or failed and were replaced by a waiting successor; see DeadLettered
	Retried  uint64 // runs after which the timer waits for another attempt
	Snoozed  uint64
	Released uint64 // handlers not called
	// DeadLettered counts runs that made the timer a dead letter. If the reply was lost, and the dead
	// letter was removed, replaced or requeued before the worker sent the outcome again, the run
	// counts in Done instead, or in Lost if the timer waits or is leased after a Requeue.
	DeadLettered     uint64
	DeadLetteredLost uint64 // dead letters that claims have made of expired leases
	Cancelled        uint64 // runs that were cancelled
	Lost             uint64 // leases that another worker got, or that expired
	Unwritten        uint64 // outcomes that could not be written while the lease held
	Panics           uint64 // of handlers
	Repaired         uint64 // inconsistent entries that claims have removed, after an engine lost writes
	// Late is the delay from a timer's due time to the start of its handler, for each attempt; for
	// a retry, from the time of the retry. It is measured by the engine's clock as estimated from
	// replies: the true value, less at most the duration of a reply.
	Late histogram.Durations

	Planned      uint64 // schedules advanced
	Occurrences  uint64 // created for planned times
	Skipped      uint64 // planned times, by Overlap or Missed
	PlanFailures uint64 // schedules that could not be advanced, and are retried
	// PlannedLate is the delay from planned times to the creation of their occurrences.
	PlannedLate histogram.Durations
}

// Stats returns the worker's statistics, of one moment.
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

package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	defaultCallTimeout = 10 * time.Second
	minCallTimeout     = 10 * time.Millisecond
	maxCallTimeout     = 10 * time.Minute
)

// Options configure Timers. The zero value is a good default.
type Options struct {
	// Logger gets events that are not returned to a caller: panics of handlers, and engines that
	// stop answering or answer again. Default: slog's default logger.
	Logger *slog.Logger

	// CallTimeout bounds each call to the engine, in addition to the caller's ctx. Default 10 s;
	// 10 ms to 10 min. A worker's calls are also bounded by a quarter of its lease.
	CallTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultCallTimeout
	}
	if o.CallTimeout < minCallTimeout || o.CallTimeout > maxCallTimeout {
		return o, fmt.Errorf("durable: Options.CallTimeout is %v, must be %v to %v", o.CallTimeout, minCallTimeout, maxCallTimeout)
	}
	return o, nil
}

// Timers schedules timers in a store, cancels them, and lists them. Make one with [New]: the zero
// Timers is not usable. Any number of processes may use one store, if its engine allows that.
//
// All methods are safe for concurrent use. They block until the engine has answered, ctx has
// ended, or Options.CallTimeout has passed. A method for a key first waits for any Schedule
// request for that key whose caller's ctx has ended: at most Options.CallTimeout, within its own
// timeout. The results hold after a crash as far as the engine promises that: see the package's
// documentation. Keys and topics need not be text. A nil ctx panics.
type Timers struct {
	store   store.Store
	options Options
	// One for each shard.
	schedules []*joiner[store.Entry, store.Receipt]
	swaps     []*joiner[store.PlanSwap, store.SwapResult]

	closed  atomic.Bool    // written by Close
	done    chan struct{}  // closed after Close, when the joiners' goroutines have ended
	senders sync.WaitGroup // the joiners' goroutines
}

// New returns Timers on an engine. A nil store, or an option that is out of range, is an
// error that names it.
func New(s Store, o Options) (*Timers, error) {
	if s == nil {
		return nil, errors.New("durable: the store is nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Timers{store: s, options: o, done: make(chan struct{})}
	t.schedules = joinersOf(t, s.Schedule, func(e store.Entry) string { return e.Key })
	swap := func(ctx context.Context, shard int, swaps []store.PlanSwap) ([]store.SwapResult, store.Horizon, error) {
		results, _, h, err := s.SwapPlans(ctx, shard, swaps, store.SwapClaim{})
		return results, h, err
	}
	t.swaps = joinersOf(t, swap, func(p store.PlanSwap) string { return p.Key })
	return t, nil
}

// Close refuses further calls with [ErrClosed], and does not wait; calls in flight complete
// normally. Stop workers first, by cancelling their contexts. Close does not close the store: its
// owner closes it afterwards.
func (t *Timers) Close() {
	if t.closed.Swap(true) {
		return
	}
	for i := range t.schedules {
		t.schedules[i].barrier()
		t.swaps[i].barrier()
	}
	go func() {
		t.senders.Wait()
		close(t.done)
	}()
}

// Shutdown calls Close, and waits for the Schedule requests in flight, which end within
// Options.CallTimeout. If ctx is done first, it returns ctx's cause. It may be called again.
func (t *Timers) Shutdown(ctx context.Context) error {
	if ctx == nil {
		panic("durable: the context is nil")
	}
	t.Close()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin starts each method: it checks ctx, and adds the deadline.
func (t *Timers) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if ctx == nil {
		panic("durable: the context is nil")
	}
	if t.closed.Load() {
		return nil, nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, t.options.CallTimeout)
	return ctx, cancel, nil
}

// beginKey starts each method for one key, and returns the key's shard. It waits for abandoned
// Schedule requests for the key.
func (t *Timers) beginKey(ctx context.Context, key string) (_ context.Context, _ context.CancelFunc, shard int, err error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	shard = t.shardOf(key)
	if err = CheckKey(key); err == nil {
		err = t.schedules[shard].waitAbandoned(ctx, key)
	}
	if err != nil {
		cancel()
		return nil, nil, 0, err
	}
	return ctx, cancel, shard, nil
}

// CheckKey returns the error with which methods of Timers refuse a key that no timer can have. An
// occurrence of a schedule is a timer.
func CheckKey(key string) error {
	if store.IsPlan(key) {
		return fmt.Errorf("durable: the timer's key %.64q ends with a zero byte, must not: a schedule has methods of its own", key)
	}
	return store.CheckKey(key)
}

func (t *Timers) shardOf(key string) int { return store.ShardOf(key, len(t.schedules)) }

// Info describes a timer.
type Info struct {
	Key   string
	ID    ID
	Topic string
	Body  []byte // nil from List

	State     State
	Due       time.Time // waiting: when it is due; else when it was
	Attempts  int       // without those released or snoozed
	LastError string    // of the last attempt that failed; at most 1 KiB of it

	LeaseEnd     time.Time // leased: when another may run it
	Fence        uint64    // leased: the number of this lease
	Worker       string    // leased: the worker that runs it; "": unknown, as when it stops or died over an hour ago
	Cancelled    bool      // leased: no attempt and no successor follows this run
	SuccessorDue time.Time // leased: of its successor; zero: none
	Died         time.Time // dead: when it became a dead letter

	Schedule string    // of an occurrence: its schedule's key
	Planned  time.Time // of an occurrence: its planned time, in UTC
}

// Cursor returns the timer's position in the order of a List.
func (i Info) Cursor() Cursor {
	at := i.Due
	switch i.State {
	case Leased:
		at = i.LeaseEnd
	case Dead:
		at = i.Died
	}
	return Cursor{At: store.MillisAt(at), Key: i.Key}
}

func infoOf(r store.Record) Info {
	schedule, planned := plannedOf(r.Key)
	return Info{
		Schedule: schedule, Planned: planned,
		Key: r.Key, ID: r.ID, Topic: r.Topic, Body: r.Body,
		State: r.State, Due: timeOf(r.Due), Attempts: r.Attempts, LastError: r.LastError,
		LeaseEnd: timeOf(r.LeaseEnd), Fence: r.Fence, Cancelled: r.Cancelled,
		SuccessorDue: timeOf(r.SuccessorDue), Died: timeOf(r.Died),
	}
}

func timeOf(m store.Millis) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return m.Time()
}

// Get returns a timer in any state, or [ErrNotFound]: a timer that has completed or was cancelled
// does not exist. The result may be outdated when Get returns. For a leased timer Get also asks the
// engine for the workers, for at most a second: if that fails, Info.Worker is empty.
func (t *Timers) Get(ctx context.Context, key string) (Info, error) {
	ctx, cancel, shard, err := t.beginKey(ctx, key)
	if err != nil {
		return Info{}, err
	}
	defer cancel()
	r, err := t.store.Get(ctx, shard, key)
	if err != nil {
		return Info{}, err
	}
	info := infoOf(r)
	info.Worker = (&workerNames{timers: t}).of(ctx, r)
	return info, nil
}

// Ping returns nil if the engine answers. It reads the horizon of one shard.
func (t *Timers) Ping(ctx context.Context) error {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = t.store.Horizons(ctx, []int{0})
	return err
}

// Stats counts the contents of a store, over all its shards.
type Stats struct {
	Shards  int
	Waiting int
	Overdue int // those of Waiting that are due
	Leased  int
	Dead    int
	Dropped uint64 // dead letters that MaxDead or MaxDeadAge removed, ever
	// Scheduled counts the timers that were scheduled, including replacements and occurrences of
	// schedules: ever, or, for an engine in one process, since the store was opened.
	Scheduled uint64

	Schedules        int
	SchedulesOverdue int // whose next occurrence is due and not created

	Now          time.Time // by the engine's clock; the earliest, if there are several
	NextDue      time.Time // of waiting timers, the earliest; zero: none waits
	NextLeaseEnd time.Time // of the leases, the earliest; zero: there is none
}

// Stats counts the shards, one after the other, so the sums are not a snapshot. It costs a call
// for each shard.
func (t *Timers) Stats(ctx context.Context) (Stats, error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return Stats{}, err
	}
	defer cancel()
	sum := Stats{Shards: len(t.schedules)}
	var all store.Horizon
	for shard := range t.schedules {
		st, err := t.store.Stats(ctx, shard)
		if err != nil {
			return Stats{}, err
		}
		sum.Waiting += st.Waiting
		sum.Overdue += st.Overdue
		sum.Leased += st.Leased
		sum.Dead += st.Dead
		sum.Dropped += st.Dropped
		sum.Scheduled += st.Scheduled
		sum.Schedules += st.Plans
		sum.SchedulesOverdue += st.PlansOverdue
		all.Now = earlier(all.Now, st.Now)
		all.NextDue = earlier(all.NextDue, st.NextDue)
		all.NextLeaseEnd = earlier(all.NextLeaseEnd, st.NextLeaseEnd)
	}
	sum.Now, sum.NextDue, sum.NextLeaseEnd = timeOf(all.Now), timeOf(all.NextDue), timeOf(all.NextLeaseEnd)
	return sum, nil
}

// earlier returns the earlier of two times, where 0 means none.
func earlier(a, b store.Millis) store.Millis {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
)

// rig is an engine with Timers on it. Each worker reaches the engine through its own faults.
type rig struct {
	t      *testing.T
	engine store.Store
	faults *faults // of timers
	timers *Timers
	logs   *logs
	skew   time.Duration // of the engine's clock
	skewed atomic.Int64  // added by tests, in nanoseconds
}

func newRig(t *testing.T, shards int, limits store.Limits, skew time.Duration) *rig {
	r := &rig{t: t, logs: &logs{}, skew: skew}
	var err error
	r.engine, err = memstore.New(memstore.Options{Shards: shards, Limits: limits, Now: func() time.Time { return r.now() }})
	require.NoError(t, err)
	r.faults = &faults{Store: r.engine}
	r.timers = r.on(r.faults)
	t.Cleanup(func() {
		require.NoError(t, r.timers.Shutdown(context.Background()))
		require.NoError(t, r.engine.Close())
	})
	return r
}

func (r *rig) on(s store.Store) *Timers {
	t, err := New(s, Options{Logger: slog.New(r.logs)})
	require.NoError(r.t, err)
	return t
}

// now returns the engine's time.
func (r *rig) now() time.Time { return time.Now().Add(r.skew + time.Duration(r.skewed.Load())).UTC() }

func (r *rig) schedule(key string, after time.Duration) Receipt {
	r.t.Helper()
	return r.add(Timer{Key: key, After: after})
}

func (r *rig) add(timer Timer) Receipt {
	r.t.Helper()
	got, err := r.timers.Schedule(context.Background(), timer)
	require.NoError(r.t, err)
	return got
}

func (r *rig) get(key string) Info {
	r.t.Helper()
	info, err := r.timers.Get(context.Background(), key)
	require.NoError(r.t, err)
	return info
}

func (r *rig) requireRemoved(keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		_, err := r.timers.Get(context.Background(), key)
		require.ErrorIs(r.t, err, ErrNotFound, key)
	}
}

func (r *rig) stats() Stats {
	r.t.Helper()
	st, err := r.timers.Stats(context.Background())
	require.NoError(r.t, err)
	return st
}

// member is a running worker.
type member struct {
	*Worker
	rig    *rig
	faults *faults
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

func (r *rig) worker(h Handler, o WorkerOptions) *member {
	r.t.Helper()
	m := r.prepare(h, o)
	m.run()
	return m
}

// prepare makes a worker that is not running yet.
func (r *rig) prepare(h Handler, o WorkerOptions) *member {
	r.t.Helper()
	f := &faults{Store: r.engine}
	w, err := r.on(f).NewWorker(h, o)
	require.NoError(r.t, err)
	return &member{Worker: w, rig: r, faults: f, done: make(chan error, 1)}
}

func (m *member) run() {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), ctxKey{}, "of Run"))
	m.cancel = cancel
	go func() { m.done <- m.Run(ctx) }()
	m.rig.t.Cleanup(func() { _ = m.stop() })
	synctest.Wait()
}

type ctxKey struct{}

// stop ends Run's ctx and returns Run's error.
func (m *member) stop() error {
	m.once.Do(func() {
		m.cancel()
		m.err = <-m.done
	})
	return m.err
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// faults is a Store that injects faults.
type faults struct {
	store.Store
	dropEvents atomic.Bool // silently

	mu           sync.Mutex
	counts       map[string]int
	before       func(ctx context.Context, call string, shard int) error // an error means that the request was not sent
	after        func(ctx context.Context, call string, shard int) error // an error means that the reply was lost
	polled       int                                                     // shards, over all polls
	unresponsive map[int]bool                                            // shards on a server that does not answer
	claims       []store.Claim
	outcomes     [][]store.Outcome
	adds         [][]store.Entry
}

func (f *faults) set(before, after func(ctx context.Context, call string, shard int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// fail makes the named calls, or all, fail with err; a nil err ends that.
func (f *faults) fail(err error, calls ...string) {
	f.set(func(_ context.Context, call string, _ int) error {
		if len(calls) == 0 || slices.Contains(calls, call) {
			return err
		}
		return nil
	}, nil)
}

// setUnresponsive makes calls about these shards, and no others, hang until their deadline.
// Horizons of these and other shards returns the others after a second.
func (f *faults) setUnresponsive(shards ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unresponsive = make(map[int]bool)
	for _, shard := range shards {
		f.unresponsive[shard] = true
	}
}

func (f *faults) isUnresponsive(shard int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unresponsive[shard]
}

func (f *faults) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[call]
}

// polledShards returns the number of polled shards.
func (f *faults) polledShards() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.polled
}

func (f *faults) countAll() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.counts
	f.counts = nil
	return all
}

func (f *faults) around(ctx context.Context, call string, shard int, do func() error) error {
	f.mu.Lock()
	if f.counts == nil {
		f.counts = make(map[string]int)
	}
	f.counts[call]++
	before, after := f.before, f.after
	f.mu.Unlock()
	if f.isUnresponsive(shard) {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", store.ErrUnsure, ctx.Err())
	}
	if before != nil {
		if err := before(ctx, call, shard); err != nil {
			return err
		}
	}
	err := do()
	if after != nil {
		if lost := after(ctx, call, shard); lost != nil {
			return lost
		}
	}
	return err
}

// late waits like a slow network.
func late(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnsure, ctx.Err())
	}
}

func (f *faults) Schedule(ctx context.Context, shard int, entries []store.Entry) (r []store.Receipt, h store.Horizon, err error) {
	f.mu.Lock()
	f.adds = append(f.adds, entries)
	f.mu.Unlock()
	err = f.around(ctx, "schedule", shard, func() error { r, h, err = f.Store.Schedule(ctx, shard, entries); return err })
	if err != nil {
		return nil, store.Horizon{}, err
	}
	return r, h, err
}

func (f *faults) Cancel(ctx context.Context, shard int, keys []string) (r []store.CancelResult, err error) {
	err = f.around(ctx, "cancel", shard, func() error { r, err = f.Store.Cancel(ctx, shard, keys); return err })
	return r, err
}

func (f *faults) Requeue(ctx context.Context, shard int, keys []string) (r []store.RequeueResult, h store.Horizon, err error) {
	err = f.around(ctx, "requeue", shard, func() error { r, h, err = f.Store.Requeue(ctx, shard, keys); return err })
	return r, h, err
}

func (f *faults) Get(ctx context.Context, shard int, key string) (r store.Record, err error) {
	err = f.around(ctx, "get", shard, func() error { r, err = f.Store.Get(ctx, shard, key); return err })
	return r, err
}

func (f *faults) List(ctx context.Context, shard int, q store.Query) (r store.Page, err error) {
	err = f.around(ctx, "list", shard, func() error { r, err = f.Store.List(ctx, shard, q); return err })
	return r, err
}

func (f *faults) SwapPlans(ctx context.Context, shard int, swaps []store.PlanSwap, c store.SwapClaim) (r []store.SwapResult, l []store.Lease, h store.Horizon, err error) {
	err = f.around(ctx, "swap", shard, func() error { r, l, h, err = f.Store.SwapPlans(ctx, shard, swaps, c); return err })
	return r, l, h, err
}

func (f *faults) Plans(ctx context.Context, shard int, after string, limit int) (r []store.Record, err error) {
	err = f.around(ctx, "plans", shard, func() error { r, err = f.Store.Plans(ctx, shard, after, limit); return err })
	return r, err
}

func (f *faults) Claim(ctx context.Context, shard int, c store.Claim) (r store.Claimed, h store.Horizon, err error) {
	f.mu.Lock()
	f.claims = append(f.claims, c)
	f.mu.Unlock()
	err = f.around(ctx, "claim", shard, func() error { r, h, err = f.Store.Claim(ctx, shard, c); return err })
	if err != nil {
		return store.Claimed{}, store.Horizon{}, err
	}
	return r, h, err
}

func (f *faults) Extend(ctx context.Context, shard int, holders []store.Holder, lease time.Duration) (r []store.ExtendResult, end store.Millis, err error) {
	err = f.around(ctx, "extend", shard, func() error { r, end, err = f.Store.Extend(ctx, shard, holders, lease); return err })
	return r, end, err
}

func (f *faults) End(ctx context.Context, shard int, outcomes []store.Outcome) (r []store.EndResult, h store.Horizon, err error) {
	f.mu.Lock()
	f.outcomes = append(f.outcomes, outcomes)
	f.mu.Unlock()
	err = f.around(ctx, "end", shard, func() error { r, h, err = f.Store.End(ctx, shard, outcomes); return err })
	return r, h, err
}

func (f *faults) Horizons(ctx context.Context, shards []int) (h []store.Horizon, err error) {
	f.mu.Lock()
	f.polled += len(shards)
	f.mu.Unlock()
	err = f.around(ctx, "poll", -1, func() error { h, err = f.Store.Horizons(ctx, shards); return err })
	if err != nil {
		return nil, err
	}
	missing := 0
	for i, shard := range shards {
		if f.isUnresponsive(shard) {
			h[i] = store.Horizon{}
			missing++
		}
	}
	switch {
	case missing == 0:
		return h, nil
	case missing == len(shards):
		<-ctx.Done()
		return nil, ctx.Err()
	}
	_ = late(ctx, time.Second)
	return h, errUnresponsive
}

func (f *faults) CountDue(ctx context.Context, shard int, edges []store.Millis) (c store.DueCounts, err error) {
	err = f.around(ctx, "count", shard, func() error { c, err = f.Store.CountDue(ctx, shard, edges); return err })
	return c, err
}

func (f *faults) Heartbeat(ctx context.Context, h store.Heartbeat) (names []string, err error) {
	call := "heartbeat"
	if h.TTL == 0 {
		call = "leave"
	}
	err = f.around(ctx, call, -1, func() error { names, err = f.Store.Heartbeat(ctx, h); return err })
	return names, err
}

func (f *faults) Workers(ctx context.Context) (w []store.Worker, err error) {
	err = f.around(ctx, "workers", -1, func() error { w, err = f.Store.Workers(ctx); return err })
	return w, err
}

func (f *faults) Announce(ctx context.Context, e store.Event) error {
	return f.around(ctx, "announce", e.Shard, func() error { return f.Store.Announce(ctx, e) })
}

func (f *faults) Subscribe(ctx context.Context, g func(store.Event)) error {
	return f.around(ctx, "subscribe", -1, func() error {
		return f.Store.Subscribe(ctx, func(e store.Event) {
			if !f.dropEvents.Load() {
				g(e)
			}
		})
	})
}

// logs counts log records by message.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) WithGroup(string) slog.Handler            { return l }
func (l *logs) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// with returns the lines that contain all parts.
func (l *logs) with(parts ...string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// journal is a handler that records its calls.
type journal struct {
	mu    sync.Mutex
	fired []Fired
	at    []time.Time
	then  Handler // called by the handler, or nil
}

func (j *journal) handle(ctx context.Context, f Fired) error {
	j.mu.Lock()
	j.fired = append(j.fired, f)
	j.at = append(j.at, time.Now())
	then := j.then
	j.mu.Unlock()
	if then == nil {
		return nil
	}
	return then(ctx, f)
}

func (j *journal) all() []Fired {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.fired)
}

// times returns when the handler was called, by this process's clock.
func (j *journal) times() []time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.at)
}

func (j *journal) keys() []string {
	keys := make([]string, 0)
	for _, f := range j.all() {
		keys = append(keys, f.Key)
	}
	return keys
}

func (j *journal) last() Fired {
	all := j.all()
	return all[len(all)-1]
}

var (
	errBoom         = errors.New("boom")
	errUnresponsive = errors.New("no answer from a server")
)

// keysOf returns n keys of a shard.
func keysOf(shard, shards, n int) []string {
	keys := make([]string, 0, n)
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("key-%d", i); store.ShardOf(key, shards) == shard {
			keys = append(keys, key)
		}
	}
	return keys
}

// topicOf returns a topic of a lane.
func topicOf(lane int) string {
	for i := 0; ; i++ {
		if topic := fmt.Sprintf("topic-%d", i); store.LaneOf(topic) == lane {
			return topic
		}
	}
}

// sizesOf returns the number of items of each request.
func sizesOf[T any](requests [][]T) []int {
	sizes := make([]int, len(requests))
	for i, items := range requests {
		sizes[i] = len(items)
	}
	return sizes
}

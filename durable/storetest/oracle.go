package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Oracle is a [store.Store] in memory. It is slow on purpose: one mutex, one map
// for each shard, and all else is searched and sorted when it is asked for, so that
// one can see that it is right. It is as durable as its process. All methods are
// safe for concurrent use.
//
// It returns an error where a caller breaks the contract of Store: too many items,
// a key of another shard, or what a Check method refuses.
type Oracle struct {
	limits store.Limits
	now    func() time.Time

	mu     sync.Mutex
	shards []shard
	signs  map[string]time.Time // when a worker's sign of life ends
	subs   map[*subscriber]bool
	closed bool
	done   chan struct{} // closed by Close
}

// shard holds each timer under its key, so none can be in two homes.
type shard struct {
	timers  map[string]*timer
	fence   uint64 // the last one given out
	dropped uint64
}

type timer struct {
	store.Record
	token     store.Token // leased
	successor *timer      // leased, or nil
}

var _ store.Store = (*Oracle)(nil)

// NewOracle returns an empty store with its own clock, now; if it is nil,
// time.Now. It panics if shards or limits are out of range.
func NewOracle(shards int, limits store.Limits, now func() time.Time) *Oracle {
	if shards < 1 || shards > store.MaxShards {
		panic(fmt.Sprintf("storetest: shards is %d, must be 1 to %d", shards, store.MaxShards))
	}
	limits, err := limits.WithDefaults()
	if err != nil {
		panic("storetest: " + err.Error())
	}
	if now == nil {
		now = time.Now
	}
	o := &Oracle{
		limits: limits, now: now, shards: make([]shard, shards),
		signs: map[string]time.Time{}, subs: map[*subscriber]bool{}, done: make(chan struct{}),
	}
	for i := range o.shards {
		o.shards[i].timers = map[string]*timer{}
	}
	return o
}

// Shards returns how many shards there are.
func (o *Oracle) Shards() int { return len(o.shards) }

// moment is the present: exact, for deadlines, and in whole milliseconds rounded
// down, for what is due.
type moment struct {
	exact time.Time
	ms    store.Millis
}

// after is d after the present: at once if d is not above zero.
func (m moment) after(d time.Duration) store.Millis {
	if d <= 0 {
		return m.ms
	}
	return store.After(store.MillisAt(m.exact), d)
}

// begin locks o and returns the shard and the present, unless the call cannot be
// made. The caller unlocks o if there was no error.
func (o *Oracle) begin(ctx context.Context, n int, keys ...string) (*shard, moment, error) {
	if err := ctx.Err(); err != nil {
		return nil, moment{}, err
	}
	if n < 0 || n >= len(o.shards) {
		return nil, moment{}, fmt.Errorf("storetest: shard is %d, must be 0 to %d", n, len(o.shards)-1)
	}
	if len(keys) > store.MaxItems {
		return nil, moment{}, fmt.Errorf("storetest: a call has %d items, must be at most %d", len(keys), store.MaxItems)
	}
	for _, key := range keys {
		if err := store.CheckKey(key); err != nil {
			return nil, moment{}, err
		}
		if s := store.ShardOf(key, len(o.shards)); s != n {
			return nil, moment{}, fmt.Errorf("storetest: key %q is of shard %d, not %d", key, s, n)
		}
	}
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil, moment{}, store.ErrClosed
	}
	now := o.now()
	return &o.shards[n], moment{now, store.Millis(now.UnixMilli())}, nil
}

// Schedule adds timers.
func (o *Oracle) Schedule(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
	keys := make([]string, len(entries))
	for i, e := range entries {
		if err := e.Check(); err != nil {
			return nil, store.Horizon{}, err
		}
		keys[i] = e.Key
	}
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, store.Horizon{}, err
	}
	defer o.mu.Unlock()
	before := s.horizon(now)
	receipts := make([]store.Receipt, len(entries))
	for i, e := range entries {
		receipts[i] = o.schedule(s, now, e)
	}
	return receipts, o.announceEarlier(n, before, now), nil
}

func (o *Oracle) schedule(s *shard, now moment, e store.Entry) store.Receipt {
	old := s.timers[e.Key]
	if old != nil && e.IfAbsent {
		return store.Receipt{Kind: store.Exists}
	}
	pends := old != nil && old.State != store.Dead
	if o.limits.MaxPending > 0 && !pends && s.pending() >= o.limits.MaxPending {
		return store.Receipt{Kind: store.Refused}
	}
	due := e.At
	if due == 0 {
		due = now.after(e.After)
	}
	t := &timer{Record: store.Record{
		Key: e.Key, ID: e.ID, Topic: e.Topic, Body: bytes.Clone(e.Body), State: store.Waiting, Due: due,
	}}
	switch {
	case old == nil:
		s.timers[e.Key] = t
		return store.Receipt{Kind: store.Created, Due: due}
	case old.State == store.Waiting:
		s.timers[e.Key] = t
		return store.Receipt{Kind: store.Replaced, Due: due}
	case old.State == store.Dead:
		s.timers[e.Key] = t
		return store.Receipt{Kind: store.ReplacedDead, Due: due}
	default:
		old.successor = t
		return store.Receipt{Kind: store.Succeeds, Due: due}
	}
}

// pending counts what MaxPending bounds.
func (s *shard) pending() int {
	n := 0
	for _, t := range s.timers {
		if t.State != store.Dead {
			n++
		}
		if t.successor != nil {
			n++
		}
	}
	return n
}

// Cancel removes waiting timers and marks leased ones.
func (o *Oracle) Cancel(ctx context.Context, n int, keys []string) ([]store.CancelResult, error) {
	s, _, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, err
	}
	defer o.mu.Unlock()
	results := make([]store.CancelResult, len(keys))
	for i, key := range keys {
		t := s.timers[key]
		switch {
		case t == nil || t.State == store.Dead:
			results[i] = store.NotFound
		case t.State == store.Waiting:
			delete(s.timers, key)
			results[i] = store.Cancelled
		default:
			t.Cancelled, t.successor = true, nil
			o.publish(store.Event{Kind: store.CancelRun, Shard: n, Holder: t.holder()})
			results[i] = store.Running
		}
	}
	return results, nil
}

// Reschedule moves waiting timers.
func (o *Oracle) Reschedule(ctx context.Context, n int, moves []store.Move) ([]store.MoveResult, store.Horizon, error) {
	keys := make([]string, len(moves))
	for i, m := range moves {
		if err := m.Check(); err != nil {
			return nil, store.Horizon{}, err
		}
		keys[i] = m.Key
	}
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, store.Horizon{}, err
	}
	defer o.mu.Unlock()
	before := s.horizon(now)
	results := make([]store.MoveResult, len(moves))
	for i, m := range moves {
		t := s.timers[m.Key]
		switch {
		case t == nil || t.State == store.Dead:
			results[i] = store.MoveAbsent
		case t.State == store.Leased:
			results[i] = store.MoveRunning
		default:
			results[i] = store.Moved
			t.Due = m.At
			if m.At == 0 {
				t.Due = now.after(m.After)
			}
		}
	}
	return results, o.announceEarlier(n, before, now), nil
}

// Requeue makes dead letters wait again.
func (o *Oracle) Requeue(ctx context.Context, n int, keys []string) ([]store.RequeueResult, store.Horizon, error) {
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, store.Horizon{}, err
	}
	defer o.mu.Unlock()
	before := s.horizon(now)
	results := make([]store.RequeueResult, len(keys))
	for i, key := range keys {
		t := s.timers[key]
		switch {
		case t == nil:
			results[i] = store.RequeueAbsent
		case t.State != store.Dead:
			results[i] = store.RequeueLives
		default:
			results[i] = store.Requeued
			t.State, t.Died, t.Attempts, t.Due = store.Waiting, 0, 0, now.ms
		}
	}
	return results, o.announceEarlier(n, before, now), nil
}

// Purge removes dead letters.
func (o *Oracle) Purge(ctx context.Context, n int, keys []string) (int, error) {
	s, _, err := o.begin(ctx, n, keys...)
	if err != nil {
		return 0, err
	}
	defer o.mu.Unlock()
	purged := 0
	for _, key := range keys {
		if t := s.timers[key]; t != nil && t.State == store.Dead {
			delete(s.timers, key)
			purged++
		}
	}
	return purged, nil
}

// sorted returns the timers of a state that keep admits, by at and then key.
func (s *shard) sorted(state store.State, at func(*timer) store.Millis, keep func(*timer) bool) []*timer {
	var list []*timer
	for _, t := range s.timers {
		if t.State == state && keep(t) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *timer) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Key, b.Key))
	})
	return list
}

func byDue(t *timer) store.Millis      { return t.Due }
func byLeaseEnd(t *timer) store.Millis { return t.LeaseEnd }
func byDeath(t *timer) store.Millis    { return t.Died }
func all(*timer) bool                  { return true }

func (t *timer) holder() store.Holder {
	return store.Holder{Key: t.Key, Fence: t.Fence, Token: t.token}
}

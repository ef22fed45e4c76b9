// Package oracle is the reference implementation of a store, in memory: package memstore offers it
// to programs' own tests, and storetest compares engines with it.
package oracle

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/roster"
	"github.com/seed-782fa212/limbo/durable/store"
)

// Store is a [store.Store] in memory. It is deliberately slow and obvious: one mutex, one map per
// shard, and everything else searched and sorted on demand. It is as durable as its process. All
// methods are safe for concurrent use.
//
// It returns an error if a caller breaks the contract of store.Store: too many items, a key of
// another shard, or an argument that a Check method refuses.
//
// The exported fields are for storetest: its tests inject faults through them, and check that the
// suite finds these.
type Store struct {
	Limits store.Limits
	Now    func() time.Time

	Mu     sync.Mutex
	Parts  []Shard // guarded by Mu
	Quiet  bool    // guarded by Mu: events are lost
	Closed bool    // guarded by Mu
	roster roster.Roster
	subs   map[*subscriber]bool // guarded by Mu
	done   chan struct{}        // closed by Close
}

// Shard holds each timer under its key, so no timer can be in two states.
type Shard struct {
	Timers    map[string]*Timer
	Fence     uint64 // the last issued one
	Dropped   uint64
	Scheduled uint64
}

// Timer is one timer, in any state.
type Timer struct {
	store.Record
	Successor *Timer     // leased, or nil
	Wake      store.Wake // of a plan
}

var _ store.Store = (*Store)(nil)

// New returns an empty store with its own clock, now; if it is nil, time.Now.
func New(shards int, limits store.Limits, now func() time.Time) (*Store, error) {
	if shards < 1 || shards > store.MaxShards {
		return nil, fmt.Errorf("durable: Options.Shards is %d, must be 1 to %d", shards, store.MaxShards)
	}
	limits, err := limits.WithDefaults()
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	o := &Store{
		Limits: limits, Now: now, Parts: make([]Shard, shards),
		subs: map[*subscriber]bool{}, done: make(chan struct{}),
	}
	for i := range o.Parts {
		o.Parts[i].Timers = map[string]*Timer{}
	}
	return o, nil
}

// Shards returns the number of shards.
func (o *Store) Shards() int { return len(o.Parts) }

// moment is the present: exact, for deadlines, and in whole milliseconds rounded down, to compare
// with due times.
type moment struct {
	exact time.Time
	ms    store.Millis
}

// after returns the time d after the present: at once if d is zero or less.
func (m moment) after(d time.Duration) store.Millis {
	if d <= 0 {
		return m.ms
	}
	return store.After(store.MillisAt(m.exact), d)
}

// begin checks the call, locks o, and returns the shard and the present. Unless it returns an
// error, the caller unlocks o.
func (o *Store) begin(ctx context.Context, n int, keys ...string) (*Shard, moment, error) {
	if err := ctx.Err(); err != nil {
		return nil, moment{}, err
	}
	if n < 0 || n >= len(o.Parts) {
		return nil, moment{}, fmt.Errorf("durable: shard is %d, must be 0 to %d", n, len(o.Parts)-1)
	}
	if len(keys) > store.MaxItems {
		return nil, moment{}, fmt.Errorf("durable: a call has %d items, must be at most %d", len(keys), store.MaxItems)
	}
	for _, key := range keys {
		if err := store.CheckKey(key); err != nil {
			return nil, moment{}, err
		}
		if s := store.ShardOf(key, len(o.Parts)); s != n {
			return nil, moment{}, fmt.Errorf("durable: key %q is of shard %d, not %d", key, s, n)
		}
	}
	o.Mu.Lock()
	if o.Closed {
		o.Mu.Unlock()
		return nil, moment{}, store.ErrClosed
	}
	now := o.Now()
	return &o.Parts[n], moment{now, store.Millis(now.UnixMilli())}, nil
}

// Schedule adds timers.
func (o *Store) Schedule(ctx context.Context, n int, entries []store.Entry) ([]store.Receipt, store.Horizon, error) {
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
	defer o.Mu.Unlock()
	before := s.horizon(now)
	receipts := make([]store.Receipt, len(entries))
	for i, e := range entries {
		receipts[i] = o.schedule(s, now, e)
	}
	return receipts, o.announceEarlier(n, before, now), nil
}

func (o *Store) schedule(s *Shard, now moment, e store.Entry) store.Receipt {
	old := s.Timers[e.Key]
	if old != nil && e.IfAbsent {
		return store.Receipt{Kind: store.Exists}
	}
	pending := old != nil && old.State != store.Dead
	if o.Limits.MaxPending > 0 && !pending && s.Pending() >= o.Limits.MaxPending {
		return store.Receipt{Kind: store.Refused}
	}
	due := e.At
	if due == 0 {
		due = now.after(e.After)
	}
	t := &Timer{Record: store.Record{
		Key: e.Key, ID: e.ID, Topic: e.Topic, Body: bytes.Clone(e.Body), State: store.Waiting, Due: due,
	}}
	s.Scheduled++
	switch {
	case old == nil:
		s.Timers[e.Key] = t
		return store.Receipt{Kind: store.Created, Due: due}
	case old.State == store.Waiting:
		s.Timers[e.Key] = t
		return store.Receipt{Kind: store.Replaced, Due: due}
	case old.State == store.Dead:
		s.Timers[e.Key] = t
		return store.Receipt{Kind: store.ReplacedDead, Due: due}
	default:
		old.Successor = t
		return store.Receipt{Kind: store.Succeeds, Due: due}
	}
}

// Pending counts the timers that MaxPending bounds.
func (s *Shard) Pending() int {
	n := 0
	for _, t := range s.Timers {
		if t.State != store.Dead {
			n++
		}
		if t.Successor != nil {
			n++
		}
	}
	return n
}

// Cancel removes waiting timers and marks leased ones.
func (o *Store) Cancel(ctx context.Context, n int, keys []string) ([]store.CancelResult, error) {
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, err
	}
	defer o.Mu.Unlock()
	before := s.horizon(now)
	results := make([]store.CancelResult, len(keys))
	for i, key := range keys {
		t := s.Timers[key]
		switch {
		case t == nil || t.State == store.Dead:
			results[i] = store.NotFound
		case t.State == store.Waiting:
			delete(s.Timers, key)
			s.note(t, store.OccurrenceCancelled, now)
			results[i] = store.Cancelled
		default:
			t.Cancelled, t.Successor = true, nil
			o.publish(store.Event{Kind: store.CancelRun, Shard: n, Holder: t.Holder()})
			results[i] = store.Running
		}
	}
	o.announceEarlier(n, before, now) // a plan may wake
	return results, nil
}

// Reschedule moves waiting timers.
func (o *Store) Reschedule(ctx context.Context, n int, moves []store.Move) ([]store.MoveResult, store.Horizon, error) {
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
	defer o.Mu.Unlock()
	before := s.horizon(now)
	results := make([]store.MoveResult, len(moves))
	for i, m := range moves {
		t := s.Timers[m.Key]
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
func (o *Store) Requeue(ctx context.Context, n int, keys []string) ([]store.RequeueResult, store.Horizon, error) {
	s, now, err := o.begin(ctx, n, keys...)
	if err != nil {
		return nil, store.Horizon{}, err
	}
	defer o.Mu.Unlock()
	before := s.horizon(now)
	results := make([]store.RequeueResult, len(keys))
	for i, key := range keys {
		t := s.Timers[key]
		switch {
		case t == nil:
			results[i] = store.RequeueAbsent
		case t.State != store.Dead:
			results[i] = store.RequeueExists
		default:
			results[i] = store.Requeued
			t.State, t.Died, t.Attempts, t.Due = store.Waiting, 0, 0, now.ms
		}
	}
	return results, o.announceEarlier(n, before, now), nil
}

// Purge removes dead letters.
func (o *Store) Purge(ctx context.Context, n int, keys []string) (int, error) {
	s, _, err := o.begin(ctx, n, keys...)
	if err != nil {
		return 0, err
	}
	defer o.Mu.Unlock()
	purged := 0
	for _, key := range keys {
		if t := s.Timers[key]; t != nil && t.State == store.Dead {
			delete(s.Timers, key)
			purged++
		}
	}
	return purged, nil
}

// sorted returns the timers of a state for which keep is true, by at and then key.
func (s *Shard) sorted(state store.State, at func(*Timer) store.Millis, keep func(*Timer) bool) []*Timer {
	var list []*Timer
	for _, t := range s.Timers {
		if t.State == state && keep(t) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *Timer) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.Key, b.Key))
	})
	return list
}

func byDue(t *Timer) store.Millis      { return t.Due }
func byLeaseEnd(t *Timer) store.Millis { return t.LeaseEnd }
func byDeath(t *Timer) store.Millis    { return t.Died }
func all(*Timer) bool                  { return true }

// Holder returns the holder of t's lease.
func (t *Timer) Holder() store.Holder {
	return store.Holder{Key: t.Key, Fence: t.Fence, Token: t.Token}
}

// Clone returns a store with the same timers and another clock. It has no subscribers and no
// workers.
func (o *Store) Clone(now func() time.Time) *Store {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	c := &Store{Limits: o.Limits, Now: now, Parts: slices.Clone(o.Parts), done: make(chan struct{})}
	for i := range c.Parts {
		timers := make(map[string]*Timer, len(o.Parts[i].Timers))
		for key, t := range o.Parts[i].Timers {
			copied := *t
			copied.History = t.history()
			if t.Successor != nil {
				next := *t.Successor
				copied.Successor = &next
			}
			timers[key] = &copied
		}
		c.Parts[i].Timers = timers
	}
	return c
}

// Restart does what reopening an engine in one process does: all leases expire, and Scheduled
// counts from 0.
func (o *Store) Restart() {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	for i := range o.Parts {
		s := &o.Parts[i]
		s.Scheduled = 0
		for _, t := range s.Timers {
			if t.State == store.Leased {
				t.LeaseEnd = store.Millis(o.Now().UnixMilli())
			}
		}
	}
}

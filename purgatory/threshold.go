package purgatory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"
)

// Threshold holds operations that wait for a number to be reached on a key: a
// produce for the high watermark of its partition, a fetch for its bytes. Make
// one with [NewThreshold]; it runs goroutines until it is shut down. All
// methods are safe for use from any goroutine, Complete and the function that
// reads a number included.
//
// Against a [Purgatory], whose CheckAndComplete asks every watcher of a key
// whether it can complete, [Threshold.Advance] looks only at those that can
// (P13). Timeouts, cancels, bounds, outcomes and the shutdown are the same.
//
// The Threshold does not remember numbers; it reads them where they are, with
// the function it was made with. So a key that nobody waits for costs nothing,
// and a number that two calls of Advance bring in the wrong order does no
// harm.
type Threshold[K comparable, N cmp.Ordered] struct {
	host    // its wheel's zero values: a deferred key to advance
	current func(K) N
	seed    maphash.Seed
	shards  []goalShard[K, N] // length a power of two

	deferred deferred[K]
}

// Need says how many of an operation's goals must be reached.
type Need uint8

const (
	// All of them, at one time or another: a goal that was reached stays
	// reached, though its number go down again.
	All Need = iota + 1
	// Any one of them.
	Any
)

// String is "all" or "any".
func (n Need) String() string {
	switch n {
	case All:
		return "all"
	case Any:
		return "any"
	}
	return fmt.Sprintf("Need(%d)", uint8(n))
}

// Completion is an operation of a Threshold. Complete ends it: called exactly
// once (P1), as [Operation] says.
type Completion interface {
	Complete(o Outcome)
}

// NewThreshold makes a Threshold. current reads a key's number as it is now; it
// is called by TryCompleteElseWatch, at most twice for each goal, on that
// goroutine and with no lock of the library held. A nil one, or an option out
// of range, is an error that names it.
func NewThreshold[K comparable, N cmp.Ordered](current func(K) N, o Options) (*Threshold[K, N], error) {
	if current == nil {
		return nil, errors.New("purgatory: the function that reads a number is nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Threshold[K, N]{
		current: current,
		seed:    maphash.MakeSeed(),
		shards:  make([]goalShard[K, N], o.Shards),
	}
	for i := range t.shards {
		t.shards[i].keys = make(map[K]*tree[K, N])
	}
	if err := t.open(o, t.expire); err != nil {
		return nil, err
	}
	return t, nil
}

// TryCompleteElseWatch completes op if its goals are reached, all or any of
// them as need says, and otherwise has it wait for that: until [Threshold.Advance]
// brings it, it is cancelled, or timeout has passed.
//
// If op completes within the call, Complete has been called and the handle is
// zero. Otherwise the handle is that of the waiting operation; it may have
// ended by the time it is returned. A timeout of zero or less expires at once,
// on a worker; [NoTimeout] never does.
//
// The numbers are read before op waits, and once more after, so that nothing
// is lost in between (P2): a change that comes before the second reading is
// seen by it, and the Advance of a later one finds op waiting.
//
// An error means that op does not wait and that its Complete is not called: no
// goals, a nil op, an unknown need, a key or number that is not equal to
// itself, ErrFull, ErrClosed. One allocation, two for more than one goal; for
// each goal O(1) if its number is the highest waited for on its key, as it is
// where offsets ascend, and O(log n) otherwise.
func (t *Threshold[K, N]) TryCompleteElseWatch(op Completion, timeout time.Duration, need Need, goals ...Goal[K, N]) (Pending, error) {
	return t.TryCompleteElseWatchContext(context.Background(), op, timeout, need, goals...)
}

// TryCompleteElseWatchContext is TryCompleteElseWatch for an operation that
// also ends, as Cancelled, when ctx is done (P9); see the method of [Purgatory].
func (t *Threshold[K, N]) TryCompleteElseWatchContext(ctx context.Context, op Completion, timeout time.Duration, need Need, goals ...Goal[K, N]) (Pending, error) {
	if err := checkArguments(ctx, op, need, goals); err != nil {
		return Pending{}, err
	}
	if t.end.begun.Load() {
		return Pending{}, ErrClosed
	}
	e := &effort[K, N]{op: op, current: t.current, any: need == Any}
	if e.goals = e.space[:0]; len(goals) > len(e.space) {
		e.goals = make([]goal[K, N], 0, len(goals))
	}
	for _, g := range goals {
		e.goals = append(e.goals, goal[K, N]{key: g.Key, number: g.Number})
	}
	if t.first(e) {
		return Pending{}, nil
	}
	if !t.reserve() {
		return Pending{}, ErrFull
	}
	e.begin(&t.host, e, e, timeout)
	e.left.Store(int32(len(e.goals)))
	if !t.enter(e) {
		return e.withdraw()
	}
	return e.entered(ctx)
}

// expire is the wheel's expiry function.
func (t *Threshold[K, N]) expire(h Pending) {
	if h.IsZero() {
		t.advanceDeferred()
		return
	}
	h.end(Expired)
}

func checkArguments[K comparable, N cmp.Ordered](ctx context.Context, op Completion, need Need, goals []Goal[K, N]) error {
	switch {
	case op == nil:
		return errors.New("purgatory: the operation is nil")
	case ctx == nil:
		return errors.New("purgatory: the context is nil")
	case need != All && need != Any:
		return fmt.Errorf("purgatory: need is %v, must be All or Any", need)
	case len(goals) == 0:
		return errors.New("purgatory: the operation has no goals, must have at least 1")
	}
	for i, g := range goals {
		if !reflexive(g.Key) {
			return fmt.Errorf("purgatory: goals[%d].Key is %v, must be equal to itself", i, g.Key)
		}
		if !reflexive(g.Number) {
			return fmt.Errorf("purgatory: goals[%d].Number is %v, must be equal to itself", i, g.Number)
		}
	}
	return nil
}

// enter puts each goal into its key's tree; false if the Threshold has been
// closed meanwhile.
func (t *Threshold[K, N]) enter(e *effort[K, N]) bool {
	for i := range e.goals {
		g := &e.goals[i]
		s := t.shardOf(g.key)
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return false
		}
		g.effort, g.shard = e, s
		s.addLocked(g)
		if i == 0 {
			s.delayed++
		}
		s.mu.Unlock()
	}
	return true
}

// Advance says that key's number has reached n, and completes the operations
// for which that was the last goal missing, lowest goal first and equal ones in
// the order they came; it says how many it completed. Call it after every
// change that may let one complete, with the number as it is then. It runs
// Complete on the calling goroutine and holds no lock meanwhile.
//
// A number that is lower than the last one, after a truncation or with a new
// leader, completes nothing more and undoes nothing.
//
// It takes O(1) for each goal that is reached, amortised, and O(1) if none is;
// it never looks at another one. It allocates nothing.
func (t *Threshold[K, N]) Advance(key K, n N) int {
	return t.sweep(key, sweep[K, N]{upTo: n, as: Completed})
}

// CancelForKey ends all operations that have a goal on key still to be
// reached, as Cancelled, and says how many this call did end so.
func (t *Threshold[K, N]) CancelForKey(key K) int {
	return t.sweep(key, sweep[K, N]{all: true, as: Cancelled})
}

// sweep is one way through the goals of a key: it takes those up to a number
// out of the tree and ends their operations, or counts the goal for them, in
// order and with no lock held.
type sweep[K comparable, N cmp.Ordered] struct {
	shard *goalShard[K, N]
	key   K
	upTo  N       // goals beyond it stay,
	all   bool    // unless all are meant
	as    Outcome // Completed: a goal is reached; otherwise the operations end so
	ended int     // operations that this sweep has ended

	limit uint64 // goals that came later stay: operations that wait again as they complete do not keep it going
	more  bool   // there may be another batch

	found [batch]*effort[K, N] // those of at to n-1 are yet to visit
	at, n int
}

func (t *Threshold[K, N]) sweep(key K, w sweep[K, N]) int {
	w.shard, w.key = t.shardOf(key), key
	w.shard.mu.Lock()
	w.limit = w.shard.seq
	w.fillLocked()
	w.shard.mu.Unlock()
	w.run()
	return w.ended
}

// run visits this batch and all that follow. When a Complete ends the
// goroutine, by runtime.Goexit, the rest have their turn while it does (P7).
func (w *sweep[K, N]) run() {
	whole := false
	defer func() {
		if !whole {
			w.run()
		}
	}()
	for {
		for w.at < w.n {
			e := w.found[w.at]
			w.at++
			if w.as == Completed && e.reached() || w.as != Completed && e.handle().end(w.as) {
				w.ended++
			}
		}
		if !w.more {
			break
		}
		w.shard.mu.Lock()
		w.fillLocked()
		w.shard.mu.Unlock()
	}
	whole = true
}

func (w *sweep[K, N]) fillLocked() {
	w.at, w.n = 0, 0
	if tree := w.shard.keys[w.key]; tree != nil {
		for g := tree.first; g != nil && w.n < batch && (w.all || g.number <= w.upTo); {
			next := g.next()
			if g.seq <= w.limit {
				w.found[w.n] = g.effort
				w.n++
				w.shard.removeLocked(g)
			}
			g = next
		}
	}
	w.more = w.n == batch
}

// Close begins a shutdown, as [Purgatory.Close] does.
func (t *Threshold[K, N]) Close() {
	t.end.begun.Store(true)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	var all []Pending
	for i := range t.shards {
		all = t.shards[i].appendWaiting(all)
	}
	endAll(all)
	t.close(t.Delayed)
}

// Shutdown is [Threshold.Close] that waits; see [Purgatory.Shutdown].
func (t *Threshold[K, N]) Shutdown(ctx context.Context) error {
	mustHave(ctx)
	t.Close()
	return t.closed(ctx)
}

func (s *goalShard[K, N]) appendWaiting(all []Pending) []Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = slices.Grow(all, s.goals)
	for _, t := range s.keys {
		for g := t.first; g != nil; g = g.next() {
			all = append(all, g.effort.handle())
		}
	}
	return all
}

// Stats reads the figures: Watched are the goals that are still to be reached.
func (t *Threshold[K, N]) Stats() Stats {
	st, ended := t.begin()
	t.all(func(s *goalShard[K, N]) {
		st.Watched += s.goals
		st.Keys += len(s.keys)
		ended.add(&st, &s.tally)
	})
	t.fill(&st, &ended)
	return st
}

// Delayed is the number of operations that wait, each counted once: of one
// moment, exactly.
func (t *Threshold[K, N]) Delayed() (n int) {
	t.all(func(s *goalShard[K, N]) { n += s.delayed })
	return n
}

// all calls f with each shard while all are locked; see Purgatory.all.
func (t *Threshold[K, N]) all(f func(*goalShard[K, N])) {
	for i := range t.shards {
		t.shards[i].mu.Lock()
	}
	for i := range t.shards {
		f(&t.shards[i])
	}
	for i := range t.shards {
		t.shards[i].mu.Unlock()
	}
}

func (t *Threshold[K, N]) shardOf(key K) *goalShard[K, N] {
	return &t.shards[maphash.Comparable(t.seed, key)&uint64(len(t.shards)-1)]
}

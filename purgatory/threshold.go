package purgatory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/internal/goexit"
)

// Threshold holds operations that wait for a number to be reached on a key: a produce for the
// high watermark of its partition, a fetch for its bytes. Make one with [NewThreshold]; it runs
// goroutines until it is shut down. All methods are safe for use from any goroutine, also from
// Complete and from the function that reads a number.
//
// The CheckAndComplete of a [Purgatory] asks every watcher of a key whether it can complete;
// [Threshold.Advance] visits only the operations that can. Timeouts, cancels, bounds, outcomes
// and the shutdown are the same.
//
// The Threshold does not store numbers; it reads the current ones with the function given to
// NewThreshold. So a key without waiting operations costs nothing, and calls of Advance whose
// numbers arrive in the wrong order do no harm. Numbers must not wrap around.
type Threshold[K comparable, N cmp.Ordered] struct {
	core
	current  func(K) N
	seed     maphash.Seed
	table    table[K, *tree[K, N]]
	trees    sync.Pool // empty trees
	records  sync.Pool // records of ended operations
	deferred deferred[K]
}

// NewThreshold makes a Threshold. current returns a key's current number. TryCompleteElseWatch
// calls it on its goroutine, at most twice for each goal, and a worker calls it for
// [Threshold.AdvanceLater]. It must be safe for use from any goroutine; no lock of the library
// is held while it runs. A nil current panics; an option out of range is an error that names
// it.
func NewThreshold[K comparable, N cmp.Ordered](current func(K) N, o Options) (*Threshold[K, N], error) {
	if current == nil {
		panic("purgatory: the function that reads a number is nil")
	}
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Threshold[K, N]{current: current, seed: maphash.MakeSeed()}
	t.trees.New = func() any { return new(tree[K, N]) }
	t.records.New = func() any { return new(thresholdWaiter[K, N]) }
	t.table.init()
	t.deferred.init(&t.core, func(key K) { t.Advance(key, t.current(key)) })
	if err := t.open(o, t); err != nil {
		return nil, err
	}
	return t, nil
}

// TryCompleteElseWatch completes op if as many of its goals are reached as need says. Otherwise
// op waits until [Threshold.Advance] reaches them, it is cancelled, or timeout has passed.
//
// If op ends within the call, Complete has been called and the handle is zero. Otherwise the
// handle is that of the waiting operation, which may have ended by the time the call returns.
// For timeout and ctx see the method of [Purgatory].
//
// The numbers are read before op waits and again afterwards, so that no change is missed: the
// second reading sees an earlier change, and the Advance of a later one finds op waiting. A
// goal given twice counts twice.
//
// An error means that op does not wait and that its Complete is not called: no goals, a need
// that is not 1 to the number of goals, a key or number that is not equal to itself, [ErrFull],
// [ErrClosed]. A nil ctx or op panics. The call allocates nothing for up to 64 goals once the
// records of ended operations can be used again. Each goal takes O(1) if its number is the
// highest on its key, as it is where offsets ascend, and O(log n) otherwise.
func (t *Threshold[K, N]) TryCompleteElseWatch(ctx context.Context, op Completion, timeout time.Duration, need Need, goals ...Goal[K, N]) (Pending, error) {
	done := t.mustHaveArguments(ctx, op)
	n, err := checkGoals(need, goals)
	if err != nil {
		return Pending{}, err
	}
	if t.closing.begun.Load() {
		t.countRefused(ErrClosed)
		return Pending{}, ErrClosed
	}
	w := t.records.Get().(*thresholdWaiter[K, N])
	w.prepare(t, op, n, goals)
	gen := w.begin(&t.core, w, timeout)
	w.setRemaining(gen) // before other goroutines can see w
	if completed, ended := w.check(); completed || ended {
		if completed {
			w.finish(Completed)
		}
		return Pending{}, nil
	}
	w.n = uint16(len(goals))
	part, soon, err := t.countIn(&w.waiter, gen)
	if err != nil { // no other goroutine has seen w
		w.recycle()
		return Pending{}, err
	}
	t.enter(w, part)
	t.putTally(part)
	return w.wait(ctx, done, gen, soon)
}

func checkGoals[K comparable, N cmp.Ordered](need Need, goals []Goal[K, N]) (n int, err error) {
	if len(goals) == 0 {
		return 0, errors.New("purgatory: the operation has no goals, must have at least 1")
	}
	if len(goals) > maxKeys {
		return 0, fmt.Errorf("purgatory: the operation has %d goals, must have at most %d", len(goals), maxKeys)
	}
	for i, g := range goals {
		if !reflexive(g.Key) {
			return 0, fmt.Errorf("purgatory: goals[%d].Key is %v, must be equal to itself", i, g.Key)
		}
		if !reflexive(g.Number) {
			return 0, fmt.Errorf("purgatory: goals[%d].Number is %v, must be equal to itself", i, g.Number)
		}
	}
	return need.of(len(goals))
}

func (t *Threshold[K, N]) hash(key K) uint64 {
	t.mustBeMade()
	return maphash.Comparable(t.seed, key) | 1<<63
}

// enter puts each goal into its key's tree.
func (t *Threshold[K, N]) enter(w *thresholdWaiter[K, N], part *tally) {
	crowded := false
	w.entered = true
	goals := w.goals()
	for i := range goals {
		g := &goals[i]
		hash := t.hash(g.key)
		b := t.table.lock(uint32(hash))
		e := b.find(g.key, hash)
		if e == nil {
			e, crowded = t.table.insertLocked(b, g.key, hash)
			e.value = t.trees.Get().(*tree[K, N])
			part.keys.Add(1) // with the lock held: an Advance may subtract the key next
		}
		g.hash = uint32(hash)
		g.enterLocked(e.value)
		b.mu.Unlock()
		if crowded {
			crowded = false
			t.table.grow(t.KeyCount())
		}
	}
}

// removeGoal removes a goal from its tree, and reports whether it was there. If reached, the
// operation may go on waiting, so the counts are corrected here.
func (t *Threshold[K, N]) removeGoal(g *goal[K, N], reached bool) bool {
	b := t.table.lock(g.hash)
	defer b.mu.Unlock()
	if g.tree == nil {
		return false
	}
	keyRemoved := t.removeLocked(b, g)
	if reached {
		t.countReached(1, keyRemoved)
	} else if keyRemoved {
		t.countReached(0, true)
	}
	return true
}

// removeLocked removes a goal from its tree, and the key if that was its last goal.
func (t *Threshold[K, N]) removeLocked(b *bucket[K, *tree[K, N]], g *goal[K, N]) (keyRemoved bool) {
	tree := g.tree
	tree.remove(g)
	if tree.n > 0 {
		return false
	}
	e := b.next(nil, g.hash)
	for e.value != tree {
		e = b.next(e, g.hash) // another key with this hash
	}
	e.value = nil
	t.table.removeLocked(b, e)
	t.trees.Put(tree)
	return true
}

// leave removes the operation's goals from their trees. See lists.
func (t *Threshold[K, N]) leave(w *waiter) (watches, keysRemoved int) {
	record := w.op.(*thresholdWaiter[K, N]) // whose waiter w is
	goals := record.goals()
	if int(record.need) == len(goals) && record.missing() == 0 {
		return 0, 0 // each goal was removed before it was counted
	}
	for i := range goals {
		if t.removeGoal(&goals[i], false) {
			watches++
		}
	}
	return watches, 0
}

// free does nothing: Complete still reads the record, and then releases it.
func (t *Threshold[K, N]) free(*waiter) {}

// shrink releases memory of the table. See lists.
func (t *Threshold[K, N]) shrink(limit int) { t.table.shrink(t.KeyCount(), limit) }

// Advance completes the operations for which it was the last missing goal that key's number
// reaches n, lowest goal first and equal ones in order of arrival. It returns the number of
// operations that it completed. Call it after every change that may let one complete, with the
// current number. It runs Complete on the calling goroutine, without a lock. Waking 20,000
// waiting goroutines takes about 40 ms, so prefer [Threshold.AdvanceLater] on the request path.
//
// A number lower than the last one, after a truncation or with a new leader, completes nothing
// more and undoes nothing. A NaN completes nothing.
//
// It takes O(1) for each reached goal, amortised, and O(1) if none is; it never visits other
// goals. It allocates nothing.
func (t *Threshold[K, N]) Advance(key K, n N) int {
	return t.sweep(sweep[K, N]{key: key, upTo: n, outcome: Completed})
}

// CancelForKey ends all operations that have a goal on key still to be reached, as Cancelled,
// and returns how many this call ended. Their Complete receives cause, or [ErrCancelled] if it
// is nil.
func (t *Threshold[K, N]) CancelForKey(key K, cause error) int {
	return t.sweep(sweep[K, N]{key: key, all: true, outcome: Cancelled, cause: cause})
}

// AdvanceLater makes a worker read key's number and call Advance with it. It is to Advance as
// [Purgatory.CheckAndCompleteLater] is to CheckAndComplete: it runs none of your code, so it
// may be called with any lock held. If the function that reads the number panics, the panic is
// reported and this Advance is lost.
func (t *Threshold[K, N]) AdvanceLater(key K) error {
	t.mustBeMade()
	return t.deferred.add(key)
}

// Await blocks until as many goals are reached as need says, and returns nil. Otherwise it
// returns the reason; see [Purgatory.Await].
func (t *Threshold[K, N]) Await(ctx context.Context, timeout time.Duration, need Need, goals ...Goal[K, N]) error {
	done := mustHaveContext(ctx)
	a := await{ended: make(chan error, 1)}
	h, err := t.TryCompleteElseWatch(context.Background(), a, timeout, need, goals...)
	return a.wait(ctx, done, &t.core, h, err)
}

// sweepBatch is the maximum number of goals removed while a key's lock is held once.
const sweepBatch = 32

// sweep is one pass over the goals of a key: it removes the goals up to a number from the tree
// and ends their operations, or counts the goals as reached, in order and without a lock.
type sweep[K comparable, N cmp.Ordered] struct {
	threshold *Threshold[K, N]
	key       K
	hash      uint64
	upTo      N       // higher goals stay,
	all       bool    // unless all is set
	outcome   Outcome // Completed: count reached goals; otherwise the outcome of the operations
	cause     error
	ended     int // operations that this sweep has ended

	tree  *tree[K, N] // the key's tree at the first batch; a later tree has none of its goals
	limit uint64      // newer goals stay, or operations that wait again could prolong the sweep
	more  bool        // there may be another batch

	found [sweepBatch]removedGoal[K, N] // entries at to n-1 are still to be visited
	at, n int
}

// removedGoal names an operation one of whose goals was removed from the tree.
type removedGoal[K comparable, N cmp.Ordered] struct {
	waiter *thresholdWaiter[K, N]
	gen    uint64
}

func (g removedGoal[K, N]) handle() Pending { return Pending{&g.waiter.waiter, g.gen} }

func (t *Threshold[K, N]) sweep(s sweep[K, N]) int {
	s.threshold, s.hash = t, t.hash(s.key)
	s.fill()
	s.run()
	return s.ended
}

// run visits this batch and all that follow.
func (s *sweep[K, N]) run() {
	done := false
	defer goexit.Resume(&done, s.run)
	for {
		for s.at < s.n {
			g := s.found[s.at]
			s.at++
			var ended bool
			if s.outcome == Completed {
				ended = g.waiter.reached(g.gen) && g.handle().end(Completed)
			} else {
				ended = g.handle().Cancel(s.cause)
			}
			if ended {
				s.ended++
			}
		}
		if !s.more {
			break
		}
		s.fill()
	}
	done = true
}

// fill removes the next batch from the tree.
func (s *sweep[K, N]) fill() {
	first := s.tree == nil
	s.at, s.n, s.more = 0, 0, false
	b := s.threshold.table.lock(uint32(s.hash))
	defer b.mu.Unlock()
	e := b.find(s.key, s.hash)
	if e == nil || !first && e.value != s.tree {
		return
	}
	tree, keyRemoved := e.value, false
	if first {
		s.tree, s.limit = tree, tree.seq
	}
	for g := tree.first; g != nil && s.n < sweepBatch && (s.all || g.number <= s.upTo); {
		next := g.next()
		if g.seq <= s.limit {
			s.found[s.n] = removedGoal[K, N]{g.waiter, g.waiter.state.generation()}
			s.n++
			keyRemoved = s.threshold.removeLocked(b, g)
		}
		g = next
	}
	s.more = s.n == sweepBatch && !keyRemoved
	if s.n > 0 {
		s.threshold.countReached(s.n, keyRemoved)
	}
}

// Watching returns the number of goals still to be reached on key at one moment, in constant
// time.
func (t *Threshold[K, N]) Watching(key K) int {
	h := t.hash(key)
	b := t.table.lock(uint32(h))
	defer b.mu.Unlock()
	if e := b.find(key, h); e != nil {
		return e.value.n
	}
	return 0
}

// Stats returns the statistics; Watched counts the goals still to be reached. See
// [Purgatory.Stats].
func (t *Threshold[K, N]) Stats() Stats { return t.stats() }

// Clock is like [Purgatory.Clock].
func (t *Threshold[K, N]) Clock() *Clock {
	t.mustBeMade()
	return t.clock
}

// Len returns the number of pending operations, each counted once. See [Purgatory.Len].
func (t *Threshold[K, N]) Len() int { return t.pending() }

// Watched returns the number of goals still to be reached.
func (t *Threshold[K, N]) Watched() int { return t.watched() }

// KeyCount returns the number of keys with a goal still to be reached. See
// [Purgatory.KeyCount].
func (t *Threshold[K, N]) KeyCount() int { return t.keyCount() }

// Close begins a shutdown, as [Purgatory.Close] does.
func (t *Threshold[K, N]) Close() {
	t.refuseAll()
	var all []Pending
	t.table.visit(func(b *bucket[K, *tree[K, N]]) bool {
		b.each(func(e *entry[K, *tree[K, N]]) {
			for g := e.value.first; g != nil; g = g.next() {
				all = append(all, g.waiter.handle())
			}
		})
		return true
	})
	endAll(all)
	t.deferred.clear()
	t.closeWheel()
}

// Shutdown calls [Threshold.Close] and waits; see [Purgatory.Shutdown].
func (t *Threshold[K, N]) Shutdown(ctx context.Context) error {
	mustHaveContext(ctx)
	t.Close()
	return waitFor(ctx, t.closing.done)
}

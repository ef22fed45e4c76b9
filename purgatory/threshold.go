package purgatory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
)

// Threshold holds operations that wait for a number to be reached on a key: a
// produce for the high watermark of its partition, a fetch for its bytes. Make
// one with [NewThreshold]; it runs goroutines until it is shut down. All
// methods are safe for use from any goroutine, Complete and the function that
// reads a number included.
//
// Against a [Purgatory], whose CheckAndComplete asks every watcher of a key
// whether it can complete, [Threshold.Advance] looks only at those that can.
// Timeouts, cancels, bounds, outcomes and the shutdown are the same.
//
// The Threshold does not remember numbers; it reads them where they are, with
// the function it was made with. So a key that nobody waits for costs nothing,
// and a number that two calls of Advance bring in the wrong order does no
// harm. Numbers must not wrap around.
type Threshold[K comparable, N cmp.Ordered] struct {
	core
	current  func(K) N
	seed     maphash.Seed
	table    table[K, *tree[K, N]]
	trees    sync.Pool // emptied ones
	records  sync.Pool // of operations that have ended
	deferred deferred[K]
}

// NewThreshold makes a Threshold. current reads a key's number as it is now; it
// is called by TryCompleteElseWatch, at most twice for each goal, on that goroutine, and
// for [Threshold.AdvanceLater] by a worker, with no lock of the library held: so it must be
// safe for use from any goroutine. A nil one panics; an option out
// of range is an error that names it.
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

// TryCompleteElseWatch completes op if its goals are reached, as many of them
// as need says, and otherwise has it wait for that: until [Threshold.Advance]
// brings it, it is cancelled, or timeout has passed.
//
// If op ends within the call, Complete has been called and the handle is
// zero. Otherwise the handle is that of the waiting operation; it may have
// ended by the time it is returned. For timeout and ctx see the method of
// [Purgatory].
//
// The numbers are read before op waits, and once more after, so that nothing
// is lost in between: a change that comes before the second reading is
// seen by it, and the Advance of a later one finds op waiting. A goal given twice
// counts twice.
//
// An error means that op does not wait and that its Complete is not called: no
// goals, a need that is not 1 to as many as there are goals, a key or number that is
// not equal to itself, [ErrFull], [ErrClosed]. A nil ctx or op panics. It allocates
// nothing once the records of operations that have ended can be used again, up to 64
// goals; for each goal O(1) if its number is the highest waited for on its key, as it is
// where offsets ascend, and O(log n) otherwise.
func (t *Threshold[K, N]) TryCompleteElseWatch(ctx context.Context, op Completion, timeout time.Duration, need Need, goals ...Goal[K, N]) (Pending, error) {
	done := t.mustBeUsable(ctx, op)
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
	w.expect(gen) // before others can meet it
	if completed, ended := w.check(); completed || ended {
		if completed {
			w.finish(Completed)
		}
		return Pending{}, nil
	}
	w.n = uint16(len(goals))
	part, soon, err := t.countIn(&w.waiter, gen)
	if err != nil { // nobody has met it
		w.putBack()
		return Pending{}, err
	}
	t.enter(w, part)
	t.putBack(part)
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
			part.keys.Add(1) // with the lock held: an Advance may count the key out next
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

// takeOut takes a goal out of its tree, and reports whether it was there. reached: the
// operation goes on waiting, so that what is counted is corrected.
func (t *Threshold[K, N]) takeOut(g *goal[K, N], reached bool) bool {
	b := t.table.lock(g.hash)
	defer b.mu.Unlock()
	if g.tree == nil {
		return false
	}
	vanished := t.removeLocked(b, g)
	if reached {
		t.countReached(1, vanished)
	} else if vanished {
		t.countReached(0, true)
	}
	return true
}

// removeLocked takes a goal out of its tree, and the key out with its last one.
func (t *Threshold[K, N]) removeLocked(b *bucket[K, *tree[K, N]], g *goal[K, N]) (vanished bool) {
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

// leave takes the operation's goals out of their trees. See lists.
func (t *Threshold[K, N]) leave(w *waiter) (watches, vanished int) {
	x := w.op.(*thresholdWaiter[K, N])
	goals := x.goals()
	if int(x.need) == len(goals) && x.missing() == 0 {
		return 0, 0 // each was taken out before it was counted
	}
	for i := range goals {
		if t.takeOut(&goals[i], false) {
			watches++
		}
	}
	return watches, 0
}

// free does nothing: Complete reads the record, and is who gives it to operations to come.
func (t *Threshold[K, N]) free(*waiter) {}

// shrink gives memory of the table back. See lists.
func (t *Threshold[K, N]) shrink(most int) { t.table.shrink(t.KeyCount(), most) }

// Advance records that key's number has reached n, and completes the operations
// for which that was the last goal missing, lowest goal first and equal ones in
// the order they came; it returns how many it completed. Call it after every
// change that may let one complete, with the number as it is then. It runs
// Complete on the calling goroutine and holds no lock meanwhile: 20,000 goroutines
// that wait are woken in some 40 ms, so on the way of a request
// [Threshold.AdvanceLater] is to be preferred.
//
// A number that is lower than the last one, after a truncation or with a new
// leader, completes nothing more and undoes nothing. A NaN completes nothing.
//
// It takes O(1) for each goal that is reached, amortised, and O(1) if none is;
// it never looks at another one. It allocates nothing.
func (t *Threshold[K, N]) Advance(key K, n N) int {
	return t.sweep(sweep[K, N]{key: key, upTo: n, as: Completed})
}

// CancelForKey ends all operations that have a goal on key still to be
// reached, as Cancelled, and returns how many this call did end so. They are told
// cause, or [ErrCancelled] if that is nil.
func (t *Threshold[K, N]) CancelForKey(key K, cause error) int {
	return t.sweep(sweep[K, N]{key: key, all: true, as: Cancelled, cause: cause})
}

// AdvanceLater has a worker call Advance with key, and with its number as it is
// read then. It is to Advance what [Purgatory.CheckAndCompleteLater] is to
// CheckAndComplete: it runs none of your code, so it may be called with any
// lock held. If the function that reads the number panics, that is reported, and
// this Advance is lost.
func (t *Threshold[K, N]) AdvanceLater(key K) error {
	t.mustBeMade()
	return t.deferred.add(key)
}

// Await blocks until goals are reached, as many as need says. It returns nil then,
// and otherwise why it gave up; see [Purgatory.Await].
func (t *Threshold[K, N]) Await(ctx context.Context, timeout time.Duration, need Need, goals ...Goal[K, N]) error {
	done := mustHave(ctx)
	w := await{ended: make(chan error, 1)}
	h, err := t.TryCompleteElseWatch(context.Background(), w, timeout, need, goals...)
	return w.wait(ctx, done, &t.core, h, err)
}

// sweepBatch is how many goals are taken out for one turn of a key's lock.
const sweepBatch = 32

// sweep is one way through the goals of a key: it takes those up to a number
// out of the tree and ends their operations, or counts the goal for them, in
// order and with no lock held.
type sweep[K comparable, N cmp.Ordered] struct {
	threshold *Threshold[K, N]
	key       K
	hash      uint64
	upTo      N       // goals beyond it stay,
	all       bool    // unless all are meant
	as        Outcome // Completed: a goal is reached; otherwise the operations end so
	cause     error
	ended     int // operations that this sweep has ended

	tree  *tree[K, N] // another one has none of the goals that were there at first
	limit uint64      // goals that came later stay: operations that wait again as they complete do not keep it going
	more  bool        // there may be another batch

	found [sweepBatch]reachedGoal[K, N] // those of at to n-1 are yet to visit
	at, n int
}

// reachedGoal is an operation that a goal was taken out for.
type reachedGoal[K comparable, N cmp.Ordered] struct {
	w   *thresholdWaiter[K, N]
	gen uint64
}

func (x reachedGoal[K, N]) handle() Pending { return Pending{&x.w.waiter, x.gen} }

func (t *Threshold[K, N]) sweep(w sweep[K, N]) int {
	w.threshold, w.hash = t, t.hash(w.key)
	w.fill()
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
			x := w.found[w.at]
			w.at++
			if w.as == Completed && x.w.reached(x.gen) {
				if x.handle().end(Completed) {
					w.ended++
				}
			} else if w.as != Completed && x.handle().Cancel(w.cause) {
				w.ended++
			}
		}
		if !w.more {
			break
		}
		w.fill()
	}
	whole = true
}

// fill takes the next batch out of the tree.
func (w *sweep[K, N]) fill() {
	first := w.tree == nil
	w.at, w.n, w.more = 0, 0, false
	b := w.threshold.table.lock(uint32(w.hash))
	defer b.mu.Unlock()
	e := b.find(w.key, w.hash)
	if e == nil || !first && e.value != w.tree {
		return
	}
	tree, vanished := e.value, false
	if first {
		w.tree, w.limit = tree, tree.seq
	}
	for g := tree.first; g != nil && w.n < sweepBatch && (w.all || g.number <= w.upTo); {
		next := g.next()
		if g.seq <= w.limit {
			w.found[w.n] = reachedGoal[K, N]{g.waiter, g.waiter.state.generation()}
			w.n++
			vanished = w.threshold.removeLocked(b, g)
		}
		g = next
	}
	w.more = w.n == sweepBatch && !vanished
	if w.n > 0 {
		w.threshold.countReached(w.n, vanished)
	}
}

// Watching returns how many goals are still to be reached on a key: of one moment, in
// constant time.
func (t *Threshold[K, N]) Watching(key K) int {
	h := t.hash(key)
	b := t.table.lock(uint32(h))
	defer b.mu.Unlock()
	if e := b.find(key, h); e != nil {
		return e.value.n
	}
	return 0
}

// Stats returns the figures: Watched are the goals still to be reached.
// See [Purgatory.Stats].
func (t *Threshold[K, N]) Stats() Stats { return t.stats() }

// Clock is [Purgatory.Clock].
func (t *Threshold[K, N]) Clock() *Clock {
	t.mustBeMade()
	return t.clock
}

// Len returns the number of operations that wait, each counted once. See
// [Purgatory.Len].
func (t *Threshold[K, N]) Len() int { return t.delayed() }

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

// Shutdown is [Threshold.Close] that waits; see [Purgatory.Shutdown].
func (t *Threshold[K, N]) Shutdown(ctx context.Context) error {
	mustHave(ctx)
	t.Close()
	return waitFor(ctx, t.closing.done)
}

package purgatory

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// Goal is a number that is to be reached on a key.
type Goal[K comparable, N cmp.Ordered] struct {
	Key    K
	Number N
}

// Need is how many of an operation's goals must be reached: [All], [Any] or
// [AtLeast] a number.
type Need int

const (
	// All of them, not necessarily at the same time: a reached goal stays reached even if its
	// number goes down again.
	All Need = math.MinInt
	// Any one of them.
	Any Need = 1
)

// AtLeast is the need of n goals, 1 or more, not necessarily at the same time.
func AtLeast(n int) Need { return max(Need(n), All+1) }

// String returns "all", "any" or "at least 3".
func (n Need) String() string {
	switch n {
	case All:
		return "all"
	case Any:
		return "any"
	}
	return fmt.Sprintf("at least %d", int(n))
}

// of returns how many of the goals must be reached.
func (n Need) of(goals int) (int, error) {
	switch {
	case n == All:
		return goals, nil
	case n < 1:
		return 0, fmt.Errorf("purgatory: need is %d, must be All, Any or AtLeast 1 or more", int(n))
	case int(n) > goals:
		return 0, fmt.Errorf("purgatory: need is %v, of %d goals", n, goals)
	}
	return int(n), nil
}

// goal is one goal of one operation, and a node of the key's tree. The fields that a traversal
// of the tree reads come first.
type goal[K comparable, N cmp.Ordered] struct {
	number N

	// Guarded by the lock of the key's bucket.
	seq                 uint64
	parent, left, right *goal[K, N]
	tree                *tree[K, N] // nil: in no tree; reached, or the operation has ended
	priority            uint32

	hash   uint32 // of the key
	waiter *thresholdWaiter[K, N]
	key    K
}

// enterLocked puts a goal into the tree of its key.
func (g *goal[K, N]) enterLocked(t *tree[K, N]) {
	t.seq++
	g.seq = t.seq
	g.priority = rand.Uint32() //nolint:gosec // no secret: it keeps a tree balanced
	t.insert(g)
}

// thresholdWaiter is the record of an operation that waits in a Threshold. Like a waiter it is
// used again when its operation has ended.
type thresholdWaiter[K comparable, N cmp.Ordered] struct {
	waiter

	remaining atomic.Uint64 // a countdown

	one        [1]goal[K, N] // most operations have one goal
	many       *[]goal[K, N] // used instead by an operation with more; otherwise nil or empty
	threshold  *Threshold[K, N]
	completion Completion
	need       uint16
	entered    bool // the goals are or were in their trees
}

// countdown is the number of an operation's goals still to be reached, in the lowest bits, and the
// generation of the operation, as far as it fits: a sweep may still refer to one that has ended.
type countdown uint64

const goalsBits = 16

func newCountdown(gen uint64, goals uint16) countdown {
	return countdown(gen<<goalsBits | uint64(goals))
}

func (c countdown) goals() uint16 { return uint16(c) }

// belongsTo reports whether c counts for that generation.
func (c countdown) belongsTo(gen uint64) bool { return c == newCountdown(gen, c.goals()) }

// prepare stores the operation's goals and need, before other goroutines can see it.
func (w *thresholdWaiter[K, N]) prepare(t *Threshold[K, N], op Completion, need int, goals []Goal[K, N]) {
	w.threshold, w.completion, w.need, w.entered = t, op, uint16(need), false
	if len(goals) == 1 {
		w.one[0] = goal[K, N]{waiter: w, key: goals[0].Key, number: goals[0].Number}
		return
	}
	if w.many == nil {
		w.many = new([]goal[K, N])
	}
	*w.many = slices.Grow(*w.many, len(goals))
	for _, g := range goals {
		*w.many = append(*w.many, goal[K, N]{waiter: w, key: g.Key, number: g.Number})
	}
}

func (w *thresholdWaiter[K, N]) goals() []goal[K, N] {
	if w.many != nil && len(*w.many) > 0 {
		return *w.many
	}
	return w.one[:]
}

// setRemaining sets remaining to the number of goals that must be reached.
func (w *thresholdWaiter[K, N]) setRemaining(gen uint64) {
	w.remaining.Store(uint64(newCountdown(gen, w.need)))
}

// missing returns the number of goals still to be reached. Only the owner calls it.
func (w *thresholdWaiter[K, N]) missing() uint16 { return countdown(w.remaining.Load()).goals() }

// reached counts a goal that has left its tree because its number was reached, and reports
// whether it was the last one missing. It does not count the goal if the operation has ended in
// between.
func (w *thresholdWaiter[K, N]) reached(gen uint64) bool {
	for {
		c := countdown(w.remaining.Load())
		if !c.belongsTo(gen) || c.goals() == 0 {
			return false
		}
		if w.remaining.CompareAndSwap(uint64(c), uint64(c-1)) {
			return c.goals() == 1
		}
	}
}

// TryComplete is called before the goals are entered, and once more afterwards, for numbers that
// were reached in between.
func (w *thresholdWaiter[K, N]) TryComplete() bool {
	if w.entered {
		return w.countMissed()
	}
	return w.enoughReached()
}

// enoughReached reads the current numbers, and reports whether as many goals are reached as the
// operation needs. It counts nothing: a goal is counted only once it has been entered.
func (w *thresholdWaiter[K, N]) enoughReached() bool {
	reached := uint16(0)
	goals := w.goals()
	for i := range goals {
		if g := &goals[i]; w.threshold.current(g.key) >= g.number {
			if reached++; reached == w.need {
				return true
			}
		}
	}
	return false
}

// countMissed takes out of their trees and counts the goals whose numbers were reached before they
// were entered: no Advance has seen those. It reports whether the last missing one was among them.
func (w *thresholdWaiter[K, N]) countMissed() bool {
	goals, gen := w.goals(), w.state.generation()
	for i := range goals {
		g := &goals[i]
		if !(w.threshold.current(g.key) >= g.number) { //nolint:staticcheck // a NaN has not reached it
			continue
		}
		// If an Advance has removed the goal in between, that Advance counts it.
		if w.threshold.removeGoal(g, true) && w.reached(gen) {
			return true
		}
	}
	return false
}

// Complete releases the record, and completes the user's operation.
func (w *thresholdWaiter[K, N]) Complete(o Outcome, cause error) {
	op := w.completion
	w.recycle()
	op.Complete(o, cause)
}

// recycle makes the record available to later operations. It clears the goals, because keys may
// keep much memory alive.
func (w *thresholdWaiter[K, N]) recycle() {
	t := w.threshold
	w.threshold, w.completion = nil, nil
	goals := w.goals()
	clear(goals)
	if len(goals) > maxExtra {
		w.many = nil
	} else if w.many != nil {
		*w.many = (*w.many)[:0]
	}
	t.records.Put(w)
}

package purgatory

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// Goal is a number to be reached on a key.
type Goal[K comparable, N cmp.Ordered] struct {
	Key    K
	Number N
}

// Need is how many of an operation's goals must be reached: [All], [Any] or
// [AtLeast] a number.
type Need int

const (
	// All of them, at one time or another: a goal that was reached stays
	// reached, though its number go down again.
	All Need = math.MinInt
	// Any one of them.
	Any Need = 1
)

// AtLeast is the need of n goals, 1 or more, at one time or another.
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

// of returns how many of that many goals it is.
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

// goal is one goal of one operation, and its place in the key's tree. What a way through
// the tree reads comes first.
type goal[K comparable, N cmp.Ordered] struct {
	number N

	// Guarded by the lock of the key's bucket.
	seq             uint64
	up, left, right *goal[K, N]
	tree            *tree[K, N] // nil: in none; reached, or the operation has ended
	priority        uint32

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

// thresholdWaiter is the record of an operation that waits in a Threshold. Like a
// waiter it serves another operation when its own has ended.
type thresholdWaiter[K comparable, N cmp.Ordered] struct {
	waiter

	// left is how many goals must still be reached, with the operation's generation: a
	// sweep may still name one that has ended.
	left atomic.Uint64

	only       [1]goal[K, N] // most have one
	several    *[]goal[K, N] // instead, of an operation with more; otherwise nil or empty
	threshold  *Threshold[K, N]
	completion Completion
	need       uint16
	entered    bool // the goals are in their trees, or were
}

// leftBits is for how many goals there is room in left.
const leftBits = 16

// prepare notes what the operation waits for, before others can meet it.
func (w *thresholdWaiter[K, N]) prepare(t *Threshold[K, N], op Completion, need int, goals []Goal[K, N]) {
	w.threshold, w.completion, w.need, w.entered = t, op, uint16(need), false
	if len(goals) == 1 {
		w.only[0] = goal[K, N]{waiter: w, key: goals[0].Key, number: goals[0].Number}
		return
	}
	if w.several == nil {
		w.several = new([]goal[K, N])
	}
	*w.several = slices.Grow(*w.several, len(goals))
	for _, g := range goals {
		*w.several = append(*w.several, goal[K, N]{waiter: w, key: g.Key, number: g.Number})
	}
}

// goals returns the operation's goals.
func (w *thresholdWaiter[K, N]) goals() []goal[K, N] {
	if w.several != nil && len(*w.several) > 0 {
		return *w.several
	}
	return w.only[:]
}

// expect notes that as many goals must be reached as are needed.
func (w *thresholdWaiter[K, N]) expect(gen uint64) {
	w.left.Store(gen<<leftBits | uint64(w.need))
}

// missing returns how many goals must still be reached, for the owner.
func (w *thresholdWaiter[K, N]) missing() uint16 { return uint16(w.left.Load()) }

// reached counts one goal that has left its tree because its number has been reached,
// and reports whether it was the last one missing. It is not counted if the operation
// has ended meanwhile.
func (w *thresholdWaiter[K, N]) reached(gen uint64) bool {
	for {
		left := w.left.Load()
		if left>>leftBits != gen<<leftBits>>leftBits || uint16(left) == 0 {
			return false
		}
		if w.left.CompareAndSwap(left, left-1) {
			return uint16(left) == 1
		}
	}
}

// TryComplete looks at the numbers as they are, before the operation waits; and
// once more after, for what was reached before it did.
func (w *thresholdWaiter[K, N]) TryComplete() bool {
	if w.entered {
		return w.checkEntered()
	}
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

// checkEntered counts the goals that were reached before they were entered: no
// Advance has seen those.
func (w *thresholdWaiter[K, N]) checkEntered() bool {
	goals, gen := w.goals(), w.state.generation()
	for i := range goals {
		g := &goals[i]
		if !(w.threshold.current(g.key) >= g.number) { //nolint:staticcheck // a NaN has not reached it
			continue
		}
		// If an Advance has taken it out meanwhile, it is that one which counts it.
		if w.threshold.takeOut(g, true) && w.reached(gen) {
			return true
		}
	}
	return false
}

// Complete gives the record to operations to come, and ends the user's operation.
func (w *thresholdWaiter[K, N]) Complete(o Outcome, cause error) {
	op := w.completion
	w.putBack()
	op.Complete(o, cause)
}

// putBack gives the record to operations to come. Nothing of this one is kept: keys may
// hold much.
func (w *thresholdWaiter[K, N]) putBack() {
	t := w.threshold
	w.threshold, w.completion = nil, nil
	goals := w.goals()
	clear(goals)
	if len(goals) > maxAside {
		w.several = nil
	} else if w.several != nil {
		*w.several = (*w.several)[:0]
	}
	t.records.Put(w)
}

// Package linear checks whether concurrent calls are linearizable (Herlihy and Wing, 1990). They
// are if there is an order, with each call at a point between its begin and its end, in which
// calls made one by one give the same answers.
package linear

import (
	"cmp"
	"math"
	"slices"
)

// Operation is a call and its answer. Begin and End are by a clock common to all operations. Two
// operations overlap if neither ends before the other begins.
type Operation[C, A any] struct {
	Call       C
	Answer     A
	Begin, End int64
}

// Linearizable reports whether operations are linearizable, starting with the given state of the
// object. step makes one call: it reports whether the object would give this answer in a state,
// and returns the state after the call.
//
// It tries orders depth first (Wing and Gong, 1993) and remembers dead ends (Lowe, 2017). Its
// time is linear if few operations overlap, and in the worst case exponential in the number of
// overlapping operations.
func Linearizable[S comparable, C, A any](state S, step func(S, C, A) (bool, S), operations []Operation[C, A]) bool {
	x := search[S, C, A]{
		step: step,
		operations: slices.SortedStableFunc(slices.Values(operations), func(a, b Operation[C, A]) int {
			return cmp.Compare(a.Begin, b.Begin)
		}),
		made:     make([]byte, len(operations)),
		deadEnds: map[node[S]]bool{},
	}
	return x.from(0, 0, state)
}

type search[S comparable, C, A any] struct {
	step       func(S, C, A) (bool, S)
	operations []Operation[C, A] // by begin
	made       []byte            // 1 for each operation that is in the order so far
	deadEnds   map[node[S]]bool
}

// node is a state of the search that it can reach by several orders of the same operations.
type node[S any] struct {
	first int    // all operations before it are made
	made  string // which of the later ones are made
	state S
}

// from reports whether the order can be completed. All operations before first are made, and
// none from beyond on.
func (x *search[S, C, A]) from(first, beyond int, state S) bool {
	for first < beyond && x.made[first] == 1 {
		first++
	}
	if first == len(x.operations) {
		return true
	}
	here := node[S]{first, string(x.made[first:beyond]), state}
	if x.deadEnds[here] {
		return false
	}
	// The next operation in the order begins before any of the others has ended.
	end := int64(math.MaxInt64)
	for i := first; i < len(x.operations) && x.operations[i].Begin <= end; i++ {
		if x.made[i] == 1 {
			continue
		}
		o := x.operations[i]
		end = min(end, o.End)
		if ok, after := x.step(state, o.Call, o.Answer); ok {
			x.made[i] = 1
			if x.from(first, max(beyond, i+1), after) {
				return true
			}
			x.made[i] = 0
		}
	}
	x.deadEnds[here] = true
	return false
}

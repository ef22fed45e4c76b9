// Package linear finds out whether concurrent calls are linearizable (Herlihy and Wing,
// 1990): whether they have an order, in which each stands somewhere between its begin and
// its end, that gives the same answers when the calls are made one by one.
package linear

import (
	"cmp"
	"math"
	"slices"
)

// Operation is a call that was made and what it answered. Begin and End are by any one
// clock; two operations of which neither ends before the other begins overlap.
type Operation[C, A any] struct {
	Call       C
	Answer     A
	Begin, End int64
}

// Explained reports whether operations are linearizable, from the state on that the object
// has before them. step makes one call: it returns whether the object would answer so in a
// state, and the state after that.
//
// It tries orders depth first (Wing and Gong, 1993) and remembers from where there is none
// (Lowe, 2017). Its time is linear in operations where few overlap, and in the worst case
// exponential in how many do.
func Explained[S comparable, C, A any](state S, step func(S, C, A) (bool, S), operations []Operation[C, A]) bool {
	x := search[S, C, A]{
		step: step,
		operations: slices.SortedStableFunc(slices.Values(operations), func(a, b Operation[C, A]) int {
			return cmp.Compare(a.Begin, b.Begin)
		}),
		made:  make([]byte, len(operations)),
		stuck: map[place[S]]bool{},
	}
	return x.from(0, 0, state)
}

type search[S comparable, C, A any] struct {
	step       func(S, C, A) (bool, S)
	operations []Operation[C, A] // by begin
	made       []byte            // 1 for each that is in the order so far
	stuck      map[place[S]]bool
}

// place is where a search can come by several orders of the same operations.
type place[S any] struct {
	first int    // all before it are made
	made  string // which are, from there on
	state S
}

// from reports whether the order can be completed: all operations before first are made,
// and none from beyond on.
func (x *search[S, C, A]) from(first, beyond int, state S) bool {
	for first < beyond && x.made[first] == 1 {
		first++
	}
	if first == len(x.operations) {
		return true
	}
	here := place[S]{first, string(x.made[first:beyond]), state}
	if x.stuck[here] {
		return false
	}
	// Next in the order is one that begins before any of the others has ended.
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
	x.stuck[here] = true
	return false
}

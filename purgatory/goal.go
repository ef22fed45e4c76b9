package purgatory

import (
	"cmp"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// Goal is a number to be reached on a key.
type Goal[K comparable, N cmp.Ordered] struct {
	Key    K
	Number N
}

// goal is one goal of one operation, and its place in the key's tree.
type goal[K comparable, N cmp.Ordered] struct {
	effort *effort[K, N]
	shard  *goalShard[K, N]
	key    K
	number N

	// Guarded by shard.mu.
	tree            *tree[K, N] // nil: in none; reached, or the operation has ended
	up, left, right *goal[K, N]
	seq             uint64
	priority        uint32
}

// goalShard is the part of the keys that hashes to it.
//
// Invariant: a key is in the map if and only if its tree holds a goal (P5).
type goalShard[K comparable, N cmp.Ordered] struct {
	mu sync.Mutex

	// Guarded by mu.
	keys   map[K]*tree[K, N]
	peak   int           // the most that keys has held; maps never shrink
	spare  []*tree[K, N] // emptied trees, to be used again
	goals  int           // in all trees
	seq    uint64        // of the goal that came last
	closed bool          // refuses goals (P12)

	tally

	_ [64]byte // keeps the next shard's lock off this one's cache line
}

func (s *goalShard[K, N]) addLocked(g *goal[K, N]) {
	t := s.keys[g.key]
	if t == nil {
		if k := len(s.spare); k > 0 {
			t = s.spare[k-1]
			s.spare = s.spare[:k-1]
		} else {
			t = new(tree[K, N])
		}
		t.key = g.key
		s.keys[g.key] = t
		s.peak = max(s.peak, len(s.keys))
	}
	s.seq++
	g.seq = s.seq
	g.priority = rand.Uint32() //nolint:gosec // no secret: it keeps a tree balanced
	t.insert(g)
	s.goals++
}

// removeLocked takes a goal out of its tree, and the tree away with its last.
func (s *goalShard[K, N]) removeLocked(g *goal[K, N]) {
	t := g.tree
	t.remove(g)
	s.goals--
	if t.n > 0 {
		return
	}
	delete(s.keys, t.key)
	if len(s.keys) == 0 && s.peak > keepKeys {
		s.keys, s.peak = make(map[K]*tree[K, N]), 0
	}
	var none K
	t.key = none
	if len(s.spare) < maxSpare {
		s.spare = append(s.spare, t)
	}
}

// effort is an operation that waits in a Threshold.
type effort[K comparable, N cmp.Ordered] struct {
	record
	op      Completion // nil once ended
	goals   []goal[K, N]
	current func(K) N
	any     bool         // one goal is enough
	left    atomic.Int32 // goals that were not reached yet

	space [1]goal[K, N] // most have one
}

// reached counts one goal that has left its tree because its number has been
// reached, and ends the operation if that was enough. It says whether it did.
func (e *effort[K, N]) reached() bool {
	if left := e.left.Add(-1); left > 0 && !e.any {
		return false
	}
	return e.handle().end(Completed)
}

// TryComplete looks at the numbers as they are, before the operation waits; and
// once more after, for what was reached before it did.
func (e *effort[K, N]) TryComplete() bool {
	if e.host != nil {
		return e.check()
	}
	for i := range e.goals {
		if g := &e.goals[i]; (e.current(g.key) >= g.number) == e.any {
			return e.any
		}
	}
	return !e.any
}

// Complete ends the user's operation, and holds on to nothing of it.
func (e *effort[K, N]) Complete(o Outcome) {
	op := e.op
	e.op, e.current = nil, nil
	clear(e.goals) // nobody reads them any more, and keys may hold much
	e.goals = nil
	op.Complete(o)
}

// check counts the goals that were reached before they were entered: no Advance
// has seen those.
func (e *effort[K, N]) check() bool {
	for i := range e.goals {
		g := &e.goals[i]
		if reached := e.current(g.key) >= g.number; !reached {
			continue
		}
		s := g.shard
		s.mu.Lock()
		mine := g.tree != nil
		if mine {
			s.removeLocked(g)
		}
		s.mu.Unlock()
		if mine && (e.left.Add(-1) == 0 || e.any) {
			return true
		}
	}
	return false
}

func (e *effort[K, N]) leave(o Outcome) {
	entered := false
	// The first goal last, as an operation's first watch: see leave.
	for i := len(e.goals) - 1; i >= 0; i-- {
		g := &e.goals[i]
		s := g.shard
		if s == nil {
			continue // not entered any more
		}
		entered = true
		s.mu.Lock()
		if g.tree != nil {
			s.removeLocked(g)
		}
		last := false
		if i == 0 {
			s.out(o, &e.record)
			last = s.closed && s.delayed == 0
		}
		s.mu.Unlock()
		if last {
			e.host.end.tell()
		}
	}
	if !entered {
		e.host.outside[o].Add(1)
	}
}

func (e *effort[K, N]) last() *sync.Mutex { return &e.goals[0].shard.mu }

// free does nothing: a sweep may still name the effort, and Complete writes to it.
// Its memory is collected.
func (e *effort[K, N]) free(*host) {}

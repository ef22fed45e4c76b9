package purgatory

import "cmp"

// tree holds the goals of one key, lowest number first and equal numbers in order of arrival.
// It is a treap, a binary search tree balanced by random priorities (Seidel and Aragon,
// "Randomized Search Trees", 1996), with pointers to its two ends:
//
//   - Goals that arrive in ascending order, as offsets do, are added at the end, and reached
//     goals are removed from the front: O(1) each, amortised.
//   - Any other goal is added in O(log n), and removed, when its operation has ended
//     otherwise, in O(1), each expected.
//
// The nodes are part of the goals, so nothing is allocated. The lock of the key's bucket guards
// the tree.
//
// Invariant: in order, goals ascend by (number, seq). No goal's priority is
// below its parent's.
type tree[K comparable, N cmp.Ordered] struct {
	root        *goal[K, N]
	first, last *goal[K, N]
	n           int
	seq         uint64 // of the newest goal; continues when the tree is used for another key
}

// before is the order of the tree. No two goals are equal.
func (g *goal[K, N]) before(other *goal[K, N]) bool {
	if g.number != other.number {
		return g.number < other.number
	}
	return g.seq < other.seq
}

func (t *tree[K, N]) insert(g *goal[K, N]) {
	g.tree = t
	t.n++
	if t.root == nil {
		t.root, t.first, t.last = g, g, g
		return
	}
	// Search from the end if the goal belongs there, otherwise from the root.
	at, left := t.last, false
	if g.before(t.last) {
		for at = t.root; ; {
			left = g.before(at)
			next := at.right
			if left {
				next = at.left
			}
			if next == nil {
				break
			}
			at = next
		}
	}
	g.parent = at
	if left {
		at.left = g
		if at == t.first {
			t.first = g
		}
	} else {
		at.right = g
		if at == t.last {
			t.last = g
		}
	}
	for g.parent != nil && g.priority < g.parent.priority {
		t.lift(g)
	}
}

func (t *tree[K, N]) remove(g *goal[K, N]) {
	if g == t.first {
		t.first = g.next()
	}
	if g == t.last {
		t.last = g.previous()
	}
	for g.left != nil && g.right != nil {
		if g.left.priority < g.right.priority {
			t.lift(g.left)
		} else {
			t.lift(g.right)
		}
	}
	child := g.left
	if child == nil {
		child = g.right
	}
	if child != nil {
		child.parent = g.parent
	}
	t.replace(g, child)
	g.tree, g.parent, g.left, g.right = nil, nil, nil, nil
	t.n--
}

// replace puts with in the position of g.
func (t *tree[K, N]) replace(g, with *goal[K, N]) {
	switch {
	case g.parent == nil:
		t.root = with
	case g.parent.left == g:
		g.parent.left = with
	default:
		g.parent.right = with
	}
}

// lift rotates g above its parent.
func (t *tree[K, N]) lift(g *goal[K, N]) {
	p := g.parent
	t.replace(p, g)
	g.parent, p.parent = p.parent, g
	var moved *goal[K, N]
	if p.left == g {
		moved = g.right
		p.left, g.right = moved, p
	} else {
		moved = g.left
		p.right, g.left = moved, p
	}
	if moved != nil {
		moved.parent = p
	}
}

// next returns the goal behind g; nil at the end.
func (g *goal[K, N]) next() *goal[K, N] {
	if at := g.right; at != nil {
		for at.left != nil {
			at = at.left
		}
		return at
	}
	for g.parent != nil && g.parent.right == g {
		g = g.parent
	}
	return g.parent
}

// previous returns the goal before g; nil at the front.
func (g *goal[K, N]) previous() *goal[K, N] {
	if at := g.left; at != nil {
		for at.right != nil {
			at = at.right
		}
		return at
	}
	for g.parent != nil && g.parent.left == g {
		g = g.parent
	}
	return g.parent
}

// after returns the first goal behind the position (number, seq); nil if there is none.
func (t *tree[K, N]) after(number N, seq uint64) (found *goal[K, N]) {
	for at := t.root; at != nil; {
		if number < at.number || number == at.number && seq < at.seq {
			found, at = at, at.left
		} else {
			at = at.right
		}
	}
	return found
}

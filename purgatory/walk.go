package purgatory

// batch is how many watchers are looked at for one turn of the key's lock.
const batch = 32

// walk is one way through the operations that watch a key.
type walk[K comparable] struct {
	shard *shard[K]
	// left is how many watches it still may meet. Watches go only from the
	// list, or to its end: those that were there when it began come first.
	left int
	// cursor is where it goes on after this batch; nil: nowhere.
	cursor *watch[K]

	found [batch]*Pending // those of at to n-1 are yet to visit
	at, n int
}

// walk calls visit with each operation that watches key, in the order they
// came, and holds no lock meanwhile. It reaches all that watch when it begins
// and have not ended when their turn comes; not, but by chance, those that
// come later, so operations that watch the key again as they complete do not
// keep it going for ever.
//
// The lock is held for one batch at a time, however long the list is.
func (p *Purgatory[K]) walk(key K, visit func(*Pending)) {
	s := p.shardOf(key)
	s.mu.Lock()
	l := s.keys[key]
	if l == nil {
		s.mu.Unlock()
		return
	}
	w := walk[K]{shard: s, left: l.n}
	w.fillLocked(l, l.head)
	s.mu.Unlock()
	w.run(visit)
}

// run visits this batch and all that follow. When visit ends the goroutine, by
// runtime.Goexit, the rest have their turn while it does: none of them misses
// it for another's sake (P7).
func (w *walk[K]) run(visit func(*Pending)) {
	whole := false
	defer func() {
		if !whole {
			w.run(visit)
		}
	}()
	for {
		for w.at < w.n {
			h := w.found[w.at]
			w.at++
			visit(h)
		}
		if w.cursor == nil {
			break
		}
		w.shard.mu.Lock()
		w.fillLocked(w.cursor.list, w.cursor.next)
		w.shard.mu.Unlock()
	}
	whole = true
}

// fillLocked finds the batch that begins at next, and moves the cursor behind it.
func (w *walk[K]) fillLocked(l *watchers[K], next *watch[K]) {
	w.at, w.n = 0, 0
	for ; next != nil && w.left > 0 && w.n < batch; next = next.next {
		if next.pending != nil {
			w.found[w.n] = next.pending
			w.n++
			w.left--
		}
	}
	if w.cursor != nil {
		w.shard.removeLocked(w.cursor)
		w.cursor = nil
	}
	if next != nil && w.left > 0 {
		w.cursor = &watch[K]{}
		l.insert(w.cursor, next)
	}
}

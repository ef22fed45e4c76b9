package timingwheel

import (
	"math/bits"
	"reflect"
	"testing"
)

// verify checks every invariant of a wheel at rest: nothing runs, nothing is
// due that a worker could take, and nobody calls. Tests call it after each
// step. It uses no testify: it runs millions of times.
func verify[V any](t testing.TB, w *Wheel[V]) {
	t.Helper()
	pending, waiting := 0, 0
	ready := map[run]bool{} // non-empty ready buckets
	for _, s := range w.shards {
		p, q := verifyShard(t, s, ready)
		pending, waiting = pending+p, waiting+q
	}
	check := checker(t)
	if w.options.MaxPending > 0 {
		check(w.held.Load() == int64(pending), "held %d, pending %d", w.held.Load(), pending)
	}
	if pending > 0 || !w.shards[0].closed {
		check(w.queue.Len() == waiting, "%d in the queue, %d waiting buckets", w.queue.Len(), waiting)
	}
	verifyWorkers(t, w, ready)
}

func checker(t testing.TB) func(ok bool, format string, args ...any) {
	return func(ok bool, format string, args ...any) {
		if !ok {
			t.Helper()
			t.Fatalf("invariant broken: "+format, args...)
		}
	}
}

// verifyShard checks one shard and returns how many timers it holds and how
// many of its buckets should be in the queue.
func verifyShard[V any](t testing.TB, s *shard[V], ready map[run]bool) (pending, waiting int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	check := checker(t)
	now := s.wheel.floor(s.wheel.now())
	check(s.clock <= now, "shard %d's clock %d is after the present %d", s.num, s.clock, now)

	gone := map[uint32]bool{}
	for _, id := range s.buckets.gone {
		check(!gone[id] && id > 0 && int(id) < len(s.buckets.table), "bucket %d freed twice, or none", id)
		gone[id] = true
	}
	seen := map[uint32]bool{} // nodes in rows
	rows := map[uint32]bool{} // rows in buckets
	seqs := map[uint64]bool{}
	readyTimers := 0
	for k := range s.buckets.table {
		b, id := &s.buckets.table[k], uint32(k)
		if k == 0 || gone[id] {
			check(*b == bucket{}, "free bucket %d is %+v", id, *b)
			continue
		}
		check(b.seq > 0 && b.seq <= s.buckets.seq && !seqs[b.seq], "bucket %d: seq %d", id, b.seq)
		seqs[b.seq] = true
		verifyList(t, s, id, seen, rows)
		switch b.state {
		case bucketWaiting:
			waiting++
			verifyWaiting(t, s, id)
		case bucketReady:
			readyTimers += int(b.count)
			if b.count > 0 {
				ready[run{s.num, id, b.seq}] = true
			}
		default:
			check(false, "bucket %d at rest is in state %d", id, b.state)
		}
	}
	check(len(s.cascading) == 0, "at rest %d buckets cascade", len(s.cascading))
	for l := range s.levels {
		check(len(s.levels[l].ids) == 2<<s.bits, "level %d has %d buckets", l, len(s.levels[l].ids))
		for place, id := range s.levels[l].ids {
			check((s.levels[l].occupied[place/64]>>(place%64)&1 == 1) == (id != 0), "level %d place %d holds %d, its bit says otherwise", l, place, id)
			if id == 0 {
				continue
			}
			b := s.buckets.table[id]
			check(b.state == bucketWaiting && int(b.level) == l, "level %d place %d holds %+v", l, place, b)
		}
	}

	c := s.counts
	check(c.pending == len(seen) && c.ready == readyTimers, "counts %+v, found %d pending %d ready", c, len(seen), readyTimers)
	ends := c.stopped + c.expired + c.discarded + c.returned
	check(c.scheduled == uint64(c.pending)+ends, "T3: counts do not add up: %+v", c)
	verifySlabs(t, &s.slabs, seen)
	if s.spareRow != 0 {
		check(!rows[s.spareRow], "the spare row is in use")
		rows[s.spareRow] = true
	}
	verifySlabs(t, &s.rows, rows)
	return len(seen), waiting
}

// verifyList checks a bucket's rows, and the timers in them.
func verifyList[V any](t testing.TB, s *shard[V], id uint32, seen, rows map[uint32]bool) {
	t.Helper()
	check := checker(t)
	b := &s.buckets.table[id]
	count, prev := uint32(0), uint32(0)
	for at := b.head; at != 0; {
		r := s.rows.lookup(at)
		check(r != nil && !rows[at], "row %d is in two lists, or none at all", at)
		rows[at] = true
		check(r.place == id, "row %d of bucket %d says it is in %d", at, id, r.place)
		v := &r.value
		check(v.prev == prev, "row %d of bucket %d: prev %d, not %d", at, id, v.prev, prev)
		check(v.used != 0 && v.used < 1<<rowSlots, "row %d of bucket %d: used %b", at, id, v.used)
		for used := v.used; used != 0; used &= used - 1 {
			k := bits.TrailingZeros16(used)
			i := v.slots[k]
			n := s.slabs.lookup(i)
			check(n != nil && !seen[i], "node %d is in two slots, or none at all", i)
			seen[i] = true
			check(n.place == at<<slotBits|uint32(k), "node %d in slot %d of row %d says it is in %x", i, k, at, n.place)
			count++
		}
		prev, at = at, v.next
	}
	check(b.tail == prev && b.count == count, "bucket %d: tail %d not %d, count %d not %d", id, b.tail, prev, b.count, count)
}

func verifyWaiting[V any](t testing.TB, s *shard[V], id uint32) {
	t.Helper()
	check := checker(t)
	b := &s.buckets.table[id]
	check(int(b.level) < len(s.levels), "bucket %d is on level %d of %d", id, b.level, len(s.levels))
	shift := uint(b.level) * s.bits
	check(b.expiration>>shift<<shift == b.expiration, "bucket %d of level %d expires at %d", id, b.level, b.expiration)
	check(s.turn(b) > s.clock, "the turn of bucket %d is at %d, the clock shows %d", id, s.turn(b), s.clock)
	check(b.expiration>>shift-s.clock>>shift < 2<<s.bits, "bucket %d is more than a lap ahead", id)
	check(s.levels[b.level].ids[b.expiration>>shift&(2<<s.bits-1)] == id, "bucket %d is not in its place", id)
	s.eachLocked(b, func(_ uint32, n *node[V]) {
		d := n.deadline
		check(d >= b.expiration, "T2: deadline %d in a bucket that expires at %d", d, b.expiration)
		check(b.moved || b.level > 0 || d>>shift<<shift == b.expiration, "T1: deadline %d in bucket %+v", d, *b)
	})
}

// verifySlabs checks a shard's memory. used are the nodes that hold a timer.
func verifySlabs[V any](t testing.TB, a *slabs[V], used map[uint32]bool) {
	t.Helper()
	check := checker(t)
	live, spare, inUse := 0, 0, 0
	room := map[uint32]bool{}
	prev := uint32(0)
	for r := a.room; r != 0; r = a.table[r-1].next {
		check(a.table[r-1].nodes != nil && !room[r-1] && a.table[r-1].prev == prev, "room list at slab %d", r-1)
		room[r-1] = true
		prev = r
	}
	gone := map[uint32]bool{}
	for _, num := range a.gone {
		check(!gone[num] && a.table[num].nodes == nil && a.table[num].floor < maxGen, "slab %d is not gone, or for good", num)
		gone[num] = true
	}
	for k := range a.table {
		s, num := &a.table[k], uint32(k)
		if s.nodes == nil {
			check(gone[num] || s.floor >= maxGen, "slab %d is lost", num)
			check(*s == slab[V]{floor: s.floor}, "slab %d is gone and holds %+v", num, *s)
			continue
		}
		live++
		if s.used == 0 {
			spare++
		}
		check(room[num] == !s.full(), "slab %d: full %v, in the room list %v", num, s.full(), room[num])
		check(s.fresh >= 1 && s.fresh <= slabNodes, "slab %d: fresh %d", num, s.fresh)
		free := map[uint32]bool{}
		for off := uint32(s.free); off != 0; off = uint32(s.nodes[off].deadline) {
			check(off < uint32(s.fresh) && !free[off], "slab %d: free list at %d", num, off)
			free[off] = true
		}
		holding := 0
		for off := uint32(1); off < slabNodes; off++ {
			n := &s.nodes[off]
			switch {
			case off >= uint32(s.fresh) && *stripped(n) == (node[struct{}]{}): // most nodes
				continue
			case n.place != 0:
				holding++
				check(used[num<<slabBits|off] && !free[off], "node %d/%d", num, off)
				check(n.gen >= s.floor && n.gen < maxGen && off < uint32(s.fresh), "T6: node %d/%d: gen %d, floor %d", num, off, n.gen, s.floor)
			case off >= uint32(s.fresh):
				check(reflect.ValueOf(n).Elem().IsZero(), "fresh node %d/%d: %+v", num, off, *n)
			default:
				if free[off] != (n.gen < maxGen) || n.gen <= s.floor {
					check(false, "T6: freed node %d/%d of generation %d, floor %d, on the free list: %v", num, off, n.gen, s.floor, free[off])
				}
				if !reflect.ValueOf(&n.value).Elem().IsZero() {
					check(false, "T13: freed node %d/%d keeps its value", num, off)
				}
			}
		}
		check(int(s.used) == holding, "slab %d: used %d, holds %d", num, s.used, holding)
		inUse += holding
	}
	check(inUse == len(used), "%d nodes in use, %d in lists", inUse, len(used))
	check(a.live == live && a.spare == spare && spare <= 1, "live %d %d, spare %d %d", a.live, live, a.spare, spare)
}

// stripped is n without its value, which may not be comparable.
func stripped[V any](n *node[V]) *node[struct{}] {
	return &node[struct{}]{n.place, n.gen, n.deadline, struct{}{}}
}

// verifyWorkers checks the ready list against the ready buckets found.
func verifyWorkers[V any](t testing.TB, w *Wheel[V], ready map[run]bool) {
	t.Helper()
	check := checker(t)
	p := &w.workers
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := map[run]bool{}
	for k := range p.ready.n {
		r := p.ready.ring[(p.ready.head+k)&(len(p.ready.ring)-1)]
		check(!listed[r], "run %+v is listed twice", r)
		listed[r] = true
	}
	for r := range ready {
		check(listed[r], "T3: ready bucket %+v is not in the ready list", r)
	}
	check(len(p.ready.ring)&(len(p.ready.ring)-1) == 0, "the ring's length is %d", len(p.ready.ring))
	check(p.searching == 0 && p.called == 0, "at rest %d search, %d are called", p.searching, p.called)
	m := &p.members
	check(len(m.ids) == m.workers && p.idle <= m.workers, "%d workers, %d known, %d idle", m.workers, len(m.ids), p.idle)
	inside := 0
	for _, in := range m.ids {
		if in {
			inside++
		}
	}
	check(m.inside == inside, "inside %d, found %d", m.inside, inside)
	if p.ready.n > 0 {
		check(p.idle == 0 && m.workers-m.inside >= p.max, "T10: %d runs wait while %d workers are idle, %d of %d started", p.ready.n, p.idle, m.workers, p.max)
	}
}

package purgatory

import (
	"slices"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// entry is an operation that waits in a Purgatory.
type entry[K comparable] struct {
	Pending
	purgatory *Purgatory[K]
	watches   []watch[K] // one for each distinct key
}

// An operation's record and its watches are one allocation, in one of a few
// sizes; beyond the largest the watches are a second one. Under load a waiting
// operation is met when it has left the caches, so bytes are time: in 64 bits the
// sizes are 128, 160, 240 and 384.

type record1[K comparable] struct {
	entry[K]
	space [1]watch[K]
}

type record3[K comparable] struct {
	entry[K]
	space [3]watch[K]
}

type record8[K comparable] struct {
	entry[K]
	space [8]watch[K]
}

type record16[K comparable] struct {
	entry[K]
	space [16]watch[K]
}

func (p *Purgatory[K]) newEntry(keys int) (e *entry[K]) {
	switch {
	case keys <= 1:
		r := new(record1[K])
		e, r.watches = &r.entry, r.space[:0]
	case keys <= 3:
		r := new(record3[K])
		e, r.watches = &r.entry, r.space[:0]
	case keys <= 8:
		r := new(record8[K])
		e, r.watches = &r.entry, r.space[:0]
	case keys <= 16:
		r := new(record16[K])
		e, r.watches = &r.entry, r.space[:0]
	default:
		e = &entry[K]{watches: make([]watch[K], 0, keys)}
	}
	e.purgatory = p
	return e
}

// watch enters e into the list of each of keys, once; false if the purgatory
// has been closed meanwhile.
func (p *Purgatory[K]) watch(e *entry[K], keys []K) bool {
	var seen map[K]struct{}
	if len(keys) > fewKeys {
		seen = make(map[K]struct{}, len(keys))
	}
	for i, k := range keys {
		if seen == nil {
			if slices.Contains(keys[:i], k) {
				continue
			}
		} else if _, twice := seen[k]; twice {
			continue
		} else {
			seen[k] = struct{}{}
		}
		at, hash := p.place(k)
		s := &p.shards[at]
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return false
		}
		e.watches = append(e.watches, watch[K]{})
		w := &e.watches[len(e.watches)-1]
		w.shard = at
		s.addLocked(k, hash, w, &e.Pending)
		if len(e.watches) == 1 {
			s.delayed++
		}
		s.mu.Unlock()
	}
	return true
}

func (e *entry[K]) leave(o Outcome) {
	if len(e.watches) == 0 {
		e.host.outside[o].Add(1)
	}
	// The first list last: with it the operation is counted out, and who then
	// sees Delayed at zero, as Shutdown does, is to find it nowhere.
	for i := len(e.watches) - 1; i >= 0; i-- {
		w := &e.watches[i]
		s := &e.purgatory.shards[w.shard]
		s.mu.Lock()
		s.removeLocked(w)
		last := false
		if i == 0 {
			s.out(o, &e.Pending)
			last = s.closed && s.delayed == 0
		}
		s.mu.Unlock()
		if last {
			e.host.end.tell()
		}
	}
}

func (e *entry[K]) keep(t timingwheel.Timer) bool {
	w := &e.watches[0]
	s := &e.purgatory.shards[w.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.row == nil {
		return false
	}
	e.timer = t
	return true
}

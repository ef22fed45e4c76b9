package purgatory

import (
	"slices"

	"github.com/seed-782fa212/limbo/timingwheel"
)

// entry is an operation that waits in a Purgatory.
type entry[K comparable] struct {
	Pending
	watches []watch[K] // one for each distinct key
}

// An operation's record and its watches are one allocation, in one of a few
// sizes; beyond the largest the watches are a second one.

type record1[K comparable] struct {
	entry[K]
	space [1]watch[K]
}

type record4[K comparable] struct {
	entry[K]
	space [4]watch[K]
}

type record16[K comparable] struct {
	entry[K]
	space [16]watch[K]
}

func newEntry[K comparable](keys int) *entry[K] {
	switch {
	case keys <= 1:
		r := new(record1[K])
		r.watches = r.space[:0]
		return &r.entry
	case keys <= 4:
		r := new(record4[K])
		r.watches = r.space[:0]
		return &r.entry
	case keys <= 16:
		r := new(record16[K])
		r.watches = r.space[:0]
		return &r.entry
	}
	return &entry[K]{watches: make([]watch[K], 0, keys)}
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
		s, hash := p.place(k)
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return false
		}
		e.watches = append(e.watches, watch[K]{})
		s.addLocked(k, hash, &e.watches[len(e.watches)-1], &e.Pending)
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
		s := w.shard
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
	w.shard.mu.Lock()
	defer w.shard.mu.Unlock()
	if w.row == nil {
		return false
	}
	e.timer = t
	return true
}

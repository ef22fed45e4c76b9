package purgatory

import (
	"slices"
	"sync"
)

// A record of a Purgatory, with its places in the lists of up to three keys, is
// one piece of memory and is used again, as those of more keys are: watching feeds
// the garbage collector nothing. Under load an operation is met when it has left
// the caches, so it is kept small.

type one[K comparable] struct {
	record
	watches [1]watch[K]
}

type few[K comparable] struct {
	record
	watches [3]watch[K]
}

type many[K comparable] struct {
	record
	watches []watch[K]
}

func (r *one[K]) places() []watch[K]  { return r.watches[:] }
func (r *few[K]) places() []watch[K]  { return r.watches[:] }
func (r *many[K]) places() []watch[K] { return r.watches }

func (r *one[K]) leave(o Outcome)  { leave(&r.record, r.places(), o) }
func (r *few[K]) leave(o Outcome)  { leave(&r.record, r.places(), o) }
func (r *many[K]) leave(o Outcome) { leave(&r.record, r.places(), o) }

func (r *one[K]) last() *sync.Mutex  { return last(&r.record, r.places()) }
func (r *few[K]) last() *sync.Mutex  { return last(&r.record, r.places()) }
func (r *many[K]) last() *sync.Mutex { return last(&r.record, r.places()) }

func (r *one[K]) free(t *host) { owner[K](t).ones.Put(r) }
func (r *few[K]) free(t *host) { owner[K](t).fews.Put(r) }

func (r *many[K]) free(t *host) {
	if cap(r.watches) > keepPlaces {
		r.watches = nil
	}
	owner[K](t).manies.Put(r)
}

// keepPlaces is how many places a record keeps for the operations to come.
const keepPlaces = 64

// owner is the Purgatory that a host is a part of.
func owner[K comparable](t *host) *Purgatory[K] { return t.owner.(*Purgatory[K]) }

// newRecord is a record with places for that many keys.
func (p *Purgatory[K]) newRecord(keys int) (r *record, w waits, places []watch[K]) {
	switch {
	case keys <= 1:
		r, _ := p.ones.Get().(*one[K])
		if r == nil {
			r = new(one[K])
		}
		return &r.record, r, r.places()
	case keys <= 3:
		r, _ := p.fews.Get().(*few[K])
		if r == nil {
			r = new(few[K])
		}
		return &r.record, r, r.places()
	}
	m, _ := p.manies.Get().(*many[K])
	if m == nil {
		m = new(many[K])
	}
	m.watches = slices.Grow(m.watches[:0], keys)[:keys] // leave has emptied them
	return &m.record, m, m.watches
}

// watch enters r into the list of each of keys, once; false if the purgatory has
// been closed meanwhile.
func (p *Purgatory[K]) watch(r *record, places []watch[K], keys []K) bool {
	var seen map[K]struct{}
	if len(keys) > fewKeys {
		seen = make(map[K]struct{}, len(keys))
	}
	n := 0
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
		w := &places[n]
		w.shard, w.entered = at, true
		s.addLocked(k, hash, w, r)
		if n == 0 {
			s.delayed++
		}
		n++
		s.mu.Unlock()
	}
	return true
}

// leave is waits.leave, with the operation's places.
func leave[K comparable](r *record, places []watch[K], o Outcome) {
	p := owner[K](r.host)
	if !places[0].entered {
		p.outside[o].Add(1)
	}
	// The first list last: with it the operation is counted out, and who then
	// sees Delayed at zero, as Shutdown does, is to find it nowhere.
	for i := len(places) - 1; i >= 0; i-- {
		w := &places[i]
		if !w.entered {
			continue
		}
		w.entered = false
		s := &p.shards[w.shard]
		s.mu.Lock()
		s.removeLocked(w)
		last := false
		if i == 0 {
			s.out(o, r)
			last = s.closed && s.delayed == 0
		}
		s.mu.Unlock()
		if last {
			p.end.tell()
		}
	}
}

// last is waits.last, with the operation's places.
func last[K comparable](r *record, places []watch[K]) *sync.Mutex {
	return &owner[K](r.host).shards[places[0].shard].mu
}

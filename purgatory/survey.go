package purgatory

import "time"

// Survey is what stands out among what a purgatory holds. Where Stats says how
// much waits, it says where to look.
type Survey[K comparable] struct {
	Longest  K   // the key with the most watchers; any of them if there are more
	Watchers int // and how many it has; 0: nothing waits

	Oldest    time.Duration // for how long the operation has waited that has waited longest
	OldestKey K             // a key that it watches
}

// see takes one operation into account, and how many watch that key.
func (v *Survey[K]) see(key K, watchers int, waited time.Duration) {
	if watchers > v.Watchers {
		v.Longest, v.Watchers = key, watchers
	}
	if waited > v.Oldest {
		v.Oldest, v.OldestKey = waited, key
	}
}

// Survey goes through the keys, in time proportional to their number: for a
// person who wants to know, not for the way of a request. It locks a shard at a
// time, so it is not of one moment.
func (p *Purgatory[K]) Survey() Survey[K] {
	var v Survey[K]
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		now := p.now()
		s.eachListLocked(func(l *watchers[K]) {
			if h := l.first(); h != nil { // it has waited longest
				v.see(l.key, l.n, now-h.since)
			}
		})
		s.mu.Unlock()
	}
	return v
}

// Survey is that of a [Purgatory], in time proportional to the number of goals
// that are still to be reached.
func (t *Threshold[K, N]) Survey() Survey[K] {
	var v Survey[K]
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		now := t.now()
		for key, tree := range s.keys {
			for g := tree.first; g != nil; g = g.next() {
				v.see(key, tree.n, now-g.effort.since)
			}
		}
		s.mu.Unlock()
	}
	return v
}

package purgatory

import "github.com/seed-782fa212/limbo/timingwheel"

// Stats is what a purgatory holds and has done. Each figure is exact; as
// shards are read one after the other, figures of one Stats may be some calls
// apart while the purgatory is in use.
type Stats struct {
	Delayed int // operations that wait
	Watched int // (operation, key) pairs that wait
	Keys    int // keys with watchers

	// How operations ended. Those that completed without ever waiting are
	// among Completed. One whose Complete panicked is among Failed.
	Completed, Expired, Cancelled, Closed, Failed uint64

	// Wheel is what the timeouts' wheel holds and has done.
	Wheel timingwheel.Stats
}

// Stats reads the purgatory's figures. It takes each shard's lock in turn.
func (p *Purgatory[K]) Stats() Stats {
	var st Stats
	var ended [outcomes + 1]int64
	// Before the shards: a correction takes from what a shard has counted
	// before it, so one that is seen here finds its operation there, and no
	// figure is below zero.
	for o := range ended {
		ended[o] = p.outside[o].Load()
	}
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		st.Delayed += s.delayed
		st.Watched += s.watched
		st.Keys += s.named
		for o, n := range s.ended {
			ended[o] += int64(n)
		}
		s.mu.Unlock()
	}
	st.Completed = uint64(ended[Completed])
	st.Expired = uint64(ended[Expired])
	st.Cancelled = uint64(ended[Cancelled])
	st.Closed = uint64(ended[Closed])
	st.Failed = uint64(ended[Failed])
	st.Wheel = p.wheel.Stats()
	return st
}

// Delayed is the number of operations that wait, each counted once. Nothing is
// estimated or counted late; but it is added up shard by shard, in constant
// time, so what comes and goes meanwhile may be in it twice or not at all.
func (p *Purgatory[K]) Delayed() int {
	return p.sum(func(s *shard[K]) int { return s.delayed })
}

// Watched is the number of watches: operations that wait, each counted once
// for every key of its. Added up as Delayed is.
func (p *Purgatory[K]) Watched() int {
	return p.sum(func(s *shard[K]) int { return s.watched })
}

// Keys is the number of keys that an operation watches. Added up as Delayed is.
func (p *Purgatory[K]) Keys() int {
	return p.sum(func(s *shard[K]) int { return s.named })
}

func (p *Purgatory[K]) sum(of func(*shard[K]) int) int {
	n := 0
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		n += of(s)
		s.mu.Unlock()
	}
	return n
}

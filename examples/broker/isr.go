package main

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What a leader knows of its followers, and what follows from it: the high
// watermark, below which every in-sync replica has everything; the low
// watermark, below which every live one has deleted everything; and who is in
// sync. A follower tells by its fetches: it has what lies before the offset it
// asks for.

// follower is one of them, as its leader sees it.
type follower struct {
	end      int64 // its log's end, -1 until it has fetched in this epoch
	start    int64 // its log's start, likewise
	caughtUp time.Time
	seen     int64     // the leader's log end when it last fetched
	seenAt   time.Time // and when that was
}

// raiseLocked moves the high watermark to where the slowest in-sync replica is.
// It never goes back: a replica that was in sync had everything below it.
func (p *partition) raiseLocked(now time.Time) bool {
	hw := p.log.next
	for _, id := range p.maximal {
		if f := p.followers[id]; f != nil {
			hw = min(hw, f.end)
		}
	}
	if hw <= p.hw {
		return false
	}
	p.hw, p.committedAt = hw, now
	return true
}

// fetched is what a follower's fetch has changed at its leader.
type fetched struct {
	raised    bool  // the high watermark
	low       int64 // the low watermark is worth a look, -1 if not
	rejoining bool  // it is not in sync, and could be
	diverging *epochStart
	err       *kerr.Error
}

// fetchedBy notes that a follower asks for offset: it has everything before. Its
// last batch is of lastEpoch; if the two logs do not agree so far, it is told
// where they part, and nothing else counts.
func (p *partition) fetchedBy(id int32, offset, start int64, epoch, lastEpoch int32, now time.Time) fetched {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch < 0 {
		return fetched{low: -1, err: kerr.UnknownLeaderEpoch}
	}
	if err := p.leadsLocked(epoch); err != nil {
		return fetched{low: -1, err: err}
	}
	f := p.followers[id]
	if f == nil {
		return fetched{low: -1, err: kerr.UnknownTopicOrPartition} // no replica of this
	}
	if lastEpoch >= 0 {
		switch found, end := p.log.epochEnd(lastEpoch); {
		case found == -1: // all that old has been deleted here
			return fetched{low: -1, err: kerr.OffsetOutOfRange}
		case found != lastEpoch || end < offset:
			return fetched{low: -1, diverging: &epochStart{found, end}}
		}
	}
	if !p.log.inRange(offset) {
		return fetched{low: -1, err: kerr.OffsetOutOfRange}
	}
	done := fetched{low: -1}
	if f.start != start {
		f.start, done.low = start, start
	}
	f.end = offset
	// It is as far as the leader is, or as it was at the fetch before this one:
	// under a steady load nobody is ever at the very end.
	switch {
	case offset >= p.log.next:
		f.caughtUp = now
	case f.seen > 0 && offset >= f.seen && f.seenAt.After(f.caughtUp):
		f.caughtUp = f.seenAt
	}
	f.seen, f.seenAt = p.log.next, now
	done.raised = p.raiseLocked(now)
	done.rejoining = !slices.Contains(p.maximal, id) && offset >= p.hw && offset >= p.reignLocked()
	return done
}

// reignLocked is where the log stood when this leader began: who has not got so
// far may still have to cut its log back.
func (p *partition) reignLocked() int64 {
	if n := len(p.log.epochs); n > 0 && p.log.epochs[n-1].epoch == p.assigned.epoch {
		return p.log.epochs[n-1].start
	}
	return p.log.next
}

// lowWatermark is the smallest log start of all live replicas.
func (p *partition) lowWatermark(img *image) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	low := p.log.start
	for id, f := range p.followers {
		if img.lives(id) {
			low = min(low, f.start)
		}
	}
	return low
}

// wanted is the in-sync set that a leader would have: without those that have
// lagged for too long, with those that have caught up. ok is false if it is the
// one there is.
func (p *partition) wanted(img *image, now time.Time, lag time.Duration) (believed assignment, isr []int32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leading {
		return assignment{}, nil, false
	}
	for _, id := range p.assigned.replicas {
		f := p.followers[id]
		switch {
		case f == nil: // the leader
			isr = append(isr, id)
		case slices.Contains(p.assigned.isr, id):
			if f.end >= p.log.next || now.Sub(f.caughtUp) <= lag {
				isr = append(isr, id)
			}
		case img.lives(id) && f.end >= p.hw && f.end >= p.reignLocked() && now.Sub(f.seenAt) <= lag:
			isr = append(isr, id)
		}
	}
	if len(isr) == len(p.assigned.isr) && !slices.ContainsFunc(isr, func(id int32) bool { return !slices.Contains(p.assigned.isr, id) }) {
		return assignment{}, nil, false
	}
	// From here on the larger of the two sets counts: the controller may have
	// granted the new one long before this leader hears of it.
	for _, id := range isr {
		if !slices.Contains(p.maximal, id) {
			p.maximal = append(slices.Clip(p.maximal), id)
		}
	}
	return p.assigned, isr, true
}

// withdraw takes back what wanted has added: a replica that turned out not to
// live must not hold the high watermark down.
func (p *partition) withdraw(believed assignment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leading && p.assigned.version == believed.version {
		p.maximal = p.assigned.isr
	}
}

// keepInSync looks after the in-sync sets of what this broker leads: now and
// then, and when a follower is there to come back.
func (s *server) keepInSync(ctx context.Context) {
	t := time.NewTicker(s.cfg.replicaLag / 4)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.rejoining:
		}
		if s.gate.pass(ctx) != nil {
			return
		}
		// By the image: it is read without a lock, and what has no followers is not
		// even looked up.
		for id, t := range s.image().byID {
			for i := range t.partitions {
				if a := &t.partitions[i]; a.leader != s.id || len(a.replicas) < 2 {
					continue
				}
				if p := s.local(partitionKey{id, int32(i)}); p != nil {
					s.keepPartitionInSync(p)
				}
			}
		}
	}
}

func (s *server) keepPartitionInSync(p *partition) {
	believed, isr, ok := p.wanted(s.image(), time.Now(), s.cfg.replicaLag)
	if !ok {
		return
	}
	// What is granted comes with the next image, and so does what else the
	// controller knows better, but for one thing.
	if err := s.cluster.controller.alterISR(s.id, p.key, believed, isr); err == kerr.IneligibleReplica {
		p.withdraw(believed)
	}
}

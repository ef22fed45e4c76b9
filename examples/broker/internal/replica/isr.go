package replica

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// What a leader knows of its followers, and what follows from it: the high
// watermark, below which every in-sync replica has everything; the low
// watermark, below which every live one has deleted everything; and who is in
// sync. A follower tells by its fetches: it has what lies before the offset it
// asks for.

// follower is one of them, as its leader sees it.
type follower struct {
	end      int64         // its log's end, -1 until it has fetched in this epoch
	start    int64         // its log's start, likewise
	caughtUp time.Duration // by the broker's uptime, as all such
	seen     int64         // the leader's log end when it last fetched
	seenAt   time.Duration // and when that was

	// heard is when it last fetched in the session that this partition is in, in which a
	// partition that has not changed is not named; nil: it is in none.
	heard *atomic.Int64
}

// lastSeen is when it last fetched.
func (f *follower) lastSeen() time.Duration {
	if f.heard == nil {
		return f.seenAt
	}
	return max(f.seenAt, time.Duration(f.heard.Load()))
}

// behindLocked notes that there is about to be more than those have who have all: until
// now they were caught up.
func (p *Partition) behindLocked() {
	now := p.uptime()
	for _, f := range p.followers {
		if f.end >= p.log.End() {
			f.caughtUp = now
		}
	}
}

// raiseLocked moves the high watermark to where the slowest in-sync replica is.
// It never goes back: a replica that was in sync had everything below it.
func (p *Partition) raiseLocked() bool {
	hw := p.log.End()
	for _, id := range p.maximal {
		if f := p.followers[id]; f != nil {
			hw = min(hw, f.end)
		}
	}
	if hw <= p.hw {
		return false
	}
	p.hw, p.committedAt = hw, time.Now()
	return true
}

// Fetched is what a follower's fetch has changed at its leader.
type Fetched struct {
	Raised    bool  // the high watermark
	Low       int64 // the low watermark is worth a look, -1 if not
	Rejoining bool  // it is not in sync, and could be
	Diverging *log.EpochStart
	Err       *kerr.Error
}

// FetchedBy notes that a follower asks for offset: it has everything before. Its
// last batch is of lastEpoch; if the two logs do not agree so far, it is told
// where they part, and nothing else counts. heard is when it last fetched in the session
// that the partition is in; nil: in none.
func (p *Partition) FetchedBy(id int32, offset, start int64, epoch, lastEpoch int32, now time.Duration, heard *atomic.Int64) Fetched {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch < 0 {
		return Fetched{Low: -1, Err: kerr.UnknownLeaderEpoch}
	}
	if err := p.leadsLocked(epoch); err != nil {
		return Fetched{Low: -1, Err: err}
	}
	f := p.followers[id]
	if f == nil {
		return Fetched{Low: -1, Err: kerr.UnknownTopicOrPartition} // no replica of this
	}
	if lastEpoch >= 0 {
		switch found, end := p.log.EpochEnd(lastEpoch); {
		case found == -1: // all that old has been deleted here
			return Fetched{Low: -1, Err: kerr.OffsetOutOfRange}
		case found != lastEpoch || end < offset:
			return Fetched{Low: -1, Diverging: &log.EpochStart{Epoch: found, Start: end}}
		}
	}
	if !p.log.InRange(offset) {
		return Fetched{Low: -1, Err: kerr.OffsetOutOfRange}
	}
	done := Fetched{Low: -1}
	if f.start != start {
		f.start, done.Low = start, start
	}
	f.end = offset
	// It is as far as the leader is, or as it was at the fetch before this one:
	// under a steady load nobody is ever at the very end.
	switch {
	case offset >= p.log.End():
		f.caughtUp = now
	case f.seen > 0 && offset >= f.seen && f.seenAt > f.caughtUp:
		f.caughtUp = f.seenAt
	}
	f.seen, f.seenAt, f.heard = p.log.End(), now, heard
	done.Raised = p.raiseLocked()
	done.Rejoining = !slices.Contains(p.maximal, id) && offset >= p.hw && offset >= p.reignLocked()
	return done
}

// reignLocked is where the log stood when this leader began: who has not got so
// far may still have to cut its log back.
func (p *Partition) reignLocked() int64 {
	return p.log.StartOf(p.assigned.Epoch)
}

// lowWatermark is the smallest log start of all live replicas.
func (p *Partition) lowWatermark(img *meta.Image) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	low := p.log.Start()
	for id, f := range p.followers {
		if img.Lives(id) {
			low = min(low, f.start)
		}
	}
	return low
}

// Wanted is the in-sync set that a leader would have: without those that have
// lagged for too long, with those that have caught up. ok is false if it is the
// one there is.
func (p *Partition) Wanted(img *meta.Image, now, lag time.Duration) (believed meta.Assignment, isr []int32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leading {
		return meta.Assignment{}, nil, false
	}
	for _, id := range p.assigned.Replicas {
		f := p.followers[id]
		switch {
		case f == nil: // the leader
			isr = append(isr, id)
		case slices.Contains(p.assigned.ISR, id):
			if f.end >= p.log.End() || now-f.caughtUp <= lag {
				isr = append(isr, id)
			}
		case img.Lives(id) && f.end >= p.hw && f.end >= p.reignLocked() && now-f.lastSeen() <= lag:
			isr = append(isr, id)
		}
	}
	if len(isr) == len(p.assigned.ISR) && !slices.ContainsFunc(isr, func(id int32) bool { return !slices.Contains(p.assigned.ISR, id) }) {
		return meta.Assignment{}, nil, false
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

// Withdraw takes back what wanted has added: a replica that turned out not to
// live must not hold the high watermark down.
func (p *Partition) Withdraw(believed meta.Assignment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leading && p.assigned.Version == believed.Version {
		p.maximal = p.assigned.ISR
	}
}

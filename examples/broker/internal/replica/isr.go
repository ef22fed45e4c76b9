package replica

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// A leader's view of its followers, which determines the high watermark, below which every in-sync
// replica has every record; the low watermark, below which every live replica has deleted every
// record; and the in-sync set. A fetch tells the leader that the follower has every record before
// the fetch's offset.

// follower is the leader's state of a follower.
type follower struct {
	end      int64         // its log's end, -1 until it fetches in this epoch
	start    int64         // its log's start, likewise
	caughtUp time.Duration // when it was last caught up, by the broker's uptime, like the times below
	seen     int64         // the leader's log end at its last fetch
	seenAt   time.Duration // time of its last fetch

	// heard is the time of the last fetch in the partition's fetch session, in which a fetch does
	// not name an unchanged partition; nil if it is in no session.
	heard *atomic.Int64
}

// lastSeen returns the time of the follower's last fetch.
func (f *follower) lastSeen() time.Duration {
	if f.heard == nil {
		return f.seenAt
	}
	return max(f.seenAt, time.Duration(f.heard.Load()))
}

// behindLocked is called before the log grows: followers that have the whole log were caught up
// until now.
func (p *Partition) behindLocked() {
	now := p.uptime()
	for _, f := range p.followers {
		if f.end >= p.log.End() {
			f.caughtUp = now
		}
	}
}

// raiseLocked raises the high watermark to the position of the slowest in-sync replica. It never
// lowers it: a replica that was in sync had every record below it.
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

// Fetched is the effect of a follower's fetch on its leader.
type Fetched struct {
	Raised    bool  // the high watermark
	Low       int64 // a log start that may raise the low watermark, -1 for none
	Rejoining bool  // the follower is not in sync, and could be
	Diverging *log.EpochStart
	Err       *kerr.Error
}

// FetchedBy records that a follower fetches from offset, and so has every record before it. Its
// last batch has epoch lastEpoch. If the two logs disagree before offset, the result has the
// divergence point and the fetch has no other effect. heard is the time of the last fetch in the
// partition's fetch session; nil if it is in none.
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
		return Fetched{Low: -1, Err: kerr.UnknownTopicOrPartition} // not a replica of this partition
	}
	if lastEpoch >= 0 {
		switch found, end := p.log.EpochEnd(lastEpoch); {
		case found == -1: // the leader has deleted all records that old
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
	// The follower is caught up now, or was at its previous fetch if it now has the whole log of
	// then. Under a steady load no follower is ever at the very end.
	switch {
	case offset >= p.log.End():
		f.caughtUp = now
	case f.seen > 0 && offset >= f.seen && f.seenAt > f.caughtUp:
		f.caughtUp = f.seenAt
	}
	f.seen, f.seenAt, f.heard = p.log.End(), now, heard
	done.Raised = p.raiseLocked()
	done.Rejoining = !slices.Contains(p.maximal, id) && offset >= p.hw && offset >= p.epochStartLocked()
	return done
}

// epochStartLocked returns the log's end at the start of this leader epoch. A follower that has not
// reached it may still have to truncate its log.
func (p *Partition) epochStartLocked() int64 {
	return p.log.StartOf(p.assigned.Epoch)
}

// lowWatermark returns the smallest log start of all live replicas.
func (p *Partition) lowWatermark(img *meta.Image) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	low := p.log.Start()
	for id, f := range p.followers {
		if img.IsLive(id) {
			low = min(low, f.start)
		}
	}
	return low
}

// Wanted returns the in-sync set that the leader wants: without the replicas that have lagged for
// too long, and with those that have caught up. ok is false if that is the current set.
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
		case img.IsLive(id) && f.end >= p.hw && f.end >= p.epochStartLocked() && now-f.lastSeen() <= lag:
			isr = append(isr, id)
		}
	}
	if len(isr) == len(p.assigned.ISR) && !slices.ContainsFunc(isr, func(id int32) bool { return !slices.Contains(p.assigned.ISR, id) }) {
		return meta.Assignment{}, nil, false
	}
	// From here on the larger of the two sets counts: the controller may grant the new one long
	// before this leader learns of it.
	for _, id := range isr {
		if !slices.Contains(p.maximal, id) {
			p.maximal = append(slices.Clip(p.maximal), id)
		}
	}
	return p.assigned, isr, true
}

// Withdraw removes the replicas that Wanted has added: one that turns out not to be live must not
// hold back the high watermark.
func (p *Partition) Withdraw(believed meta.Assignment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leading && p.assigned.Version == believed.Version {
		p.maximal = p.assigned.ISR
	}
}

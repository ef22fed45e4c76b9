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
	end       int64         // its log's end, -1 until it fetches in this epoch
	start     int64         // its log's start, likewise
	caughtUp  time.Duration // when it was last caught up, by the broker's uptime, like the times below
	leaderEnd int64         // the leader's log end at its last fetch
	fetchedAt time.Duration // time of its last fetch

	// sessionFetchedAt is the time of the last fetch in the partition's fetch session, in which a
	// fetch does not name an unchanged partition; nil if it is in no session.
	sessionFetchedAt *atomic.Int64
}

// lastFetch returns the time of the follower's last fetch.
func (f *follower) lastFetch() time.Duration {
	if f.sessionFetchedAt == nil {
		return f.fetchedAt
	}
	return max(f.fetchedAt, time.Duration(f.sessionFetchedAt.Load()))
}

// noteCaughtUpLocked is called before the log grows: followers that have the whole log were caught
// up until now.
func (p *Partition) noteCaughtUpLocked() {
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
	for _, id := range p.maximalISR {
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

// FetchResult is the effect of a follower's fetch on its leader.
type FetchResult struct {
	Raised    bool  // the high watermark
	Low       int64 // a log start that may raise the low watermark, -1 for none
	Rejoining bool  // the follower is not in sync, and could be
	Diverging *log.EpochStart
	Err       *kerr.Error
}

// FetchedBy records that a follower fetches from offset, and so has every record before it. Its
// last batch has epoch lastEpoch. If the two logs disagree before offset, the result has the
// divergence point and the fetch has no other effect. sessionFetchedAt is the time of the last
// fetch in the partition's fetch session; nil if it is in none.
func (p *Partition) FetchedBy(id int32, offset, start int64, epoch, lastEpoch int32, now time.Duration, sessionFetchedAt *atomic.Int64) FetchResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	if epoch < 0 {
		return FetchResult{Low: -1, Err: kerr.UnknownLeaderEpoch}
	}
	if err := p.leadsLocked(epoch); err != nil {
		return FetchResult{Low: -1, Err: err}
	}
	f := p.followers[id]
	if f == nil {
		return FetchResult{Low: -1, Err: kerr.UnknownTopicOrPartition} // not a replica of this partition
	}
	if lastEpoch >= 0 {
		switch found, end := p.log.EpochEnd(lastEpoch); {
		case found == -1: // the leader has deleted all records that old
			return FetchResult{Low: -1, Err: kerr.OffsetOutOfRange}
		case found != lastEpoch || end < offset:
			return FetchResult{Low: -1, Diverging: &log.EpochStart{Epoch: found, Start: end}}
		}
	}
	if !p.log.InRange(offset) {
		return FetchResult{Low: -1, Err: kerr.OffsetOutOfRange}
	}
	done := FetchResult{Low: -1}
	if f.start != start {
		f.start, done.Low = start, start
	}
	f.end = offset
	// The follower is caught up now, or was at its previous fetch if it now has the whole log of
	// then. Under a steady load no follower is ever at the very end.
	switch {
	case offset >= p.log.End():
		f.caughtUp = now
	case f.leaderEnd > 0 && offset >= f.leaderEnd && f.fetchedAt > f.caughtUp:
		f.caughtUp = f.fetchedAt
	}
	f.leaderEnd, f.fetchedAt, f.sessionFetchedAt = p.log.End(), now, sessionFetchedAt
	done.Raised = p.raiseLocked()
	done.Rejoining = !slices.Contains(p.maximalISR, id) && offset >= p.hw && offset >= p.epochStartLocked()
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

// ProposedISR returns the in-sync set that the leader proposes: without the replicas that have
// lagged for too long, and with those that have caught up. ok is false if that is the current set.
func (p *Partition) ProposedISR(img *meta.Image, now, lag time.Duration) (current meta.Assignment, isr []int32, ok bool) {
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
		case f.end < p.log.End() && now-f.caughtUp > lag: // it leaves, and does not rejoin before it has caught up
		case slices.Contains(p.assigned.ISR, id):
			isr = append(isr, id)
		case img.IsLive(id) && f.end >= p.hw && f.end >= p.epochStartLocked() && now-f.lastFetch() <= lag:
			isr = append(isr, id)
		}
	}
	if len(isr) == len(p.assigned.ISR) && !slices.ContainsFunc(isr, func(id int32) bool { return !slices.Contains(p.assigned.ISR, id) }) {
		return meta.Assignment{}, nil, false
	}
	// From here on the larger of the two sets counts: the controller may grant the new one long
	// before this leader learns of it.
	for _, id := range isr {
		if !slices.Contains(p.maximalISR, id) {
			p.maximalISR = append(slices.Clip(p.maximalISR), id)
		}
	}
	return p.assigned, isr, true
}

// WithdrawISR removes the replicas that ProposedISR has added: one that turns out not to be live
// must not hold back the high watermark.
func (p *Partition) WithdrawISR(current meta.Assignment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leading && p.assigned.Version == current.Version {
		p.maximalISR = p.assigned.ISR
	}
}

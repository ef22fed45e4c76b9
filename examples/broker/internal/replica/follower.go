package replica

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// What a follower does with its replica: take what its leader has, and cut off
// what its leader has not.

// Position is what a follower asks its leader for.
type Position struct {
	Epoch, LastEpoch int32
	Offset, Start    int64
}

// Following returns where the replica stands, if it follows that leader.
func (p *Partition) Following(leader int32) (Position, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.leading || p.assigned.Leader != leader {
		return Position{}, false
	}
	return Position{p.assigned.Epoch, p.log.LastEpoch(), p.log.End(), p.log.Start()}, true
}

// followsLocked is false for what a leader of another epoch has said.
func (p *Partition) followsLocked(epoch int32) bool {
	return !p.closed && !p.leading && p.assigned.Epoch == epoch
}

// Take appends what the leader sent, learns its watermarks, and drops what it
// has dropped. An error means that the answer makes no sense: what came before
// the fault is kept.
func (p *Partition) Take(epoch int32, batches []byte, hw, leaderStart int64) error {
	own := append([]byte(nil), batches...) // one copy: the batches are kept for as long as each other, nearly
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return nil // it came too late
	}
	before, now := p.log.Kept(), time.Now()
	err := p.log.AppendAll(own, func(b *kmsg.RecordBatch) { p.noteProducerLocked(b, now) })
	if known := min(hw, p.log.End()); known > p.hw {
		p.hw, p.committedAt = known, now
	}
	p.log.DeleteBefore(min(leaderStart, p.hw))
	p.trimLocked(p.topic.Retention)
	p.sum.Add(p.log.Kept() - before)
	return err
}

// noteProducerLocked remembers a batch's sequence, as its leader does: this
// replica may be the next leader, and must know a batch sent again.
func (p *Partition) noteProducerLocked(b *kmsg.RecordBatch, now time.Time) {
	if b.ProducerID < 0 {
		return
	}
	producer := p.producers[b.ProducerID]
	if producer == nil {
		producer = p.producers.Add(b.ProducerID, p.cfg.MaxProducers, p.cfg.ProducerIdle, now)
	}
	producer.Take(b, b.FirstOffset, now)
}

// rebuildProducers reads the sequences back out of the log: after a restart, and
// after a truncation, which may have undone some.
func (p *Partition) rebuildProducers() {
	p.producers = log.Producers{}
	now := time.Now()
	p.log.Each(func(b *kmsg.RecordBatch) { p.noteProducerLocked(b, now) })
}

// PartWays cuts the log back to where it agrees with the leader's, which has
// said what it knows of an epoch: the largest one that is not above this
// replica's last, and where that ends there. It may take several rounds. It
// returns how many records were cut off that had been committed: there must be
// none.
func (p *Partition) PartWays(epoch int32, theirs log.EpochStart) (lost int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return 0
	}
	to := p.log.Start()
	if found, end := p.log.EpochEnd(theirs.Epoch); found == theirs.Epoch {
		to = min(theirs.Start, end)
	} else if found >= 0 {
		to = end
	}
	return p.cutLocked(max(to, p.log.Start()))
}

func (p *Partition) cutLocked(to int64) (lost int64) {
	p.sum.Add(-p.log.Truncate(to))
	p.rebuildProducers()
	if p.hw > p.log.End() {
		lost = p.hw - p.log.End()
		p.hw = p.log.End()
	}
	return lost
}

// RestartAt begins the log anew at the start of the leader's, when the leader
// has deleted what this replica still needed.
func (p *Partition) RestartAt(epoch int32, start int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return
	}
	p.sum.Add(-p.log.Restart(start))
	p.rebuildProducers()
	p.hw = start // a log starts where it has been committed
}

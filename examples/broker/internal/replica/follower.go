package replica

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// The follower's side of a replica: append what the leader's log has, and truncate what it lacks.

// Position is a follower's position, which it sends to its leader in a fetch.
type Position struct {
	Epoch, LastEpoch int32
	Offset, Start    int64
}

// Following returns the replica's position if it follows this leader.
func (p *Partition) Following(leader int32) (Position, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.leading || p.assigned.Leader != leader {
		return Position{}, false
	}
	return Position{p.assigned.Epoch, p.log.LastEpoch(), p.log.End(), p.log.Start()}, true
}

// followsLocked reports whether the replica follows the leader of this epoch. Responses from a
// leader of another epoch are ignored.
func (p *Partition) followsLocked(epoch int32) bool {
	return !p.closed && !p.leading && p.assigned.Epoch == epoch
}

// AppendFetched appends the leader's batches, adopts its high watermark, and drops the records
// before its log start. It returns an error at the first malformed batch, and keeps the batches
// before it.
func (p *Partition) AppendFetched(epoch int32, batches []byte, hw, leaderStart int64) error {
	own := append([]byte(nil), batches...) // one copy: they are dropped at nearly the same time
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return nil // a late response
	}
	before, now := p.log.Size(), time.Now()
	err := p.log.AppendAll(own, func(b *kmsg.RecordBatch) { p.recordProducerLocked(b, now) })
	if known := min(hw, p.log.End()); known > p.hw {
		p.hw, p.committedAt = known, now
	}
	p.log.DeleteBefore(min(leaderStart, p.hw))
	p.trimLocked(p.topic.Retention)
	p.sum.Add(p.log.Size() - before)
	return err
}

// recordProducerLocked records a batch's sequence, as its leader does: this replica may become the
// leader and must then recognize duplicates.
func (p *Partition) recordProducerLocked(b *kmsg.RecordBatch, now time.Time) {
	if b.ProducerID < 0 {
		return
	}
	producer := p.producers[b.ProducerID]
	if producer == nil {
		producer = p.producers.Add(b.ProducerID, p.cfg.MaxProducers, p.cfg.ProducerIdle, now)
	}
	producer.Record(b, b.FirstOffset, now)
}

// rebuildProducers reads the sequences back from the log: after a restart, and after a truncation,
// which may have removed some.
func (p *Partition) rebuildProducers() {
	p.producers = log.Producers{}
	now := time.Now()
	p.log.Each(func(b *kmsg.RecordBatch) { p.recordProducerLocked(b, now) })
}

// TruncateToDivergence truncates the log to the divergence point. theirs is the leader's answer
// about this replica's last epoch: the largest epoch in its log that is not above that one, and
// where it ends. Finding the point may take several rounds. TruncateToDivergence returns the
// number of committed records that it truncated, which must be 0.
func (p *Partition) TruncateToDivergence(epoch int32, theirs log.EpochStart) (lost int64) {
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
	return p.truncateLocked(max(to, p.log.Start()))
}

func (p *Partition) truncateLocked(to int64) (lost int64) {
	p.sum.Add(-p.log.Truncate(to))
	p.rebuildProducers()
	if p.hw > p.log.End() {
		lost = p.hw - p.log.End()
		p.hw = p.log.End()
	}
	return lost
}

// ResetTo restarts the log at the start of the leader's log, if the leader has deleted records
// that this replica still needed.
func (p *Partition) ResetTo(epoch int32, start int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.followsLocked(epoch) {
		return
	}
	p.sum.Add(-p.log.Reset(start))
	p.rebuildProducers()
	p.hw = start // records below a log's start are committed
}

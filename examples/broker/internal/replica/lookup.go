package replica

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// EndOfEpoch is the leader's response to a question for an epoch's end; see log.EpochEnd.
func (p *Partition) EndOfEpoch(epoch, currentEpoch int32) (int32, int64, *kerr.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(currentEpoch); err != nil {
		return -1, -1, err
	}
	found, end := p.log.EpochEnd(epoch)
	return found, end, nil // may exceed the high watermark: a new leader's may lag the old leader's
}

// Timestamps that stand for a position instead of a time.
const (
	LatestOffset         = -1
	EarliestOffset       = -2
	MaxTimestampOffset   = -3 // the record with the largest timestamp
	EarliestLocalOffset  = -4 // there is no tiered storage: the earliest
	LatestTieredOffset   = -5 // there is no tiered storage: none
	EarliestUploadOffset = -6 // the same
)

// OffsetFor finds the offset that a timestamp asks for, among the records visible to consumers,
// with the record's time and leader epoch; -1 for each if there is none.
func (p *Partition) OffsetFor(ts int64, currentEpoch int32) (offset, timestamp int64, epoch int32, _ *kerr.Error) {
	found, offset, epoch, err := p.batchFor(ts, currentEpoch)
	if err != nil || found == nil {
		return offset, -1, epoch, err
	}
	if ts == MaxTimestampOffset {
		ts = found.MaxTimestamp
	}
	offset, timestamp = log.OffsetByTime(found.Raw, ts) // reads the batch: without the lock
	if offset < 0 {
		epoch = -1
	}
	return offset, timestamp, epoch, nil
}

// batchFor finds the batch to search, or the offset itself.
func (p *Partition) batchFor(ts int64, currentEpoch int32) (found *log.Batch, offset int64, epoch int32, _ *kerr.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(currentEpoch); err != nil {
		return nil, -1, -1, err
	}
	var b log.Batch
	var ok bool
	switch {
	case ts == LatestOffset:
		return nil, p.hw, p.assigned.Epoch, nil
	case ts == EarliestOffset, ts == EarliestLocalOffset:
		if epoch = p.log.EpochAt(p.log.Start()); epoch < 0 {
			epoch = p.assigned.Epoch
		}
		return nil, p.log.Start(), epoch, nil
	case ts == MaxTimestampOffset:
		b, ok = p.log.Newest(p.hw)
	case ts >= 0:
		b, ok = p.log.ByTime(ts, p.hw)
	}
	if !ok {
		return nil, -1, -1, nil
	}
	return &b, -1, p.log.EpochAt(b.Base), nil
}

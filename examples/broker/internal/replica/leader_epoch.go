package replica

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// LeaderEpoch is a partition in one leader epoch, and the key on which operations wait for the
// leader's watermarks. When the epoch ends, its watermarks count as infinite: operations on it
// complete, find that this broker no longer leads, and answer NOT_LEADER_OR_FOLLOWER. An operation
// on several partitions goes on waiting for the others.
type LeaderEpoch struct {
	meta.PartitionKey
	Epoch int32
}

// EpochEnded is the watermark of a leader epoch that has ended.
const EpochEnded = math.MaxInt64

// CommittedIn returns the high watermark in a leader epoch; EpochEnded if the epoch has ended.
func (p *Partition) CommittedIn(epoch int32) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leadsLocked(epoch) != nil {
		return EpochEnded
	}
	return p.hw
}

// DeletedIn returns the low watermark in a leader epoch; EpochEnded if the epoch has ended.
func (p *Partition) DeletedIn(epoch int32, img *meta.Image) int64 {
	if p.Leads(epoch) != nil {
		return EpochEnded
	}
	return p.lowWatermark(img)
}

// Leads returns an error unless this replica leads in an epoch; -1 for any epoch.
func (p *Partition) Leads(epoch int32) *kerr.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leadsLocked(epoch)
}

// Replicated returns nil if the records before end are committed and as many replicas have them as
// the topic requires.
func (p *Partition) Replicated(epoch int32, end int64) *kerr.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch err := p.leadsLocked(epoch); {
	case err != nil:
		return kerr.NotLeaderForPartition
	case p.hw < end:
		return kerr.RequestTimedOut
	case len(p.assigned.ISR) < int(p.topic.MinISR):
		return kerr.NotEnoughReplicasAfterAppend
	}
	return nil
}

// DeleteBefore moves the start of the log up to offset, at most to the high watermark.
func (p *Partition) DeleteBefore(epoch int32, offset int64) *kerr.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(epoch); err != nil {
		return err
	}
	if offset > p.hw {
		return kerr.OffsetOutOfRange
	}
	p.sum.Add(-p.log.DeleteBefore(offset))
	return nil
}

// LeaderEpoch returns the key of the current leader epoch, and whether this replica leads.
func (p *Partition) LeaderEpoch() (LeaderEpoch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return LeaderEpoch{p.Key, p.assigned.Epoch}, p.leading
}

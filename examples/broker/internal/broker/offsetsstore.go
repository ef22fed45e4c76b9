package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/purgatory"
)

// offsetsStore is the coordinator's view of the offsets topic: the partitions that this broker
// leads.
type offsetsStore struct{ s *Server }

func (o offsetsStore) local(index int32) *replica.Partition {
	t := o.s.image().ByName[meta.OffsetsTopic]
	if t == nil {
		return nil
	}
	return o.s.local(meta.PartitionKey{Topic: t.ID, Index: index})
}

func (o offsetsStore) PartitionsOf(topic string) int {
	if t := o.s.image().ByName[topic]; t != nil {
		return len(t.Partitions)
	}
	return 0
}

func (o offsetsStore) Records(index int32) (batches [][]byte, end int64) {
	if p := o.local(index); p != nil {
		return p.Records(0)
	}
	return nil, 0
}

// retryWait is the pause between two tries to wait for the log's replication.
const retryWait = 50 * time.Millisecond

func (o offsetsStore) AwaitReplicated(ctx context.Context, index, epoch int32, end int64) bool {
	p := o.local(index)
	if p == nil {
		return false
	}
	goal := purgatory.Goal[replica.LeaderEpoch, int64]{Key: replica.LeaderEpoch{PartitionKey: p.Key, Epoch: epoch}, Number: end}
	for ctx.Err() == nil {
		_ = o.s.produces.Await(ctx, purgatory.NoTimeout, purgatory.All, goal) // the checks below find out why the wait ended
		if p.Leads(epoch) == nil && o.s.committed(goal.Key) >= end {
			return true
		}
		if !fault.Sleep(ctx, retryWait) { // the leader epoch has ended, and the shard will soon be told; or the purgatory is full
			break
		}
	}
	return false
}

func (o offsetsStore) Replicate(index, epoch int32, batch []byte, timeout time.Duration, done func(base int64, err *kerr.Error)) {
	if p := o.local(index); p != nil {
		o.s.replicate(p, epoch, batch, timeout, done)
	} else {
		done(-1, kerr.NotLeaderForPartition)
	}
}

func (o offsetsStore) DeleteBefore(index, epoch int32, offset int64) {
	if p := o.local(index); p != nil {
		o.s.deleteBefore(p, epoch, offset)
	}
}

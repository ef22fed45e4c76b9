package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/fault"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// replicator fetches from one leader all that this broker follows there, over
// the same protocol and the same port as any client: to the leader it is a
// delayed fetch that waits for appends.
type replicator struct {
	s      *Server
	leader int32
	peer   *wire.Peer // nil: not connected
	parts  []replicated
}

// replicated is one partition of a fetch under way.
type replicated struct {
	p *replica.Partition
	replica.Position
}

const (
	replicaFetchVersion = 13 // the last to carry the replica's id as a plain field, with topics by id
	replicaMaxBytes     = 1 << 20
	replicaPatience     = 5 * time.Second        // for an answer, on top of the wait
	replicaRest         = 50 * time.Millisecond  // after a failure
	replicaWait         = 100 * time.Millisecond // a partition that comes new to a fetch under way waits at most this long
)

func (r *replicator) run(ctx context.Context) {
	defer r.hangUp()
	for ctx.Err() == nil {
		if r.s.gate.Pass(ctx) != nil {
			return
		}
		changed := r.s.rolesChanged() // before the look: what changes after it is seen next time
		req := r.request()
		if req == nil {
			r.hangUp()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if err := r.fetch(ctx, req); err != nil {
			r.hangUp()
			if !fault.Sleep(ctx, replicaRest) {
				return
			}
		}
	}
}

func (r *replicator) hangUp() {
	if r.peer != nil {
		r.s.links.HangUp(r.peer.Conn)
		r.peer = nil
	}
}

// request is a fetch of everything that follows the leader, nil if nothing does.
func (r *replicator) request() *kmsg.FetchRequest {
	r.parts = r.parts[:0]
	for _, p := range r.s.partitions.All() {
		if at, ok := p.Following(r.leader); ok {
			r.parts = append(r.parts, replicated{p, at})
		}
	}
	if len(r.parts) == 0 {
		return nil
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = replicaFetchVersion, r.s.id
	req.MaxWaitMillis, req.MinBytes = int32(replicaWait/time.Millisecond), 1
	req.MaxBytes = int32(r.s.cfg.MaxFetch)
	topics := map[meta.TopicID]int{}
	for _, part := range r.parts {
		at, ok := topics[part.p.Key.Topic]
		if !ok {
			at = len(req.Topics)
			topics[part.p.Key.Topic] = at
			rt := kmsg.NewFetchRequestTopic()
			rt.TopicID = part.p.Key.Topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch = part.p.Key.Index, part.Epoch
		rp.FetchOffset, rp.LastFetchedEpoch, rp.LogStartOffset = part.Offset, part.LastEpoch, part.Start
		rp.PartitionMaxBytes = replicaMaxBytes
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, rp)
	}
	return req
}

// fetch makes one round.
func (r *replicator) fetch(ctx context.Context, req *kmsg.FetchRequest) error {
	if r.peer == nil {
		leader, ok := r.s.image().Node(r.leader)
		if !ok {
			return fmt.Errorf("broker %d is not known to live", r.leader)
		}
		nc, err := r.s.links.Dial(ctx, r.s.id, leader.ID, leader.Addr())
		if err != nil {
			return err
		}
		r.peer = wire.NewPeer(nc, r.s.id, r.s.cfg.MaxFetch+r.s.cfg.MaxBatch+r.s.cfg.Wire.MaxSmallFrame)
	}
	resp, err := r.peer.Call(ctx, req, replicaWait+replicaPatience)
	if err != nil {
		return err
	}
	if r.s.gate.Pass(ctx) != nil { // a paused broker takes nothing in
		return ctx.Err()
	}
	return r.take(resp.(*kmsg.FetchResponse))
}

// take works an answer into the replicas.
func (r *replicator) take(resp *kmsg.FetchResponse) error {
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	asked := make(map[meta.PartitionKey]replicated, len(r.parts))
	for _, part := range r.parts {
		asked[part.p.Key] = part
	}
	var failed error
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			part, ok := asked[meta.PartitionKey{Topic: rt.TopicID, Index: rp.Partition}]
			if !ok {
				return fmt.Errorf("answer for a partition that was not asked for: %d", rp.Partition)
			}
			if err := r.takePart(part, rp); err != nil {
				failed = err
			}
		}
	}
	return failed
}

func (r *replicator) takePart(part replicated, rp *kmsg.FetchResponseTopicPartition) error {
	s, err := r.s, kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case err == nil && rp.DivergingEpoch.Epoch >= 0:
		s.metrics.lostCommitted.Add(part.p.PartWays(part.Epoch, log.EpochStart{Epoch: rp.DivergingEpoch.Epoch, Start: rp.DivergingEpoch.EndOffset}))
		return nil
	case err == nil:
		return part.p.Take(part.Epoch, rp.RecordBatches, rp.HighWatermark, rp.LogStartOffset)
	case errors.Is(err, kerr.OffsetOutOfRange) && rp.LogStartOffset >= 0:
		part.p.RestartAt(part.Epoch, rp.LogStartOffset)
		return nil
	default:
		return err // another leader, or this one does not know yet that it is: again, after a rest
	}
}

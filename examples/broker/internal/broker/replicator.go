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
// delayed fetch that waits for appends. It does so in a fetch session: only what has
// changed is named, so a round costs nothing for a partition where nothing happens.
type replicator struct {
	s      *Server
	leader int32
	peer   *wire.Peer // nil: not connected

	follows map[meta.PartitionKey]*replicated // what is followed there
	stale   []*replicated                     // those whose position the leader has not been told, or an answer may have moved
	session int32                             // 0: none
	epoch   int32                             // of the next fetch in it
	roles   <-chan struct{}                   // closed: what is followed may have changed
}

// replicated is a partition that is followed.
type replicated struct {
	p    *replica.Partition
	told replica.Position // the leader, in this session
	new  bool             // the leader was not told of it
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
		r.look()
		if len(r.follows) == 0 {
			roles := r.roles
			r.hangUp()
			select {
			case <-roles:
			case <-ctx.Done():
			}
			continue
		}
		if err := r.fetch(ctx, r.request()); err != nil {
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
	r.forget()
}

// forget begins anew: with the next fetch the leader is told everything.
func (r *replicator) forget() {
	r.session, r.epoch, r.follows, r.stale, r.roles = 0, initialEpoch, nil, nil, nil
}

// look finds what is followed, if that may have changed.
func (r *replicator) look() {
	select {
	case <-r.roles:
	default:
		if r.roles != nil {
			return
		}
	}
	r.roles = r.s.rolesChanged() // before the look: what changes after it is seen next time
	before := r.follows
	r.follows, r.stale = map[meta.PartitionKey]*replicated{}, nil
	for _, p := range r.s.partitions.All() {
		if _, ok := p.Following(r.leader); !ok {
			continue
		}
		part := before[p.Key]
		if part == nil || part.p != p {
			part = &replicated{p: p, new: true}
		}
		r.follows[p.Key] = part
		r.stale = append(r.stale, part)
	}
	for key := range before {
		if r.follows[key] == nil {
			r.forget() // the session goes on without it: rare enough to begin anew
			r.look()
			return
		}
	}
}

// request is a fetch of everything that follows the leader: it names what has changed.
func (r *replicator) request() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = replicaFetchVersion, r.s.id
	req.SessionID, req.SessionEpoch = r.session, r.epoch
	req.MaxWaitMillis, req.MinBytes = int32(replicaWait/time.Millisecond), 1
	req.MaxBytes = int32(r.s.cfg.MaxFetch)
	topics := map[meta.TopicID]int{}
	for _, part := range r.stale {
		now, ok := part.p.Following(r.leader)
		if !ok || now == part.told && !part.new {
			continue // what it follows has changed just now, which is seen next time
		}
		part.told, part.new = now, false
		at, ok := topics[part.p.Key.Topic]
		if !ok {
			at = len(req.Topics)
			topics[part.p.Key.Topic] = at
			rt := kmsg.NewFetchRequestTopic()
			rt.TopicID = part.p.Key.Topic
			req.Topics = append(req.Topics, rt)
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch = part.p.Key.Index, now.Epoch
		rp.FetchOffset, rp.LastFetchedEpoch, rp.LogStartOffset = now.Offset, now.LastEpoch, now.Start
		rp.PartitionMaxBytes = replicaMaxBytes
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, rp)
	}
	r.stale = r.stale[:0]
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
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.FetchSessionIDNotFound), errors.Is(err, kerr.InvalidFetchSessionEpoch):
		r.forget()
		return nil
	case err != nil:
		return err
	}
	if r.session != resp.SessionID {
		r.session, r.epoch = resp.SessionID, 0
	}
	if r.session != 0 {
		if r.epoch++; r.epoch < 0 {
			r.epoch = 1
		}
	}
	var failed error
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			part := r.follows[meta.PartitionKey{Topic: rt.TopicID, Index: rp.Partition}]
			if part == nil {
				return fmt.Errorf("answer for a partition that was not asked for: %d", rp.Partition)
			}
			if err := r.takePart(part, rp); err != nil {
				failed = err
			}
			r.stale = append(r.stale, part)
		}
	}
	if r.session == 0 { // the leader remembers nothing
		r.stale = r.stale[:0]
		for _, part := range r.follows {
			part.new = true
			r.stale = append(r.stale, part)
		}
	}
	return failed
}

func (r *replicator) takePart(part *replicated, rp *kmsg.FetchResponseTopicPartition) error {
	s, err := r.s, kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case err == nil && rp.DivergingEpoch.Epoch >= 0:
		s.metrics.lostCommitted.Add(part.p.PartWays(part.told.Epoch, log.EpochStart{Epoch: rp.DivergingEpoch.Epoch, Start: rp.DivergingEpoch.EndOffset}))
		return nil
	case err == nil:
		return part.p.Take(part.told.Epoch, rp.RecordBatches, rp.HighWatermark, rp.LogStartOffset)
	case errors.Is(err, kerr.OffsetOutOfRange) && rp.LogStartOffset >= 0:
		part.p.RestartAt(part.told.Epoch, rp.LogStartOffset)
		return nil
	default:
		return err // another leader, or this one does not know yet that it is: again, after a rest
	}
}

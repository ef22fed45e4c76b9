package replication

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

// Follow fetches all partitions that a broker follows at one leader, until ctx ends. It uses the
// same protocol and port as any client: to the leader it is a delayed fetch that waits for appends.
// It uses a fetch session, which names only changed partitions, so idle partitions cost nothing.
func Follow(ctx context.Context, b *Broker, leader int32) {
	(&follower{b: b, leader: leader}).run(ctx)
}

type follower struct {
	b      *Broker
	leader int32
	peer   *wire.Peer // nil: not connected

	parts   map[meta.PartitionKey]*replicated // the partitions followed there
	stale   []*replicated                     // positions that the leader does not know, or that a response may have moved
	session int32                             // 0: none
	epoch   int32                             // of the next fetch in it
	roles   <-chan struct{}                   // closed when the followed partitions may have changed
}

// replicated is a followed partition.
type replicated struct {
	p    *replica.Partition
	sent replica.Position // the position that the leader knows in this session
	new  bool             // the leader does not know the partition yet
}

const (
	version         = 13 // the last version with the replica's id as a plain field; it names topics by id
	maxBytes        = 1 << 20
	responseTimeout = 5 * time.Second        // for a response, in addition to the wait
	retryDelay      = 50 * time.Millisecond  // after a failure
	maxWait         = 100 * time.Millisecond // the most that a new partition waits for a fetch in flight
)

func (f *follower) run(ctx context.Context) {
	defer f.hangUp()
	for ctx.Err() == nil {
		if f.b.Gate.Pass(ctx) != nil {
			return
		}
		f.refresh()
		if len(f.parts) == 0 {
			roles := f.roles
			f.hangUp()
			select {
			case <-roles:
			case <-ctx.Done():
			}
			continue
		}
		if err := f.fetch(ctx, f.request()); err != nil {
			f.hangUp()
			if !fault.Sleep(ctx, retryDelay) {
				return
			}
		}
	}
}

func (f *follower) hangUp() {
	if f.peer != nil {
		f.b.Links.HangUp(f.peer.Conn)
		f.peer = nil
	}
	f.resetSession()
}

// resetSession restarts the session: the next fetch names every partition.
func (f *follower) resetSession() {
	f.session, f.epoch, f.parts, f.stale, f.roles = 0, 0, nil, nil, nil
}

// refresh updates the followed partitions if they may have changed.
func (f *follower) refresh() {
	select {
	case <-f.roles:
	default:
		if f.roles != nil {
			return
		}
	}
	f.roles = f.b.Changed() // before the scan, so that the next call sees later changes
	before := f.parts
	f.parts, f.stale = map[meta.PartitionKey]*replicated{}, nil
	for _, p := range f.b.Partitions.All() {
		if _, ok := p.Following(f.leader); !ok {
			continue
		}
		part := before[p.Key]
		if part == nil || part.p != p {
			part = &replicated{p: p, new: true}
		}
		f.parts[p.Key] = part
		f.stale = append(f.stale, part)
	}
	for key := range before {
		if f.parts[key] == nil {
			f.resetSession() // the session goes on without it: rare enough to start a new session
			f.refresh()
			return
		}
	}
}

// request returns the session's next fetch, which names the changed partitions.
func (f *follower) request() *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID = version, f.b.ID
	req.SessionID, req.SessionEpoch = f.session, f.epoch
	req.MaxWaitMillis, req.MinBytes = int32(maxWait/time.Millisecond), 1
	req.MaxBytes = int32(f.b.MaxFetch)
	topics := map[meta.TopicID]int{}
	for _, part := range f.stale {
		now, ok := part.p.Following(f.leader)
		if !ok || now == part.sent && !part.new {
			continue // its leader has changed since; the next refresh sees that
		}
		part.sent, part.new = now, false
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
		rp.PartitionMaxBytes = maxBytes
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, rp)
	}
	f.stale = f.stale[:0]
	return req
}

// fetch runs one round.
func (f *follower) fetch(ctx context.Context, req *kmsg.FetchRequest) error {
	if f.peer == nil {
		leader, ok := f.b.Image().Node(f.leader)
		if !ok {
			return fmt.Errorf("broker %d is not known to live", f.leader)
		}
		nc, err := f.b.Links.Dial(ctx, f.b.ID, leader.ID, leader.Addr())
		if err != nil {
			return err
		}
		f.peer = wire.NewPeer(nc, f.b.ID, f.b.MaxAnswer)
	}
	resp, err := f.peer.Call(ctx, req, maxWait+responseTimeout)
	if err != nil {
		return err
	}
	if f.b.Gate.Pass(ctx) != nil { // a paused broker processes nothing
		return ctx.Err()
	}
	return f.apply(resp.(*kmsg.FetchResponse))
}

// apply applies a response to the replicas.
func (f *follower) apply(resp *kmsg.FetchResponse) error {
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.FetchSessionIDNotFound), errors.Is(err, kerr.InvalidFetchSessionEpoch):
		f.resetSession()
		return nil
	case err != nil:
		return err
	}
	if f.session != resp.SessionID {
		f.session, f.epoch = resp.SessionID, 0
	}
	if f.session != 0 {
		if f.epoch++; f.epoch < 0 {
			f.epoch = 1
		}
	}
	var failed error
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			part := f.parts[meta.PartitionKey{Topic: rt.TopicID, Index: rp.Partition}]
			if part == nil {
				return fmt.Errorf("answer for a partition that was not asked for: %d", rp.Partition)
			}
			if err := f.applyPart(part, rp); err != nil {
				failed = err
			}
			f.stale = append(f.stale, part)
		}
	}
	if f.session == 0 { // the leader keeps no session
		f.stale = f.stale[:0]
		for _, part := range f.parts {
			part.new = true
			f.stale = append(f.stale, part)
		}
	}
	return failed
}

func (f *follower) applyPart(part *replicated, rp *kmsg.FetchResponseTopicPartition) error {
	err := kerr.ErrorForCode(rp.ErrorCode)
	switch {
	case err == nil && rp.DivergingEpoch.Epoch >= 0:
		f.b.OnLost(part.p.TruncateToDivergence(part.sent.Epoch, log.EpochStart{Epoch: rp.DivergingEpoch.Epoch, Start: rp.DivergingEpoch.EndOffset}))
		return nil
	case err == nil:
		return part.p.AppendFetched(part.sent.Epoch, rp.RecordBatches, rp.HighWatermark, rp.LogStartOffset)
	case errors.Is(err, kerr.OffsetOutOfRange) && rp.LogStartOffset >= 0:
		part.p.ResetTo(part.sent.Epoch, rp.LogStartOffset)
		return nil
	default:
		return err // another leader, or it does not know yet that it leads: retry after retryDelay
	}
}

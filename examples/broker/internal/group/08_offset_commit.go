package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// offsetKey is the partition that an offset belongs to.
type offsetKey struct {
	topic     string
	partition int32
}

// committedOffset is a group's committed position in a partition.
type committedOffset struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	committedAt int64 // ms since 1970
	at          int64 // first offset of its write in the log: of two commits the later one counts
	size        int64 // charged to Coordinator.offsetBytes
}

// offsetOverhead is charged for each offset in addition to its strings.
const offsetOverhead = 128

func offsetSize(group, topic, metadata string) int64 {
	return int64(offsetOverhead + len(group) + len(topic) + len(metadata))
}

// commit is an OffsetCommit request that is being written to the log. Its offsets are not visible
// until every in-sync replica has them: a consumer that starts from an offset must find it again
// after the next change of coordinators.
type commit struct {
	co      *Coordinator
	g       *group
	reply   Reply
	resp    *kmsg.OffsetCommitResponse
	offsets []commitOffset
	size    int64 // charged to offsetBytes
}

// commitOffset is one offset of a commit, with its position in the answer.
type commitOffset struct {
	offsetKey
	committedOffset
	topicAt, partitionAt int
}

func (co *Coordinator) offsetCommit(q *kmsg.OffsetCommitRequest, r Reply) {
	m := newCommit(co, q, r)
	if len(m.offsets) == 0 {
		r.Now(m.resp)
		return
	}
	simple := q.Generation < 0 // not a member: a consumer that only stores its offsets here
	err := co.onGroup(q.Group, simple, func(g *group, l *deferred) {
		m.g = g
		if err := g.commitLocked(q, m, l); err != nil {
			m.answer(err, l)
		}
	})
	switch err {
	case nil:
		return
	case kerr.GroupIDNotFound:
		if err = kerr.IllegalGeneration; q.Version >= 9 {
			err = kerr.GroupIDNotFound
		}
	case kerr.GroupMaxSizeReached:
		err = kerr.InvalidCommitOffsetSize
	}
	m.fail(err)
	r.Now(m.resp)
}

// newCommit prepares the answer and collects the offsets that can be committed.
func newCommit(co *Coordinator, q *kmsg.OffsetCommitRequest, r Reply) *commit {
	m := &commit{co: co, reply: r, resp: q.ResponseKind().(*kmsg.OffsetCommitResponse)}
	now := time.Now().UnixMilli()
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewOffsetCommitResponseTopic()
		st.Topic = rt.Topic
		partitions := co.Store.PartitionsOf(rt.Topic)
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			sp := kmsg.NewOffsetCommitResponseTopicPartition()
			sp.Partition = rp.Partition
			o := commitOffset{
				offsetKey:       offsetKey{rt.Topic, rp.Partition},
				committedOffset: committedOffset{offset: rp.Offset, leaderEpoch: -1, committedAt: now},
				topicAt:         i,
				partitionAt:     j,
			}
			if q.Version >= 6 {
				o.leaderEpoch = rp.LeaderEpoch
			}
			if rp.Metadata != nil {
				o.metadata = *rp.Metadata
			}
			switch {
			case rp.Partition < 0 || int(rp.Partition) >= partitions:
				sp.ErrorCode = wire.Code(kerr.UnknownTopicOrPartition)
			case len(o.metadata) > m.co.cfg.MaxOffsetMetadata:
				sp.ErrorCode = wire.Code(kerr.OffsetMetadataTooLarge)
			default:
				o.size = offsetSize(q.Group, rt.Topic, o.metadata)
				m.size += o.size
				m.offsets = append(m.offsets, o)
			}
			st.Partitions = append(st.Partitions, sp)
		}
		m.resp.Topics = append(m.resp.Topics, st)
	}
	return m
}

// fail sets the error of all offsets of the commit.
func (m *commit) fail(err *kerr.Error) {
	for i := range m.offsets {
		o := &m.offsets[i]
		m.resp.Topics[o.topicAt].Partitions[o.partitionAt].ErrorCode = wire.Code(err)
	}
}

func (m *commit) answer(err *kerr.Error, l *deferred) {
	m.fail(err)
	l.do(func() { m.reply.Now(m.resp) })
}

// commitLocked queues a commit for the log, if the sender is allowed to make it.
func (g *group) commitLocked(q *kmsg.OffsetCommitRequest, m *commit, l *deferred) *kerr.Error {
	if err := g.mayCommitLocked(q, l); err != nil {
		return err
	}
	if !g.co.offsetBytes.acquire(m.size) {
		return kerr.InvalidCommitOffsetSize
	}
	g.committing++
	w := &write{done: m.ended}
	for i := range m.offsets {
		o := &m.offsets[i]
		w.records = append(w.records, offsetRecord(g.id, o.offsetKey, &o.committedOffset))
	}
	g.shard.enqueue(w)
	l.do(func() { g.shard.work(w) })
	return nil
}

// mayCommitLocked allows commits by members of the current generation, and by any client while the
// group has no members.
func (g *group) mayCommitLocked(q *kmsg.OffsetCommitRequest, l *deferred) *kerr.Error {
	switch {
	case q.Generation < 0 && g.state == stateEmpty:
		return nil
	case q.Generation < 0 && q.MemberID == "" && q.InstanceID == nil:
		return kerr.UnknownMemberID
	}
	if err := g.checkLocked(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	switch {
	case q.Generation != g.generation:
		return kerr.IllegalGeneration
	case g.state == stateCompleting:
		return kerr.RebalanceInProgress // the member has no assignment yet, so it may have lost the partitions it commits
	}
	g.recordHeartbeatLocked(g.members[q.MemberID], l)
	return nil
}

// ended is called when the log has the commit, or the write has failed.
func (m *commit) ended(first int64, err *kerr.Error) {
	m.g.change(func(l *deferred) {
		m.g.committing--
		if err == nil && m.g.state != stateDead {
			m.g.storeOffsetsLocked(m.offsets, first)
		} else {
			m.co.offsetBytes.release(m.size)
		}
		m.answer(commitError(err), l)
	})
}

// storeOffsetsLocked stores replicated offsets in the group, except where it has later ones:
// commits complete in any order.
func (g *group) storeOffsetsLocked(offsets []commitOffset, at int64) {
	for i := range offsets {
		o := &offsets[i]
		old, ok := g.offsets[o.offsetKey]
		switch {
		case ok && old.at > at:
			g.co.offsetBytes.release(o.size)
			continue
		case ok:
			g.co.offsetBytes.release(old.size)
		}
		o.at = at
		g.offsets[o.offsetKey] = o.committedOffset
	}
}

// commitError maps an error of the log to the one that the client gets.
func commitError(err *kerr.Error) *kerr.Error {
	switch err {
	case nil:
		return nil
	case kerr.NotLeaderForPartition:
		return kerr.NotCoordinator
	case kerr.RequestTimedOut:
		return kerr.RequestTimedOut
	case kerr.MessageTooLarge:
		return kerr.InvalidCommitOffsetSize
	default: // too few replicas, most likely
		return kerr.CoordinatorNotAvailable
	}
}

package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// deleteRecords is a delayed operation. The leader has moved its log's start, and the answer waits
// until every live replica has done so: until the low watermark of each partition reaches a number.
type deleteRecords struct {
	srv     *Server
	reply   *wire.Reply
	resp    *kmsg.DeleteRecordsResponse
	waiting []deletedPart
}

type deletedPart struct {
	at          *kmsg.DeleteRecordsResponseTopicPartition
	leaderEpoch replica.LeaderEpoch
	p           *replica.Partition
	offset      int64
}

func handleDeleteRecords(s *Server, c *wire.Conn, q *kmsg.DeleteRecordsRequest, r *wire.Reply) {
	op := &deleteRecords{
		srv:   s,
		reply: r,
		resp:  q.ResponseKind().(*kmsg.DeleteRecordsResponse),
	}
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewDeleteRecordsResponseTopic()
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			sp := &st.Partitions[j]
			sp.Default()
			sp.Partition, sp.LowWatermark = rt.Partitions[j].Partition, -1
			sp.ErrorCode = wire.Code(op.begin(rt.Topic, &rt.Partitions[j], sp))
		}
		op.resp.Topics = append(op.resp.Topics, st)
	}
	if len(op.waiting) == 0 {
		r.Now(op.resp)
		return
	}
	goals := make([]purgatory.Goal[replica.LeaderEpoch, int64], len(op.waiting))
	for i, part := range op.waiting {
		goals[i] = purgatory.Goal[replica.LeaderEpoch, int64]{Key: part.leaderEpoch, Number: part.offset}
	}
	timeout := time.Duration(q.TimeoutMillis) * time.Millisecond
	_, err := s.deletes.TryCompleteElseWatch(c.Context(), op, timeout, purgatory.All, goals...)
	if s.notParked(err) {
		op.answer()
	}
}

// begin moves the start of the leader's own log.
func (o *deleteRecords) begin(topic string, rp *kmsg.DeleteRecordsRequestTopicPartition, sp *kmsg.DeleteRecordsResponseTopicPartition) *kerr.Error {
	p, err := o.srv.lookup(topic, meta.TopicID{}, false, rp.Partition)
	if err != nil {
		return err
	}
	if p.Key.Topic == o.srv.offsetsTopicID() {
		return kerr.PolicyViolation // only coordinators delete from this topic
	}
	now, leads := p.LeaderEpoch()
	if !leads {
		return kerr.NotLeaderForPartition
	}
	offset := rp.Offset
	if offset == -1 {
		offset = min(o.srv.committed(now), replica.EpochEnded-1)
	}
	if offset < 0 {
		return kerr.OffsetOutOfRange
	}
	if err := p.DeleteBefore(now.Epoch, offset); err != nil {
		return err
	}
	o.srv.sessions.logStartMoved(p.Key)
	o.waiting = append(o.waiting, deletedPart{sp, now, p, offset})
	return nil
}

// Complete runs on the goroutine that handles the last follower's fetch, or on a worker.
func (o *deleteRecords) Complete(outcome purgatory.Outcome, _ error) {
	completeParked(outcome, o.reply, o.answer)
}

func (o *deleteRecords) answer() {
	for _, part := range o.waiting {
		switch low := o.srv.deleted(part.leaderEpoch); {
		case low == replica.EpochEnded:
			part.at.ErrorCode = wire.Code(kerr.NotLeaderForPartition)
		case low < part.offset:
			part.at.ErrorCode = wire.Code(kerr.RequestTimedOut)
		default:
			part.at.LowWatermark = low
		}
	}
	o.reply.Now(o.resp)
}

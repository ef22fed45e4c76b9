package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleOffsetForLeaderEpoch tells a consumer whether the records it has read are still in the log
// after a change of leaders.
func handleOffsetForLeaderEpoch(s *Server, c *wire.Conn, q *kmsg.OffsetForLeaderEpochRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewOffsetForLeaderEpochResponseTopic()
		st.Topic = rt.Topic
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			sp.Partition, sp.LeaderEpoch, sp.EndOffset = rp.Partition, -1, -1
			currentEpoch := int32(-1)
			if q.Version >= 2 {
				currentEpoch = rp.CurrentLeaderEpoch
			}
			p, err := s.lookup(rt.Topic, meta.TopicID{}, false, rp.Partition)
			if err == nil {
				sp.LeaderEpoch, sp.EndOffset, err = p.EndOfEpoch(rp.LeaderEpoch, currentEpoch)
			}
			sp.ErrorCode = wire.Code(err)
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	r.Now(resp)
}

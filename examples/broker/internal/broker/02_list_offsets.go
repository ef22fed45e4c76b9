package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

func handleListOffsets(s *Server, c *wire.Conn, q *kmsg.ListOffsetsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.ListOffsetsResponse)
	// A partition may be listed once, as in Kafka: a lookup by time is a scan, and a request can
	// list thousands of partitions.
	asked := map[*replica.Partition]bool{}
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewListOffsetsResponseTopic()
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, sp := &rt.Partitions[j], &st.Partitions[j]
			sp.Default()
			sp.Partition, sp.Timestamp, sp.Offset = rp.Partition, -1, -1
			p, err := s.lookup(rt.Topic, meta.TopicID{}, false, rp.Partition)
			if err == nil && asked[p] {
				err = kerr.InvalidRequest
			}
			if err == nil {
				currentEpoch := int32(-1)
				if q.Version >= 4 {
					currentEpoch = rp.CurrentLeaderEpoch
				}
				asked[p] = true
				sp.Offset, sp.Timestamp, sp.LeaderEpoch, err = p.OffsetFor(rp.Timestamp, currentEpoch)
			}
			if err != nil {
				sp.ErrorCode = wire.Code(err)
				continue
			}
			if q.Version == 0 && rp.MaxNumOffsets > 0 && sp.Offset >= 0 {
				sp.OldStyleOffsets = []int64{sp.Offset}
			}
		}
		resp.Topics = append(resp.Topics, st)
	}
	r.Now(resp)
}

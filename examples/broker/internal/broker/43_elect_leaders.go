package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleElectLeaders refuses all elections: a preferred leader leads again as soon as it has caught
// up, and a replica that has not caught up is never elected.
func handleElectLeaders(_ *Server, _ *wire.Conn, q *kmsg.ElectLeadersRequest, r *wire.Reply) {
	r.Answer(func() kmsg.Response { // the answer is longer than the request
		resp := q.ResponseKind().(*kmsg.ElectLeadersResponse)
		why := kmsg.StringPtr("preferred leaders lead again by themselves; no other leader is elected on demand")
		if resp.ErrorCode = wire.Code(kerr.UnsupportedVersion); q.Version == 0 {
			resp.ErrorCode = 0
		}
		for i := range q.Topics {
			st := kmsg.NewElectLeadersResponseTopic()
			st.Topic = q.Topics[i].Topic
			for _, index := range q.Topics[i].Partitions {
				sp := kmsg.NewElectLeadersResponseTopicPartition()
				sp.Partition, sp.ErrorCode, sp.ErrorMessage = index, wire.Code(kerr.UnsupportedVersion), why
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp
	})
}

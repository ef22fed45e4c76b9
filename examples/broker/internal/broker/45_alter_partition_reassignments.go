package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleAlterPartitionReassignments refuses every partition: replicas stay where the controller
// first placed them. A client that receives this answer can tell its user why; if the connection
// were closed, it would retry. The handler looks no partition up, because the answer is the same
// for partitions that do not exist.
func handleAlterPartitionReassignments(s *Server, _ *wire.Conn, q *kmsg.AlterPartitionAssignmentsRequest, r *wire.Reply) {
	r.Answer(func() kmsg.Response { // the answer is longer than the request
		resp := q.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		resp.AllowReplicationFactorChange = q.AllowReplicationFactorChange
		why := kmsg.StringPtr("this broker does not move replicas")
		for i := range q.Topics {
			rt := &q.Topics[i]
			st := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			st.Topic = rt.Topic
			for j := range rt.Partitions {
				sp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				sp.Partition, sp.ErrorCode, sp.ErrorMessage = rt.Partitions[j].Partition, wire.Code(kerr.UnsupportedVersion), why
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp
	})
}

package broker

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// A request that tools ask for, and that this broker refuses in the request's
// own terms: a client that gets an answer can tell its user why, where one that
// is hung up on tries again.

// handleAlterPartitionReassignments refuses every partition: replicas stay where
// the controller first put them. No partition is looked up, for the answer is
// the same for those that do not exist.
func handleAlterPartitionReassignments(s *Server, _ *wire.Conn, q *kmsg.AlterPartitionAssignmentsRequest, r *wire.Reply) {
	r.Answer(func() kmsg.Response { // it is longer than its request
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

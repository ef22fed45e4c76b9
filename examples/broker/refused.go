package main

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A request that tools ask for, and that this broker refuses in the request's
// own terms: a client that gets an answer can tell its user why, where one that
// is hung up on tries again.

// handleAlterPartitionReassignments refuses every partition: replicas stay where
// the controller first put them. No partition is looked up, for the answer is
// the same for those that do not exist.
func handleAlterPartitionReassignments(_ *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.AlterPartitionAssignmentsRequest)
	r.answer(func() kmsg.Response { // it is longer than its request
		resp := q.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		resp.AllowReplicationFactorChange = q.AllowReplicationFactorChange
		why := kmsg.StringPtr("this broker does not move replicas")
		for i := range q.Topics {
			rt := &q.Topics[i]
			st := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			st.Topic = rt.Topic
			for j := range rt.Partitions {
				sp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				sp.Partition, sp.ErrorCode, sp.ErrorMessage = rt.Partitions[j].Partition, code(kerr.UnsupportedVersion), why
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp
	})
}

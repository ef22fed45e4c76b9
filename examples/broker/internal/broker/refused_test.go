package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// Each partition is refused separately, with a reason for the user, even if it does not exist.
func TestReassignmentsAreRefused(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	makeTopic(t, s, "t", 1)
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	for _, name := range []string{"t", "nowhere"} {
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = name
		for _, index := range []int32{0, 7} {
			rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			rp.Partition, rp.Replicas = index, []int32{0}
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp := dial(t, s).Call(req).(*kmsg.AlterPartitionAssignmentsResponse)
	require.Zero(t, resp.ErrorCode)
	require.Len(t, resp.Topics, 2)
	for i, topic := range resp.Topics {
		require.Equal(t, req.Topics[i].Topic, topic.Topic)
		require.Len(t, topic.Partitions, 2)
		for j, p := range topic.Partitions {
			require.Equal(t, req.Topics[i].Partitions[j].Partition, p.Partition)
			kafkatest.RequireCode(t, kerr.UnsupportedVersion, p.ErrorCode)
			require.NotEmpty(t, p.ErrorMessage)
		}
	}
}

package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// Every advertised version is decoded and answered without an error.
func TestEveryAdvertisedVersion(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	produceTo(c, topic, 0, kafkatest.Batch([]string{"x"}))
	versions := c.Call(kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	require.Len(t, versions.ApiKeys, len(handlers))
	for _, k := range versions.ApiKeys {
		require.LessOrEqual(t, k.MaxVersion, kmsg.RequestForKey(k.ApiKey).MaxVersion(), "kmsg cannot do that")
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			name := fmt.Sprintf("%s/%d", kmsg.NameForKey(k.ApiKey), v)
			t.Run(name, func(t *testing.T) {
				c.T = t
				switch k.ApiKey {
				case int16(kmsg.Produce):
					resp := c.Call(kafkatest.Produce(v, topic, 0, kafkatest.Batch([]string{"y"}))).(*kmsg.ProduceResponse)
					if v < 3 {
						kafkatest.RequireCode(t, kerr.UnsupportedForMessageFormat, resp.Topics[0].Partitions[0].ErrorCode)
					} else {
						require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
						require.Positive(t, resp.Topics[0].Partitions[0].BaseOffset)
					}
				case int16(kmsg.Fetch):
					got := kafkatest.PartitionsOf(c.Call(kafkatest.Fetch(v, topic, time.Second, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))))[0]
					require.Zero(t, got.ErrorCode)
					_, next, err := log.OffsetsOf(got.RecordBatches)
					require.NoError(t, err)
					require.Equal(t, got.HighWatermark, next)
				case int16(kmsg.ListOffsets):
					for ts, offset := range map[int64]int64{replica.LatestOffset: replicaOf(s, topic, 0).Offsets().End, replica.EarliestOffset: 0} {
						sp := c.Call(listRequest(v, topic, 0, ts)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
						require.Zero(t, sp.ErrorCode)
						if v == 0 {
							require.Equal(t, []int64{offset}, sp.OldStyleOffsets)
						} else {
							require.Equal(t, offset, sp.Offset)
						}
					}
				case int16(kmsg.Metadata):
					req := kmsg.NewPtrMetadataRequest()
					req.Version = v
					rt := kmsg.NewMetadataRequestTopic()
					rt.Topic = kmsg.StringPtr("t")
					req.Topics = append(req.Topics, rt)
					resp := c.Call(req).(*kmsg.MetadataResponse)
					require.Len(t, resp.Brokers, 1)
					require.Equal(t, "t", *resp.Topics[0].Topic)
					require.Zero(t, resp.Topics[0].ErrorCode)
					require.Len(t, resp.Topics[0].Partitions, 1)
					if v >= 10 {
						require.Equal(t, [16]byte(topic.ID), resp.Topics[0].TopicID)
					}
				case int16(kmsg.ApiVersions):
					req := kmsg.NewPtrApiVersionsRequest()
					req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = v, "test", "1.0"
					resp := c.Call(req).(*kmsg.ApiVersionsResponse)
					require.Zero(t, resp.ErrorCode)
					require.Len(t, resp.ApiKeys, len(handlers))
				case int16(kmsg.CreateTopics):
					req := kmsg.NewPtrCreateTopicsRequest()
					req.Version = v
					rt := kmsg.NewCreateTopicsRequestTopic()
					rt.Topic, rt.NumPartitions, rt.ReplicationFactor = fmt.Sprintf("v%d", v), 2, 1
					req.Topics = append(req.Topics, rt)
					st := c.Call(req).(*kmsg.CreateTopicsResponse).Topics[0]
					require.Zero(t, st.ErrorCode)
					require.Len(t, s.image().ByName[rt.Topic].Partitions, 2)
				case int16(kmsg.DeleteTopics):
					gone := makeTopic(t, s, "gone", 1)
					req := kmsg.NewPtrDeleteTopicsRequest()
					req.Version, req.TopicNames = v, []string{"gone"}
					rt := kmsg.NewDeleteTopicsRequestTopic()
					rt.TopicID = gone.ID
					req.Topics = append(req.Topics, rt)
					require.Zero(t, c.Call(req).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)
					require.Nil(t, s.image().ByName["gone"])
				case int16(kmsg.InitProducerID):
					req := kmsg.NewPtrInitProducerIDRequest()
					req.Version = v
					resp := c.Call(req).(*kmsg.InitProducerIDResponse)
					require.Zero(t, resp.ErrorCode)
					require.Positive(t, resp.ProducerID)
				case int16(kmsg.DeleteRecords):
					req := deleteRecordsRequest(topic, 0, 0, kafkatest.WaitLimit)
					req.Version = v
					require.Zero(t, c.Call(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode)
				case int16(kmsg.OffsetForLeaderEpoch):
					sp := c.Call(epochRequest(v, topic, -1, 0)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
					require.Zero(t, sp.ErrorCode)
					require.Equal(t, replicaOf(s, topic, 0).Offsets().End, sp.EndOffset)
				case int16(kmsg.DescribeConfigs):
					req := kmsg.NewPtrDescribeConfigsRequest()
					req.Version = v
					rr := kmsg.NewDescribeConfigsRequestResource()
					rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, topic.Name
					req.Resources = append(req.Resources, rr)
					resource := c.Call(req).(*kmsg.DescribeConfigsResponse).Resources[0]
					require.Zero(t, resource.ErrorCode)
					require.NotEmpty(t, resource.Configs)
				case int16(kmsg.AlterPartitionAssignments):
					req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
					req.Version = v
					rt, rp := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
					rt.Topic, rp.Replicas = topic.Name, []int32{0}
					rt.Partitions = append(rt.Partitions, rp)
					req.Topics = append(req.Topics, rt)
					resp := c.Call(req).(*kmsg.AlterPartitionAssignmentsResponse)
					kafkatest.RequireCode(t, kerr.UnsupportedVersion, resp.Topics[0].Partitions[0].ErrorCode)
				case int16(kmsg.FindCoordinator), int16(kmsg.JoinGroup), int16(kmsg.SyncGroup), int16(kmsg.Heartbeat), int16(kmsg.LeaveGroup),
					int16(kmsg.OffsetCommit), int16(kmsg.OffsetFetch), int16(kmsg.DescribeGroups), int16(kmsg.ListGroups), int16(kmsg.DeleteGroups):
					// tested by TestFindCoordinator and TestGroupRequestsInEveryVersion, because
					// they need a group
				case int16(kmsg.AlterConfigs), int16(kmsg.IncrementalAlterConfigs), int16(kmsg.CreatePartitions):
					testAlteration(c, k.ApiKey, v)
				case int16(kmsg.ElectLeaders):
					req := kmsg.NewPtrElectLeadersRequest()
					req.Version = v
					rt := kmsg.NewElectLeadersRequestTopic()
					rt.Topic, rt.Partitions = "t", []int32{0}
					req.Topics = append(req.Topics, rt)
					resp := c.Call(req).(*kmsg.ElectLeadersResponse)
					kafkatest.RequireCode(t, kerr.UnsupportedVersion, resp.Topics[0].Partitions[0].ErrorCode)
				case int16(kmsg.OffsetDelete):
					kafkatest.RequireCode(t, kerr.UnsupportedVersion, c.Call(kmsg.NewPtrOffsetDeleteRequest()).(*kmsg.OffsetDeleteResponse).ErrorCode)
				default:
					t.Fatal("a key without a test")
				}
			})
		}
	}
	c.T = t
}

func deleteRecordsRequest(topic *meta.Topic, partition int32, offset int64, timeout time.Duration) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, int32(timeout/time.Millisecond)
	rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	rt.Topic, rp.Partition, rp.Offset = topic.Name, partition, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func epochRequest(version int16, topic *meta.Topic, currentEpoch, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version = version
	rt, rp := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rt.Topic, rp.CurrentLeaderEpoch, rp.LeaderEpoch = topic.Name, currentEpoch, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func listRequest(version int16, topic *meta.Topic, partition int32, ts int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = version
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic.Name
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.MaxNumOffsets = partition, ts, 1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func TestAPIVersionsOfTheFuture(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	c := dial(t, s)
	for _, version := range []int16{5, 99, -1} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = version
		c.Send(req)
		_, body := c.Frame()
		resp := kmsg.NewPtrApiVersionsResponse() // version 0, which every client reads
		require.NoError(t, resp.ReadFrom(body))
		kafkatest.RequireCode(t, kerr.UnsupportedVersion, resp.ErrorCode)
		require.Len(t, resp.ApiKeys, len(handlers))
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "-bad-", ""
	kafkatest.RequireCode(t, kerr.InvalidRequest, c.Call(req).(*kmsg.ApiVersionsResponse).ErrorCode)
}

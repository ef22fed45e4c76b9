package main

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every version that is advertised is decoded and answered without an error.
func TestEveryAdvertisedVersion(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	c.produce(topic, 0, batchOf([]string{"x"}))
	versions := c.call(kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	require.Len(t, versions.ApiKeys, len(apis))
	for _, k := range versions.ApiKeys {
		require.LessOrEqual(t, k.MaxVersion, kmsg.RequestForKey(k.ApiKey).MaxVersion(), "kmsg cannot do that")
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			name := fmt.Sprintf("%s/%d", kmsg.NameForKey(k.ApiKey), v)
			t.Run(name, func(t *testing.T) {
				c.t = t
				switch k.ApiKey {
				case int16(kmsg.Produce):
					resp := c.call(produceRequest(v, topic, 0, batchOf([]string{"y"}))).(*kmsg.ProduceResponse)
					if v < 3 {
						requireCode(t, kerr.UnsupportedForMessageFormat, resp.Topics[0].Partitions[0].ErrorCode)
					} else {
						require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
						require.Positive(t, resp.Topics[0].Partitions[0].BaseOffset)
					}
				case int16(kmsg.Fetch):
					got := partitionsOf(c.call(fetchRequest(v, topic, time.Second, 1, plenty, want{0, 0, plenty})))[0]
					require.Zero(t, got.ErrorCode)
					_, next, err := offsetsOf(got.RecordBatches)
					require.NoError(t, err)
					require.Equal(t, got.HighWatermark, next)
				case int16(kmsg.ListOffsets):
					for ts, offset := range map[int64]int64{latestOffset: replica(s, topic, 0).log.next, earliestOffset: 0} {
						sp := c.call(listRequest(v, topic, 0, ts)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
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
					resp := c.call(req).(*kmsg.MetadataResponse)
					require.Len(t, resp.Brokers, 1)
					require.Equal(t, "t", *resp.Topics[0].Topic)
					require.Zero(t, resp.Topics[0].ErrorCode)
					require.Len(t, resp.Topics[0].Partitions, 1)
					if v >= 10 {
						require.Equal(t, [16]byte(topic.id), resp.Topics[0].TopicID)
					}
				case int16(kmsg.ApiVersions):
					req := kmsg.NewPtrApiVersionsRequest()
					req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = v, "test", "1.0"
					resp := c.call(req).(*kmsg.ApiVersionsResponse)
					require.Zero(t, resp.ErrorCode)
					require.Len(t, resp.ApiKeys, len(apis))
				case int16(kmsg.CreateTopics):
					req := kmsg.NewPtrCreateTopicsRequest()
					req.Version = v
					rt := kmsg.NewCreateTopicsRequestTopic()
					rt.Topic, rt.NumPartitions, rt.ReplicationFactor = fmt.Sprintf("v%d", v), 2, 1
					req.Topics = append(req.Topics, rt)
					st := c.call(req).(*kmsg.CreateTopicsResponse).Topics[0]
					require.Zero(t, st.ErrorCode)
					require.Len(t, s.image().byName[rt.Topic].partitions, 2)
				case int16(kmsg.DeleteTopics):
					gone := makeTopic(t, s, "gone", 1)
					req := kmsg.NewPtrDeleteTopicsRequest()
					req.Version, req.TopicNames = v, []string{"gone"}
					rt := kmsg.NewDeleteTopicsRequestTopic()
					rt.TopicID = gone.id
					req.Topics = append(req.Topics, rt)
					require.Zero(t, c.call(req).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)
					require.Nil(t, s.image().byName["gone"])
				case int16(kmsg.InitProducerID):
					req := kmsg.NewPtrInitProducerIDRequest()
					req.Version = v
					resp := c.call(req).(*kmsg.InitProducerIDResponse)
					require.Zero(t, resp.ErrorCode)
					require.Positive(t, resp.ProducerID)
				case int16(kmsg.DeleteRecords):
					req := deleteRecordsRequest(topic, 0, 0, patience)
					req.Version = v
					require.Zero(t, c.call(req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode)
				case int16(kmsg.OffsetForLeaderEpoch):
					sp := c.call(epochRequest(v, topic, -1, 0)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
					require.Zero(t, sp.ErrorCode)
					require.Equal(t, replica(s, topic, 0).log.next, sp.EndOffset)
				case int16(kmsg.DescribeConfigs):
					req := kmsg.NewPtrDescribeConfigsRequest()
					req.Version = v
					rr := kmsg.NewDescribeConfigsRequestResource()
					rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, topic.name
					req.Resources = append(req.Resources, rr)
					resource := c.call(req).(*kmsg.DescribeConfigsResponse).Resources[0]
					require.Zero(t, resource.ErrorCode)
					require.NotEmpty(t, resource.Configs)
				case int16(kmsg.AlterPartitionAssignments):
					req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
					req.Version = v
					rt, rp := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
					rt.Topic, rp.Replicas = topic.name, []int32{0}
					rt.Partitions = append(rt.Partitions, rp)
					req.Topics = append(req.Topics, rt)
					resp := c.call(req).(*kmsg.AlterPartitionAssignmentsResponse)
					requireCode(t, kerr.UnsupportedVersion, resp.Topics[0].Partitions[0].ErrorCode)
				case int16(kmsg.FindCoordinator), int16(kmsg.JoinGroup), int16(kmsg.SyncGroup), int16(kmsg.Heartbeat), int16(kmsg.LeaveGroup),
					int16(kmsg.OffsetCommit), int16(kmsg.OffsetFetch), int16(kmsg.DescribeGroups), int16(kmsg.ListGroups), int16(kmsg.DeleteGroups):
					// TestFindCoordinator and TestGroupRequestsInEveryVersion: a group is needed.
				default:
					t.Fatal("a key without a test")
				}
			})
		}
	}
	c.t = t
}

func deleteRecordsRequest(topic *topic, partition int32, offset int64, timeout time.Duration) *kmsg.DeleteRecordsRequest {
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version, req.TimeoutMillis = 2, int32(timeout/time.Millisecond)
	rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	rt.Topic, rp.Partition, rp.Offset = topic.name, partition, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func epochRequest(version int16, topic *topic, believed, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version = version
	rt, rp := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rt.Topic, rp.CurrentLeaderEpoch, rp.LeaderEpoch = topic.name, believed, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func listRequest(version int16, topic *topic, partition int32, ts int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = version
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic.name
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
		c.send(req)
		_, body := c.frame()
		resp := kmsg.NewPtrApiVersionsResponse() // version 0, which everybody reads
		require.NoError(t, resp.ReadFrom(body))
		requireCode(t, kerr.UnsupportedVersion, resp.ErrorCode)
		require.Len(t, resp.ApiKeys, len(apis))
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "-bad-", ""
	requireCode(t, kerr.InvalidRequest, c.call(req).(*kmsg.ApiVersionsResponse).ErrorCode)
}

// The guard's layouts must be what kmsg writes, at every version: a frame is
// walked to its end exactly, and refused one byte shorter or longer.
func TestLayoutsAgreeWithKmsg(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for key, api := range apis {
		for v := api.min; v <= api.max; v++ {
			for range 50 {
				req := kmsg.RequestForKey(key)
				req.SetVersion(v)
				fill(reflect.ValueOf(req).Elem(), rng)
				req.SetVersion(v)
				body := req.AppendTo(nil)
				check := func(b []byte) error { return checkLayout(b, api.layout, v, req.IsFlexible(), 1000) }
				require.NoError(t, check(body), "%s %d: %+v", kmsg.NameForKey(key), v, req)
				require.Error(t, check(append(body[:len(body):len(body)], 0)), "%s %d with a byte more", kmsg.NameForKey(key), v)
				if len(body) > 0 {
					require.Error(t, check(body[:len(body)-1]), "%s %d with a byte less", kmsg.NameForKey(key), v)
				}
			}
		}
	}
}

// fill gives every field that a client may set a random value.
func fill(v reflect.Value, rng *rand.Rand) {
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
	for i := range v.NumField() {
		f := v.Field(i)
		switch v.Type().Field(i).Name {
		case "ClusterID", "ReplicaState", "ReplicaDirectoryID", "HighWatermark", "Version":
			continue // only brokers send these, as tags
		case "UnknownTags":
			if tags := f.Addr().Interface().(*kmsg.Tags); rng.IntN(8) == 0 {
				tags.Set(100, make([]byte, rng.IntN(3)))
			}
			continue
		}
		fillValue(f, rng)
	}
}

func fillValue(f reflect.Value, rng *rand.Rand) {
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.SetInt(rng.Int64N(100) - 1)
	case reflect.String:
		f.SetString("some topic's name"[:rng.IntN(17)])
	case reflect.Pointer:
		if rng.IntN(2) == 0 {
			f.Set(reflect.New(f.Type().Elem()))
			fillValue(f.Elem(), rng)
		}
	case reflect.Array:
		for i := range f.Len() {
			f.Index(i).SetUint(uint64(rng.IntN(256)))
		}
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.Uint8 {
			f.SetBytes(make([]byte, rng.IntN(200)))
			return
		}
		n := rng.IntN(3)
		f.Set(reflect.MakeSlice(f.Type(), n, n))
		for i := range n {
			if e := f.Index(i); e.Kind() == reflect.Struct {
				fill(e, rng)
			} else {
				fillValue(e, rng)
			}
		}
	default:
		panic(f.Kind())
	}
}

// What kmsg allocates for a frame that the guard lets through, at its worst:
// as many elements as are allowed, each as short as can be.
func TestDecodingIsBounded(t *testing.T) {
	cfg := testConfig()
	worst := 0.0
	for key, api := range apis {
		for v := api.min; v <= api.max; v++ {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			list := reflect.ValueOf(req).Elem().FieldByName("Topics")
			if !list.IsValid() {
				continue
			}
			list.Set(reflect.MakeSlice(list.Type(), cfg.maxArrays, cfg.maxArrays))
			frame := testFormatter.AppendRequest(nil, req, 1)[4:]
			if len(frame) > cfg.frameLimit(key) {
				continue
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decodeRequest(frame, cfg.maxArrays)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			allocated := after.TotalAlloc - before.TotalAlloc
			require.Less(t, allocated, uint64(8<<20), "%s %d", kmsg.NameForKey(key), v)
			worst = max(worst, float64(allocated)/float64(len(frame)))
		}
	}
	t.Logf("a decoded request is at most %.0f times its frame", worst)
}

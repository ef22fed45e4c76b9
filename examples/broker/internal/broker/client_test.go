package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// These tests use kgo as any program would.

// consumeAll reads partitions of a topic from the start until it has n records.
func consumeAll(t *testing.T, s *Server, topic string, partitions int32, n int) map[int32][]*kgo.Record {
	t.Helper()
	from := map[int32]kgo.Offset{}
	for i := range partitions {
		from[i] = kgo.NewOffset().AtStart()
	}
	cl := client(t, s, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	got := map[int32][]*kgo.Record{}
	ctx := kafkatest.Context(t)
	for total := 0; total < n; {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "%d of %d records", total, n)
		fetches.EachError(func(topic string, p int32, err error) { t.Errorf("%s/%d: %v", topic, p, err) })
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(t, int64(len(got[r.Partition])), r.Offset, "offsets are without a gap")
			got[r.Partition] = append(got[r.Partition], r)
			total++
		})
	}
	return got
}

func TestProduceAndConsume(t *testing.T) {
	t.Parallel()
	const partitions, n = 3, 3000
	for name, opts := range map[string][]kgo.Opt{
		"idempotent": nil,
		"acks all":   {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks())},
		"acks 1":     {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())},
		"acks 0":     {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())},
		"gzip":       {kgo.ProducerBatchCompression(kgo.GzipCompression())},
		"snappy":     {kgo.ProducerBatchCompression(kgo.SnappyCompression())},
		"lz4":        {kgo.ProducerBatchCompression(kgo.Lz4Compression())},
		"zstd":       {kgo.ProducerBatchCompression(kgo.ZstdCompression())},
		"plain":      {kgo.ProducerBatchCompression(kgo.NoCompression())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBroker(t)
			makeTopic(t, s, "t", partitions)
			cl := client(t, s, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))...)
			for i := range n {
				cl.Produce(kafkatest.Context(t), &kgo.Record{Topic: "t", Partition: int32(i % partitions), Value: fmt.Appendf(nil, "%0100d", i)},
					func(_ *kgo.Record, err error) {
						if err != nil {
							t.Error(err)
						}
					})
			}
			require.NoError(t, cl.Flush(kafkatest.Context(t)))
			for p, records := range consumeAll(t, s, "t", partitions, n) {
				for i, r := range records {
					require.Equal(t, fmt.Sprintf("%0100d", i*partitions+int(p)), string(r.Value))
				}
			}
			codecs := map[string]int{"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "plain": 0}
			if codec, ok := codecs[name]; ok {
				require.Positive(t, s.metrics.Batches[codec].Load(), "arrived with another codec")
			}
		})
	}
}

// A waiting consumer gets data when it arrives, not after its max wait.
func TestKgoLongPoll(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	makeTopic(t, s, "t", 1)
	consumer := client(t, s, kgo.FetchMaxWait(time.Minute),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtEnd()}}))
	polled := make(chan kgo.Fetches, 1)
	go func() { polled <- consumer.PollFetches(t.Context()) }()
	parked(t, s, 1)
	producer := client(t, s)
	require.NoError(t, producer.ProduceSync(kafkatest.Context(t), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	select {
	case fetches := <-polled:
		require.Equal(t, 1, fetches.NumRecords())
	case <-time.After(kafkatest.WaitLimit):
		t.Fatal("the poll was not woken")
	}
	consumer.Close()
	parked(t, s, 0)
}

func TestKgoCreatesTopicsByNamingThem(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Meta.DefaultPartitions = 5; c.Meta.MaxTopics = 1 })
	cl := client(t, s, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	require.NoError(t, cl.ProduceSync(kafkatest.Context(t), &kgo.Record{Topic: "new", Value: []byte("x")}).FirstErr())
	require.Len(t, s.image().ByName["new"].Partitions, 5)
	err := cl.ProduceSync(kafkatest.Context(t), &kgo.Record{Topic: "one-too-many", Value: []byte("x")}).FirstErr()
	require.Error(t, err)
	require.Nil(t, s.image().ByName["one-too-many"])
}

func TestAutoCreationCanBeOff(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.NoAutoCreate = true })
	cl := client(t, s, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	err := cl.ProduceSync(kafkatest.Context(t), &kgo.Record{Topic: "new", Value: []byte("x")}).FirstErr()
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
}

// A consumer whose position retention has deleted gets an error, and continues at the log's new
// start.
func TestRetentionAndReset(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Meta.RetentionBytes = 2000 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for i := range 100 {
		produceTo(c, topic, 0, kafkatest.Batch([]string{fmt.Sprintf("%0100d", i)}))
	}
	first := c.Call(listRequest(5, topic, 0, replica.EarliestOffset)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset
	require.Greater(t, first, int64(80))
	require.LessOrEqual(t, s.partitions.LogBytes.Load(), int64(2000))
	kafkatest.RequireCode(t, kerr.OffsetOutOfRange,
		kafkatest.PartitionsOf(c.Call(kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, first-1, kafkatest.Plenty))))[0].ErrorCode)

	cl := client(t, s, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(3)}}))
	fetches := cl.PollFetches(kafkatest.Context(t))
	require.NoError(t, fetches.Err())
	require.Equal(t, first, fetches.Records()[0].Offset)
}

func TestListOffsets(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	at := func(ts int64) [2]int64 {
		sp := c.Call(listRequest(7, topic, 0, ts)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		require.Zero(t, sp.ErrorCode)
		return [2]int64{sp.Offset, sp.Timestamp}
	}
	require.Equal(t, [2]int64{0, -1}, at(replica.LatestOffset))
	require.Equal(t, [2]int64{0, -1}, at(replica.EarliestOffset))
	require.Equal(t, [2]int64{-1, -1}, at(replica.MaxTimestampOffset))
	require.Equal(t, [2]int64{-1, -1}, at(0))

	stamped := func(first int64) func(*kmsg.RecordBatch) {
		return func(b *kmsg.RecordBatch) { b.FirstTimestamp, b.MaxTimestamp = first, first+int64(b.NumRecords)-1 }
	}
	produceTo(c, topic, 0, kafkatest.Batch([]string{"a", "b", "c"}, stamped(100))) // 0-2: 100 101 102
	produceTo(c, topic, 0, kafkatest.Batch([]string{"d", "e"}, stamped(500)))      // 3-4: 500 501
	produceTo(c, topic, 0, kafkatest.Batch([]string{"f", "g"}, stamped(300)))      // 5-6: 300 301, out of order
	squeezed := kafkatest.Batch([]string{"h", "i"}, stamped(400), func(b *kmsg.RecordBatch) { b.Attributes = 1; b.Records = []byte("gzip?") })
	require.Zero(t, produceTo(c, topic, 0, squeezed).ErrorCode) // 7-8: compressed, so the broker does not read it
	for ts, want := range map[int64][2]int64{
		replica.LatestOffset: {9, -1}, replica.EarliestOffset: {0, -1}, replica.MaxTimestampOffset: {4, 501},
		replica.EarliestLocalOffset: {0, -1}, replica.LatestTieredOffset: {-1, -1}, replica.EarliestUploadOffset: {-1, -1}, -77: {-1, -1},
		0: {0, 100}, 100: {0, 100}, 101: {1, 101}, 102: {2, 102}, 103: {3, 500}, 501: {4, 501}, 502: {-1, -1},
	} {
		require.Equal(t, want, at(ts), "at %d", ts)
	}
	produceTo(c, topic, 0, kafkatest.Batch([]string{"j"}, func(b *kmsg.RecordBatch) {
		b.Attributes, b.FirstTimestamp, b.MaxTimestamp, b.Records = 4, 600, 700, []byte("zstd?")
	}))
	require.Equal(t, [2]int64{9, 650}, at(650), "a compressed batch answers its first offset")

	twice := listRequest(7, topic, 0, 0)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	kafkatest.RequireCode(t, kerr.InvalidRequest, c.Call(twice).(*kmsg.ListOffsetsResponse).Topics[1].Partitions[0].ErrorCode)
	ghost := listRequest(7, topic, 9, 0)
	kafkatest.RequireCode(t, kerr.UnknownTopicOrPartition, c.Call(ghost).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode)
}

func TestCreateTopics(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Meta.MaxTopics = 4; c.Meta.MaxPartitions = 20; c.Meta.DefaultPartitions = 2 })
	c := dial(t, s)
	create := func(change func(*kmsg.CreateTopicsRequest, *kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsResponseTopic {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = 7
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "t", 1, 1
		change(req, &rt)
		req.Topics = append(req.Topics, rt)
		return c.Call(req).(*kmsg.CreateTopicsResponse).Topics[0]
	}
	type request = *kmsg.CreateTopicsRequest
	type topicOf = *kmsg.CreateTopicsRequestTopic
	config := func(name, value string) func(request, topicOf) {
		return func(_ request, rt topicOf) {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = name, &value
			rt.Configs = append(rt.Configs, c)
		}
	}
	for _, test := range []struct {
		name   string
		change func(request, topicOf)
		code   *kerr.Error
	}{
		{"empty name", func(_ request, rt topicOf) { rt.Topic = "" }, kerr.InvalidTopicException},
		{"dots", func(_ request, rt topicOf) { rt.Topic = ".." }, kerr.InvalidTopicException},
		{"slash", func(_ request, rt topicOf) { rt.Topic = "a/b" }, kerr.InvalidTopicException},
		{"umlaut", func(_ request, rt topicOf) { rt.Topic = "ä" }, kerr.InvalidTopicException},
		{"250 letters", func(_ request, rt topicOf) { rt.Topic = fmt.Sprintf("%0250d", 1) }, kerr.InvalidTopicException},
		{"no partitions", func(_ request, rt topicOf) { rt.NumPartitions = 0 }, kerr.InvalidPartitions},
		{"minus two partitions", func(_ request, rt topicOf) { rt.NumPartitions = -2 }, kerr.InvalidPartitions},
		{"too many partitions", func(_ request, rt topicOf) { rt.NumPartitions = 21 }, kerr.PolicyViolation},
		{"absurdly many partitions", func(_ request, rt topicOf) { rt.NumPartitions = 1<<31 - 1 }, kerr.PolicyViolation},
		{"two replicas", func(_ request, rt topicOf) { rt.ReplicationFactor = 2 }, kerr.InvalidReplicationFactor},
		{"unknown config", config("cleanup.policy", "compact"), kerr.InvalidConfig},
		{"no number", config("retention.bytes", "much"), kerr.InvalidConfig},
		{"more than allowed", config("retention.bytes", "99999999999"), kerr.InvalidConfig},
		{"only validated", func(q request, _ topicOf) { q.ValidateOnly = true }, nil},
		{"retention", config("retention.bytes", "1000"), nil},
		{"again", func(request, topicOf) {}, kerr.TopicAlreadyExists},
		{"defaults", func(_ request, rt topicOf) { rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "u", -1, -1 }, nil},
		{"249 letters", func(_ request, rt topicOf) { rt.Topic = fmt.Sprintf("%0249d", 1) }, nil},
		{"assigned", func(_ request, rt topicOf) {
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "a", -1, -1
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Replicas = []int32{0}
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
		}, nil},
		{"assigned elsewhere", func(_ request, rt topicOf) {
			rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "b", -1, -1
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Replicas = []int32{7}
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
		}, kerr.InvalidReplicaAssignment},
		{"a fifth topic", func(_ request, rt topicOf) { rt.Topic = "fifth" }, kerr.PolicyViolation},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.T = t
			kafkatest.RequireCode(t, test.code, create(test.change).ErrorCode)
		})
	}
	c.T = t
	require.Equal(t, int64(1000), s.image().ByName["t"].Retention)
	require.Len(t, s.image().ByName["u"].Partitions, 2)

	twice := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "twice", 1, 1
	twice.Topics = append(twice.Topics, rt, rt)
	kafkatest.RequireCode(t, kerr.InvalidRequest, c.Call(twice).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}

func TestDeleteTopics(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	c := dial(t, s)
	del := func(name *string, id meta.TopicID) int16 {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version = 6
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic, rt.TopicID = name, id
		req.Topics = append(req.Topics, rt)
		return c.Call(req).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode
	}
	topic := makeTopic(t, s, "t", 3)
	produceTo(c, topic, 0, kafkatest.Batch([]string{"x"}))
	require.Positive(t, s.partitions.LogBytes.Load())
	require.Zero(t, del(nil, topic.ID))
	require.Zero(t, s.partitions.LogBytes.Load(), "bytes of a deleted topic")
	kafkatest.RequireCode(t, kerr.UnknownTopicID, del(nil, topic.ID))
	kafkatest.RequireCode(t, kerr.UnknownTopicOrPartition, del(kmsg.StringPtr("t"), meta.TopicID{}))
	kafkatest.RequireCode(t, kerr.UnknownTopicOrPartition, produceTo(c, topic, 0, kafkatest.Batch([]string{"x"})).ErrorCode)

	again := makeTopic(t, s, "t", 1)
	require.NotEqual(t, topic.ID, again.ID)
	require.Zero(t, produceTo(c, again, 0, kafkatest.Batch([]string{"x"})).BaseOffset, "a new log")
	require.Zero(t, del(kmsg.StringPtr("t"), meta.TopicID{}))
}

func TestMetadataOfAllAndOfUnknownTopics(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	for _, name := range []string{"b", "a", "c"} {
		makeTopic(t, s, name, 2)
	}
	c := dial(t, s)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	resp := c.Call(req).(*kmsg.MetadataResponse)
	require.Len(t, resp.Topics, 3)
	require.Equal(t, "a", *resp.Topics[0].Topic)
	require.Equal(t, s.Addr(), fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port))

	named, id := kmsg.NewMetadataRequestTopic(), kmsg.NewMetadataRequestTopic()
	named.Topic, id.TopicID = kmsg.StringPtr("bad name"), meta.TopicID{1}
	req.Topics = append(req.Topics, named, id)
	resp = c.Call(req).(*kmsg.MetadataResponse)
	kafkatest.RequireCode(t, kerr.InvalidTopicException, resp.Topics[0].ErrorCode)
	kafkatest.RequireCode(t, kerr.UnknownTopicID, resp.Topics[1].ErrorCode)
	req.Topics = []kmsg.MetadataRequestTopic{}
	require.Empty(t, c.Call(req).(*kmsg.MetadataResponse).Topics, "none asked, none answered")
}

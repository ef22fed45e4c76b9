package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

// testAlteration sends one of the requests that alter a topic, in the given version.
func testAlteration(c *kafkatest.Conn, key, version int16) {
	switch kmsg.Key(key) {
	case kmsg.AlterConfigs:
		q := kmsg.NewPtrAlterConfigsRequest()
		q.Version = version
		rr := kmsg.NewAlterConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
		q.Resources = append(q.Resources, rr)
		kafkatest.RequireCode(c.T, nil, c.Call(q).(*kmsg.AlterConfigsResponse).Resources[0].ErrorCode)
	case kmsg.IncrementalAlterConfigs:
		q := alter("t", "segment.bytes", "1000")
		q.Version = version
		kafkatest.RequireCode(c.T, nil, c.Call(q).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
	case kmsg.CreatePartitions:
		q := grow("t", 3)
		q.Version, q.ValidateOnly = version, true
		kafkatest.RequireCode(c.T, nil, c.Call(q).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode)
	}
}

// alter sets a topic's settings, given as names and values in turn. An empty value deletes a
// setting.
func alter(topic string, settings ...string) *kmsg.IncrementalAlterConfigsRequest {
	q := kmsg.NewPtrIncrementalAlterConfigsRequest()
	rr := kmsg.NewIncrementalAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for i := 0; i < len(settings); i += 2 {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		if rc.Name, rc.Value = settings[i], &settings[i+1]; settings[i+1] == "" {
			rc.Op, rc.Value = kmsg.IncrementalAlterConfigOpDelete, nil
		}
		rr.Configs = append(rr.Configs, rc)
	}
	q.Resources = append(q.Resources, rr)
	return q
}

func grow(topic string, count int32) *kmsg.CreatePartitionsRequest {
	q := kmsg.NewPtrCreatePartitionsRequest()
	q.TimeoutMillis = 5000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = topic, count
	q.Topics = append(q.Topics, rt)
	return q
}

// A changed setting applies also to a replica that already has records. Settings that this broker
// does not use are stored and described; invalid settings change nothing.
func TestSettingsAreAltered(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	altered := func(want *kerr.Error, settings ...string) string {
		t.Helper()
		resp := c.Call(alter("t", settings...)).(*kmsg.IncrementalAlterConfigsResponse)
		kafkatest.RequireCode(t, want, resp.Resources[0].ErrorCode)
		s.catchUp(t.Context())
		if want == nil {
			return ""
		}
		return *resp.Resources[0].ErrorMessage
	}
	values := func() map[string]string {
		t.Helper()
		resp := c.Call(configsRequest(4, kmsg.ConfigResourceTypeTopic, "t")).(*kmsg.DescribeConfigsResponse)
		return valuesOf(resp.Resources[0])
	}
	for range 10 {
		produceTo(c, topic, 0, kafkatest.Batch([]string{"some record"}))
	}
	before := values()
	altered(nil, "retention.bytes", "400", "segment.ms", "60000", "max.message.bytes", "100", "min.insync.replicas", "7")
	now := values()
	require.Equal(t, []string{"400", "60000", "100", "7"}, []string{now["retention.bytes"], now["segment.ms"], now["max.message.bytes"], now["min.insync.replicas"]})
	kafkatest.RequireCode(t, kerr.MessageTooLarge, produceTo(c, topic, 0, kafkatest.Batch([]string{"a record of more than a hundred bytes, with its batch"})).ErrorCode)
	kafkatest.RequireCode(t, kerr.NotEnoughReplicas, produceTo(c, topic, 0, kafkatest.Batch([]string{"x"})).ErrorCode)
	altered(nil, "min.insync.replicas", "", "max.message.bytes", "-1")
	require.Zero(t, produceTo(c, topic, 0, kafkatest.Batch([]string{"some record"})).ErrorCode)
	require.Positive(t, replicaOf(s, topic, 0).Offsets().Start, "retention is that of now")

	for want, settings := range map[string][]string{
		`retention.bytes is "0", must be from 1 to 67108864 here`:    {"segment.bytes", "1", "retention.bytes", "0"},
		`retention.ms is "soon"`:                                     {"retention.ms", "soon"},
		`cleanup.policy is "compact", and only delete is done here`:  {"cleanup.policy", "compact"},
		`"nonsense" is not a setting of topics`:                      {"nonsense", "1"},
		`segment.ms is 257 bytes long, must be at most 256`:          {"segment.ms", string(make([]byte, 257))},
		`max.message.bytes is "99999999", must be from 1 to 8388608`: {"max.message.bytes", "99999999"},
	} {
		require.Contains(t, altered(kerr.InvalidConfig, settings...), want)
	}
	require.NotContains(t, values(), "segment.bytes", "a part of what was refused was done")

	// AlterConfigs resets all settings that it does not name.
	q := kmsg.NewPtrAlterConfigsRequest()
	rr := kmsg.NewAlterConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	q.Resources = append(q.Resources, rr)
	kafkatest.RequireCode(t, nil, c.Call(q).(*kmsg.AlterConfigsResponse).Resources[0].ErrorCode)
	s.catchUp(t.Context())
	require.Equal(t, before, values())

	other := alter("t", "retention.bytes", "1")
	other.Resources[0].ResourceType, other.Resources[0].ResourceName = kmsg.ConfigResourceTypeBroker, "0"
	kafkatest.RequireCode(t, kerr.InvalidRequest, c.Call(other).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
	kafkatest.RequireCode(t, kerr.UnknownTopicOrPartition, c.Call(alter("ghost")).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
	only := alter("t", "retention.bytes", "77")
	only.ValidateOnly = true
	kafkatest.RequireCode(t, nil, c.Call(only).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
	s.catchUp(t.Context())
	require.Equal(t, before, values())
}

// Retention by time deletes committed records, by their own timestamps.
func TestRecordsExpire(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	c.Call(alter("t", "retention.ms", "60000"))
	s.catchUp(t.Context())
	base := time.Now()
	stamped := func(age time.Duration) func(*kmsg.RecordBatch) {
		return func(b *kmsg.RecordBatch) {
			b.FirstTimestamp = base.Add(-age).UnixMilli()
			b.MaxTimestamp = b.FirstTimestamp
		}
	}
	for _, age := range []time.Duration{3 * time.Minute, 2 * time.Minute, 10 * time.Second, 5 * time.Minute} {
		produceTo(c, topic, 0, kafkatest.Batch([]string{"x"}, stamped(age)))
	}
	p := replicaOf(s, topic, 0)
	p.Expire(base)
	require.Equal(t, int64(2), p.Offsets().Start, "what lies behind a younger one stays")
	p.Expire(base.Add(time.Minute))
	require.Equal(t, int64(4), p.Offsets().Start)
	require.NoError(t, p.Verify())
	c.Call(alter("t", "retention.ms", "-1"))
	s.catchUp(t.Context())
	produceTo(c, topic, 0, kafkatest.Batch([]string{"x"}, stamped(time.Hour)))
	p.Expire(base.Add(time.Hour))
	require.Equal(t, int64(4), p.Offsets().Start)
}

// A growing topic keeps its records; when the answer arrives, the new partitions have leaders.
func TestTopicsGrow(t *testing.T) {
	t.Parallel()
	cl := startBrokers(t, 3)
	s := cl.Nodes[1].Server()
	topic := makeTopic(t, s, "t", 2)
	c := dial(t, s)
	kafkatest.RequireCode(t, nil, c.Call(grow("t", 5)).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode)
	grown := s.image().ByID[topic.ID]
	require.Len(t, grown.Partitions, 5)
	require.Equal(t, topic.Partitions, grown.Partitions[:2])
	for _, a := range grown.Partitions[2:] {
		require.Len(t, a.Replicas, 3)
	}
	whole(t, cl)
	for want, q := range map[*kerr.Error]*kmsg.CreatePartitionsRequest{
		kerr.InvalidPartitions:       grow("t", 5),
		kerr.UnknownTopicOrPartition: grow("ghost", 5),
		kerr.PolicyViolation:         grow("t", 5000),
	} {
		kafkatest.RequireCode(t, want, c.Call(q).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode)
	}
	chosen := grow("t", 6)
	a := kmsg.NewCreatePartitionsRequestTopicAssignment()
	a.Replicas = []int32{2, 0}
	chosen.Topics[0].Assignment = append(chosen.Topics[0].Assignment, a)
	kafkatest.RequireCode(t, kerr.PolicyViolation, c.Call(chosen).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode)
	chosen.Topics[0].Assignment[0].Replicas = []int32{2, 0, 1}
	kafkatest.RequireCode(t, nil, c.Call(chosen).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode)
	require.EqualValues(t, 2, s.image().ByID[topic.ID].Partitions[5].Leader)
}

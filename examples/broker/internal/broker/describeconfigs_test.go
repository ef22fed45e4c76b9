package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

func describedConfig() Config {
	cfg, _ := Config{}.WithDefaults() // the defaults are in range
	return cfg
}

// described asks broker 1 of a small cluster, and checks that the answer encodes in the request's
// version.
func described(t *testing.T, cfg Config, q *kmsg.DescribeConfigsRequest) []kmsg.DescribeConfigsResponseResource {
	t.Helper()
	img := &meta.Image{ByName: map[string]*meta.Topic{
		"plain":           {Name: "plain", Settings: meta.Settings{Retention: cfg.Meta.RetentionBytes, MinISR: cfg.Meta.MinISR}},
		"short":           {Name: "short", Settings: meta.Settings{Retention: 1000, MinISR: cfg.Meta.MinISR}},
		meta.OffsetsTopic: {Name: meta.OffsetsTopic, Internal: true, Settings: meta.Settings{Retention: cfg.Meta.RetentionBytes, MinISR: cfg.Meta.MinISR}},
	}}
	resp := describeConfigs(q, 1, &cfg, img)
	again := kmsg.NewPtrDescribeConfigsResponse()
	again.Version = q.Version
	require.NoError(t, again.ReadFrom(resp.AppendTo(nil)))
	return again.Resources
}

func configsRequest(version int16, kind kmsg.ConfigResourceType, name string, configs ...string) *kmsg.DescribeConfigsRequest {
	q := kmsg.NewPtrDescribeConfigsRequest()
	q.Version = version
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kind, name, configs
	q.Resources = append(q.Resources, rr)
	return q
}

func valuesOf(r kmsg.DescribeConfigsResponseResource) map[string]string {
	values := map[string]string{}
	for _, c := range r.Configs {
		values[c.Name] = *c.Value
	}
	return values
}

func TestDescribeConfigsOfTopics(t *testing.T) {
	t.Parallel()
	cfg := describedConfig()
	for v := int16(0); v <= 4; v++ {
		got := described(t, cfg, configsRequest(v, kmsg.ConfigResourceTypeTopic, "plain"))[0]
		require.Zero(t, got.ErrorCode)
		require.Equal(t, map[string]string{
			"retention.ms":        "-1",
			"retention.bytes":     fmt.Sprint(cfg.Meta.RetentionBytes),
			"min.insync.replicas": fmt.Sprint(cfg.Meta.MinISR),
			"cleanup.policy":      "delete",
			"max.message.bytes":   fmt.Sprint(cfg.MaxBatch),
		}, valuesOf(got))
		for _, c := range got.Configs {
			require.False(t, c.ReadOnly, c.Name)
			if v == 0 {
				require.True(t, c.IsDefault, c.Name)
			} else {
				require.Equal(t, kmsg.ConfigSourceDefaultConfig, c.Source, c.Name)
			}
			require.Empty(t, c.ConfigSynonyms)
			require.Nil(t, c.Documentation)
		}
		got = described(t, cfg, configsRequest(v, kmsg.ConfigResourceTypeTopic, meta.OffsetsTopic, "cleanup.policy", "nonsense"))[0]
		require.Equal(t, map[string]string{"cleanup.policy": "compact"}, valuesOf(got))
	}
}

// A topic's own value precedes the broker's, and the broker's value precedes the built-in default.
func TestDescribeConfigsTellsWhereAValueComesFrom(t *testing.T) {
	t.Parallel()
	cfg := describedConfig()
	builtIn := cfg.Meta.RetentionBytes
	cfg.Meta.RetentionBytes = 5000
	q := configsRequest(4, kmsg.ConfigResourceTypeTopic, "short", "retention.bytes")
	q.IncludeSynonyms, q.IncludeDocumentation = true, true
	c := described(t, cfg, q)[0].Configs[0]
	require.Equal(t, "1000", *c.Value)
	require.Equal(t, kmsg.ConfigSourceDynamicTopicConfig, c.Source)
	require.Equal(t, kmsg.ConfigTypeLong, c.ConfigType)
	require.False(t, c.IsDefault)
	require.NotEmpty(t, *c.Documentation)
	type layer struct {
		name, value string
		source      kmsg.ConfigSource
	}
	var layers []layer
	for _, s := range c.ConfigSynonyms {
		layers = append(layers, layer{s.Name, *s.Value, s.Source})
	}
	require.Equal(t, []layer{
		{"retention.bytes", "1000", kmsg.ConfigSourceDynamicTopicConfig},
		{"log.retention.bytes", "5000", kmsg.ConfigSourceStaticBrokerConfig},
		{"log.retention.bytes", fmt.Sprint(builtIn), kmsg.ConfigSourceDefaultConfig},
	}, layers)

	c = described(t, cfg, configsRequest(4, kmsg.ConfigResourceTypeTopic, "plain", "retention.bytes"))[0].Configs[0]
	require.Equal(t, "5000", *c.Value)
	require.Equal(t, kmsg.ConfigSourceStaticBrokerConfig, c.Source)
}

func TestDescribeConfigsOfTheBroker(t *testing.T) {
	t.Parallel()
	cfg := describedConfig()
	cfg.ReplicaLag, cfg.NoAutoCreate = 1500*time.Millisecond, true
	got := described(t, cfg, configsRequest(1, kmsg.ConfigResourceTypeBroker, "1"))[0]
	require.Zero(t, got.ErrorCode)
	values := valuesOf(got)
	require.Len(t, values, 13)
	require.Equal(t, "1500", values["replica.lag.time.max.ms"])
	require.Equal(t, "false", values["auto.create.topics.enable"])
	require.Equal(t, fmt.Sprint(cfg.MaxBatch), values["message.max.bytes"])
	require.Equal(t, fmt.Sprint(cfg.Meta.OffsetsPartitions), values["offsets.topic.num.partitions"])

	// The configuration of all brokers together, which has only settings made at run time.
	all := described(t, cfg, configsRequest(1, kmsg.ConfigResourceTypeBroker, ""))[0]
	require.Zero(t, all.ErrorCode)
	require.Empty(t, all.Configs)
}

func TestDescribeConfigsOfMissingResources(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind kmsg.ConfigResourceType
		name string
		code *kerr.Error
	}{
		{kmsg.ConfigResourceTypeTopic, "gone", kerr.UnknownTopicOrPartition},
		{kmsg.ConfigResourceTypeTopic, "not a name", kerr.InvalidTopicException},
		{kmsg.ConfigResourceTypeBroker, "2", kerr.InvalidRequest},
		{kmsg.ConfigResourceTypeBroker, "01", kerr.InvalidRequest},
		{kmsg.ConfigResourceTypeBroker, "one", kerr.InvalidRequest},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", kerr.InvalidRequest},
		{kmsg.ConfigResourceTypeUnknown, "", kerr.InvalidRequest},
		{-5, "", kerr.InvalidRequest},
	} {
		got := described(t, describedConfig(), configsRequest(4, test.kind, test.name))[0]
		kafkatest.RequireCode(t, test.code, got.ErrorCode)
		require.NotEmpty(t, *got.ErrorMessage)
		require.Empty(t, got.Configs)
		require.Equal(t, test.name, got.ResourceName)
	}
}

func TestDescribeConfigsAnswersAResourceOnce(t *testing.T) {
	t.Parallel()
	q := configsRequest(4, kmsg.ConfigResourceTypeTopic, "plain")
	for range 1000 {
		q.Resources = append(q.Resources, q.Resources[0])
	}
	q.Resources = append(q.Resources, configsRequest(4, kmsg.ConfigResourceTypeBroker, "1").Resources...)
	got := described(t, describedConfig(), q)
	require.Len(t, got, 2)
	require.Equal(t, "plain", got[0].ResourceName)
	require.Equal(t, "1", got[1].ResourceName)
}

package settings

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/group"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Broker is the part of a broker's configuration that clients can ask for.
type Broker struct {
	Meta         meta.Config
	Groups       group.Config
	MaxBatch     int
	NoAutoCreate bool
	ReplicaLag   time.Duration
}

// DescribeQuery are the parameters of a request to describe settings.
type DescribeQuery struct {
	Started, BuiltIn *Broker // the configuration of this broker, and the defaults
	Synonyms         bool    // all layers
	Documentation    bool
}

// setting is one setting, by its names in Kafka.
type setting struct {
	name  string // as a setting of the broker
	kind  kmsg.ConfigType
	value func(*Broker) string
	doc   string

	// Empty if topics do not have the setting.

	topicName  string
	topicValue func(*meta.Topic) string // returns "" if the broker's value applies
}

// brokerSettings are the settings in the order of the response.
var brokerSettings = []setting{
	{
		name: "log.retention.bytes", kind: kmsg.ConfigTypeLong,
		value:      func(c *Broker) string { return decimal(c.Meta.RetentionBytes) },
		doc:        "Bytes of batches kept per partition; the oldest go first.",
		topicName:  "retention.bytes",
		topicValue: func(t *meta.Topic) string { return decimal(t.Retention) },
	},
	{
		name: "log.retention.ms", kind: kmsg.ConfigTypeLong,
		value:     func(*Broker) string { return "-1" },
		doc:       "How long records are kept, by their own timestamps; -1 for ever.",
		topicName: "retention.ms",
		topicValue: func(t *meta.Topic) string {
			if t.RetentionTime == 0 {
				return ""
			}
			return decimalMillis(t.RetentionTime)
		},
	},
	{
		name: "min.insync.replicas", kind: kmsg.ConfigTypeInt,
		value:      func(c *Broker) string { return decimal(c.Meta.MinISR) },
		doc:        "In-sync replicas without which a produce with acks=all is refused.",
		topicName:  "min.insync.replicas",
		topicValue: func(t *meta.Topic) string { return decimal(t.MinISR) },
	},
	{
		name: "log.cleanup.policy", kind: kmsg.ConfigTypeList,
		value:     func(*Broker) string { return "delete" },
		doc:       "How old records go: by retention (delete), or once their key has a newer one (compact).",
		topicName: "cleanup.policy",
		topicValue: func(t *meta.Topic) string {
			if t.Internal {
				return "compact"
			}
			return ""
		},
	},
	{
		name: "message.max.bytes", kind: kmsg.ConfigTypeInt,
		value:     func(c *Broker) string { return decimal(c.MaxBatch) },
		doc:       "Bytes of one record batch.",
		topicName: "max.message.bytes",
		topicValue: func(t *meta.Topic) string {
			if t.MaxBatch == 0 {
				return ""
			}
			return decimal(t.MaxBatch)
		},
	},
	{
		name: "default.replication.factor", kind: kmsg.ConfigTypeInt,
		value: func(c *Broker) string { return decimal(c.Meta.Replication) },
		doc:   "Replicas of topics that are made without a number.",
	},
	{
		name: "num.partitions", kind: kmsg.ConfigTypeInt,
		value: func(c *Broker) string { return decimal(c.Meta.DefaultPartitions) },
		doc:   "Partitions of topics that are made without a number.",
	},
	{
		name: "auto.create.topics.enable", kind: kmsg.ConfigTypeBoolean,
		value: func(c *Broker) string { return strconv.FormatBool(!c.NoAutoCreate) },
		doc:   "Whether a Metadata request may make the topics it names.",
	},
	{
		name: "group.min.session.timeout.ms", kind: kmsg.ConfigTypeInt,
		value: func(c *Broker) string { return decimalMillis(c.Groups.MinSession) },
		doc:   "The shortest session timeout that a group's member may ask for.",
	},
	{
		name: "group.max.session.timeout.ms", kind: kmsg.ConfigTypeInt,
		value: func(c *Broker) string { return decimalMillis(c.Groups.MaxSession) },
		doc:   "The longest session timeout that a group's member may ask for.",
	},
	{
		name: "group.initial.rebalance.delay.ms", kind: kmsg.ConfigTypeInt,
		value: func(c *Broker) string { return decimalMillis(c.Groups.InitialRebalanceDelay) },
		doc:   "How long an empty group waits for further members before its first rebalance.",
	},
	{
		name: "replica.lag.time.max.ms", kind: kmsg.ConfigTypeLong,
		value: func(c *Broker) string { return decimalMillis(c.ReplicaLag) },
		doc:   "How long a follower may be behind before it is out of the in-sync replicas.",
	},
	{
		name: "offsets.topic.num.partitions", kind: kmsg.ConfigTypeInt,
		value: func(c *Broker) string { return decimal(c.Meta.OffsetsPartitions) },
		doc:   "Partitions of the internal topic that holds the groups' offsets.",
	},
}

func decimal[N ~int | ~int16 | ~int32 | ~int64](n N) string { return strconv.FormatInt(int64(n), 10) }
func decimalMillis(d time.Duration) string                  { return decimal(d.Milliseconds()) }

// layers returns a setting's values, the effective one first; for a nil topic, the broker's own.
func (s *setting) layers(t *meta.Topic, cfg, builtIn *Broker) []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym {
	var all []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym
	add := func(name, value string, source kmsg.ConfigSource) {
		layer := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		layer.Name, layer.Value, layer.Source = name, &value, source
		all = append(all, layer)
	}
	started, built := s.value(cfg), s.value(builtIn)
	if t != nil {
		if own := s.topicValue(t); own != "" && own != started {
			add(s.topicName, own, kmsg.ConfigSourceDynamicTopicConfig)
		}
	}
	if started != built {
		add(s.name, started, kmsg.ConfigSourceStaticBrokerConfig)
	}
	add(s.name, built, kmsg.ConfigSourceDefaultConfig)
	return all
}

// Describe returns the named settings of a topic, or of the broker if t is nil; no names mean all.
func (a *DescribeQuery) Describe(t *meta.Topic, names []string) []kmsg.DescribeConfigsResponseResourceConfig {
	var all []kmsg.DescribeConfigsResponseResourceConfig
	for i := range brokerSettings {
		s := &brokerSettings[i]
		name := s.name
		if t != nil {
			name = s.topicName
		}
		if name == "" || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		layers := s.layers(t, a.Started, a.BuiltIn)
		sc := kmsg.NewDescribeConfigsResponseResourceConfig()
		sc.Name, sc.Value, sc.Source = name, layers[0].Value, layers[0].Source
		sc.ReadOnly, sc.IsDefault = t == nil || t.Internal, sc.Source == kmsg.ConfigSourceDefaultConfig
		sc.ConfigType = s.kind
		if a.Synonyms {
			sc.ConfigSynonyms = layers
		}
		if a.Documentation {
			sc.Documentation = kmsg.StringPtr(s.doc)
		}
		all = append(all, sc)
	}
	if t != nil {
		all = append(all, a.describeIgnored(t, names)...)
	}
	return all
}

// describeIgnored returns the settings that a topic was given and that have no effect here.
func (a *DescribeQuery) describeIgnored(t *meta.Topic, names []string) (all []kmsg.DescribeConfigsResponseResourceConfig) {
	for _, name := range slices.Sorted(maps.Keys(t.Ignored)) {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		sc := kmsg.NewDescribeConfigsResponseResourceConfig()
		sc.Name, sc.Value, sc.Source, sc.ConfigType = name, kmsg.StringPtr(t.Ignored[name]), kmsg.ConfigSourceDynamicTopicConfig, kmsg.ConfigTypeString
		if a.Documentation {
			sc.Documentation = kmsg.StringPtr("Kept, and without a meaning here.")
		}
		all = append(all, sc)
	}
	return all
}

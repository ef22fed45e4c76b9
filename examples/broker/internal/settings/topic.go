package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// topicSettings are the topic settings that clients can set and that work as in Kafka. A nil value
// means the default.
var topicSettings = map[string]func(s *meta.Settings, value *string, cfg *Broker) error{
	"retention.bytes": func(s *meta.Settings, value *string, cfg *Broker) error {
		return parseNumber(&s.Retention, value, 1, cfg.Meta.RetentionBytes)
	},
	"retention.ms": func(s *meta.Settings, value *string, _ *Broker) error {
		var ms int64
		err := parseNumber(&ms, value, 1, int64(100*365*24*time.Hour/time.Millisecond))
		s.RetentionTime = time.Duration(ms) * time.Millisecond
		return err
	},
	"min.insync.replicas": func(s *meta.Settings, value *string, _ *Broker) error {
		return parseNumber(&s.MinISR, value, 1, 1<<31-1)
	},
	"max.message.bytes": func(s *meta.Settings, value *string, cfg *Broker) error {
		return parseNumber(&s.MaxBatch, value, 1, cfg.MaxBatch)
	},
	"cleanup.policy": func(_ *meta.Settings, value *string, _ *Broker) error {
		if value != nil && *value != "delete" {
			return fmt.Errorf("is %q, and only delete is done here", *value)
		}
		return nil
	},
}

// parseNumber parses a number. -1, which means unlimited in Kafka, selects the default, as nil
// does.
func parseNumber[N int | int32 | int64](to *N, value *string, least, most N) error {
	if *to = 0; value == nil || *value == "-1" {
		return nil
	}
	n, err := strconv.ParseInt(*value, 10, 64)
	if err != nil || N(n) < least || n > int64(most) {
		return fmt.Errorf("is %q, must be from %d to %d here", *value, least, most)
	}
	*to = N(n)
	return nil
}

// ignoredSettings are Kafka topic settings that have no effect here, because nothing is written to
// disk. Programs that set them get no error: they are stored, and described with a note.
var ignoredSettings = []string{
	"compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
	"follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas",
	"local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "message.downconversion.enable",
	"message.format.version", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
	"message.timestamp.difference.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
	"preallocate", "remote.storage.enable", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
	"unclean.leader.election.enable",
}

// maxIgnoredValue bounds the length of the value of an ignored setting.
const maxIgnoredValue = 256

// Set sets one of a topic's settings; nil means the default.
func Set(s *meta.Settings, name string, value *string, cfg *Broker) error {
	if set := topicSettings[name]; set != nil {
		if err := set(s, value, cfg); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		return nil
	}
	switch {
	case !slices.Contains(ignoredSettings, name):
		return fmt.Errorf("%q is not a setting of topics", name)
	case value != nil && len(*value) > maxIgnoredValue:
		return fmt.Errorf("%s is %d bytes long, must be at most %d", name, len(*value), maxIgnoredValue)
	}
	s.Ignored = maps.Clone(s.Ignored) // images share the map
	if value == nil {
		delete(s.Ignored, name)
		return nil
	}
	if s.Ignored == nil {
		s.Ignored = map[string]string{}
	}
	s.Ignored[name] = string([]byte(*value)) // the connection's buffer is reused
	return nil
}

package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// chosen are the topic settings that clients can set and that work as in Kafka. A nil value means
// the default.
var chosen = map[string]func(s *meta.Settings, value *string, cfg *Broker) error{
	"retention.bytes": func(s *meta.Settings, value *string, cfg *Broker) error {
		return choose(&s.Retention, value, 1, cfg.Meta.RetentionBytes)
	},
	"retention.ms": func(s *meta.Settings, value *string, _ *Broker) error {
		var ms int64
		err := choose(&ms, value, 1, int64(100*365*24*time.Hour/time.Millisecond))
		s.RetentionTime = time.Duration(ms) * time.Millisecond
		return err
	},
	"min.insync.replicas": func(s *meta.Settings, value *string, _ *Broker) error {
		return choose(&s.MinISR, value, 1, 1<<31-1)
	},
	"max.message.bytes": func(s *meta.Settings, value *string, cfg *Broker) error {
		return choose(&s.MaxBatch, value, 1, cfg.MaxBatch)
	},
	"cleanup.policy": func(_ *meta.Settings, value *string, _ *Broker) error {
		if value != nil && *value != "delete" {
			return fmt.Errorf("is %q, and only delete is done here", *value)
		}
		return nil
	},
}

// choose parses a number. -1, which means unlimited in Kafka, selects the default, as nil does.
func choose[N int | int32 | int64](to *N, value *string, least, most N) error {
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

// noted are Kafka topic settings that have no effect here, because nothing is written to disk.
// Programs that set them get no error: they are stored, and described with a note.
var noted = []string{
	"compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
	"follower.replication.throttled.replicas", "index.interval.bytes", "leader.replication.throttled.replicas",
	"local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms", "message.downconversion.enable",
	"message.format.version", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
	"message.timestamp.difference.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
	"preallocate", "remote.storage.enable", "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
	"unclean.leader.election.enable",
}

// maxNoted bounds the length of the value of a noted setting.
const maxNoted = 256

// Set sets one of a topic's settings; nil means the default.
func Set(s *meta.Settings, name string, value *string, cfg *Broker) error {
	if set := chosen[name]; set != nil {
		if err := set(s, value, cfg); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		return nil
	}
	switch {
	case !slices.Contains(noted, name):
		return fmt.Errorf("%q is not a setting of topics", name)
	case value != nil && len(*value) > maxNoted:
		return fmt.Errorf("%s is %d bytes long, must be at most %d", name, len(*value), maxNoted)
	}
	s.Noted = maps.Clone(s.Noted) // images share the map
	if value == nil {
		delete(s.Noted, name)
		return nil
	}
	if s.Noted == nil {
		s.Noted = map[string]string{}
	}
	s.Noted[name] = string([]byte(*value)) // the connection's buffer is reused
	return nil
}

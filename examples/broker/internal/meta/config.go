package meta

import (
	"log/slog"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
)

// Config configures the controller. The zero value of a field means its default.
type Config struct {
	DefaultPartitions int32 // of topics created without a number of partitions
	MaxTopics         int
	MaxPartitions     int   // over all topics
	RetentionBytes    int64 // kept per partition, of topics created without this setting

	Replication       int16 // replicas of topics created without a number, and of the offsets topic
	MinISR            int32 // in-sync replicas that acks=all requires, of topics created without a number
	OffsetsPartitions int32

	BrokerSession time.Duration // a broker that sends no heartbeat for longer is fenced
	Tick          time.Duration // of the controller's timing wheel
	Logger        *slog.Logger  // logs each decision with its cause; nil: slog.Default
}

// WithDefaults fills in the zero fields and returns an error for values out of range.
func (c Config) WithDefaults() (Config, error) {
	var b option.Check
	option.Fill(&b, "Meta.DefaultPartitions", &c.DefaultPartitions, 1, 1, 1<<20)
	option.Fill(&b, "Meta.MaxTopics", &c.MaxTopics, 1024, 1, 1<<20)
	option.Fill(&b, "Meta.MaxPartitions", &c.MaxPartitions, 4096, 1, 1<<20)
	option.Fill(&b, "Meta.RetentionBytes", &c.RetentionBytes, 64<<20, 1, 1<<50)
	option.Fill(&b, "Meta.Replication", &c.Replication, 3, 1, 1<<10)
	option.Fill(&b, "Meta.MinISR", &c.MinISR, 2, 1, int32(c.Replication))
	option.Fill(&b, "Meta.OffsetsPartitions", &c.OffsetsPartitions, 4, 1, 1<<10)
	option.Fill(&b, "Meta.BrokerSession", &c.BrokerSession, 9*time.Second, time.Millisecond, 24*time.Hour)
	option.Fill(&b, "Meta.Tick", &c.Tick, time.Millisecond, time.Microsecond, time.Minute)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, b.Err
}

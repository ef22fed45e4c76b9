package broker

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/group"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/option"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/settings"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/examples/internal/network"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Config holds all limits of a broker. Unknown clients can connect to a broker's port, so
// everything that a client can make grow has a limit here. The zero value of a field means its
// default; see WithDefaults.
type Config struct {
	Wire    wire.Config
	Meta    meta.Config
	Replica replica.Config
	Groups  group.Config

	NoAutoCreate bool // a Metadata request creates no topics

	MaxBatch  int   // bytes of one record batch
	MaxFetch  int   // bytes of record batches in one fetch answer (its first batch may be larger)
	MaxLogSum int64 // bytes kept over all partitions

	MaxParked  int // requests of each kind parked at once, over all connections
	MaxWatched int // (fetch, partition) pairs parked at once

	MaxFetchSessions     int // of consumers and followers together; a client without one names all partitions in each fetch
	MaxSessionPartitions int // in all sessions together

	ReplicaLag time.Duration // a follower that is behind for longer is not in sync
	Tick       time.Duration // tick of the purgatories' timing wheels
	Logger     *slog.Logger  // nil: slog.Default

	Network  network.Network    // nil: the machine's network
	Observe  *observe.Registry  // if set, lists all waiting operations of running brokers
	OnExpire func(ExpiredFetch) // if set, called with each expired fetch of a consumer
}

// WithDefaults replaces zero values by defaults and refuses values that are out of range.
func (c Config) WithDefaults() (Config, error) {
	var b option.Check
	option.Fill(&b, "MaxBatch", &c.MaxBatch, 8<<20, 1, 1<<30)
	option.Fill(&b, "MaxFetch", &c.MaxFetch, 8<<20, 1, 1<<30)
	option.Fill(&b, "MaxLogSum", &c.MaxLogSum, 256<<20, 1, 1<<50)
	option.Fill(&b, "MaxParked", &c.MaxParked, 100_000, 1, 1<<30)
	option.Fill(&b, "MaxWatched", &c.MaxWatched, 1_000_000, 1, 1<<30)
	option.Fill(&b, "MaxFetchSessions", &c.MaxFetchSessions, 1000, 1, 1<<20)
	option.Fill(&b, "MaxSessionPartitions", &c.MaxSessionPartitions, 100_000, 1, 1<<30)
	option.Fill(&b, "ReplicaLag", &c.ReplicaLag, 30*time.Second, time.Millisecond, 24*time.Hour)
	option.Fill(&b, "Tick", &c.Tick, time.Millisecond, time.Microsecond, time.Minute)
	if c.Network == nil {
		c.Network = network.Machine
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Meta.Logger == nil {
		c.Meta.Logger = c.Logger
	}
	var errs [4]error
	c.Wire, errs[0] = c.Wire.WithDefaults()
	c.Meta, errs[1] = c.Meta.WithDefaults()
	c.Replica, errs[2] = c.Replica.WithDefaults()
	c.Groups, errs[3] = c.Groups.WithDefaults()
	for _, err := range append(errs[:], b.Err) {
		if err != nil {
			return c, fmt.Errorf("broker: %w", err)
		}
	}
	return c, nil
}

// settings returns the settings that clients can ask for.
func (c *Config) settings() *settings.Broker {
	return &settings.Broker{Meta: c.Meta, Groups: c.Groups, MaxBatch: c.MaxBatch, NoAutoCreate: c.NoAutoCreate, ReplicaLag: c.ReplicaLag}
}

// set changes one setting of a topic; a nil value restores the default.
func (c *Config) set(to *meta.Settings, name string, value *string) *wire.Refusal {
	if err := settings.Set(to, name, value, c.settings()); err != nil {
		return &wire.Refusal{Code: kerr.InvalidConfig, Message: err.Error()}
	}
	return nil
}

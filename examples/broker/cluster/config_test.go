package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/examples/broker/internal/broker"
	"github.com/seed-782fa212/limbo/examples/broker/internal/group"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

func TestConfigIsChecked(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "10.1.2.3:9092", "example.com:9092", "nonsense"} {
		_, err := Config{Addr: addr}.WithDefaults()
		require.ErrorContains(t, err, addr)
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0"} {
		_, err := Config{Addr: addr}.WithDefaults()
		require.NoError(t, err)
	}
	_, err := Config{Addr: ":0", AllowRemote: true}.WithDefaults()
	require.NoError(t, err)
	for text, c := range map[string]Config{
		"Brokers is 17, must be from 1 to 16":            {Brokers: 17},
		"Meta.Replication is 4, must be from 1 to 3":     {Config: broker.Config{Meta: meta.Config{Replication: 4}}},
		"MaxBatch is -1, must be from 1 to 1073741824":   {Config: broker.Config{MaxBatch: -1}},
		"Wire.MaxInboundSum is 1024, must be from 16777": {Config: broker.Config{Wire: wire.Config{MaxInboundSum: 1024}}},
		"Replica.MaxProducers is -5":                     {Config: broker.Config{Replica: replica.Config{MaxProducers: -5}}},
		"Groups.MaxGroups is -1":                         {Config: broker.Config{Groups: group.Config{MaxGroups: -1}}},
	} {
		_, err := c.WithDefaults()
		require.ErrorContains(t, err, text)
	}
}

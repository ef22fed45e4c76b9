package broker

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// All logs together stay below their limit, and the latest records are kept.
func TestLogSumIsBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.MaxLogSum = 50_000 })
	topics := []*meta.Topic{makeTopic(t, s, "a", 3), makeTopic(t, s, "b", 3)}
	c := dial(t, s)
	rng := rand.New(rand.NewPCG(7, 7))
	for range 500 {
		topic, p := topics[rng.IntN(2)], rng.Int32N(3)
		got := produceTo(c, topic, p, kafkatest.Batch([]string{string(make([]byte, rng.IntN(1000)))}))
		require.Zero(t, got.ErrorCode)
		// The answer precedes the eviction; the next request is handled after it.
		c.Call(listRequest(5, topic, p, replica.LatestOffset))
		require.LessOrEqual(t, s.partitions.LogBytes.Load(), int64(50_000))
	}
	sum := int64(0)
	for _, topic := range topics {
		for i := range topic.Partitions {
			p := replicaOf(s, topic, int32(i))
			require.NoError(t, p.Verify())
			require.Positive(t, p.Offsets().Batches)
			sum += p.Offsets().Bytes
		}
	}
	require.Equal(t, sum, s.partitions.LogBytes.Load())
}

package broker

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

func TestSequences(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	init := c.Call(kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse)
	other := c.Call(kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse)
	require.NotEqual(t, init.ProducerID, other.ProducerID)
	id := init.ProducerID
	three := []string{"a", "b", "c"}
	for _, step := range []struct {
		name     string
		id       int64
		epoch    int16
		sequence int32
		values   []string
		base     int64
		code     *kerr.Error
	}{
		{"first", id, 0, 0, three, 0, nil},
		{"second", id, 0, 3, three, 3, nil},
		{"second again", id, 0, 3, three, 3, nil},
		{"first again", id, 0, 0, three, 0, nil},
		{"gap", id, 0, 7, three, -1, kerr.OutOfOrderSequenceNumber},
		{"overlap", id, 0, 5, three, -1, kerr.OutOfOrderSequenceNumber},
		{"same start, other length", id, 0, 3, three[:2], -1, kerr.OutOfOrderSequenceNumber},
		{"third", id, 0, 6, three, 6, nil},
		{"fourth", id, 0, 9, three, 9, nil},
		{"fifth", id, 0, 12, three, 12, nil},
		{"first of five again", id, 0, 0, three, 0, nil},
		{"sixth", id, 0, 15, three, 15, nil},
		{"second of six again", id, 0, 3, three, 3, nil},
		{"first of six is forgotten", id, 0, 0, three, -1, kerr.OutOfOrderSequenceNumber},
		{"another producer", other.ProducerID, 0, 0, three, 18, nil},
		{"a higher epoch starts at 0", id, 1, 18, three, -1, kerr.OutOfOrderSequenceNumber},
		{"a higher epoch", id, 1, 0, three, 21, nil},
		{"a higher epoch again", id, 1, 0, three, 21, nil},
		{"the old epoch", id, 0, 18, three, -1, kerr.InvalidProducerEpoch},
		{"an old batch of the old epoch", id, 0, 15, three, -1, kerr.InvalidProducerEpoch},
		{"a producer that is new here may start anywhere", 999, 3, 77, three, 24, nil},
		{"no epoch", id, -1, 0, three, -1, kerr.InvalidRecord},
		{"no sequence", id, 1, -1, three, -1, kerr.InvalidRecord},
		{"id below none", -2, 0, 0, three, -1, kerr.InvalidRecord},
	} {
		got := produceTo(c, topic, 0, kafkatest.Batch(step.values, kafkatest.From(step.id, step.epoch, step.sequence)))
		require.Equal(t, wire.Code(step.code), got.ErrorCode, "%s: %v", step.name, kerr.ErrorForCode(got.ErrorCode))
		require.Equal(t, step.base, got.BaseOffset, step.name)
	}
	require.Equal(t, int64(27), replicaOf(s, topic, 0).Offsets().End, "each batch stored once")
	require.Equal(t, uint64(27), s.metrics.Records.Load())
}

func TestSequencesWrap(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for _, step := range []struct {
		sequence int32
		base     int64
	}{{math.MaxInt32 - 2, 0}, {math.MaxInt32, 2}, {math.MaxInt32, 2}, {1, 4}, {math.MaxInt32 - 2, 0}} {
		got := produceTo(c, topic, 0, kafkatest.Batch([]string{"x", "y"}, kafkatest.From(1, 0, step.sequence)))
		require.Zero(t, got.ErrorCode)
		require.Equal(t, step.base, got.BaseOffset)
	}
}

// A repeated batch is still recognized after retention has deleted its records.
func TestDuplicateBeforeTheLogStart(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Meta.RetentionBytes = 300 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for i := range int32(5) {
		produceTo(c, topic, 0, kafkatest.Batch([]string{"some ballast"}, kafkatest.From(1, 0, i)))
	}
	require.Positive(t, replicaOf(s, topic, 0).Offsets().Start)
	got := produceTo(c, topic, 0, kafkatest.Batch([]string{"some ballast"}, kafkatest.From(1, 0, 0)))
	require.Zero(t, got.ErrorCode)
	require.Zero(t, got.BaseOffset)
}

func TestTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID = kmsg.StringPtr("tx")
	kafkatest.RequireCode(t, kerr.TransactionalIDAuthorizationFailed, c.Call(init).(*kmsg.InitProducerIDResponse).ErrorCode)
	req := kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"x"}))
	req.TransactionID = kmsg.StringPtr("tx")
	kafkatest.RequireCode(t, kerr.TransactionalIDAuthorizationFailed, c.Call(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// from makes a batch an idempotent producer's.
func from(id int64, epoch int16, sequence int32) func(*kmsg.RecordBatch) {
	return func(b *kmsg.RecordBatch) { b.ProducerID, b.ProducerEpoch, b.FirstSequence = id, epoch, sequence }
}

func TestSequences(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	init := c.call(kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse)
	other := c.call(kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse)
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
		got := c.produce(topic, 0, batchOf(step.values, from(step.id, step.epoch, step.sequence)))
		require.Equal(t, code(step.code), got.ErrorCode, "%s: %v", step.name, kerr.ErrorForCode(got.ErrorCode))
		require.Equal(t, step.base, got.BaseOffset, step.name)
	}
	require.Equal(t, int64(27), replica(s, topic, 0).log.next, "each batch stored once")
	require.Equal(t, uint64(27), s.metrics.records.Load())
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
		got := c.produce(topic, 0, batchOf([]string{"x", "y"}, from(1, 0, step.sequence)))
		require.Zero(t, got.ErrorCode)
		require.Equal(t, step.base, got.BaseOffset)
	}
}

// A repeated batch whose records retention has dropped is still a repeated one.
func TestDuplicateBeforeTheLogStart(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.retentionBytes = 300 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for i := range int32(5) {
		c.produce(topic, 0, batchOf([]string{"some ballast"}, from(1, 0, i)))
	}
	require.Positive(t, replica(s, topic, 0).log.start)
	got := c.produce(topic, 0, batchOf([]string{"some ballast"}, from(1, 0, 0)))
	require.Zero(t, got.ErrorCode)
	require.Zero(t, got.BaseOffset)
}

func TestProducersAreBounded(t *testing.T) {
	t.Parallel()
	states := producerStates{}
	now := time.Now()
	for i := range int64(10) {
		states.add(i, 3, time.Hour, now.Add(time.Duration(i))).usedAt = now.Add(time.Duration(i))
		require.LessOrEqual(t, len(states), 3)
		require.Contains(t, states, i)
	}
	require.Contains(t, states, int64(7), "the quietest went first")
	later := now.Add(2 * time.Hour)
	states.add(100, 3, time.Hour, later).usedAt = later
	require.Len(t, states, 1, "the idle ones are gone")
}

func TestTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID = kmsg.StringPtr("tx")
	requireCode(t, kerr.TransactionalIDAuthorizationFailed, c.call(init).(*kmsg.InitProducerIDResponse).ErrorCode)
	req := produceRequest(9, topic, 0, batchOf([]string{"x"}))
	req.TransactionID = kmsg.StringPtr("tx")
	requireCode(t, kerr.TransactionalIDAuthorizationFailed, c.call(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

// docs/lessons.md, purgatory 10 (KAFKA-2960, 9198): a change of leaders at once completes
// operations that wait for the old leader.
func TestLossOfLeadershipAnswersAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{})
		lead := leader(c, topic)
		producer, consumer := dial(t, lead.Server()), dial(t, lead.Server())
		isolate(c, lead)
		produce := acks(-1, kafkatest.ForEver, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"x"})))
		fetch := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
		producer.Send(produce)
		consumer.Send(fetch)
		require.Eventually(t, func() bool { return lead.Server().produces.Len() == 1 }, kafkatest.WaitLimit, time.Millisecond)
		parkedFor(t, lead.Server(), 2)

		fenced(c, lead)
		kafkatest.RequireCode(t, kerr.NotLeaderForPartition, producedPartOf(producer.Receive(produce)).ErrorCode)
		kafkatest.RequireCode(t, kerr.NotLeaderForPartition, kafkatest.PartitionsOf(consumer.Receive(fetch))[0].ErrorCode)
		require.NotEqual(t, lead, leader(c, topic))
		kafkatest.RequireCode(t, kerr.NotLeaderForPartition, produceTo(producer, topic, 0, kafkatest.Batch([]string{"y"})).ErrorCode)
		rejoin(c, lead)
	})
}

// A leader that was cut off has records that no other replica has. The next leader's log diverges,
// and the old leader truncates its log and follows. KIP-101.
func TestFollowerCutsItsLogBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, returning)
		topic := startTopic(t, c, meta.TopicSpec{})
		old := leader(c, topic)
		conn := dial(t, old.Server())
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"a"})).ErrorCode)
		requireSame(t, c, topic)
		isolate(c, old)
		for _, v := range []string{"lost 1", "lost 2", "lost 3"} {
			require.Zero(t, producedPartOf(conn.Call(acks(1, 0, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{v}))))).ErrorCode)
		}
		fenced(c, old) // its next heartbeat makes it register again, as a follower
		require.Eventually(t, func() bool { return leader(c, topic) != old }, kafkatest.WaitLimit, time.Millisecond)
		now := leader(c, topic)
		require.Eventually(t, func() bool { return replicaOf(now.Server(), topic, 0).Leads(-1) == nil }, kafkatest.WaitLimit, time.Millisecond)
		conn = dial(t, now.Server())
		for _, v := range []string{"b", "c", "d", "e"} { // more than the old leader has: its next fetch offset is in range
			require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{v})).ErrorCode)
		}
		rejoin(c, old)
		whole(t, c)
		require.Equal(t, []string{"a", "b", "c", "d", "e"}, values(t, requireSame(t, c, topic)))
		require.Equal(t, old, leader(c, topic), "it is the preferred leader, and leads again")
	})
}

// A killed leader's acknowledged records survive. A batch that is sent again to the next leader,
// because its answer was lost, is stored once.
func TestKilledLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{})
		old := leader(c, topic)
		batch := kafkatest.Batch([]string{"a", "b"}, kafkatest.From(7, 0, 0))
		first := produceTo(dial(t, old.Server()), topic, 0, batch)
		require.Zero(t, first.ErrorCode)
		require.NoError(t, kill(c, old))
		require.Eventually(t, func() bool { return leader(c, topic) != old }, kafkatest.WaitLimit, time.Millisecond)
		now := leader(c, topic)
		require.Eventually(t, func() bool { return replicaOf(now.Server(), topic, 0).Leads(-1) == nil }, kafkatest.WaitLimit, time.Millisecond)
		conn := dial(t, now.Server())
		again := produceTo(conn, topic, 0, batch)
		require.Zero(t, again.ErrorCode)
		require.Equal(t, first.BaseOffset, again.BaseOffset)
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"c"}, kafkatest.From(7, 0, 2))).ErrorCode)
		require.NoError(t, old.Start())
		whole(t, c)
		require.Equal(t, []string{"a", "b", "c"}, values(t, requireSame(t, c, topic)))
	})
}

// A leader that was frozen until it was fenced does no harm when it wakes.
func TestFrozenLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, returning)
		topic := startTopic(t, c, meta.TopicSpec{})
		old := leader(c, topic)
		conn := dial(t, old.Server())
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"a"})).ErrorCode)
		old.Gate.Pause()
		produce := acks(-1, kafkatest.ForEver, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"too late"})))
		conn.Send(produce)
		fenced(c, old)
		require.NotEqual(t, old, leader(c, topic))
		now := leader(c, topic)
		require.Eventually(t, func() bool { return replicaOf(now.Server(), topic, 0).Leads(-1) == nil }, kafkatest.WaitLimit, time.Millisecond)
		require.Zero(t, produceTo(dial(t, now.Server()), topic, 0, kafkatest.Batch([]string{"b"})).ErrorCode)
		old.Gate.Resume()
		code := producedPartOf(conn.Receive(produce)).ErrorCode
		whole(t, c)
		want := []string{"a", "b"}
		if code == 0 { // if the machine stalls, the broker reads it only when it leads again
			want = append(want, "too late")
		} else {
			kafkatest.RequireCode(t, kerr.NotLeaderForPartition, code)
		}
		require.Equal(t, want, values(t, requireSame(t, c, topic)))
	})
}

// The partition waits for its last in-sync replica: no other replica leads without its records.
func TestNoUncleanElection(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, shortReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{Settings: meta.Settings{MinISR: 1}})
		last := leader(c, topic)
		isolate(c, last)
		require.Zero(t, producedPartOf(dial(t, last.Server()).Call(acks(1, 0, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"x"}))))).ErrorCode)
		require.Eventually(t, func() bool { return len(isr(c, topic)) == 1 }, kafkatest.WaitLimit, time.Millisecond)
		require.NoError(t, kill(c, last))
		_, a := c.Controller.Image().Assignment(meta.PartitionKey{Topic: topic.ID, Index: 0})
		require.EqualValues(t, meta.NoLeader, a.Leader)
		require.Equal(t, []int32{last.ID}, a.ISR)
		rejoin(c, last)
		require.NoError(t, last.Start())
		whole(t, c)
		require.NotEmpty(t, requireSame(t, c, topic))
	})
}

// A fetch that a change of leaders has completed reports that, even if its answer is built when
// this broker leads again: an empty answer would be too early.
func TestLostAndRegainedLeadership(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	c := dial(t, s)
	head := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(1, 0, kafkatest.Plenty))
	behind := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	c.Send(head, behind)
	parked(t, s, 2)
	p, a := replicaOf(s, topic, 0), topic.Partitions[0]
	a.Leader, a.Epoch, a.Version = 1, a.Epoch+1, a.Version+1
	s.assign(p, topic, a, 0)
	parked(t, s, 1)
	a.Leader, a.Epoch, a.Version = 0, a.Epoch+1, a.Version+1
	s.assign(p, topic, a, 0)
	require.Zero(t, produceTo(dial(t, s), topic, 1, kafkatest.Batch([]string{"x"})).ErrorCode)
	require.NotEmpty(t, kafkatest.PartitionsOf(c.Receive(head))[0].RecordBatches)
	kafkatest.RequireCode(t, kerr.NotLeaderForPartition, kafkatest.PartitionsOf(c.Receive(behind))[0].ErrorCode)
}

// A produce to two partitions, one of which changes leaders, continues to wait for the other. Each
// partition gets its own result.
func TestProduceOutlivesOneOfItsLeaders(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, longReplicaLag)
	topic, err := c.Controller.Create("t", meta.TopicSpec{Replicas: [][]int32{{0, 1}, {0, 2}}}, false)
	require.Nil(t, err)
	whole(t, c)
	lead := c.Nodes[0]
	isolate(c, lead)
	s := lead.Server()
	produce := acks(-1, kafkatest.ForEver, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"x"})))
	other := kmsg.NewProduceRequestTopicPartition()
	other.Partition, other.Records = 1, kafkatest.Batch([]string{"y"})
	produce.Topics[0].Partitions = append(produce.Topics[0].Partitions, other)
	conn := dial(t, s)
	conn.Send(produce)
	require.Eventually(t, func() bool { return s.produces.Len() == 1 }, kafkatest.WaitLimit, time.Millisecond)

	a := topic.Partitions[0]
	a.Leader, a.Epoch, a.Version = 1, a.Epoch+1, a.Version+1
	s.assign(replicaOf(s, topic, 0), topic, a, 0)
	require.Equal(t, 1, s.produces.Len(), "it still waits for the other partition")
	c.Links.Heal(0, 2)
	got := conn.Receive(produce).(*kmsg.ProduceResponse).Topics[0].Partitions
	kafkatest.RequireCode(t, kerr.NotLeaderForPartition, got[0].ErrorCode)
	require.Zero(t, got[1].ErrorCode)
	require.Zero(t, got[1].BaseOffset)
}

// The watermarks of an ended leader epoch are infinite: an operation that starts to wait for them
// is completed at once.
func TestEndedLeaderEpochs(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	require.Zero(t, produceTo(dial(t, s), topic, 0, kafkatest.Batch([]string{"x"})).ErrorCode)
	now, leads := replicaOf(s, topic, 0).LeaderEpoch()
	require.True(t, leads)
	require.Equal(t, int64(1), s.committed(now))
	require.Zero(t, s.deleted(now))
	next := topic.Partitions[0]
	next.Epoch, next.Version = next.Epoch+1, next.Version+1
	s.assign(replicaOf(s, topic, 0), topic, next, 0)
	require.Equal(t, int64(1), s.committed(replica.LeaderEpoch{PartitionKey: now.PartitionKey, Epoch: next.Epoch}))
	for _, r := range []replica.LeaderEpoch{
		now,
		{PartitionKey: now.PartitionKey, Epoch: now.Epoch + 2},
		{PartitionKey: meta.PartitionKey{Topic: topic.ID, Index: 1}},
	} {
		require.Equal(t, int64(replica.EpochEnded), s.committed(r))
		require.Equal(t, int64(replica.EpochEnded), s.deleted(r))
	}
}

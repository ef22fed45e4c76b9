package broker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
)

func TestReplicasHoldTheSame(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3)
	topic := startTopic(t, c, meta.TopicSpec{})
	cl := client(t, c.Nodes[0].Server(), kgo.ProducerBatchCompression(kgo.NoCompression()))
	const n = 500
	for i := range n {
		cl.Produce(kafkatest.Context(t), &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "%d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, cl.Flush(kafkatest.Context(t)))
	got := values(t, requireSame(t, c, topic))
	require.Len(t, got, n)
	for i, v := range got {
		require.Equal(t, fmt.Sprint(i), v)
	}
}

// acks=all waits for all replicas, for its whole timeout if necessary; acks=1 does not wait. A
// consumer sees only records that all replicas have.
func TestProduceWaitsForReplicas(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{})
		lead := leader(c, topic)
		conn, consumer := dial(t, lead.Server()), dial(t, lead.Server())
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"a"})).ErrorCode)
		isolate(c, lead)

		const timeout = 120 * time.Millisecond
		begun := time.Now()
		late := conn.Call(acks(-1, timeout, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"b"}))))
		require.GreaterOrEqual(t, time.Since(begun), timeout)
		kafkatest.RequireCode(t, kerr.RequestTimedOut, producedPartOf(late).ErrorCode)
		require.Zero(t, producedPartOf(conn.Call(acks(1, 0, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"c"}))))).ErrorCode)

		latest := conn.Call(listRequest(5, topic, 0, replica.LatestOffset)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		require.Equal(t, int64(1), latest.Offset, "the high watermark")
		require.Len(t, values(t, fetchAll(consumer, topic)), 1)

		wait := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 1, kafkatest.Plenty))
		consumer.Send(wait)
		parkedFor(t, lead.Server(), 1)
		rejoin(c, lead)
		got := kafkatest.PartitionsOf(consumer.Receive(wait))[0]
		require.NotEmpty(t, got.RecordBatches, "woken when the replicas have it")
		require.Equal(t, []string{"a", "b", "c"}, values(t, requireSame(t, c, topic)))
	})
}

// A lagging follower delays produces until it leaves the in-sync set. It rejoins the set when it
// has caught up.
func TestInSyncSetShrinksAndGrows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, shortReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{Settings: meta.Settings{MinISR: 1}}) // if the machine stalls, the third replica lags, too
		lead := leader(c, topic)
		lost := c.Nodes[(lead.ID+1)%3]
		conn := dial(t, lead.Server())
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"a"})).ErrorCode)
		isolate(c, lost)
		require.Zero(t, producedPartOf(conn.Call(acks(-1, kafkatest.WaitLimit, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"b"}))))).ErrorCode)
		require.NotContains(t, isr(c, topic), lost.ID)
		require.Eventually(t, func() bool { return len(isr(c, topic)) == 2 }, kafkatest.WaitLimit, time.Millisecond)
		require.NotContains(t, isr(c, topic), lost.ID)
		rejoin(c, lost)
		whole(t, c)
		require.Equal(t, []string{"a", "b"}, values(t, requireSame(t, c, topic)))
	})
}

// With fewer in-sync replicas than the topic requires, acks=all is refused. A produce that was
// waiting when there became too few is told that its records are in the log.
func TestTooFewInSync(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag, func(c *Config) { c.ReplicaLag = 5 * time.Second }) // the machine may stall
		topic := startTopic(t, c, meta.TopicSpec{Settings: meta.Settings{MinISR: 2}})
		lead := leader(c, topic)
		conn := dial(t, lead.Server())
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"a"})).ErrorCode)
		isolate(c, lead)
		waited := conn.Call(acks(-1, kafkatest.WaitLimit, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"b"}))))
		kafkatest.RequireCode(t, kerr.NotEnoughReplicasAfterAppend, producedPartOf(waited).ErrorCode)
		require.Eventually(t, func() bool { return len(isr(c, topic)) == 1 }, kafkatest.WaitLimit, time.Millisecond)
		kafkatest.RequireCode(t, kerr.NotEnoughReplicas, produceTo(conn, topic, 0, kafkatest.Batch([]string{"c"})).ErrorCode)
		require.Zero(t, producedPartOf(conn.Call(acks(1, 0, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"d"}))))).ErrorCode)
		rejoin(c, lead)
		whole(t, c)
		require.Equal(t, []string{"a", "b", "d"}, values(t, requireSame(t, c, topic)))
	})
}

func TestEpochsOfClients(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{})
		old := leader(c, topic)
		require.Zero(t, produceTo(dial(t, old.Server()), topic, 0, kafkatest.Batch([]string{"a"})).ErrorCode)
		require.NoError(t, kill(c, old))
		require.NoError(t, old.Start())
		whole(t, c)
		lead := leader(c, topic)
		conn := dial(t, lead.Server())
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"b"})).ErrorCode)
		_, a := c.Controller.Image().Assignment(meta.PartitionKey{Topic: topic.ID, Index: 0})
		require.GreaterOrEqual(t, a.Epoch, int32(2), "away from the killed one, and home again")
		for epoch, want := range map[int32]*kerr.Error{-1: nil, a.Epoch: nil, a.Epoch - 1: kerr.FencedLeaderEpoch, a.Epoch + 1: kerr.UnknownLeaderEpoch} {
			fetch := kafkatest.Fetch(12, topic, 0, 0, kafkatest.Plenty, want0())
			fetch.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			kafkatest.RequireCode(t, want, kafkatest.PartitionsOf(conn.Call(fetch))[0].ErrorCode)
			list := listRequest(7, topic, 0, replica.LatestOffset)
			list.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
			kafkatest.RequireCode(t, want, conn.Call(list).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode)
		}
		ends := map[int32][2]int64{}
		for _, epoch := range []int32{0, a.Epoch, a.Epoch + 5} {
			sp := conn.Call(epochRequest(4, topic, a.Epoch, epoch)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			require.Zero(t, sp.ErrorCode)
			ends[epoch] = [2]int64{int64(sp.LeaderEpoch), sp.EndOffset}
		}
		require.Equal(t, map[int32][2]int64{0: {0, 1}, a.Epoch: {int64(a.Epoch), 2}, a.Epoch + 5: {int64(a.Epoch), 2}}, ends)
	})
}

// A client that poses as a follower must not advance the high watermark.
func TestNonFollowersDoNotFollow(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3)
	topic := startTopic(t, c, meta.TopicSpec{})
	fetch := kafkatest.Fetch(13, topic, 0, 0, kafkatest.Plenty, want0())
	fetch.ReplicaID = (leader(c, topic).ID + 1) % 3
	resp := dial(t, leader(c, topic).Server()).Call(fetch).(*kmsg.FetchResponse)
	kafkatest.RequireCode(t, kerr.ClusterAuthorizationFailed, resp.ErrorCode)
}

// A deletion is answered when every live replica has carried it out; dead replicas do not delay it.
func TestDeleteRecords(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{})
		lead := leader(c, topic)
		conn := dial(t, lead.Server())
		del := func(offset int64, timeout time.Duration) kmsg.DeleteRecordsResponseTopicPartition {
			return conn.Call(deleteRecordsRequest(topic, 0, offset, timeout)).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		}
		for range 4 {
			require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"x", "y"})).ErrorCode)
		}
		kafkatest.RequireCode(t, kerr.OffsetOutOfRange, del(9, kafkatest.WaitLimit).ErrorCode)
		kafkatest.RequireCode(t, kerr.OffsetOutOfRange, del(-2, kafkatest.WaitLimit).ErrorCode)
		got := del(3, kafkatest.WaitLimit)
		require.Zero(t, got.ErrorCode)
		require.Equal(t, int64(3), got.LowWatermark)
		for _, s := range c.running() {
			require.Equal(t, int64(3), replicaOf(s, topic, 0).Offsets().Start)
		}
		kafkatest.RequireCode(t, kerr.OffsetOutOfRange, kafkatest.PartitionsOf(conn.Call(kafkatest.Fetch(12, topic, 0, 0, kafkatest.Plenty, kafkatest.At(0, 2, kafkatest.Plenty))))[0].ErrorCode)
		require.Len(t, splitBatches(kafkatest.PartitionsOf(conn.Call(kafkatest.Fetch(12, topic, 0, 0, kafkatest.Plenty, kafkatest.At(0, 3, kafkatest.Plenty))))[0].RecordBatches), 3,
			"the batch that the start lies in goes out whole")

		cut := c.Nodes[(lead.ID+1)%3]
		isolate(c, cut)
		const timeout = 100 * time.Millisecond
		begun := time.Now()
		kafkatest.RequireCode(t, kerr.RequestTimedOut, del(5, timeout).ErrorCode)
		require.GreaterOrEqual(t, time.Since(begun), timeout)
		go func() { _ = kill(c, cut) }()
		got = del(-1, kafkatest.WaitLimit)
		require.Zero(t, got.ErrorCode)
		require.Equal(t, int64(8), got.LowWatermark)
		rejoin(c, cut)
		require.Eventually(t, func() bool { return cut.Server() == nil }, kafkatest.WaitLimit, time.Millisecond)
		require.NoError(t, cut.Start())
		whole(t, c)
		require.Eventually(t, func() bool { return replicaOf(cut.Server(), topic, 0).Offsets().Batches == 0 }, kafkatest.WaitLimit, time.Millisecond)
	})
}

// A follower that returns after the leader has deleted records it still needed starts over at the
// leader's log start.
func TestFollowerStartsAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{Settings: meta.Settings{Retention: 4000}})
		lead := leader(c, topic)
		away := c.Nodes[(lead.ID+1)%3]
		conn := dial(t, lead.Server())
		require.Zero(t, produceTo(conn, topic, 0, kafkatest.Batch([]string{"a"})).ErrorCode)
		require.NoError(t, kill(c, away))
		for i := range 200 {
			require.Zero(t, producedPartOf(conn.Call(acks(-1, kafkatest.WaitLimit, kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{fmt.Sprintf("%0100d", i)}))))).ErrorCode)
		}
		require.NoError(t, away.Start())
		whole(t, c)
		require.NotEmpty(t, requireSame(t, c, topic))
		require.Greater(t, replicaOf(away.Server(), topic, 0).Offsets().Start, int64(100))
	})
}

// A follower rejoins the in-sync set although it has caught up before its leader learns that it is
// live again: nothing has to be fetched any more that would tell the leader a second time.
func TestFollowerCatchesUpBeforeItIsLive(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		c := startBrokers(t, 3, inMemory, longReplicaLag)
		topic := startTopic(t, c, meta.TopicSpec{})
		lead := leader(c, topic)
		away := c.Nodes[(lead.ID+1)%3]
		self := away.Server().self
		require.NoError(t, kill(c, away))
		synctest.Wait()
		require.Len(t, isr(c, topic), 2)

		s := lead.Server()
		require.True(t, replicaOf(s, topic, 0).FetchedBy(away.ID, 0, 0, 0, -1, s.uptime.Now(), nil).Rejoining)
		s.rejoining <- struct{}{}
		synctest.Wait()
		require.Len(t, isr(c, topic), 2, "it is not live yet")
		_, err := c.Controller.Register(self)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, isr(c, topic), 3)
	})
}

// Only coordinators create, write to and delete from the offsets topic; clients may read it.
// Retention does not apply to it.
func TestOffsetsTopicIsTheCoordinators(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Meta.RetentionBytes, c.MaxLogSum = 500, 1000 })
	_, err := s.Controller.Create(meta.OffsetsTopic, meta.TopicSpec{Partitions: 7, Replication: -1}, false)
	require.Equal(t, kerr.InvalidTopicException, err)
	require.Nil(t, s.Controller.CreateOffsetsTopic())
	require.Nil(t, s.Controller.CreateOffsetsTopic(), "again")
	s.catchUp(t.Context())
	topic := s.image().ByName[meta.OffsetsTopic]
	require.Len(t, topic.Partitions, int(s.cfg.Meta.OffsetsPartitions))

	c := dial(t, s)
	kafkatest.RequireCode(t, kerr.InvalidTopicException, produceTo(c, topic, 0, kafkatest.Batch([]string{"forged"})).ErrorCode)
	del := c.Call(deleteRecordsRequest(topic, 0, -1, kafkatest.WaitLimit)).(*kmsg.DeleteRecordsResponse)
	kafkatest.RequireCode(t, kerr.PolicyViolation, del.Topics[0].Partitions[0].ErrorCode)
	drop := kmsg.NewPtrDeleteTopicsRequest()
	drop.Version, drop.TopicNames = 5, []string{meta.OffsetsTopic}
	kafkatest.RequireCode(t, kerr.PolicyViolation, c.Call(drop).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)

	p := replicaOf(s, topic, 0)
	for range 20 {
		s.replicate(p, 0, log.NewBatch(time.Now(), []log.Record{{Key: []byte("key"), Value: make([]byte, 100)}}), kafkatest.WaitLimit, func(_ int64, err *kerr.Error) { require.Nil(t, err) })
	}
	s.partitions.LimitSum(s.cfg.MaxLogSum)
	require.Zero(t, p.Offsets().Start)
	require.Equal(t, 20, p.Offsets().Batches)
}

// The controller refuses an in-sync set from a leader that does not know its latest decision.
func TestInSyncSetsOfYesterday(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c, key, a := s.Controller, meta.PartitionKey{Topic: topic.ID, Index: 0}, topic.Partitions[0]
	require.Nil(t, c.AlterISR(0, key, a, []int32{0}))
	require.Equal(t, kerr.InvalidUpdateVersion, c.AlterISR(0, key, a, []int32{0}))
	_, now := c.Image().Assignment(key)
	require.Equal(t, kerr.IneligibleReplica, c.AlterISR(0, key, *now, []int32{0, 1}), "no replica")
	require.Equal(t, kerr.FencedLeaderEpoch, c.AlterISR(1, key, *now, []int32{0}), "no leader")
	require.Equal(t, kerr.UnknownTopicID, c.AlterISR(0, meta.PartitionKey{}, *now, []int32{0}))
}

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// These tests run clusters of three, and cut, freeze and kill brokers.

// quick makes a cluster notice sooner than by default; not so soon that a busy
// machine would make it see faults that are none.
func quick(c *config) { c.replicaLag, c.brokerSession = 300*time.Millisecond, 1200*time.Millisecond }

// quickToMiss makes it notice soon that a broker is gone, and never that one lags: on a
// machine that stalls, those that are not meant would.
func quickToMiss(c *config) { quick(c); c.replicaLag = time.Hour }

// patient makes it notice nothing by itself.
func patient(c *config) { c.replicaLag, c.brokerSession = time.Hour, time.Hour }

// startTopic makes a topic of one partition, and waits until the cluster is whole.
func startTopic(t *testing.T, c *cluster, shape topicShape) *topic {
	t.Helper()
	shape.partitions, shape.replication = 1, -1
	made, err := c.controller.create("t", shape, false)
	require.Nil(t, err)
	whole(t, c)
	return made
}

func whole(t *testing.T, c *cluster) {
	t.Helper()
	if !c.settled(ctxFor(t)) {
		var status strings.Builder
		c.status(&status)
		t.Fatalf("the cluster does not become whole:\n%s", &status)
	}
}

// leader is the broker that leads a topic's only partition, as the controller has it.
func leader(c *cluster, topic *topic) *node {
	_, a := c.controller.image().assignment(partitionKey{topic.id, 0})
	return c.nodes[a.leader]
}

func isr(c *cluster, topic *topic) []int32 {
	_, a := c.controller.image().assignment(partitionKey{topic.id, 0})
	return a.isr
}

// isolate cuts a broker off from the others, but not from clients and controller.
func isolate(c *cluster, n *node) {
	for _, other := range c.nodes {
		if other != n {
			c.links.sever(n.id, other.id)
		}
	}
}

func rejoin(c *cluster, n *node) {
	for _, other := range c.nodes {
		if other != n {
			c.links.heal(n.id, other.id)
		}
	}
}

// fenced has the controller give a broker up.
func fenced(c *cluster, n *node) {
	c.controller.fence(n.id, incarnation(n.server().registered.Load()))
}

// requireSame waits until all replicas hold the same, and returns it.
func requireSame(t *testing.T, c *cluster, topic *topic) [][]byte {
	t.Helper()
	var all [][][]byte
	require.Eventually(t, func() bool {
		all = nil
		for _, s := range c.running() {
			p := replica(s, topic, 0)
			p.mu.Lock()
			p.log.verify(t)
			batches, _ := p.log.read(p.log.start, p.log.next, 1<<30, true)
			committed := p.hw == p.log.next
			p.mu.Unlock()
			if !committed || len(all) > 0 && !slices.EqualFunc(all[0], batches, slices.Equal) {
				return false
			}
			all = append(all, batches)
		}
		return true
	}, patience, 5*time.Millisecond, "replicas differ")
	return all[0]
}

func values(t *testing.T, batches [][]byte) (values []string) {
	for _, raw := range batches {
		eachRecord(raw, func(_ int64, _, value []byte) { values = append(values, string(value)) })
	}
	return values
}

func acks(n int16, wait time.Duration, req *kmsg.ProduceRequest) *kmsg.ProduceRequest {
	req.Acks, req.TimeoutMillis = n, int32(wait/time.Millisecond)
	return req
}

func producedPartOf(resp kmsg.Response) kmsg.ProduceResponseTopicPartition {
	return resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func TestReplicasHoldTheSame(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3)
	topic := startTopic(t, c, topicShape{})
	cl := client(t, c.nodes[0].server(), kgo.ProducerBatchCompression(kgo.NoCompression()))
	const n = 500
	for i := range n {
		cl.Produce(ctxFor(t), &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "%d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.NoError(t, cl.Flush(ctxFor(t)))
	got := values(t, requireSame(t, c, topic))
	require.Len(t, got, n)
	for i, v := range got {
		require.Equal(t, fmt.Sprint(i), v)
	}
}

// acks=all waits for the replicas, for as long as it says and no less; acks=1 does
// not; a consumer sees what all have, and no more.
func TestProduceWaitsForReplicas(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, patient)
	topic := startTopic(t, c, topicShape{})
	lead := leader(c, topic)
	conn, consumer := dial(t, lead.server()), dial(t, lead.server())
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"a"})).ErrorCode)
	isolate(c, lead)

	const timeout = 120 * time.Millisecond
	begun := time.Now()
	late := conn.call(acks(-1, timeout, produceRequest(9, topic, 0, batchOf([]string{"b"}))))
	require.GreaterOrEqual(t, time.Since(begun), timeout)
	requireCode(t, kerr.RequestTimedOut, producedPartOf(late).ErrorCode)
	require.Zero(t, producedPartOf(conn.call(acks(1, 0, produceRequest(9, topic, 0, batchOf([]string{"c"}))))).ErrorCode)

	latest := conn.call(listRequest(5, topic, 0, latestOffset)).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	require.Equal(t, int64(1), latest.Offset, "the high watermark")
	require.Len(t, values(t, fetchAll(consumer, topic)), 1)

	wait := fetchRequest(12, topic, forEver, 1, plenty, want{0, 1, plenty})
	consumer.send(wait)
	parkedFor(t, lead.server(), 1)
	rejoin(c, lead)
	got := partitionsOf(consumer.receive(wait))[0]
	require.NotEmpty(t, got.RecordBatches, "woken when the replicas have it")
	require.Equal(t, []string{"a", "b", "c"}, values(t, requireSame(t, c, topic)))
}

// parkedFor waits until n requests of clients have been read and are not answered:
// followers' fetches come and go.
func parkedFor(t *testing.T, s *server, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.queued() == n }, patience, time.Millisecond)
}

func fetchAll(c *raw, topic *topic) [][]byte {
	got := partitionsOf(c.call(fetchRequest(12, topic, 0, 0, plenty, want{0, 0, plenty})))[0]
	if len(got.RecordBatches) == 0 {
		return nil
	}
	return splitBatches(got.RecordBatches)
}

func splitBatches(raw []byte) (batches [][]byte) {
	for len(raw) > 0 {
		var b kmsg.RecordBatch
		if b.ReadFrom(raw) != nil {
			return batches
		}
		n := lengthEnd + int(b.Length)
		batches, raw = append(batches, raw[:n]), raw[n:]
	}
	return batches
}

// A follower that lags holds produces up, until it is not in sync any more; when
// it is back, it is.
func TestInSyncSetShrinksAndGrows(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quick, func(c *config) { c.brokerSession = time.Hour })
	topic := startTopic(t, c, topicShape{minISR: 1}) // a machine that stalls makes the third lag, too
	lead := leader(c, topic)
	lost := c.nodes[(lead.id+1)%3]
	conn := dial(t, lead.server())
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"a"})).ErrorCode)
	isolate(c, lost)
	require.Zero(t, producedPartOf(conn.call(acks(-1, patience, produceRequest(9, topic, 0, batchOf([]string{"b"}))))).ErrorCode)
	require.NotContains(t, isr(c, topic), lost.id)
	require.Eventually(t, func() bool { return len(isr(c, topic)) == 2 }, patience, time.Millisecond)
	require.NotContains(t, isr(c, topic), lost.id)
	rejoin(c, lost)
	whole(t, c)
	require.Equal(t, []string{"a", "b"}, values(t, requireSame(t, c, topic)))
}

// With fewer in sync than the topic asks for, acks=all is refused; who was
// waiting when they became too few is told that the records are in the log.
func TestTooFewInSync(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quick, func(c *config) { c.brokerSession = time.Hour })
	topic := startTopic(t, c, topicShape{minISR: 2})
	lead := leader(c, topic)
	conn := dial(t, lead.server())
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"a"})).ErrorCode)
	isolate(c, lead)
	waited := conn.call(acks(-1, patience, produceRequest(9, topic, 0, batchOf([]string{"b"}))))
	requireCode(t, kerr.NotEnoughReplicasAfterAppend, producedPartOf(waited).ErrorCode)
	require.Eventually(t, func() bool { return len(isr(c, topic)) == 1 }, patience, time.Millisecond)
	requireCode(t, kerr.NotEnoughReplicas, conn.produce(topic, 0, batchOf([]string{"c"})).ErrorCode)
	require.Zero(t, producedPartOf(conn.call(acks(1, 0, produceRequest(9, topic, 0, batchOf([]string{"d"}))))).ErrorCode)
	rejoin(c, lead)
	whole(t, c)
	require.Equal(t, []string{"a", "b", "d"}, values(t, requireSame(t, c, topic)))
}

// docs/lessons.md, purgatory 10 (KAFKA-2960, 9198): a change of leaders ends what waits
// for the old one at once.
func TestLossOfLeadershipAnswersAtOnce(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, patient)
	topic := startTopic(t, c, topicShape{})
	lead := leader(c, topic)
	producer, consumer := dial(t, lead.server()), dial(t, lead.server())
	isolate(c, lead)
	produce := acks(-1, forEver, produceRequest(9, topic, 0, batchOf([]string{"x"})))
	fetch := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	producer.send(produce)
	consumer.send(fetch)
	require.Eventually(t, func() bool { return lead.server().produces.Delayed() == 1 }, patience, time.Millisecond)
	parkedFor(t, lead.server(), 2)

	fenced(c, lead)
	requireCode(t, kerr.NotLeaderForPartition, producedPartOf(producer.receive(produce)).ErrorCode)
	requireCode(t, kerr.NotLeaderForPartition, partitionsOf(consumer.receive(fetch))[0].ErrorCode)
	require.NotEqual(t, lead, leader(c, topic))
	requireCode(t, kerr.NotLeaderForPartition, producer.produce(topic, 0, batchOf([]string{"y"})).ErrorCode)
	rejoin(c, lead)
}

// A leader that was cut off has records that nobody else has. The next leader
// goes another way, and the old one follows it. KIP-101.
func TestFollowerCutsItsLogBack(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, patient, func(c *config) { c.brokerSession = 500 * time.Millisecond })
	topic := startTopic(t, c, topicShape{})
	old := leader(c, topic)
	conn := dial(t, old.server())
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"a"})).ErrorCode)
	requireSame(t, c, topic)
	isolate(c, old)
	for _, v := range []string{"lost 1", "lost 2", "lost 3"} {
		require.Zero(t, producedPartOf(conn.call(acks(1, 0, produceRequest(9, topic, 0, batchOf([]string{v}))))).ErrorCode)
	}
	fenced(c, old) // it comes back by its next heartbeat, as a follower
	require.Eventually(t, func() bool { return leader(c, topic) != old }, patience, time.Millisecond)
	now := leader(c, topic)
	require.Eventually(t, func() bool { return replica(now.server(), topic, 0).leads(-1) == nil }, patience, time.Millisecond)
	require.Zero(t, dial(t, now.server()).produce(topic, 0, batchOf([]string{"b"})).ErrorCode)
	rejoin(c, old)
	whole(t, c)
	require.Equal(t, []string{"a", "b"}, values(t, requireSame(t, c, topic)))
	require.Equal(t, old, leader(c, topic), "it is the preferred leader, and leads again")
}

// A killed leader's acknowledged records survive, and a batch that is sent again
// to the next leader, as its answer was lost, is stored once.
func TestKilledLeader(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quickToMiss)
	topic := startTopic(t, c, topicShape{})
	old := leader(c, topic)
	batch := batchOf([]string{"a", "b"}, from(7, 0, 0))
	first := dial(t, old.server()).produce(topic, 0, batch)
	require.Zero(t, first.ErrorCode)
	require.NoError(t, old.kill())
	require.Eventually(t, func() bool { return leader(c, topic) != old }, patience, time.Millisecond)
	now := leader(c, topic)
	require.Eventually(t, func() bool { return replica(now.server(), topic, 0).leads(-1) == nil }, patience, time.Millisecond)
	conn := dial(t, now.server())
	again := conn.produce(topic, 0, batch)
	require.Zero(t, again.ErrorCode)
	require.Equal(t, first.BaseOffset, again.BaseOffset)
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"c"}, from(7, 0, 2))).ErrorCode)
	require.NoError(t, old.start())
	whole(t, c)
	require.Equal(t, []string{"a", "b", "c"}, values(t, requireSame(t, c, topic)))
}

// A leader that was frozen until it was given up does no harm when it wakes.
func TestFrozenLeader(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quick)
	topic := startTopic(t, c, topicShape{minISR: 1}) // a machine that stalls makes the third lag, too
	old := leader(c, topic)
	conn := dial(t, old.server())
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"a"})).ErrorCode)
	old.gate.pause()
	produce := acks(-1, forEver, produceRequest(9, topic, 0, batchOf([]string{"too late"})))
	conn.send(produce)
	require.Eventually(t, func() bool { return leader(c, topic) != old }, patience, time.Millisecond)
	now := leader(c, topic)
	require.Eventually(t, func() bool { return replica(now.server(), topic, 0).leads(-1) == nil }, patience, time.Millisecond)
	require.Zero(t, dial(t, now.server()).produce(topic, 0, batchOf([]string{"b"})).ErrorCode)
	old.gate.resume()
	code := producedPartOf(conn.receive(produce)).ErrorCode
	whole(t, c)
	want := []string{"a", "b"}
	if code == 0 { // on a machine that stalls it is read only when that broker leads again
		want = append(want, "too late")
	} else {
		requireCode(t, kerr.NotLeaderForPartition, code)
	}
	require.Equal(t, want, values(t, requireSame(t, c, topic)))
}

// The last in-sync replica is waited for: nobody else leads without its records.
func TestNoUncleanElection(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quick)
	topic := startTopic(t, c, topicShape{minISR: 1})
	last := leader(c, topic)
	isolate(c, last)
	require.Zero(t, producedPartOf(dial(t, last.server()).call(acks(1, 0, produceRequest(9, topic, 0, batchOf([]string{"x"}))))).ErrorCode)
	require.Eventually(t, func() bool { return len(isr(c, topic)) == 1 }, patience, time.Millisecond)
	require.NoError(t, last.kill())
	require.Eventually(t, func() bool {
		_, a := c.controller.image().assignment(partitionKey{topic.id, 0})
		return a.leader == noLeader
	}, patience, time.Millisecond)
	require.Equal(t, []int32{last.id}, isr(c, topic))
	rejoin(c, last)
	require.NoError(t, last.start())
	whole(t, c)
	require.NotEmpty(t, requireSame(t, c, topic))
}

func TestEpochsOfClients(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quick)
	topic := startTopic(t, c, topicShape{})
	old := leader(c, topic)
	require.Zero(t, dial(t, old.server()).produce(topic, 0, batchOf([]string{"a"})).ErrorCode)
	require.NoError(t, old.kill())
	require.NoError(t, old.start())
	whole(t, c)
	lead := leader(c, topic)
	conn := dial(t, lead.server())
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"b"})).ErrorCode)
	_, a := c.controller.image().assignment(partitionKey{topic.id, 0})
	require.GreaterOrEqual(t, a.epoch, int32(2), "away from the killed one, and home again")
	for epoch, want := range map[int32]*kerr.Error{-1: nil, a.epoch: nil, a.epoch - 1: kerr.FencedLeaderEpoch, a.epoch + 1: kerr.UnknownLeaderEpoch} {
		fetch := fetchRequest(12, topic, 0, 0, plenty, want0())
		fetch.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		requireCode(t, want, partitionsOf(conn.call(fetch))[0].ErrorCode)
		list := listRequest(7, topic, 0, latestOffset)
		list.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		requireCode(t, want, conn.call(list).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode)
	}
	ends := map[int32][2]int64{}
	for _, epoch := range []int32{0, a.epoch, a.epoch + 5} {
		sp := conn.call(epochRequest(4, topic, a.epoch, epoch)).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
		require.Zero(t, sp.ErrorCode)
		ends[epoch] = [2]int64{int64(sp.LeaderEpoch), sp.EndOffset}
	}
	require.Equal(t, map[int32][2]int64{0: {0, 1}, a.epoch: {int64(a.epoch), 2}, a.epoch + 5: {int64(a.epoch), 2}}, ends)
}

func want0() want { return want{0, 0, plenty} }

// Who says to be a follower and is not would move the high watermark.
func TestStrangersAreNoFollowers(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3)
	topic := startTopic(t, c, topicShape{})
	fetch := fetchRequest(13, topic, 0, 0, plenty, want0())
	fetch.ReplicaID = (leader(c, topic).id + 1) % 3
	resp := dial(t, leader(c, topic).server()).call(fetch).(*kmsg.FetchResponse)
	requireCode(t, kerr.ClusterAuthorizationFailed, resp.ErrorCode)
}

// The answer to a deletion waits for every live replica, and for no dead one.
func TestDeleteRecords(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quickToMiss)
	topic := startTopic(t, c, topicShape{})
	lead := leader(c, topic)
	conn := dial(t, lead.server())
	del := func(offset int64, timeout time.Duration) kmsg.DeleteRecordsResponseTopicPartition {
		return conn.call(deleteRecordsRequest(topic, 0, offset, timeout)).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	}
	for range 4 {
		require.Zero(t, conn.produce(topic, 0, batchOf([]string{"x", "y"})).ErrorCode)
	}
	requireCode(t, kerr.OffsetOutOfRange, del(9, patience).ErrorCode)
	requireCode(t, kerr.OffsetOutOfRange, del(-2, patience).ErrorCode)
	got := del(3, patience)
	require.Zero(t, got.ErrorCode)
	require.Equal(t, int64(3), got.LowWatermark)
	for _, s := range c.running() {
		require.Equal(t, int64(3), replica(s, topic, 0).log.start)
	}
	requireCode(t, kerr.OffsetOutOfRange, partitionsOf(conn.call(fetchRequest(12, topic, 0, 0, plenty, want{0, 2, plenty})))[0].ErrorCode)
	require.Len(t, splitBatches(partitionsOf(conn.call(fetchRequest(12, topic, 0, 0, plenty, want{0, 3, plenty})))[0].RecordBatches), 3,
		"the batch that the start lies in goes out whole")

	cut := c.nodes[(lead.id+1)%3]
	isolate(c, cut)
	const timeout = 100 * time.Millisecond
	begun := time.Now()
	requireCode(t, kerr.RequestTimedOut, del(5, timeout).ErrorCode)
	require.GreaterOrEqual(t, time.Since(begun), timeout)
	go func() { _ = cut.kill() }()
	got = del(-1, patience)
	require.Zero(t, got.ErrorCode)
	require.Equal(t, int64(8), got.LowWatermark)
	rejoin(c, cut)
	require.Eventually(t, func() bool { return cut.server() == nil }, patience, time.Millisecond)
	require.NoError(t, cut.start())
	whole(t, c)
	require.Eventually(t, func() bool { return replica(cut.server(), topic, 0).records0() == 0 }, patience, time.Millisecond)
}

// records0 is how many batches the log has.
func (p *partition) records0() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.log.batches)
}

// A follower that was away while the leader deleted what it still needed begins
// anew where the leader's log starts.
func TestFollowerBeginsAnew(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, quickToMiss)
	topic := startTopic(t, c, topicShape{retention: 4000})
	lead := leader(c, topic)
	away := c.nodes[(lead.id+1)%3]
	conn := dial(t, lead.server())
	require.Zero(t, conn.produce(topic, 0, batchOf([]string{"a"})).ErrorCode)
	require.NoError(t, away.kill())
	for i := range 200 {
		require.Zero(t, producedPartOf(conn.call(acks(-1, patience, produceRequest(9, topic, 0, batchOf([]string{fmt.Sprintf("%0100d", i)}))))).ErrorCode)
	}
	require.NoError(t, away.start())
	whole(t, c)
	require.NotEmpty(t, requireSame(t, c, topic))
	require.Greater(t, replica(away.server(), topic, 0).log.start, int64(100))
}

// A fetch that a change of leaders has ended says so, though its answer be made
// when this broker leads again: an empty one would be too early.
func TestLostAndRegainedLeadership(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	c := dial(t, s)
	head := fetchRequest(12, topic, forEver, 1, plenty, want{1, 0, plenty})
	behind := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	c.send(head, behind)
	parked(t, s, 2)
	p, a := replica(s, topic, 0), topic.partitions[0]
	a.leader, a.epoch, a.version = 1, a.epoch+1, a.version+1
	s.assign(p, topic, a, time.Now())
	parked(t, s, 1)
	a.leader, a.epoch, a.version = 0, a.epoch+1, a.version+1
	s.assign(p, topic, a, time.Now())
	require.Zero(t, dial(t, s).produce(topic, 1, batchOf([]string{"x"})).ErrorCode)
	require.NotEmpty(t, partitionsOf(c.receive(head))[0].RecordBatches)
	requireCode(t, kerr.NotLeaderForPartition, partitionsOf(c.receive(behind))[0].ErrorCode)
}

// A produce to two partitions, of which one gets another leader, goes on waiting
// for the other, and each is told its own.
func TestProduceOutlivesOneOfItsLeaders(t *testing.T) {
	t.Parallel()
	c := startBrokers(t, 3, patient)
	topic, err := c.controller.create("t", topicShape{replicas: [][]int32{{0, 1}, {0, 2}}}, false)
	require.Nil(t, err)
	whole(t, c)
	lead := c.nodes[0]
	isolate(c, lead)
	s := lead.server()
	produce := acks(-1, forEver, produceRequest(9, topic, 0, batchOf([]string{"x"})))
	other := kmsg.NewProduceRequestTopicPartition()
	other.Partition, other.Records = 1, batchOf([]string{"y"})
	produce.Topics[0].Partitions = append(produce.Topics[0].Partitions, other)
	conn := dial(t, s)
	conn.send(produce)
	require.Eventually(t, func() bool { return s.produces.Delayed() == 1 }, patience, time.Millisecond)

	a := topic.partitions[0]
	a.leader, a.epoch, a.version = 1, a.epoch+1, a.version+1
	s.assign(replica(s, topic, 0), topic, a, time.Now())
	require.Equal(t, 1, s.produces.Delayed(), "it still waits for the other partition")
	c.links.heal(0, 2)
	got := conn.receive(produce).(*kmsg.ProduceResponse).Topics[0].Partitions
	requireCode(t, kerr.NotLeaderForPartition, got[0].ErrorCode)
	require.Zero(t, got[1].ErrorCode)
	require.Zero(t, got[1].BaseOffset)
}

// The topic of the groups' offsets is the coordinators' own: clients read it, and
// neither make it, write it nor delete from it; and retention leaves it alone.
func TestOffsetsTopicIsTheCoordinators(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.retentionBytes, c.maxLogSum = 500, 1000 })
	_, err := s.cluster.controller.create(offsetsTopic, topicShape{partitions: 7, replication: -1}, false)
	require.Equal(t, kerr.InvalidTopicException, err)
	require.Nil(t, s.cluster.controller.createOffsetsTopic())
	require.Nil(t, s.cluster.controller.createOffsetsTopic(), "again")
	s.catchUp(t.Context())
	topic := s.image().byName[offsetsTopic]
	require.Len(t, topic.partitions, int(s.cfg.offsetsPartitions))

	c := dial(t, s)
	requireCode(t, kerr.InvalidTopicException, c.produce(topic, 0, batchOf([]string{"forged"})).ErrorCode)
	del := c.call(deleteRecordsRequest(topic, 0, -1, patience)).(*kmsg.DeleteRecordsResponse)
	requireCode(t, kerr.PolicyViolation, del.Topics[0].Partitions[0].ErrorCode)
	drop := kmsg.NewPtrDeleteTopicsRequest()
	drop.Version, drop.TopicNames = 5, []string{offsetsTopic}
	requireCode(t, kerr.PolicyViolation, c.call(drop).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)

	p := replica(s, topic, 0)
	for range 20 {
		s.replicate(p, 0, newBatch(time.Now(), []keyValue{{[]byte("key"), make([]byte, 100)}}), patience, func(_ int64, err *kerr.Error) { require.Nil(t, err) })
	}
	s.partitions.limitSum(s.cfg.maxLogSum)
	require.Zero(t, p.log.start)
	require.Len(t, p.log.batches, 20)
}

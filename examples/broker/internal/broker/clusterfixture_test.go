package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Cluster tests run three brokers, and cut, freeze and kill them.

// shortReplicaLag makes leaders remove lagging followers soon, and the controller fence no broker.
func shortReplicaLag(c *Config) { longReplicaLag(c); c.ReplicaLag = 300 * time.Millisecond }

// longReplicaLag disables the detection of lagging and dead brokers, so that a busy machine that
// stalls for seconds causes no failure.
func longReplicaLag(c *Config) { c.ReplicaLag, c.Meta.BrokerSession = time.Hour, time.Hour }

// returning has a shorter lag: a broker that the test has fenced notices and registers again within
// a second, and is back in sync two seconds later.
func returning(c *Config) { c.ReplicaLag, c.Meta.BrokerSession = 8*time.Second, 8*time.Second }

// startTopic creates a topic with one partition, and waits until the cluster is whole.
func startTopic(t *testing.T, c *Cluster, shape meta.TopicSpec) *meta.Topic {
	t.Helper()
	shape.Partitions, shape.Replication = 1, -1
	made, err := c.Controller.Create("t", shape, false)
	require.Nil(t, err)
	whole(t, c)
	return made
}

// leader returns the leader of a topic's only partition, according to the controller.
func leader(c *Cluster, topic *meta.Topic) *Node {
	_, a := c.Controller.Image().Assignment(meta.PartitionKey{Topic: topic.ID, Index: 0})
	return c.Nodes[a.Leader]
}

func isr(c *Cluster, topic *meta.Topic) []int32 {
	_, a := c.Controller.Image().Assignment(meta.PartitionKey{Topic: topic.ID, Index: 0})
	return a.ISR
}

// isolate cuts a broker off from the other brokers, but not from clients and the controller.
func isolate(c *Cluster, n *Node) {
	for _, other := range c.Nodes {
		if other != n {
			c.Links.Cut(n.ID, other.ID)
		}
	}
}

func rejoin(c *Cluster, n *Node) {
	for _, other := range c.Nodes {
		if other != n {
			c.Links.Heal(n.ID, other.ID)
		}
	}
}

func fenced(c *Cluster, n *Node) {
	c.Controller.Fence(n.ID, meta.Incarnation(n.Server().registered.Load()), "the test says so")
}

// kill ends a broker and fences it at once. Without that, the controller would fence it when the
// broker's session expires.
func kill(c *Cluster, n *Node) error {
	registered := meta.Incarnation(n.Server().registered.Load())
	err := n.Kill()
	c.Controller.Fence(n.ID, registered, "the test has killed it")
	return err
}

// requireSame waits until all replicas hold the same batches, and returns them.
func requireSame(t *testing.T, c *Cluster, topic *meta.Topic) [][]byte {
	t.Helper()
	var all [][][]byte
	require.Eventually(t, func() bool {
		all = nil
		for _, s := range c.running() {
			p := replicaOf(s, topic, 0)
			require.NoError(t, p.Verify())
			batches, end := p.Records(0)
			if p.Offsets().Committed != end || len(all) > 0 && !slices.EqualFunc(all[0], batches, slices.Equal) {
				return false
			}
			all = append(all, batches)
		}
		return true
	}, kafkatest.WaitLimit, 5*time.Millisecond, "replicas differ")
	return all[0]
}

func values(t *testing.T, batches [][]byte) (values []string) {
	for _, raw := range batches {
		log.EachRecord(raw, func(_ int64, _, value []byte) { values = append(values, string(value)) })
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

// parkedFor waits until n client requests have been read and are unanswered. Followers' fetches do
// not count.
func parkedFor(t *testing.T, s *Server, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Queued() == n }, kafkatest.WaitLimit, time.Millisecond)
}

func fetchAll(c *kafkatest.Conn, topic *meta.Topic) [][]byte {
	got := kafkatest.PartitionsOf(c.Call(kafkatest.Fetch(12, topic, 0, 0, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))))[0]
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
		n := 12 + int(b.Length) // Length counts the bytes after it
		batches, raw = append(batches, raw[:n]), raw[n:]
	}
	return batches
}

func want0() kafkatest.Want { return kafkatest.At(0, 0, kafkatest.Plenty) }

package broker

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/internal/network"
)

// inVirtualTime runs a test in virtual time; its brokers must be inMemory. It does not work with a
// kgo client, which holds mutexes while it waits for the network.
func inVirtualTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func inMemory(c *Config) { c.Network = new(network.Memory) }

// startBroker runs one broker for one test: see startBrokers.
func startBroker(t *testing.T, change ...func(*Config)) *Server {
	t.Helper()
	return startBrokers(t, 1, change...).Nodes[0].Server()
}

// startBrokers runs a cluster for one test, and checks at its end that the cluster leaves no parked
// request, no panic and no goroutine. Goroutines carry a label with the test's name, so that
// concurrent tests can each count their own.
func startBrokers(t *testing.T, n int, change ...func(*Config)) *Cluster {
	t.Helper()
	labels := pprof.WithLabels(context.Background(), pprof.Labels("test", t.Name()))
	pprof.SetGoroutineLabels(labels)
	c := runBrokers(t, n, nil, change...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kafkatest.WaitLimit)
		defer cancel()
		require.NoError(t, c.Shutdown(ctx))
		for _, n := range c.Nodes {
			for _, s := range n.History() {
				requireEmpty(t, s)
			}
		}
		pprof.SetGoroutineLabels(context.Background())
		require.Eventually(t, func() bool { return labelled(t.Name()) == 0 }, kafkatest.WaitLimit, time.Millisecond,
			"goroutines left of this test")
	})
	return c
}

// runBrokers starts brokers on loopback, or a single one on l.
func runBrokers(t testing.TB, n int, l net.Listener, change ...func(*Config)) *Cluster {
	t.Helper()
	cfg := Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	cfg.Wire.LingerClose = 10 * time.Millisecond
	cfg.Meta.Replication, cfg.Meta.MinISR = int16(min(n, 3)), int32(min(n, 2))
	for _, f := range change {
		f(&cfg)
	}
	cfg, err := cfg.WithDefaults()
	require.NoError(t, err)
	listeners := []net.Listener{l}
	if l == nil {
		listeners = nil
		for range n {
			l, err := cfg.Network.Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			listeners = append(listeners, l)
		}
	}
	c, err := StartCluster(cfg, listeners)
	require.NoError(t, err)
	return c
}

func (c *Cluster) running() (list []*Server) {
	for _, n := range c.Nodes {
		if s := n.Server(); s != nil {
			list = append(list, s)
		}
	}
	return list
}

// whole waits until Cluster.Healthy reports true.
func whole(t *testing.T, c *Cluster) {
	t.Helper()
	require.Eventually(t, c.Healthy, kafkatest.WaitLimit, 5*time.Millisecond, "the cluster does not become whole")
}

func requireEmpty(t testing.TB, s *Server) {
	require.Zero(t, s.metrics.Panics.Load()+s.wire.Metrics.Panics.Load(), "panics")
	require.Zero(t, s.metrics.LostCommitted.Load(), "committed records cut off")
	for _, st := range s.purgatoryStats() {
		require.Zero(t, st.Pending+st.Watched+st.Keys, "left in a purgatory")
	}
	require.Zero(t, s.wire.Usage().Outbound, "outbound bytes not given back")
	require.Zero(t, s.wire.Usage().Queued, "queued bytes not given back")
}

func shutdown(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kafkatest.WaitLimit)
	defer cancel()
	require.NoError(t, s.Shutdown(ctx))
}

// labelled counts the goroutines of a test.
func labelled(name string) int {
	var out bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&out, 1); err != nil {
		return -1
	}
	return strings.Count(out.String(), `"test":"`+name+`"`)
}

// client returns a kgo client that is closed at the end of the test.
func client(t *testing.T, s *Server, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.Addr())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// makeTopic creates a topic at the controller, and waits until the broker knows it.
func makeTopic(t testing.TB, s *Server, name string, partitions int32) *meta.Topic {
	t.Helper()
	made, err := s.Controller.Create(name, meta.TopicSpec{Partitions: partitions, Replication: -1}, false)
	require.Nil(t, err)
	require.Eventually(t, func() bool { return s.image().ByID[made.ID] != nil }, kafkatest.WaitLimit, time.Millisecond)
	return made
}

// replicaOf returns a broker's replica of a partition.
func replicaOf(s *Server, topic *meta.Topic, index int32) *replica.Partition {
	return s.local(meta.PartitionKey{Topic: topic.ID, Index: index})
}

func dial(t *testing.T, s *Server) *kafkatest.Conn {
	return kafkatest.DialOn(t, s.cfg.Network, s.Addr())
}

// produceTo sends a batch and returns the partition's answer.
func produceTo(c *kafkatest.Conn, topic *meta.Topic, partition int32, batch []byte) kmsg.ProduceResponseTopicPartition {
	resp := c.Call(kafkatest.Produce(9, topic, partition, batch)).(*kmsg.ProduceResponse)
	return resp.Topics[0].Partitions[0]
}

// parked waits until n fetches are parked.
func parked(t *testing.T, s *Server, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.fetches.Len() == n }, kafkatest.WaitLimit, time.Millisecond,
		"parked fetches")
}

package broker

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/purgatory"
)

// parkMany parks n fetches on a partition, with the maximum in flight on each connection.
func parkMany(t testing.TB, s *Server, req *kmsg.FetchRequest, n int) (conns []*kafkatest.Conn) {
	t.Helper()
	perConn := s.cfg.Wire.MaxInFlight
	for left := n; left > 0; left -= perConn {
		c := kafkatest.Dial(t, s.Addr())
		conns = append(conns, c)
		for range min(left, perConn) {
			c.Send(req)
		}
	}
	require.Eventually(t, func() bool { return s.fetches.Len() == n }, 5*kafkatest.WaitLimit, time.Millisecond)
	return conns
}

// held is an operation that blocks the goroutine that completes it.
type held struct{ until chan struct{} }

func (h held) TryComplete() bool                 { return false }
func (h held) Complete(purgatory.Outcome, error) { <-h.until }

// A record is acknowledged while the many fetches that waited for it are still being completed. A
// few fetches are completed before the acknowledgement.
func TestParkedFetchesDelayNoProducer(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	key := watchKey{meta.PartitionKey{Topic: topic.ID}, highWatermark}
	checked := make(chan struct{})
	h := held{make(chan struct{})}
	release := sync.OnceFunc(func() { close(h.until) })
	t.Cleanup(release)
	for i := range maxInline + 1 {
		op := purgatory.Operation(h)
		if i == 0 {
			op = heldReady{h, checked, new(atomic.Int32)}
		}
		_, err := s.fetches.TryCompleteElseWatch(t.Context(), op, purgatory.NoTimeout, key)
		require.NoError(t, err)
	}
	require.Zero(t, produceTo(dial(t, s), topic, 0, kafkatest.Batch([]string{"x"})).ErrorCode)
	<-checked // a worker is blocked in the first operation
	require.Zero(t, produceTo(dial(t, s), topic, 0, kafkatest.Batch([]string{"y"})).ErrorCode)
	release()
	require.Equal(t, maxInline, s.fetches.CancelForKey(key, nil))
}

// heldReady completes at its third check, the first one after it was watched.
type heldReady struct {
	held
	checked chan struct{}
	checks  *atomic.Int32
}

func (h heldReady) TryComplete() bool { return h.checks.Add(1) == 3 }

func (h heldReady) Complete(o purgatory.Outcome, err error) {
	close(h.checked)
	h.held.Complete(o, err)
}

// waitEmpty waits until no fetch is parked.
func waitEmpty(b *testing.B, s *Server) {
	b.Helper()
	require.Eventually(b, func() bool { return s.fetches.Len() == 0 }, 5*kafkatest.WaitLimit, 100*time.Microsecond)
}

// BenchmarkParkedFetches produces a record to a partition with many parked fetches. It measures the
// time until the record is acknowledged, and until all fetches have been completed.
func BenchmarkParkedFetches(b *testing.B) {
	const parked = 100_000
	var acked, done time.Duration
	for b.Loop() {
		b.StopTimer()
		c := runBrokers(b, 1, nil, func(c *Config) { c.Wire.MaxConnections, c.MaxParked = 1<<14, parked })
		s := c.Nodes[0].Server()
		topic := makeTopic(b, s, "t", 1)
		parkMany(b, s, kafkatest.Fetch(12, topic, time.Hour, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty)), parked)
		producer := kafkatest.Dial(b, s.Addr())
		batch := kafkatest.Batch([]string{"x"})
		b.StartTimer()
		begun := time.Now()
		require.Zero(b, produceTo(producer, topic, 0, batch).ErrorCode)
		acked += time.Since(begun)
		waitEmpty(b, s)
		done += time.Since(begun)
		b.StopTimer()
		require.NoError(b, c.Shutdown(b.Context()))
		b.StartTimer()
	}
	b.ReportMetric(float64(acked.Microseconds())/1000/float64(b.N), "acked-ms")
	b.ReportMetric(float64(done.Microseconds())/1000/float64(b.N), "completed-ms")
}

// BenchmarkHangUp disconnects the clients of many parked fetches. It measures the time until the
// last fetch has left the purgatory.
func BenchmarkHangUp(b *testing.B) {
	const parked = 100_000
	var removed time.Duration
	for b.Loop() {
		b.StopTimer()
		c := runBrokers(b, 1, nil, func(c *Config) { c.Wire.MaxConnections, c.MaxParked = 1<<14, parked })
		s := c.Nodes[0].Server()
		topic := makeTopic(b, s, "t", 1)
		conns := parkMany(b, s, kafkatest.Fetch(12, topic, time.Hour, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty)), parked)
		b.StartTimer()
		begun := time.Now()
		for _, conn := range conns {
			require.NoError(b, conn.NC.Close())
		}
		waitEmpty(b, s)
		removed += time.Since(begun)
		b.StopTimer()
		require.NoError(b, c.Shutdown(b.Context()))
		b.StartTimer()
	}
	b.ReportMetric(float64(removed.Microseconds())/1000/float64(b.N), "removed-ms")
}

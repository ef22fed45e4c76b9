package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience bounds every wait of these tests. Nothing waits that long unless
// something is broken.
const patience = 20 * time.Second

func testConfig() config {
	cfg := defaultConfig()
	cfg.logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	return cfg
}

// startBroker runs a cluster of one broker for one test: see startBrokers.
func startBroker(t *testing.T, change ...func(*config)) *server {
	t.Helper()
	return startBrokers(t, 1, change...).nodes[0].server()
}

// startBrokers runs a cluster for one test and checks at its end that nothing is
// left of it: no parked request, no panic, no goroutine. Goroutines carry a label
// with the test's name, so that tests can run at once and still count their own.
func startBrokers(t *testing.T, n int, change ...func(*config)) *cluster {
	t.Helper()
	labels := pprof.WithLabels(context.Background(), pprof.Labels("test", t.Name()))
	pprof.SetGoroutineLabels(labels)
	cfg := testConfig()
	cfg.brokers, cfg.replication, cfg.minISR = n, int16(min(n, 3)), int32(min(n, 2))
	for _, f := range change {
		f(&cfg)
	}
	c, err := newCluster(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, c.Shutdown(ctx))
		for _, s := range c.history() {
			requireNothingLeft(t, s)
		}
		pprof.SetGoroutineLabels(context.Background())
		require.Eventually(t, func() bool { return labelled(t.Name()) == 0 }, patience, time.Millisecond,
			"goroutines left of this test")
	})
	return c
}

func requireNothingLeft(t testing.TB, s *server) {
	require.Zero(t, s.metrics.panics.Load(), "panics")
	require.Zero(t, s.metrics.lostCommitted.Load(), "committed records cut off")
	for _, st := range s.held() {
		require.Zero(t, st.Delayed+st.Watched+st.Keys, "left in a purgatory")
	}
	require.Zero(t, s.outbound.Load(), "outbound bytes not given back")
	require.Zero(t, s.queuedSum.Load(), "queued bytes not given back")
}

func shutdown(t *testing.T, s *server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// client is a kgo client that ends with the test.
func client(t *testing.T, s *server, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.addr())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func ctxFor(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// makeTopic creates a topic by the controller, and waits until the broker has it.
func makeTopic(t *testing.T, s *server, name string, partitions int32) *topic {
	t.Helper()
	made, err := s.cluster.controller.create(name, topicShape{partitions: partitions, replication: -1}, false)
	require.Nil(t, err)
	require.Eventually(t, func() bool { return s.image().byID[made.id] != nil }, patience, time.Millisecond)
	return made
}

// replica is a broker's of a partition.
func replica(s *server, topic *topic, index int32) *partition {
	return s.local(partitionKey{topic.id, index})
}

// raw is a connection that speaks frames.
type raw struct {
	t           *testing.T
	nc          net.Conn
	br          *bufio.Reader
	correlation int32
}

func dial(t *testing.T, s *server) *raw { return dialAddr(t, s.addr()) }

func dialAddr(t *testing.T, addr string) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
	return &raw{t: t, nc: nc, br: bufio.NewReader(nc)}
}

var testFormatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))

func (c *raw) send(reqs ...kmsg.Request) {
	c.t.Helper()
	var out []byte
	for _, req := range reqs {
		c.correlation++
		out = append(out, testFormatter.AppendRequest(nil, req, c.correlation)...)
	}
	c.write(out)
}

func (c *raw) write(b []byte) {
	c.t.Helper()
	_, err := c.nc.Write(b)
	require.NoError(c.t, err)
}

// frame reads one answer.
func (c *raw) frame() (correlation int32, body []byte) {
	c.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(c.br, size[:])
	require.NoError(c.t, err)
	body = make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(c.br, body)
	require.NoError(c.t, err)
	return int32(binary.BigEndian.Uint32(body)), body[4:]
}

// receive reads the answer to req, and checks that kmsg finds nothing missing
// from it and nothing too much.
func (c *raw) receive(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	correlation, body := c.frame()
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		require.Zero(c.t, body[0], "tags of the header")
		body = body[1:]
	}
	require.NoError(c.t, resp.ReadFrom(body))
	require.Equal(c.t, body, resp.AppendTo(nil), "answer is not what kmsg makes of it")
	c.t.Logf("%s %d: correlation %d", kmsg.NameForKey(req.Key()), req.GetVersion(), correlation)
	return resp
}

func (c *raw) call(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.send(req)
	return c.receive(req)
}

// closed waits for the broker to close the connection, without an answer.
func (c *raw) closed() {
	c.t.Helper()
	n, err := io.Copy(io.Discard, c.br)
	require.Zero(c.t, n, "an answer")
	if err != nil { // reset, when there were bytes that the broker did not read
		require.ErrorIs(c.t, err, syscall.ECONNRESET)
	}
}

// batchOf makes a record batch; change may break it before the checksum is made.
func batchOf(values []string, change ...func(*kmsg.RecordBatch)) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1,
		Magic:                2,
		LastOffsetDelta:      int32(len(values) - 1),
		ProducerID:           -1,
		ProducerEpoch:        -1,
		FirstSequence:        -1,
		NumRecords:           int32(len(values)),
		FirstTimestamp:       1000,
		MaxTimestamp:         1000 + int64(len(values)-1),
	}
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), TimestampDelta64: int64(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // the length itself encoded as 0 is one byte
		b.Records = r.AppendTo(b.Records)
	}
	for _, f := range change {
		f(&b)
	}
	b.Length = int32(49 + len(b.Records))
	return sealed(b.AppendTo(nil))
}

// sealed writes the checksum a batch should have.
func sealed(raw []byte) []byte {
	if len(raw) >= crcEnd {
		binary.BigEndian.PutUint32(raw[crcEnd-4:], crc32.Checksum(raw[crcEnd:], castagnoli))
	}
	return raw
}

func produceRequest(version int16, topic *topic, partition int32, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 1000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic.name, topic.id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// produce sends a batch and returns the partition's answer.
func (c *raw) produce(topic *topic, partition int32, batch []byte) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	resp := c.call(produceRequest(9, topic, partition, batch)).(*kmsg.ProduceResponse)
	return resp.Topics[0].Partitions[0]
}

// want is one partition of a fetch.
type want struct {
	partition int32
	offset    int64
	maxBytes  int32
}

func fetchRequest(version int16, topic *topic, wait time.Duration, minBytes, maxBytes int32, wants ...want) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait/time.Millisecond), minBytes, maxBytes
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic.name, topic.id
	for _, w := range wants {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = w.partition, w.offset, w.maxBytes
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func requireCode(t *testing.T, want *kerr.Error, got int16) {
	t.Helper()
	require.Equal(t, code(want), got, "%v", kerr.ErrorForCode(got))
}

// parked waits until n fetches are parked.
func parked(t *testing.T, s *server, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.fetches.Delayed() == n }, patience, time.Millisecond,
		"parked fetches")
}

// kept is how many bytes the log has.
func (p *partition) kept() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.kept
}

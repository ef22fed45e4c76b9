package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// frameOf frames anything.
func frameOf(parts ...any) []byte {
	var body []byte
	for _, p := range parts {
		switch p := p.(type) {
		case []byte:
			body = append(body, p...)
		case string:
			body = append(binary.BigEndian.AppendUint16(body, uint16(len(p))), p...)
		default:
			var err error
			body, err = binary.Append(body, binary.BigEndian, p)
			if err != nil {
				panic(err)
			}
		}
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

const (
	fetchKey    = int16(kmsg.Fetch)
	metadataKey = int16(kmsg.Metadata)
)

// hostileFrames end the connection, without an answer and without harm.
func hostileFrames() map[string][]byte {
	length := func(n int32) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), bytes.Repeat([]byte{0}, 64)...)
	}
	spin := []byte{0xff, 0xff, 0xff, 0xff, 0x0f} // a compact count of 2^32-1
	metadata12 := func(body ...any) []byte {
		return frameOf(append([]any{metadataKey, int16(12), int32(1), "c", byte(0)}, body...)...)
	}
	// A request of a group, of topics or of configurations, with a list that is
	// not what its count says.
	spun := func(key kmsg.Key, version int16, head ...any) []byte {
		parts := append([]any{int16(key), version, int32(1), "c", byte(0)}, head...)
		return frameOf(append(parts, spin)...)
	}
	filled := func(key kmsg.Key, version int16, head ...any) []byte {
		parts := append([]any{int16(key), version, int32(1), "c"}, head...)
		return frameOf(append(parts, int32(1<<17), make([]byte, 1<<17))...)
	}
	g := []byte{2, 'g'} // compact
	return map[string][]byte{
		"length 0":                   length(0),
		"length -1":                  length(-1),
		"length min":                 length(math.MinInt32),
		"length max":                 length(math.MaxInt32),
		"length 7":                   length(7),
		"produce beyond its limit":   append(binary.BigEndian.AppendUint32(nil, 16<<20+1), make([]byte, 64)...),
		"fetch beyond its limit":     append(binary.BigEndian.AppendUint32(nil, 1<<20), append([]byte{0, 1}, make([]byte, 64)...)...),
		"http":                       []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"tls":                        append([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03}, make([]byte, 100)...),
		"unknown key":                frameOf(int16(999), int16(0), int32(1), "c"),
		"negative key":               frameOf(int16(-1), int16(0), int32(1), "c"),
		"a broker's key":             frameOf(int16(4), int16(0), int32(1), "c"),
		"version too new":            frameOf(fetchKey, int16(99), int32(1), "c"),
		"version too old":            frameOf(fetchKey, int16(3), int32(1), "c"),
		"negative version":           frameOf(fetchKey, int16(-1), int32(1), "c"),
		"header only":                frameOf(fetchKey, int16(12), int32(1)),
		"client id beyond the frame": frameOf(fetchKey, int16(12), int32(1), int16(1000)),
		"client id of length -2":     frameOf(fetchKey, int16(12), int32(1), int16(-2), byte(0)),
		"no body":                    frameOf(fetchKey, int16(12), int32(1), "c", byte(0)),
		"bytes after the body":       metadata12(byte(0), byte(0), byte(0), byte(0), []byte("more")),
		"header tags spin":           frameOf(metadataKey, int16(12), int32(1), "c", spin),
		"tags spin":                  metadata12(byte(0), byte(0), byte(0), spin),
		"array spin":                 metadata12(spin, byte(0)),
		"array of all bytes":         metadata12([]byte{0xff, 0x7f}, make([]byte, 1<<14)),
		"broker's tags":              metadata12(byte(0), byte(0), byte(0), byte(1), byte(1), byte(5), make([]byte, 5)),
		"plain array beyond":         frameOf(metadataKey, int16(4), int32(1), "c", int32(math.MaxInt32), byte(0)),
		"array length -2":            frameOf(int16(kmsg.DeleteTopics), int16(1), int32(1), "c", int32(-2), int32(-2)),
		"null where none may be":     frameOf(int16(kmsg.DeleteTopics), int16(1), int32(1), "c", int32(1), int16(-1), int32(0)),
		"produce, topics of all bytes": frameOf(int16(kmsg.Produce), int16(3), int32(1), "c", int16(-1), int16(1), int32(0),
			int32(8<<20), make([]byte, 8<<20)),

		"join, protocols spin":              spun(kmsg.JoinGroup, 6, g, int32(9000), int32(9000), byte(1), byte(0), byte(1)),
		"join, protocols of all bytes":      filled(kmsg.JoinGroup, 4, "g", int32(9000), int32(9000), "", "consumer"),
		"join, metadata beyond":             frameOf(int16(kmsg.JoinGroup), int16(0), int32(1), "c", "g", int32(9000), "", "consumer", int32(1), "range", int32(math.MaxInt32)),
		"join, metadata of length -2":       frameOf(int16(kmsg.JoinGroup), int16(0), int32(1), "c", "g", int32(9000), "", "consumer", int32(1), "range", int32(-2)),
		"sync, assignments spin":            spun(kmsg.SyncGroup, 4, g, int32(1), byte(1), byte(0)),
		"sync, assignments of all bytes":    filled(kmsg.SyncGroup, 0, "g", int32(1), "m"),
		"sync, an assignment's tags spin":   spun(kmsg.SyncGroup, 4, g, int32(1), byte(1), byte(0), byte(2), byte(1), byte(1)),
		"heartbeat, bytes after":            frameOf(int16(kmsg.Heartbeat), int16(0), int32(1), "c", "g", int32(1), "m", byte(0)),
		"heartbeat, a null group":           frameOf(int16(kmsg.Heartbeat), int16(0), int32(1), "c", int16(-1), int32(1), "m"),
		"leave, members spin":               spun(kmsg.LeaveGroup, 4, g),
		"leave, members of all bytes":       filled(kmsg.LeaveGroup, 3, "g"),
		"commit, topics spin":               spun(kmsg.OffsetCommit, 8, g, int32(1), byte(1), byte(0)),
		"commit, topics of all bytes":       filled(kmsg.OffsetCommit, 2, "g", int32(1), "m", int64(-1)),
		"commit, partitions of all bytes":   filled(kmsg.OffsetCommit, 2, "g", int32(1), "m", int64(-1), int32(1), "t"),
		"offset fetch, groups spin":         spun(kmsg.OffsetFetch, 8),
		"offset fetch, partitions spin":     spun(kmsg.OffsetFetch, 8, byte(2), g, byte(2), byte(2), byte('t')),
		"offset fetch, topics of all bytes": filled(kmsg.OffsetFetch, 5, "g"),
		"describe groups of all bytes":      filled(kmsg.DescribeGroups, 0),
		"describe groups spin":              spun(kmsg.DescribeGroups, 5),
		"list groups, states spin":          spun(kmsg.ListGroups, 4),
		"list groups, types spin":           spun(kmsg.ListGroups, 5, byte(1)),
		"delete groups of all bytes":        filled(kmsg.DeleteGroups, 0),
		"delete records, topics":            filled(kmsg.DeleteRecords, 0),
		"delete records, partitions spin":   spun(kmsg.DeleteRecords, 2, byte(2), byte(2), byte('t')),
		"epochs, topics of all bytes":       filled(kmsg.OffsetForLeaderEpoch, 3, int32(-1)),
		"epochs, partitions spin":           spun(kmsg.OffsetForLeaderEpoch, 4, int32(-1), byte(2), byte(2), byte('t')),
		"configs, resources of all bytes":   filled(kmsg.DescribeConfigs, 0),
		"configs, names of all bytes":       filled(kmsg.DescribeConfigs, 0, int32(1), byte(2), "t"),
		"reassignments, replicas spin":      spun(kmsg.AlterPartitionAssignments, 0, int32(1), byte(2), byte(2), byte('t'), byte(2), int32(0)),
	}
}

func TestHostileFramesCloseTheConnection(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	bystander := dial(t, s)
	for name, frame := range hostileFrames() {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			c.t = t
			_, _ = c.nc.Write(frame) // may meet the closed connection already
			_ = c.nc.(*net.TCPConn).CloseWrite()
			c.closed()
		})
	}
	bystander.call(kmsg.NewPtrApiVersionsRequest())
}

// None of these frames may cost memory out of proportion to its bytes, nor reach
// kmsg, which spins on some of them.
func TestHostileFramesAreCheap(t *testing.T) {
	cfg := testConfig()
	for name, frame := range hostileFrames() {
		if len(frame) < 12 || int32(binary.BigEndian.Uint32(frame)) != int32(len(frame)-4) {
			continue
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeRequest(frame[4:], cfg.maxArrays)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
		if strings.Contains(name, "null") {
			continue // kmsg refuses these
		}
		require.True(t, slices.ContainsFunc([]error{
			errShortFrame, errUnknownKey, errVersion, errTruncated, errTrailing, errTooMany, errBrokerTag,
		}, func(refusal error) bool { return errors.Is(err, refusal) }), "%s: %v", name, err)
	}
}

// An unfinished frame ends with its time, whether its bytes stop or trickle.
func TestSlowFramesAreCutOff(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.frameTimeout = 200 * time.Millisecond })
	frame := testFormatter.AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 1)
	large := append(binary.BigEndian.AppendUint32(nil, 8<<20), make([]byte, 100)...)
	for name, send := range map[string]func(nc net.Conn){
		"half a length": func(nc net.Conn) { _, _ = nc.Write(frame[:2]) },
		"half a header": func(nc net.Conn) { _, _ = nc.Write(frame[:8]) },
		"half a body":   func(nc net.Conn) { _, _ = nc.Write(frame[:len(frame)-1]) },
		"a large body":  func(nc net.Conn) { _, _ = nc.Write(large) },
		"a trickle": func(nc net.Conn) {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for _, b := range large {
				if _, err := nc.Write([]byte{b}); err != nil {
					return
				}
				<-pace.C
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			c := dial(t, s)
			c.t = t
			var wg sync.WaitGroup
			wg.Go(func() { send(c.nc) })
			c.closed()
			require.GreaterOrEqual(t, time.Since(begun), s.cfg.frameTimeout)
			_ = c.nc.Close()
			wg.Wait()
		})
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.idleTimeout = 50 * time.Millisecond })
	topic := makeTopic(t, s, "t", 1)
	waiting, idle := dial(t, s), dial(t, s)
	fetch := fetchRequest(12, topic, 500*time.Millisecond, 1, plenty, want{0, 0, plenty})
	waiting.send(fetch)
	idle.closed()
	waiting.receive(fetch) // waiting for an answer is not idling
	waiting.closed()
}

// To a client that has heard nothing yet, the end of a broker must not look like
// an answer: kgo fails its records for an end of the stream that comes first.
func TestWhoWasNeverAnsweredIsReset(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		of       func(*server) error
		answered error // what one that was answered reads
	}{
		"stopped": {func(s *server) error { return s.Shutdown(context.Background()) }, io.EOF},
		"killed":  {(*server).kill, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBroker(t)
			silent, answered := dial(t, s), dial(t, s)
			answered.call(kmsg.NewPtrApiVersionsRequest())
			asks := dial(t, s)
			asks.write([]byte{0, 0, 0, 99, 0}) // and has not come to the end
			require.Eventually(t, func() bool { return s.metrics.connections.Load() == 3 }, patience, time.Millisecond)
			require.NoError(t, end.of(s))
			for _, c := range []*raw{silent, asks} {
				_, err := c.br.ReadByte()
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
			_, err := answered.br.ReadByte()
			require.ErrorIs(t, err, end.answered)
		})
	}
}

// A client that never reads is cut off, and its fetches with it.
func TestSlowReadersAreCutOff(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.writeTimeout = 200 * time.Millisecond })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	c.produce(topic, 0, batchOf([]string{strings.Repeat("x", 4<<20)}))
	fetch := fetchRequest(12, topic, forEver, 1, 8<<20, want{0, 0, 8 << 20})
	for range 16 {
		c.send(fetch)
	}
	c.send(fetchRequest(12, topic, forEver, 1, plenty, want{0, 1, plenty}))
	require.Eventually(t, func() bool { return s.metrics.answers.Load() >= 1 }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.open) == 0
	}, patience, time.Millisecond)
	require.Zero(t, s.outbound.Load())
	parked(t, s, 0)
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxConnections = 2 })
	a, b, c := dial(t, s), dial(t, s), dial(t, s)
	versions := kmsg.NewPtrApiVersionsRequest()
	a.call(versions)
	b.call(versions)
	c.send(versions)
	require.Equal(t, uint64(2), s.metrics.connections.Load(), "the third is not accepted")
	require.NoError(t, a.nc.Close())
	c.receive(versions)
}

// A flood of large requests that nobody reads the answers of is shed; what was
// queued is given back with the connections.
func TestQueuedBytesAreBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxQueuedSum = 1 << 20 })
	topic := makeTopic(t, s, "t", 1)
	large := fetchRequest(12, topic, forEver, 1, plenty)
	for range 5000 {
		large.Topics[0].Partitions = append(large.Topics[0].Partitions, fetchRequest(12, topic, 0, 0, 0, want{}).Topics[0].Partitions...)
	}
	flood := make([]*raw, 20)
	for i := range flood {
		flood[i] = dial(t, s)
		flood[i].send(large)
	}
	require.Eventually(t, func() bool { return s.metrics.refused.Load() > 0 }, patience, time.Millisecond)
	require.LessOrEqual(t, s.queuedSum.Load(), int64(1<<20))
	for _, c := range flood {
		require.NoError(t, c.nc.Close())
	}
	require.Eventually(t, func() bool { return s.queuedSum.Load() == 0 }, patience, time.Millisecond)
	dial(t, s).call(kmsg.NewPtrApiVersionsRequest())
}

func TestInboundBytesAreBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) {
		c.maxInboundSum, c.maxFrame, c.frameTimeout = 1<<20, 1<<20, 300*time.Millisecond
	})
	topic := makeTopic(t, s, "t", 1)
	// One client begins a frame of all the bytes there are, and stops.
	hog := dial(t, s)
	hog.write(append(binary.BigEndian.AppendUint32(nil, 1<<20), make([]byte, 100)...))
	require.Eventually(t, func() bool {
		if s.inbound.TryAcquire(1) {
			s.inbound.Release(1)
			return false
		}
		return true
	}, patience, time.Millisecond)
	small := dial(t, s)
	require.Zero(t, small.produce(topic, 0, batchOf([]string{"small frames need no room"})).ErrorCode)
	hog.closed()
	require.Zero(t, small.produce(topic, 0, batchOf([]string{strings.Repeat("x", 1<<19)})).ErrorCode)
}

func TestBrokenBatches(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxBatch = 10_000 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	good := func(change ...func(*kmsg.RecordBatch)) []byte { return batchOf([]string{"a", "b"}, change...) }
	patch := func(at int, b ...byte) []byte {
		raw := good()
		copy(raw[at:], b)
		return raw
	}
	for _, test := range []struct {
		name  string
		batch []byte
		code  *kerr.Error
	}{
		{"good", good(), nil},
		{"empty", []byte{}, kerr.CorruptMessage},
		{"null", nil, kerr.CorruptMessage},
		{"garbage", bytes.Repeat([]byte{0xaa}, 200), kerr.CorruptMessage},
		{"zeros", make([]byte, 100), kerr.UnsupportedForMessageFormat},
		{"cut in the header", good()[:40], kerr.CorruptMessage},
		{"cut in the records", good()[:70], kerr.CorruptMessage},
		{"a byte more", append(good(), 0), kerr.CorruptMessage},
		{"two batches", append(good(), good()...), kerr.CorruptMessage},
		{"message set 0", patch(16, 0), kerr.UnsupportedForMessageFormat},
		{"message set 1", patch(16, 1), kerr.UnsupportedForMessageFormat},
		{"magic 3", patch(16, 3), kerr.CorruptMessage},
		{"checksum", patch(17, 1, 2, 3, 4), kerr.CorruptMessage},
		{"a bit of the last record", patch(len(good())-2, 'c'), kerr.CorruptMessage},
		{"length 0", patch(8, 0, 0, 0, 0), kerr.CorruptMessage},
		{"length -1", patch(8, 0xff, 0xff, 0xff, 0xff), kerr.CorruptMessage},
		{"length max", patch(8, 0x7f, 0xff, 0xff, 0xff), kerr.CorruptMessage},
		{"no records", good(func(b *kmsg.RecordBatch) { b.NumRecords, b.LastOffsetDelta, b.Records = 0, -1, nil }), kerr.InvalidRecord},
		{"fewer than said", good(func(b *kmsg.RecordBatch) { b.NumRecords, b.LastOffsetDelta = 3, 2 }), kerr.InvalidRecord},
		{"more than said", good(func(b *kmsg.RecordBatch) { b.NumRecords, b.LastOffsetDelta = 1, 0 }), kerr.InvalidRecord},
		{"two billion records", good(func(b *kmsg.RecordBatch) { b.NumRecords, b.LastOffsetDelta = math.MaxInt32, math.MaxInt32-1 }), kerr.InvalidRecord},
		{"offset delta", good(func(b *kmsg.RecordBatch) { b.LastOffsetDelta = 5 }), kerr.InvalidRecord},
		{"control", good(func(b *kmsg.RecordBatch) { b.Attributes = controlBatch }), kerr.InvalidRecord},
		{"transactional", good(func(b *kmsg.RecordBatch) { b.Attributes = transactional }), kerr.InvalidTxnState},
		{"codec 5", good(func(b *kmsg.RecordBatch) { b.Attributes = 5 }), kerr.UnsupportedCompressionType},
		{"too large", batchOf([]string{strings.Repeat("x", 10_000)}), kerr.MessageTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.t = t
			got := c.produce(topic, 0, test.batch)
			requireCode(t, test.code, got.ErrorCode)
		})
	}
	c.t = t
	require.Equal(t, int64(2), replica(s, topic, 0).log.next)
	bad := produceRequest(9, topic, 0, good())
	bad.Acks = 2
	requireCode(t, kerr.InvalidRequiredAcks, c.call(bad).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	requireCode(t, kerr.UnknownTopicOrPartition, c.produce(topic, 1, good()).ErrorCode)
	requireCode(t, kerr.UnknownTopicOrPartition, c.produce(topic, -1, good()).ErrorCode)
}

// With acks 0 there is no answer to say that something is wrong.
func TestUnacknowledgedErrorsEndTheConnection(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	req := produceRequest(9, topic, 0, batchOf([]string{"x"}))
	req.Acks = 0
	c.send(req, req)
	c.call(kmsg.NewPtrApiVersionsRequest()) // the next answer is to the next request
	require.Equal(t, int64(2), replica(s, topic, 0).log.next)
	req.Topics[0].Partitions[0].Partition = 1
	c.send(req)
	c.closed()
}

// A panic in a handler ends its connection, is counted, and nothing else.
func TestPanicsAreContained(t *testing.T) {
	cfg := testConfig()
	cfg.brokers, cfg.replication, cfg.minISR = 1, 1, 1
	cl, err := newCluster(cfg)
	require.NoError(t, err)
	s := cl.nodes[0].server()
	topic := makeTopic(t, s, "t", 1)
	replica(s, topic, 0).topic = nil // a bug, for the handler to meet
	c, bystander := dial(t, s), dial(t, s)
	c.send(produceRequest(9, topic, 0, batchOf([]string{"x"})))
	c.closed()
	require.Equal(t, uint64(1), s.metrics.panics.Load())
	bystander.call(kmsg.NewPtrApiVersionsRequest())
	require.NoError(t, cl.Shutdown(ctxFor(t)))
}

func TestAnsweringTwicePanics(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	go func() { _, _ = io.Copy(io.Discard, b) }()
	cfg := testConfig()
	c := &conn{nc: a, wake: make(chan struct{}, 1), srv: &server{cfg: cfg}}
	r := c.enqueue(1, 10)
	r.now(kmsg.NewPtrApiVersionsResponse())
	require.PanicsWithValue(t, "broker: request answered twice", func() { r.now(kmsg.NewPtrApiVersionsResponse()) })
	r = c.enqueue(2, 10)
	r.drop()
	require.Panics(t, func() { r.drop() })
	require.Panics(t, func() { r.now(kmsg.NewPtrApiVersionsResponse()) })
}

func TestConfigIsChecked(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "10.1.2.3:9092", "example.com:9092", "nonsense"} {
		cfg := testConfig()
		cfg.addr = addr
		require.ErrorContains(t, cfg.validate(), addr)
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0"} {
		cfg := testConfig()
		cfg.addr = addr
		require.NoError(t, cfg.validate())
	}
	cfg := testConfig()
	cfg.addr, cfg.allowRemote = ":0", true
	require.NoError(t, cfg.validate())
	cfg = testConfig()
	cfg.maxBatch = 0
	require.ErrorContains(t, cfg.validate(), "max batch")
}

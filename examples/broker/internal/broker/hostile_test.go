package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
)

func TestHostileFramesCloseTheConnection(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	bystander := dial(t, s)
	for name, frame := range kafkatest.HostileFrames() {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			c.T = t
			_, _ = c.NC.Write(frame) // the broker may have closed the connection
			_ = c.NC.(*net.TCPConn).CloseWrite()
			c.Closed()
		})
	}
	bystander.Call(kmsg.NewPtrApiVersionsRequest())
}

// A produce request that exceeds the frame limit gets an error answer, and its connection stays
// open, if it does not exceed MaxDiscard and the client expects an answer.
func TestTooLargeProduceIsAnswered(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.MaxFrame, c.Wire.MaxDiscard = 1<<20, 3<<20 })
	topic := makeTopic(t, s, "t", 2)
	for version := int16(3); version <= 13; version++ {
		c := dial(t, s)
		req := kafkatest.Produce(version, topic, 0, make([]byte, 1<<20))
		more := kmsg.NewProduceRequestTopicPartition()
		more.Partition, more.Records = 1, make([]byte, 1<<20)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, more)
		resp := c.Call(req).(*kmsg.ProduceResponse)
		require.Len(t, resp.Topics[0].Partitions, 2)
		for i, sp := range resp.Topics[0].Partitions {
			require.EqualValues(t, i, sp.Partition)
			kafkatest.RequireCode(t, kerr.MessageTooLarge, sp.ErrorCode)
		}
		require.Zero(t, produceTo(c, topic, 0, kafkatest.Batch([]string{"x"})).ErrorCode)
	}
	require.Zero(t, s.wire.Usage().Inbound)
	for name, change := range map[string]func(*kmsg.ProduceRequest){
		"beyond the bound": func(q *kmsg.ProduceRequest) { q.Topics[0].Partitions[0].Records = make([]byte, 3<<20) },
		"acks 0":           func(q *kmsg.ProduceRequest) { q.Acks = 0 },
	} {
		c, req := dial(t, s), kafkatest.Produce(9, topic, 0, make([]byte, 1<<20))
		change(req)
		_, _ = c.NC.Write(kafkatest.Formatter.AppendRequest(nil, req, 1)) // the broker may close the connection during the write
		n, err := io.Copy(io.Discard, c.R)
		require.Zero(t, n, name)
		if err != nil {
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
	}
}

// An unfinished frame is cut off after the frame timeout, whether its bytes stop or trickle.
func TestSlowFramesAreCutOff(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.FrameTimeout = 200 * time.Millisecond })
	frame := kafkatest.Formatter.AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 1)
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
			c.T = t
			var wg sync.WaitGroup
			wg.Go(func() { send(c.NC) })
			c.Closed()
			require.GreaterOrEqual(t, time.Since(begun), s.cfg.Wire.FrameTimeout)
			_ = c.NC.Close()
			wg.Wait()
		})
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startBroker(t, inMemory, func(c *Config) { c.Wire.IdleTimeout = 2 * time.Second })
		topic := makeTopic(t, s, "t", 1)
		waiting, idle := dial(t, s), dial(t, s)
		fetch := kafkatest.Fetch(12, topic, 4*time.Second, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
		begun := time.Now()
		waiting.Send(fetch)
		idle.Closed()
		require.Equal(t, s.cfg.Wire.IdleTimeout, time.Since(begun))
		waiting.Receive(fetch) // waiting for an answer is not idling
		answered := time.Now()
		waiting.Closed()
		require.Equal(t, s.cfg.Wire.IdleTimeout, time.Since(answered))
	})
}

// For a client that has received no answer yet, the end of a broker must not look like one: kgo
// fails its records if it reads the end of the stream first.
func TestUnansweredConnectionIsReset(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		of       func(*Server) error
		answered error // read error of a client that had an answer
	}{
		"stopped": {func(s *Server) error { return s.Shutdown(context.Background()) }, io.EOF},
		"killed":  {(*Server).kill, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBroker(t)
			silent, answered := dial(t, s), dial(t, s)
			answered.Call(kmsg.NewPtrApiVersionsRequest())
			asks := dial(t, s)
			asks.Write([]byte{0, 0, 0, 99, 0}) // an unfinished frame
			require.Eventually(t, func() bool { return s.wire.Metrics.Connections.Load() == 3 }, kafkatest.WaitLimit, time.Millisecond)
			require.NoError(t, end.of(s))
			for _, c := range []*kafkatest.Conn{silent, asks} {
				_, err := c.R.ReadByte()
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
			_, err := answered.R.ReadByte()
			require.ErrorIs(t, err, end.answered)
		})
	}
}

// A client that never reads is disconnected, and its fetches are removed.
func TestSlowReadersAreCutOff(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startBroker(t, inMemory, func(c *Config) { c.Wire.WriteTimeout = 200 * time.Millisecond })
		topic := makeTopic(t, s, "t", 1)
		c := dial(t, s)
		produceTo(c, topic, 0, kafkatest.Batch([]string{strings.Repeat("x", 4<<20)}))
		fetch := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, 8<<20, kafkatest.At(0, 0, 8<<20))
		requests := slices.Repeat([]kmsg.Request{fetch}, 16)
		c.Send(append(requests, kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 1, kafkatest.Plenty)))...)
		require.Eventually(t, func() bool { return s.wire.Metrics.Answers.Load() >= 1 }, kafkatest.WaitLimit, time.Millisecond)
		require.Eventually(t, func() bool {
			return s.wire.Usage().Open == 0
		}, kafkatest.WaitLimit, time.Millisecond)
		require.Zero(t, s.wire.Usage().Outbound)
		parked(t, s, 0)
	})
}

// At the maximum number of connections, a new one replaces the connection that was idle for
// longest. A connection with a waiting request is not idle; while there are only such connections,
// new ones wait.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.MaxConnections = 2 })
	topic := makeTopic(t, s, "t", 1)
	versions := kmsg.NewPtrApiVersionsRequest()
	a, b := dial(t, s), dial(t, s)
	b.Call(versions)
	a.Call(versions)
	c := dial(t, s)
	c.Call(versions)
	b.Closed()
	waits := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	a.Send(waits)
	c.Send(waits)
	parked(t, s, 2)
	d := dial(t, s)
	d.Send(versions)
	require.Eventually(t, func() bool { return s.wire.Metrics.Connections.Load() == 4 }, kafkatest.WaitLimit, time.Millisecond)
	require.Equal(t, 2, s.wire.Usage().Open)
	require.NoError(t, a.NC.Close())
	d.Receive(versions)
}

// A host has a limit of its own. Beyond it, a new connection is closed if no connection of the host
// is idle.
func TestConnectionsOfAHostAreBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.MaxPerHost = 2 })
	topic := makeTopic(t, s, "t", 1)
	versions := kmsg.NewPtrApiVersionsRequest()
	a, b := dial(t, s), dial(t, s)
	a.Call(versions)
	b.Call(versions)
	c := dial(t, s)
	c.Call(versions)
	a.Closed()
	waits := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	b.Send(waits)
	c.Send(waits)
	parked(t, s, 2)
	dial(t, s).Closed()
	require.Equal(t, 2, s.wire.Usage().Open)
}

// A flood of connections that send nothing, or only the beginning of a frame, locks no client out.
func TestFloodOfConnections(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.MaxConnections = 32 })
	topic := makeTopic(t, s, "t", 1)
	var flood []*kafkatest.Conn
	for i := range 300 {
		silent := dial(t, s)
		if flood = append(flood, silent); i%2 == 0 {
			_, _ = silent.NC.Write([]byte{0, 0, 0})
		}
		if i%30 == 0 {
			require.Zero(t, produceTo(dial(t, s), topic, 0, kafkatest.Batch([]string{"x"})).ErrorCode)
		}
	}
	require.LessOrEqual(t, s.wire.Usage().Open, 32)
	require.NotEmpty(t, flood)
}

// The broker sheds a flood of large requests whose answers are not read. Queued bytes are released
// with the connections.
func TestQueuedBytesAreBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.MaxQueuedSum = 1 << 20 })
	topic := makeTopic(t, s, "t", 1)
	large := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty)
	for range 5000 {
		large.Topics[0].Partitions = append(large.Topics[0].Partitions, kafkatest.Fetch(12, topic, 0, 0, 0, kafkatest.At(0, 0, 0)).Topics[0].Partitions...)
	}
	flood := make([]*kafkatest.Conn, 20)
	for i := range flood {
		flood[i] = dial(t, s)
		flood[i].Send(large)
	}
	require.Eventually(t, func() bool { return s.wire.Metrics.Refused.Load() > 0 }, kafkatest.WaitLimit, time.Millisecond)
	require.LessOrEqual(t, s.wire.Usage().Queued, int64(1<<20))
	for _, c := range flood {
		require.NoError(t, c.NC.Close())
	}
	require.Eventually(t, func() bool { return s.wire.Usage().Queued == 0 }, kafkatest.WaitLimit, time.Millisecond)
	dial(t, s).Call(kmsg.NewPtrApiVersionsRequest())
}

func TestInboundBytesAreBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startBroker(t, inMemory, func(c *Config) {
			c.Wire.MaxInboundSum, c.Wire.MaxFrame, c.Wire.FrameTimeout = 1<<20, 1<<20, 3*time.Second
		})
		topic := makeTopic(t, s, "t", 1)
		// One client begins a frame that reserves all available bytes, and stops.
		hog := dial(t, s)
		hog.Write(append(binary.BigEndian.AppendUint32(nil, 1<<20), make([]byte, 100)...))
		require.Eventually(t, func() bool {
			return s.wire.Usage().Inbound == 1<<20
		}, kafkatest.WaitLimit, time.Millisecond)
		small := dial(t, s)
		require.Zero(t, produceTo(small, topic, 0, kafkatest.Batch([]string{"small frames need no room"})).ErrorCode)
		hog.Closed()
		require.Zero(t, produceTo(small, topic, 0, kafkatest.Batch([]string{strings.Repeat("x", 1<<19)})).ErrorCode)
	})
}

func TestBrokenBatches(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.MaxBatch = 10_000 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	good := func(change ...func(*kmsg.RecordBatch)) []byte { return kafkatest.Batch([]string{"a", "b"}, change...) }
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
		{"control", good(func(b *kmsg.RecordBatch) { b.Attributes = 0x20 }), kerr.InvalidRecord},
		{"transactional", good(func(b *kmsg.RecordBatch) { b.Attributes = 0x10 }), kerr.InvalidTxnState},
		{"codec 5", good(func(b *kmsg.RecordBatch) { b.Attributes = 5 }), kerr.UnsupportedCompressionType},
		{"too large", kafkatest.Batch([]string{strings.Repeat("x", 10_000)}), kerr.MessageTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.T = t
			got := produceTo(c, topic, 0, test.batch)
			kafkatest.RequireCode(t, test.code, got.ErrorCode)
		})
	}
	c.T = t
	require.Equal(t, int64(2), replicaOf(s, topic, 0).Offsets().End)
	bad := kafkatest.Produce(9, topic, 0, good())
	bad.Acks = 2
	kafkatest.RequireCode(t, kerr.InvalidRequiredAcks, c.Call(bad).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	kafkatest.RequireCode(t, kerr.UnknownTopicOrPartition, produceTo(c, topic, 1, good()).ErrorCode)
	kafkatest.RequireCode(t, kerr.UnknownTopicOrPartition, produceTo(c, topic, -1, good()).ErrorCode)
}

// With acks=0 no answer can report an error.
func TestUnacknowledgedErrorsEndTheConnection(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	req := kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"x"}))
	req.Acks = 0
	c.Send(req, req)
	c.Call(kmsg.NewPtrApiVersionsRequest()) // the next answer is to this request
	require.Equal(t, int64(2), replicaOf(s, topic, 0).Offsets().End)
	req.Topics[0].Partitions[0].Partition = 1
	c.Send(req)
	c.Closed()
}

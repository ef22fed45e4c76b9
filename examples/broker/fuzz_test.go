package main

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// silent is a listener that never accepts: the fuzz targets hand their own
// connections to the server.
type silent struct{ closed chan struct{} }

func (l silent) Accept() (net.Conn, error) { <-l.closed; return nil, net.ErrClosed }
func (l silent) Addr() net.Addr            { return &net.TCPAddr{} }
func (l silent) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// fuzzBroker is small in every way, so that limits are met.
func fuzzBroker(t testing.TB) *server {
	cfg := testConfig()
	cfg.logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	cfg.maxFrame, cfg.maxSmallFrame, cfg.maxArrays = 64<<10, 16<<10, 256
	cfg.maxInFlight, cfg.maxQueuedBytes = 8, 16<<10
	cfg.maxTopics, cfg.maxPartitions = 8, 32
	cfg.retentionBytes, cfg.maxLogSum, cfg.maxFetch = 8<<10, 32<<10, 8<<10
	cfg.maxProducers = 4
	cfg.maxParked, cfg.maxWatched = 16, 64
	cfg.groups.maxGroups, cfg.groups.maxMembers, cfg.groups.maxID = 8, 4, 64
	cfg.groups.maxMemberBytes, cfg.groups.maxOffsetBytes, cfg.groups.offsetsCompactBytes = 32<<10, 16<<10, 4<<10
	cfg.lingerClose = time.Millisecond
	// A pipe that is closed lives on until its last deadline has passed.
	cfg.idleTimeout, cfg.frameTimeout, cfg.writeTimeout = time.Second, time.Second, time.Second
	cfg.brokers, cfg.replication, cfg.minISR = 1, 1, 1
	c, err := startCluster(cfg, []net.Listener{silent{make(chan struct{})}})
	require.NoError(t, err)
	return c.nodes[0].server()
}

// feed sends bytes to a connection of s and hangs up, and waits until the
// broker is done with it.
func feed(s *server, data []byte) {
	ours, theirs := net.Pipe()
	c := newConn(s, theirs)
	s.conns.Add(1)
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer s.conns.Done()
		c.serve()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, ours)
	}()
	_, _ = ours.Write(data)
	_ = ours.Close()
	<-served
	<-read
}

// FuzzFrame sends any bytes over a connection: framing, decoding and every
// handler. Nothing may panic, stay parked, or grow beyond its bounds.
func FuzzFrame(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for key, api := range apis {
		for v := api.min; v <= api.max; v++ {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			fill(reflect.ValueOf(req).Elem(), rng)
			req.SetVersion(v)
			f.Add(testFormatter.AppendRequest(nil, req, 1))
		}
	}
	for _, frame := range hostileFrames() {
		if len(frame) < 1<<16 {
			f.Add(frame)
		}
	}
	s := fuzzBroker(f)
	known := &topic{name: "some-topic"}
	for v := int16(3); v <= 12; v += 3 {
		pipelined := testFormatter.AppendRequest(nil, fetchRequest(4+v, known, time.Hour, 1, plenty, want{0, 0, plenty}), 1)
		pipelined = append(pipelined, testFormatter.AppendRequest(nil, produceRequest(v, known, 0, batchOf([]string{"x"})), 2)...)
		pipelined = append(pipelined, testFormatter.AppendRequest(nil, listRequest(v-1, known, 0, 5), 3)...)
		f.Add(pipelined)
	}
	f.Cleanup(func() { fuzzDone(f, s) })
	f.Fuzz(func(t *testing.T, data []byte) { requireSurvives(t, s, data) })
}

// fuzzedKey, in the environment, is the number of the one request that
// FuzzRequest sends; without it, it sends them all.
const fuzzedKey = "BROKER_FUZZ_KEY"

// FuzzRequest sends requests whose frame and header are right, with any body: it
// gets further than FuzzFrame, which mostly breaks those.
func FuzzRequest(f *testing.F) {
	keys := slices.Sorted(maps.Keys(apis))
	if only := os.Getenv(fuzzedKey); only != "" {
		n, err := strconv.Atoi(only)
		require.NoError(f, err)
		require.Contains(f, apis, int16(n))
		keys = []int16{int16(n)}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for i, key := range keys {
		for v := apis[key].min; v <= apis[key].max; v++ {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			fill(reflect.ValueOf(req).Elem(), rng)
			req.SetVersion(v)
			f.Add(uint8(i), uint8(v-apis[key].min), req.AppendTo(nil))
		}
	}
	s := fuzzBroker(f)
	f.Cleanup(func() { fuzzDone(f, s) })
	f.Fuzz(func(t *testing.T, which, version uint8, body []byte) {
		key := keys[int(which)%len(keys)]
		api := apis[key]
		req := kmsg.RequestForKey(key)
		req.SetVersion(api.min + int16(version)%(api.max-api.min+1))
		frame := testFormatter.AppendRequest(nil, req, 1)
		frame = append(frame[:len(frame)-len(req.AppendTo(nil))], body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		requireSurvives(t, s, frame)
	})
}

// requireSurvives feeds a broker with data, and checks that nothing is left of it
// but what has a bound.
func requireSurvives(t *testing.T, s *server, data []byte) {
	if s.image().byName["some-topic"] == nil { // the last input may have deleted it
		_, _ = s.cluster.controller.create("some-topic", topicShape{partitions: 1, replication: -1}, false)
		s.catchUp(context.Background())
	}
	feed(s, data)
	require.Zero(t, s.metrics.panics.Load())
	require.LessOrEqual(t, s.partitions.kept.Load(), s.cfg.maxLogSum+int64(s.cfg.maxFrame))
	require.LessOrEqual(t, len(s.image().all()), s.cfg.maxTopics)
	require.LessOrEqual(t, s.groups.groups.Load(), int64(s.cfg.groups.maxGroups))
	require.LessOrEqual(t, s.groups.memberBytes.used.Load(), s.cfg.groups.maxMemberBytes)
	require.LessOrEqual(t, s.groups.offsetBytes.used.Load(), s.cfg.groups.maxOffsetBytes)
	require.Zero(t, s.outbound.Load())
	require.Zero(t, s.queuedSum.Load())
	// The context that frees a connection's requests has ended; they go at once, but
	// on their own goroutines.
	require.Eventually(t, func() bool {
		return s.fetches.Delayed()+s.produces.Delayed()+s.deletes.Delayed()+s.changes.Delayed() == 0
	}, patience, 100*time.Microsecond)
}

func fuzzDone(t testing.TB, s *server) {
	require.NoError(t, s.cluster.Shutdown(context.Background()))
	requireNothingLeft(t, s)
}

// FuzzProduceBatch puts any bytes where a record batch should be. What is
// accepted must come out again as it went in, at the next offsets.
func FuzzProduceBatch(f *testing.F) {
	f.Add(batchOf([]string{"a"}), true)
	f.Add(batchOf([]string{"a", "b", "c"}, from(5, 0, 0)), true)
	f.Add(batchOf([]string{"a"}, func(b *kmsg.RecordBatch) { b.Attributes = 2 }), true)
	f.Add(batchOf([]string{"a"})[:50], false)
	f.Add([]byte{}, false)
	cfg := testConfig()
	cfg.retentionBytes, cfg.maxProducers, cfg.maxBatch = 8<<10, 4, 32<<10
	p := newPartition(&cfg, partitionKey{}, 0, new(atomic.Int64), stored{})
	p.assign(&topic{name: "t", retention: cfg.retentionBytes, minISR: 1}, assignment{replicas: []int32{0}, isr: []int32{0}}, time.Now())
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal { // else hardly any input gets past the checksum
			data = append([]byte(nil), data...)
			if len(data) >= batchHeader {
				binary.BigEndian.PutUint32(data[8:], uint32(len(data)-lengthEnd))
				data[magicAt] = currentMagic
			}
			sealed(data)
		}
		before := append([]byte(nil), data...)
		b, kafkaErr := parseBatch(data, 9, cfg.maxBatch)
		if kafkaErr != nil {
			return
		}
		next := p.log.next
		done, kafkaErr := p.append(&cfg, data, &b, true)
		require.Equal(t, before, data, "the connection's buffer was written to")
		p.log.verify(t)
		require.LessOrEqual(t, len(p.producers), cfg.maxProducers)
		if kafkaErr != nil || !done.stored {
			require.Equal(t, next, p.log.next)
			return
		}
		require.Equal(t, next, done.base)
		got := p.read(done.base, 0, false, 0, true)
		require.Len(t, got.batches, 1)
		var out kmsg.RecordBatch
		require.NoError(t, out.ReadFrom(got.batches[0]))
		require.Equal(t, next, out.FirstOffset)
		require.Equal(t, before[crcEnd:], got.batches[0][crcEnd:])
		for _, ts := range []int64{0, b.FirstTimestamp, b.MaxTimestamp, maxTimestampOffset} {
			offset, _, _, kafkaErr := p.offsetFor(ts, -1)
			require.Nil(t, kafkaErr)
			if ts == latestOffset { // a batch may be stamped so, but to ask for it means another thing
				require.Equal(t, p.log.next, offset)
			} else if offset != -1 && (offset < p.log.start || offset >= p.log.next) {
				require.Fail(t, "an offset outside the log", "%d for %d", offset, ts)
			}
		}
	})
}

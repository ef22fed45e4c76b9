package broker

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// fuzzBroker has small limits, so that inputs reach them.
func fuzzBroker(t testing.TB) *Cluster {
	return runBrokers(t, 1, kafkatest.NewSilent(), func(cfg *Config) {
		cfg.Wire.MaxFrame, cfg.Wire.MaxSmallFrame, cfg.Wire.MaxArrays = 64<<10, 16<<10, 256
		cfg.Wire.MaxInFlight, cfg.Wire.MaxQueuedBytes = 8, 16<<10
		cfg.Meta.MaxTopics, cfg.Meta.MaxPartitions = 8, 32
		cfg.Meta.RetentionBytes, cfg.MaxLogSum, cfg.MaxFetch = 8<<10, 32<<10, 8<<10
		cfg.Replica.MaxProducers = 4
		cfg.MaxParked, cfg.MaxWatched = 16, 64
		cfg.Groups.MaxGroups, cfg.Groups.MaxMembers, cfg.Groups.MaxID = 8, 4, 64
		cfg.Groups.MaxMemberBytes, cfg.Groups.MaxOffsetBytes, cfg.Groups.OffsetsCompactBytes = 32<<10, 16<<10, 4<<10
		cfg.Wire.LingerClose = time.Millisecond
		// A closed pipe stays in memory until its last deadline has passed.
		cfg.Wire.IdleTimeout, cfg.Wire.FrameTimeout, cfg.Wire.WriteTimeout = time.Second, time.Second, time.Second
	})
}

// feed sends bytes on a connection to s, closes it, and waits until the broker has finished with
// it.
func feed(s *Server, data []byte) {
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.wire.ServeConn(theirs)
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

// FuzzFrame sends arbitrary bytes over a connection, to test framing, decoding and every handler.
// No input may cause a panic, leave a request parked, or exceed a limit.
func FuzzFrame(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, api := range wire.APIVersions() {
		for v := api.MinVersion; v <= api.MaxVersion; v++ {
			req := kmsg.RequestForKey(api.ApiKey)
			req.SetVersion(v)
			kafkatest.Randomize(reflect.ValueOf(req).Elem(), rng)
			req.SetVersion(v)
			f.Add(kafkatest.Formatter.AppendRequest(nil, req, 1))
		}
	}
	for _, frame := range kafkatest.HostileFrames() {
		if len(frame) < 1<<16 {
			f.Add(frame)
		}
	}
	cl := fuzzBroker(f)
	s := cl.Nodes[0].Server()
	known := &meta.Topic{Name: "some-topic"}
	for v := int16(3); v <= 12; v += 3 {
		pipelined := kafkatest.Formatter.AppendRequest(nil, kafkatest.Fetch(4+v, known, time.Hour, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty)), 1)
		pipelined = append(pipelined, kafkatest.Formatter.AppendRequest(nil, kafkatest.Produce(v, known, 0, kafkatest.Batch([]string{"x"})), 2)...)
		pipelined = append(pipelined, kafkatest.Formatter.AppendRequest(nil, listRequest(v-1, known, 0, 5), 3)...)
		f.Add(pipelined)
	}
	f.Cleanup(func() { fuzzDone(f, cl) })
	f.Fuzz(func(t *testing.T, data []byte) { requireSurvives(t, s, data) })
}

// fuzzedKey names an environment variable with the API key of the only request that FuzzRequest
// sends. If it is not set, FuzzRequest sends all of them.
const fuzzedKey = "BROKER_FUZZ_KEY"

// FuzzRequest sends requests with a valid frame and header, and an arbitrary body. It reaches more
// code than FuzzFrame, whose inputs mostly break the frame or header.
func FuzzRequest(f *testing.F) {
	apis := wire.APIVersions()
	if only := os.Getenv(fuzzedKey); only != "" {
		n, err := strconv.Atoi(only)
		require.NoError(f, err)
		apis = slices.DeleteFunc(apis, func(k kmsg.ApiVersionsResponseApiKey) bool { return int(k.ApiKey) != n })
		require.Len(f, apis, 1)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for i, api := range apis {
		for v := api.MinVersion; v <= api.MaxVersion; v++ {
			req := kmsg.RequestForKey(api.ApiKey)
			req.SetVersion(v)
			kafkatest.Randomize(reflect.ValueOf(req).Elem(), rng)
			req.SetVersion(v)
			f.Add(uint8(i), uint8(v-api.MinVersion), req.AppendTo(nil))
		}
	}
	cl := fuzzBroker(f)
	s := cl.Nodes[0].Server()
	f.Cleanup(func() { fuzzDone(f, cl) })
	f.Fuzz(func(t *testing.T, which, version uint8, body []byte) {
		api := apis[int(which)%len(apis)]
		req := kmsg.RequestForKey(api.ApiKey)
		req.SetVersion(api.MinVersion + int16(version)%(api.MaxVersion-api.MinVersion+1))
		frame := kafkatest.Formatter.AppendRequest(nil, req, 1)
		frame = append(frame[:len(frame)-len(req.AppendTo(nil))], body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		requireSurvives(t, s, frame)
	})
}

// requireSurvives feeds data to a broker, and checks that everything that remains of it has a
// limit.
func requireSurvives(t *testing.T, s *Server, data []byte) {
	if s.image().ByName["some-topic"] == nil { // the previous input may have deleted it
		_, _ = s.Controller.Create("some-topic", meta.TopicSpec{Partitions: 1, Replication: -1}, false)
		s.catchUp(context.Background())
	}
	feed(s, data)
	require.Zero(t, s.metrics.Panics.Load()+s.wire.Metrics.Panics.Load())
	require.LessOrEqual(t, s.partitions.LogBytes.Load(), s.cfg.MaxLogSum+int64(s.cfg.Wire.MaxFrame))
	require.LessOrEqual(t, len(s.image().All()), s.cfg.Meta.MaxTopics)
	held := s.groups.Usage()
	require.LessOrEqual(t, held.Groups, int64(s.cfg.Groups.MaxGroups))
	require.LessOrEqual(t, held.MemberBytes, s.cfg.Groups.MaxMemberBytes)
	require.LessOrEqual(t, held.OffsetBytes, s.cfg.Groups.MaxOffsetBytes)
	require.Zero(t, s.wire.Usage().Outbound)
	require.Zero(t, s.wire.Usage().Queued)
	// The context of a connection's requests has ended. They are removed soon, by goroutines of
	// their own.
	require.Eventually(t, func() bool {
		return s.fetches.Len()+s.produces.Len()+s.deletes.Len()+s.topicChanges.Len() == 0
	}, kafkatest.WaitLimit, 100*time.Microsecond)
}

func fuzzDone(t testing.TB, c *Cluster) {
	require.NoError(t, c.Shutdown(context.Background()))
	requireEmpty(t, c.Nodes[0].History()[0])
}

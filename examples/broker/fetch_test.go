package main

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	forEver = 10 * time.Minute // a max wait no test lives to see
	plenty  = 1 << 20
)

func partitionsOf(resp kmsg.Response) []kmsg.FetchResponseTopicPartition {
	var all []kmsg.FetchResponseTopicPartition
	for _, t := range resp.(*kmsg.FetchResponse).Topics {
		all = append(all, t.Partitions...)
	}
	return all
}

func TestFetchWakesOnAppend(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	consumer, producer := dial(t, s), dial(t, s)
	req := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	consumer.send(req)
	parked(t, s, 1)
	batch := batchOf([]string{"a", "b"})
	require.Zero(t, producer.produce(topic, 0, batch).ErrorCode)

	got := partitionsOf(consumer.receive(req))[0]
	require.Equal(t, int64(2), got.HighWatermark)
	require.Len(t, got.RecordBatches, len(batch))
	require.Equal(t, uint64(1), s.metrics.woken.Load())
	parked(t, s, 0)
}

func TestFetchExpiresAtMaxWait(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for _, wait := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 200 * time.Millisecond} {
		before := time.Now()
		got := partitionsOf(c.call(fetchRequest(4, topic, wait, 1, plenty, want{0, 0, plenty})))[0]
		require.GreaterOrEqual(t, time.Since(before), wait)
		require.Empty(t, got.RecordBatches)
		require.NotNil(t, got.RecordBatches, "null records break librdkafka")
		require.Zero(t, got.ErrorCode)
	}
	require.Equal(t, uint64(3), s.fetches.Stats().Expired)
}

func TestFetchExpiresWithWhatThereIs(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	batch := batchOf([]string{"not enough"})
	c.produce(topic, 0, batch)
	got := partitionsOf(c.call(fetchRequest(11, topic, 50*time.Millisecond, plenty, plenty, want{0, 0, plenty})))[0]
	require.Len(t, got.RecordBatches, len(batch))
}

func TestFetchDoesNotWaitWhenToldNotTo(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	c.call(fetchRequest(12, topic, 0, 1, plenty, want{0, 0, plenty}))       // max wait 0
	c.call(fetchRequest(12, topic, forEver, 0, plenty, want{0, 0, plenty})) // min bytes 0
	c.call(fetchRequest(12, topic, forEver, 1, plenty))                     // no partitions
	require.Zero(t, s.fetches.Stats().Expired)
}

func TestFetchMinBytesOverSeveralPartitions(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 3)
	consumer, producer := dial(t, s), dial(t, s)
	batch := batchOf([]string{"x"})
	req := fetchRequest(12, topic, forEver, int32(3*len(batch)), plenty, want{0, 0, plenty}, want{1, 0, plenty}, want{2, 0, plenty})
	consumer.send(req)
	parked(t, s, 1)
	require.Equal(t, 3, s.fetches.Watched(), "one watch key per partition")
	for i := range int32(3) {
		require.Zero(t, s.metrics.woken.Load(), "after %d of 3 partitions", i)
		producer.produce(topic, i, batch)
	}
	for _, p := range partitionsOf(consumer.receive(req)) {
		require.Len(t, p.RecordBatches, len(batch))
	}
}

// What a partition's own limit keeps back does not count towards min bytes.
func TestFetchMinBytesCountsWithinPartitionLimits(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	consumer, producer := dial(t, s), dial(t, s)
	big := batchOf([]string{strings.Repeat("x", 5000)})
	req := fetchRequest(12, topic, forEver, 2000, plenty, want{0, 0, 1000}, want{1, 0, 1000})
	consumer.send(req)
	parked(t, s, 1)
	producer.produce(topic, 0, big)
	require.Equal(t, 1, s.fetches.Delayed(), "1000 of 2000 bytes")
	producer.produce(topic, 1, big)
	got := partitionsOf(consumer.receive(req))
	require.Len(t, got[0].RecordBatches, len(big), "the first batch goes out whatever its size")
	require.Empty(t, got[1].RecordBatches, "the second does not")
}

func TestFetchMaxBytes(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	c := dial(t, s)
	batch := batchOf([]string{strings.Repeat("x", 100)})
	n := int32(len(batch))
	for range 10 {
		c.produce(topic, 0, batch)
		c.produce(topic, 1, batch)
	}
	for _, test := range []struct {
		name             string
		request, p0, p1  int32
		batches0, batch1 int32
	}{
		{"all", plenty, plenty, plenty, 10, 10},
		{"exactly three", 3 * n, plenty, plenty, 3, 0},
		{"a byte less than three", 3*n - 1, plenty, plenty, 2, 0},
		{"partition limits", plenty, 2*n + 1, n, 2, 1},
		{"the rest for the second", 5 * n, 3 * n, plenty, 3, 2},
		{"less than one", 1, plenty, plenty, 1, 0},
		{"nothing allowed", 0, 0, 0, 1, 0},
		{"negative", -1, -1, -1, 1, 0},
		{"only the partition is small", plenty, 1, 1, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := partitionsOf(c.call(fetchRequest(12, topic, forEver, 1, test.request, want{0, 0, test.p0}, want{1, 0, test.p1})))
			require.Len(t, got[0].RecordBatches, int(test.batches0*n))
			require.Len(t, got[1].RecordBatches, int(test.batch1*n))
		})
	}
}

func TestFetchFromTheMiddleOfABatch(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	c.produce(topic, 0, batchOf([]string{"0", "1", "2"}))
	c.produce(topic, 0, batchOf([]string{"3", "4", "5"}))
	for offset, base := range map[int64]int64{0: 0, 2: 0, 3: 3, 5: 3} {
		got := partitionsOf(c.call(fetchRequest(12, topic, forEver, 1, plenty, want{0, offset, plenty})))[0]
		first, next, err := offsetsOf(got.RecordBatches)
		require.NoError(t, err)
		require.Equal(t, base, first)
		require.Equal(t, int64(6), next)
	}
}

// Any error is answered at once, whatever the other partitions wait for.
func TestFetchErrorsDoNotWait(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	ghost := &topic{name: "ghost", id: topicID{1}}
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for _, test := range []struct {
		name    string
		version int16
		ghost   bool
		want    want
		code    *kerr.Error
	}{
		{"past the end", 12, false, want{0, 1, plenty}, kerr.OffsetOutOfRange},
		{"before the start", 12, false, want{0, -1, plenty}, kerr.OffsetOutOfRange},
		{"no such partition", 12, false, want{1, 0, plenty}, kerr.UnknownTopicOrPartition},
		{"negative partition", 13, false, want{-1, 0, plenty}, kerr.UnknownTopicOrPartition},
		{"no such topic", 12, true, want{0, 0, plenty}, kerr.UnknownTopicOrPartition},
		{"no such topic id", 13, true, want{0, 0, plenty}, kerr.UnknownTopicID},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := topic
			if test.ghost {
				asked = ghost
			}
			req := fetchRequest(test.version, asked, forEver, 1, plenty, test.want)
			requireCode(t, test.code, partitionsOf(c.call(req))[0].ErrorCode)
		})
	}
	req := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 7
	requireCode(t, kerr.UnknownLeaderEpoch, partitionsOf(c.call(req))[0].ErrorCode)
	req = fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	req.SessionID, req.SessionEpoch = 5, 1
	requireCode(t, kerr.FetchSessionIDNotFound, c.call(req).(*kmsg.FetchResponse).ErrorCode)
}

func TestDeletingATopicAnswersItsFetches(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	for version, want1 := range map[int16]*kerr.Error{12: kerr.UnknownTopicOrPartition, 13: kerr.UnknownTopicID} {
		topic := makeTopic(t, s, "t", 2)
		consumer, admin := dial(t, s), dial(t, s)
		req := fetchRequest(version, topic, forEver, 1, plenty, want{0, 0, plenty}, want{1, 0, plenty})
		consumer.send(req)
		parked(t, s, 1)
		del := kmsg.NewPtrDeleteTopicsRequest()
		del.Version, del.TopicNames = 5, []string{"t"}
		require.Zero(t, admin.call(del).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)
		for _, p := range partitionsOf(consumer.receive(req)) {
			requireCode(t, want1, p.ErrorCode)
		}
	}
}

// docs/lessons.md, purgatory 4: a client that hangs up leaves nothing parked.
func TestHangUpCancelsWhatWasParked(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	staying := dial(t, s)
	stays := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	staying.send(stays)
	for range 3 {
		c := dial(t, s)
		for range s.cfg.maxInFlight { // at the limit, where the reader reads no requests
			c.send(fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty}, want{1, 0, plenty}))
		}
		parked(t, s, 1+s.cfg.maxInFlight)
		require.NoError(t, c.nc.Close())
		parked(t, s, 1)
	}
	require.Equal(t, uint64(3*s.cfg.maxInFlight), s.fetches.Stats().Cancelled)
	require.Equal(t, 1, s.fetches.Watched())
	dial(t, s).produce(topic, 0, batchOf([]string{"x"}))
	staying.receive(stays)
}

// The same with more requests sent than are let in: the hang-up is behind them
// in the stream, and found by reading ahead.
func TestHangUpBehindRequestsThatWait(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxInFlight = 4 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for range 20 {
		c.send(fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty}))
	}
	parked(t, s, 4)
	require.NoError(t, c.nc.Close())
	parked(t, s, 0)
	require.Equal(t, uint64(4), s.metrics.requests.Load(), "requests beyond the limit")
}

// Requests pipelined behind a parked fetch are handled at once and answered
// after it; the answers come in the order of the requests.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	fetch := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	produce := produceRequest(9, topic, 0, batchOf([]string{"x"}))
	quiet := kmsg.NewPtrApiVersionsRequest()
	// What is ready does not overtake what is parked.
	c.send(quiet, fetch, quiet)
	c.receive(quiet)
	parked(t, s, 1)
	require.NoError(t, c.nc.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.br.Peek(1)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.nc.SetReadDeadline(time.Now().Add(patience)))
	// The produce behind the fetch completes it. Were it not read while the fetch
	// is parked, this would wait for ever.
	c.send(fetch, produce, fetch, quiet)
	for correlation, req := range []kmsg.Request{fetch, quiet, fetch, produce, fetch, quiet} {
		got, body := c.frame()
		require.Equal(t, int32(correlation+2), got)
		resp := req.ResponseKind()
		if resp.IsFlexible() && resp.Key() != 18 {
			body = body[1:]
		}
		require.NoError(t, resp.ReadFrom(body))
	}
}

func TestInFlightLimitLetsTheRestWait(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxInFlight = 3 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	fetch := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
	const n = 50
	for range n {
		c.send(fetch)
	}
	parked(t, s, 3)
	dial(t, s).produce(topic, 0, batchOf([]string{"x"}))
	for i := range n {
		got, _ := c.frame()
		require.Equal(t, int32(i+1), got)
	}
}

// Far more than the read-ahead buffer holds, all at once.
func TestInFlightLimitBeyondTheBuffer(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *config) { c.maxInFlight = 2 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	fetch := fetchRequest(12, topic, 100*time.Millisecond, 1, plenty, want{0, 0, plenty})
	quiet := kmsg.NewPtrApiVersionsRequest()
	c.send(fetch, fetch)
	parked(t, s, 2)
	const n = 2000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var out []byte
		for i := range n {
			out = append(out, testFormatter.AppendRequest(nil, quiet, int32(i+3))...)
		}
		c.write(out)
	}()
	for i := range n + 2 {
		got, _ := c.frame()
		require.Equal(t, int32(i+1), got)
	}
	<-sent
}

func TestShutdownAnswersWhatIsParked(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	batch := batchOf([]string{"x"})
	dial(t, s).produce(topic, 0, batch)
	waiting := fetchRequest(12, topic, forEver, 1, plenty, want{0, 1, plenty})
	wantsMore := fetchRequest(12, topic, forEver, plenty, plenty, want{0, 0, plenty})
	conns := []*raw{dial(t, s), dial(t, s), dial(t, s)}
	for _, c := range conns {
		c.send(waiting, wantsMore, waiting)
	}
	idle := dial(t, s)
	parked(t, s, 9)

	shutdown(t, s)
	for _, c := range conns {
		require.Empty(t, partitionsOf(c.receive(waiting))[0].RecordBatches)
		require.Len(t, partitionsOf(c.receive(wantsMore))[0].RecordBatches, len(batch), "what there is")
		require.Empty(t, partitionsOf(c.receive(waiting))[0].RecordBatches)
		c.closed()
	}
	idle.closed()
	require.Equal(t, uint64(9), s.fetches.Stats().Closed)
}

// A client that does not read cannot hold up a shutdown beyond its context.
func TestShutdownIsBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	c.produce(topic, 0, batchOf([]string{strings.Repeat("x", 4<<20)}))
	fetch := fetchRequest(12, topic, forEver, 1, 8<<20, want{0, 0, 8 << 20})
	for range 16 { // more than the kernel buffers
		c.send(fetch)
	}
	require.Eventually(t, func() bool { return s.outbound.Load() > 0 }, patience, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
}

func TestParkingIsBounded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config){
		"operations": func(c *config) { c.maxParked = 2 },
		"watches":    func(c *config) { c.maxWatched = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBroker(t, change)
			topic := makeTopic(t, s, "t", 1)
			a, b := dial(t, s), dial(t, s)
			fetch := fetchRequest(12, topic, forEver, 1, plenty, want{0, 0, plenty})
			a.send(fetch, fetch)
			parked(t, s, 2)
			resp := b.call(fetch).(*kmsg.FetchResponse)
			require.Equal(t, int32(overloadThrottle/time.Millisecond), resp.ThrottleMillis)
			require.Equal(t, 2, s.fetches.Delayed())
		})
	}
}

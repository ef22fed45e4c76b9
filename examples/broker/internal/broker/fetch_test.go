package broker

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

func TestFetchWakesOnAppend(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	consumer, producer := dial(t, s), dial(t, s)
	req := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	consumer.Send(req)
	parked(t, s, 1)
	batch := kafkatest.Batch([]string{"a", "b"})
	require.Zero(t, produceTo(producer, topic, 0, batch).ErrorCode)

	got := kafkatest.PartitionsOf(consumer.Receive(req))[0]
	require.Equal(t, int64(2), got.HighWatermark)
	require.Len(t, got.RecordBatches, len(batch))
	require.Equal(t, uint64(1), s.metrics.Woken.Load())
	parked(t, s, 0)
}

func TestFetchExpiresAtMaxWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startBroker(t, inMemory)
		topic := makeTopic(t, s, "t", 1)
		c := dial(t, s)
		for _, wait := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 200 * time.Millisecond} {
			before := time.Now()
			got := kafkatest.PartitionsOf(c.Call(kafkatest.Fetch(4, topic, wait, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))))[0]
			require.GreaterOrEqual(t, time.Since(before), wait)
			require.Empty(t, got.RecordBatches)
			require.NotNil(t, got.RecordBatches, "null records break librdkafka")
			require.Zero(t, got.ErrorCode)
		}
		require.Equal(t, uint64(3), s.fetches.Stats().Expired)
	})
}

func TestFetchExpiresWithAvailableRecords(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	batch := kafkatest.Batch([]string{"not enough"})
	produceTo(c, topic, 0, batch)
	got := kafkatest.PartitionsOf(c.Call(kafkatest.Fetch(11, topic, 50*time.Millisecond, kafkatest.Plenty, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))))[0]
	require.Len(t, got.RecordBatches, len(batch))
}

func TestFetchDoesNotWaitWhenToldNotTo(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	c.Call(kafkatest.Fetch(12, topic, 0, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty)))                 // max wait 0
	c.Call(kafkatest.Fetch(12, topic, kafkatest.ForEver, 0, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))) // min bytes 0
	c.Call(kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty))                                       // no partitions
	require.Zero(t, s.fetches.Stats().Expired)
}

func TestFetchMinBytesOverSeveralPartitions(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 3)
	consumer, producer := dial(t, s), dial(t, s)
	batch := kafkatest.Batch([]string{"x"})
	req := kafkatest.Fetch(12, topic, kafkatest.ForEver, int32(3*len(batch)), kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty), kafkatest.At(1, 0, kafkatest.Plenty), kafkatest.At(2, 0, kafkatest.Plenty))
	consumer.Send(req)
	parked(t, s, 1)
	require.Equal(t, 3, s.fetches.Watched(), "one watch key per partition")
	for i := range int32(3) {
		require.Zero(t, s.metrics.Woken.Load(), "after %d of 3 partitions", i)
		produceTo(producer, topic, i, batch)
	}
	for _, p := range kafkatest.PartitionsOf(consumer.Receive(req)) {
		require.Len(t, p.RecordBatches, len(batch))
	}
}

// Bytes beyond a partition's own limit do not count towards min bytes.
func TestFetchMinBytesCountsWithinPartitionLimits(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	consumer, producer := dial(t, s), dial(t, s)
	big := kafkatest.Batch([]string{strings.Repeat("x", 5000)})
	req := kafkatest.Fetch(12, topic, kafkatest.ForEver, 2000, kafkatest.Plenty, kafkatest.At(0, 0, 1000), kafkatest.At(1, 0, 1000))
	consumer.Send(req)
	parked(t, s, 1)
	produceTo(producer, topic, 0, big)
	require.Equal(t, 1, s.fetches.Len(), "1000 of 2000 bytes")
	produceTo(producer, topic, 1, big)
	got := kafkatest.PartitionsOf(consumer.Receive(req))
	require.Len(t, got[0].RecordBatches, len(big), "the first batch goes out whatever its size")
	require.Empty(t, got[1].RecordBatches, "the second does not")
}

func TestFetchMaxBytes(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	c := dial(t, s)
	batch := kafkatest.Batch([]string{strings.Repeat("x", 100)})
	n := int32(len(batch))
	for range 10 {
		produceTo(c, topic, 0, batch)
		produceTo(c, topic, 1, batch)
	}
	for _, test := range []struct {
		name             string
		request, p0, p1  int32
		batches0, batch1 int32
	}{
		{"all", kafkatest.Plenty, kafkatest.Plenty, kafkatest.Plenty, 10, 10},
		{"exactly three", 3 * n, kafkatest.Plenty, kafkatest.Plenty, 3, 0},
		{"a byte less than three", 3*n - 1, kafkatest.Plenty, kafkatest.Plenty, 2, 0},
		{"partition limits", kafkatest.Plenty, 2*n + 1, n, 2, 1},
		{"the rest for the second", 5 * n, 3 * n, kafkatest.Plenty, 3, 2},
		{"less than one", 1, kafkatest.Plenty, kafkatest.Plenty, 1, 0},
		{"nothing allowed", 0, 0, 0, 1, 0},
		{"negative", -1, -1, -1, 1, 0},
		{"only the partition is small", kafkatest.Plenty, 1, 1, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := kafkatest.PartitionsOf(c.Call(kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, test.request, kafkatest.At(0, 0, test.p0), kafkatest.At(1, 0, test.p1))))
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
	produceTo(c, topic, 0, kafkatest.Batch([]string{"0", "1", "2"}))
	produceTo(c, topic, 0, kafkatest.Batch([]string{"3", "4", "5"}))
	for offset, base := range map[int64]int64{0: 0, 2: 0, 3: 3, 5: 3} {
		got := kafkatest.PartitionsOf(c.Call(kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, offset, kafkatest.Plenty))))[0]
		first, next, err := log.OffsetsOf(got.RecordBatches)
		require.NoError(t, err)
		require.Equal(t, base, first)
		require.Equal(t, int64(6), next)
	}
}

// An error is answered at once, even if other partitions would wait.
func TestFetchErrorsDoNotWait(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	ghost := &meta.Topic{Name: "ghost", ID: meta.TopicID{1}}
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for _, test := range []struct {
		name    string
		version int16
		ghost   bool
		want    kafkatest.Want
		code    *kerr.Error
	}{
		{"past the end", 12, false, kafkatest.At(0, 1, kafkatest.Plenty), kerr.OffsetOutOfRange},
		{"before the start", 12, false, kafkatest.At(0, -1, kafkatest.Plenty), kerr.OffsetOutOfRange},
		{"no such partition", 12, false, kafkatest.At(1, 0, kafkatest.Plenty), kerr.UnknownTopicOrPartition},
		{"negative partition", 13, false, kafkatest.At(-1, 0, kafkatest.Plenty), kerr.UnknownTopicOrPartition},
		{"no such topic", 12, true, kafkatest.At(0, 0, kafkatest.Plenty), kerr.UnknownTopicOrPartition},
		{"no such topic id", 13, true, kafkatest.At(0, 0, kafkatest.Plenty), kerr.UnknownTopicID},
	} {
		t.Run(test.name, func(t *testing.T) {
			asked := topic
			if test.ghost {
				asked = ghost
			}
			req := kafkatest.Fetch(test.version, asked, kafkatest.ForEver, 1, kafkatest.Plenty, test.want)
			kafkatest.RequireCode(t, test.code, kafkatest.PartitionsOf(c.Call(req))[0].ErrorCode)
		})
	}
	req := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 7
	kafkatest.RequireCode(t, kerr.UnknownLeaderEpoch, kafkatest.PartitionsOf(c.Call(req))[0].ErrorCode)
	req = kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	req.SessionID, req.SessionEpoch = 5, 1
	kafkatest.RequireCode(t, kerr.FetchSessionIDNotFound, c.Call(req).(*kmsg.FetchResponse).ErrorCode)
}

func TestDeletingATopicAnswersItsFetches(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	for version, want1 := range map[int16]*kerr.Error{12: kerr.UnknownTopicOrPartition, 13: kerr.UnknownTopicID} {
		topic := makeTopic(t, s, "t", 2)
		consumer, admin := dial(t, s), dial(t, s)
		req := kafkatest.Fetch(version, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty), kafkatest.At(1, 0, kafkatest.Plenty))
		consumer.Send(req)
		parked(t, s, 1)
		del := kmsg.NewPtrDeleteTopicsRequest()
		del.Version, del.TopicNames = 5, []string{"t"}
		require.Zero(t, admin.Call(del).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode)
		// The partitions are deleted one after the other, and the first deletion completes the
		// fetch.
		gone := 0
		for _, p := range kafkatest.PartitionsOf(consumer.Receive(req)) {
			if p.ErrorCode != 0 {
				kafkatest.RequireCode(t, want1, p.ErrorCode)
				gone++
			}
		}
		require.Positive(t, gone)
		for _, p := range kafkatest.PartitionsOf(consumer.Call(req)) {
			kafkatest.RequireCode(t, want1, p.ErrorCode)
		}
	}
}

// docs/lessons.md, purgatory 4: a client that disconnects leaves nothing parked.
func TestHangUpCancelsParkedRequests(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	staying := dial(t, s)
	stays := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	staying.Send(stays)
	for range 3 {
		c := dial(t, s)
		for range s.cfg.Wire.MaxInFlight { // at the limit, where the reader stops reading requests
			c.Send(kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty), kafkatest.At(1, 0, kafkatest.Plenty)))
		}
		parked(t, s, 1+s.cfg.Wire.MaxInFlight)
		require.NoError(t, c.NC.Close())
		parked(t, s, 1)
	}
	require.Equal(t, uint64(3*s.cfg.Wire.MaxInFlight), s.fetches.Stats().Cancelled)
	require.Equal(t, 1, s.fetches.Watched())
	produceTo(dial(t, s), topic, 0, kafkatest.Batch([]string{"x"}))
	staying.Receive(stays)
}

// The same with more requests than MaxInFlight: the end of the stream is behind them, and the
// broker finds it by reading ahead.
func TestHangUpBehindRequestsThatWait(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.MaxInFlight = 4 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	for range 20 {
		c.Send(kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty)))
	}
	parked(t, s, 4)
	require.NoError(t, c.NC.Close())
	parked(t, s, 0)
	require.Equal(t, uint64(4), s.wire.Metrics.Requests.Load(), "requests beyond the limit")
}

// Requests pipelined behind a parked fetch are handled at once, but answered after it, in order.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	fetch := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	produce := kafkatest.Produce(9, topic, 0, kafkatest.Batch([]string{"x"}))
	quiet := kmsg.NewPtrApiVersionsRequest()
	// A ready answer does not overtake a parked one.
	c.Send(quiet, fetch, quiet)
	c.Receive(quiet)
	parked(t, s, 1)
	require.NoError(t, c.NC.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err := c.R.Peek(1)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.NC.SetReadDeadline(time.Now().Add(kafkatest.WaitLimit)))
	// The produce behind the fetch completes it. If the broker did not read it while the fetch is
	// parked, this would wait forever.
	c.Send(fetch, produce, fetch, quiet)
	for correlation, req := range []kmsg.Request{fetch, quiet, fetch, produce, fetch, quiet} {
		got, body := c.Frame()
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
	s := startBroker(t, func(c *Config) { c.Wire.MaxInFlight = 3 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	fetch := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	const n = 50
	for range n {
		c.Send(fetch)
	}
	parked(t, s, 3)
	produceTo(dial(t, s), topic, 0, kafkatest.Batch([]string{"x"}))
	for i := range n {
		got, _ := c.Frame()
		require.Equal(t, int32(i+1), got)
	}
}

// The client sends far more at once than the read-ahead buffer holds.
func TestInFlightLimitBeyondTheBuffer(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.Wire.MaxInFlight = 2 })
	topic := makeTopic(t, s, "t", 1)
	c := dial(t, s)
	fetch := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	quiet := kmsg.NewPtrApiVersionsRequest()
	c.Send(fetch, fetch)
	parked(t, s, 2)
	const n = 2000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var out []byte
		for i := range n {
			out = append(out, kafkatest.Formatter.AppendRequest(nil, quiet, int32(i+3))...)
		}
		c.Write(out)
	}()
	select {
	case <-sent:
	case <-time.After(100 * time.Millisecond): // the broker reads no more
	}
	produceTo(dial(t, s), topic, 0, kafkatest.Batch([]string{"x"}))
	for i := range n + 2 {
		got, _ := c.Frame()
		require.Equal(t, int32(i+1), got)
	}
	<-sent
}

func TestShutdownAnswersParkedRequests(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 1)
	batch := kafkatest.Batch([]string{"x"})
	produceTo(dial(t, s), topic, 0, batch)
	waiting := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 1, kafkatest.Plenty))
	wantsMore := kafkatest.Fetch(12, topic, kafkatest.ForEver, kafkatest.Plenty, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	conns := []*kafkatest.Conn{dial(t, s), dial(t, s), dial(t, s)}
	for _, c := range conns {
		c.Send(waiting, wantsMore, waiting)
	}
	idle := dial(t, s)
	parked(t, s, 9)

	shutdown(t, s)
	for _, c := range conns {
		require.Empty(t, kafkatest.PartitionsOf(c.Receive(waiting))[0].RecordBatches)
		require.Len(t, kafkatest.PartitionsOf(c.Receive(wantsMore))[0].RecordBatches, len(batch), "what there is")
		require.Empty(t, kafkatest.PartitionsOf(c.Receive(waiting))[0].RecordBatches)
		c.Closed()
	}
	idle.Closed()
	require.Equal(t, uint64(9), s.fetches.Stats().Closed)
}

// A client that does not read cannot delay a shutdown beyond its context.
func TestShutdownIsBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		s := startBroker(t, inMemory)
		topic := makeTopic(t, s, "t", 1)
		c := dial(t, s)
		produceTo(c, topic, 0, kafkatest.Batch([]string{strings.Repeat("x", 4<<20)}))
		fetch := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, 8<<20, kafkatest.At(0, 0, 8<<20))
		for range 16 { // more than the kernel buffers
			c.Send(fetch)
		}
		require.Eventually(t, func() bool { return s.wire.Usage().Outbound > 0 }, kafkatest.WaitLimit, time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Shutdown(ctx), context.DeadlineExceeded)
	})
}

func TestParkingIsBounded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"operations": func(c *Config) { c.MaxParked = 2 },
		"watches":    func(c *Config) { c.MaxWatched = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startBroker(t, change)
			topic := makeTopic(t, s, "t", 1)
			a, b := dial(t, s), dial(t, s)
			fetch := kafkatest.Fetch(12, topic, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
			a.Send(fetch, fetch)
			parked(t, s, 2)
			resp := b.Call(fetch).(*kmsg.FetchResponse)
			require.Equal(t, int32(overloadThrottle/time.Millisecond), resp.ThrottleMillis)
			require.Equal(t, 2, s.fetches.Len())
		})
	}
}

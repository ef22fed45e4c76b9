package broker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/kafkatest"
	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// sessionClient is a consumer with a fetch session.
type sessionClient struct {
	*kafkatest.Conn
	topic *meta.Topic
	id    int32
	epoch int32
}

// fetch builds the session's next request.
func (c *sessionClient) fetch(wait time.Duration, wants ...kafkatest.Want) *kmsg.FetchRequest {
	req := kafkatest.Fetch(13, c.topic, wait, 1, kafkatest.Plenty, wants...)
	req.SessionID, req.SessionEpoch = c.id, c.epoch
	if len(wants) == 0 {
		req.Topics = nil
	}
	return req
}

// take checks an answer, and returns its partitions by index.
func (c *sessionClient) take(resp kmsg.Response) map[int32]kmsg.FetchResponseTopicPartition {
	c.T.Helper()
	a := resp.(*kmsg.FetchResponse)
	kafkatest.RequireCode(c.T, nil, a.ErrorCode)
	if c.id == 0 {
		c.id = a.SessionID
	}
	require.NotZero(c.T, a.SessionID)
	require.Equal(c.T, c.id, a.SessionID)
	c.epoch++
	parts := map[int32]kmsg.FetchResponseTopicPartition{}
	for _, sp := range kafkatest.PartitionsOf(resp) {
		require.NotContains(c.T, parts, sp.Partition)
		parts[sp.Partition] = sp
	}
	return parts
}

func (c *sessionClient) next(wait time.Duration, wants ...kafkatest.Want) map[int32]kmsg.FetchResponseTopicPartition {
	c.T.Helper()
	return c.take(c.Call(c.fetch(wait, wants...)))
}

// openFetchSession opens a session for all n partitions of a topic.
func openFetchSession(t *testing.T, s *Server, topic *meta.Topic, n int32) *sessionClient {
	t.Helper()
	c := &sessionClient{Conn: dial(t, s), topic: topic}
	var wants []kafkatest.Want
	for i := range n {
		wants = append(wants, kafkatest.At(i, 0, kafkatest.Plenty))
	}
	require.Len(t, c.next(0, wants...), int(n), "the first answer names all partitions")
	return c
}

// verifySessions checks the invariants of a broker's sessions. The broker must be idle.
func verifySessions(t *testing.T, s *Server) {
	t.Helper()
	ss := &s.sessions
	ss.mu.RLock()
	defer ss.mu.RUnlock()
	parts, entered := 0, 0
	for id, session := range ss.byID {
		require.Equal(t, id, session.id)
		require.False(t, session.ended)
		session.mu.Lock()
		pending := map[*sessionPart]bool{}
		for _, part := range session.pending {
			require.False(t, pending[part] || part.removed)
			pending[part] = true
		}
		for k, part := range session.parts {
			parts++
			require.Equal(t, pending[part], part.pending, "%v", k)
			if part.p != nil {
				entered++
				require.Contains(t, ss.byPartition[part.p.Key], part)
				if !part.pending && part.err == nil {
					require.Zero(t, part.p.State(part.offset, part.epoch, session.follower >= 0).Readable, "there is something to read, and the partition is not pending")
				}
			}
		}
		session.mu.Unlock()
	}
	require.EqualValues(t, parts, ss.parts.Load())
	for _, list := range ss.byPartition {
		entered -= len(list)
	}
	require.Zero(t, entered, "a partition knows of a session that it is not in")
}

// After the first fetch, requests and answers contain only changed partitions.
func TestSessionNamesChangedPartitions(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 5)
	c := openFetchSession(t, s, topic, 5)
	producer := dial(t, s)
	require.Empty(t, c.next(10*time.Millisecond))

	req := c.fetch(kafkatest.ForEver)
	c.Send(req)
	parked(t, s, 1)
	require.Equal(t, 1, s.fetches.Watched(), "it waits on one key")
	produceTo(producer, topic, 3, kafkatest.Batch([]string{"a"}))
	got := c.take(c.Receive(req))
	require.Len(t, got, 1)
	require.NotEmpty(t, got[3].RecordBatches)

	// The client has not advanced its position, so it gets the same records again.
	got = c.next(kafkatest.ForEver)
	require.Len(t, got, 1)
	require.NotEmpty(t, got[3].RecordBatches)
	require.Empty(t, c.next(10*time.Millisecond, kafkatest.At(3, 1, kafkatest.Plenty)))

	// A new log start is reported, but completes no fetch.
	require.Zero(t, producer.Call(deleteRecordsRequest(topic, 3, 1, kafkatest.WaitLimit)).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode)
	got = c.next(10 * time.Millisecond)
	require.Len(t, got, 1)
	require.Empty(t, got[3].RecordBatches)
	require.Equal(t, int64(1), got[3].LogStartOffset)
	require.Empty(t, c.next(0))
	verifySessions(t, s)
}

// Records that did not fit come with the next answer, before newer ones.
func TestSessionIsFairWithoutRoom(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 4)
	c := openFetchSession(t, s, topic, 4)
	producer := dial(t, s)
	batch := kafkatest.Batch([]string{"some record"})
	for p := range int32(4) {
		produceTo(producer, topic, p, batch)
	}
	seen := map[int32]bool{}
	for range 4 {
		req := c.fetch(kafkatest.ForEver)
		req.MaxBytes = int32(len(batch))
		var with []int32
		for p, sp := range c.take(c.Call(req)) {
			if len(sp.RecordBatches) > 0 {
				with = append(with, p)
			}
		}
		require.Len(t, with, 1)
		require.False(t, seen[with[0]], "partition %d again, and not all were", with[0])
		seen[with[0]] = true
		verifySessions(t, s)
	}
}

func TestSessionForgets(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 3)
	c := openFetchSession(t, s, topic, 3)
	producer := dial(t, s)
	req := c.fetch(0)
	gone := kmsg.NewFetchRequestForgottenTopic()
	gone.TopicID, gone.Partitions = topic.ID, []int32{0, 1, 7}
	req.ForgottenTopics = append(req.ForgottenTopics, gone)
	require.Empty(t, c.take(c.Call(req)))
	verifySessions(t, s)
	waits := c.fetch(kafkatest.ForEver)
	c.Send(waits)
	parked(t, s, 1)
	produceTo(producer, topic, 0, kafkatest.Batch([]string{"x"}))
	require.Equal(t, 1, s.fetches.Len())
	produceTo(producer, topic, 2, kafkatest.Batch([]string{"y"}))
	got := c.take(c.Receive(waits))
	require.Len(t, got, 1)
	require.Contains(t, got, int32(2))

	// A fetch does not wait in an empty session.
	req = c.fetch(kafkatest.ForEver)
	gone.Partitions = []int32{2}
	req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{gone}
	require.Empty(t, c.take(c.Call(req)))
	verifySessions(t, s)
}

func TestSessionErrors(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	c := openFetchSession(t, s, topic, 2)
	refused := func(want *kerr.Error, change func(*kmsg.FetchRequest)) {
		t.Helper()
		req := c.fetch(kafkatest.ForEver)
		change(req)
		resp := c.Call(req).(*kmsg.FetchResponse)
		kafkatest.RequireCode(t, want, resp.ErrorCode)
		require.Zero(t, resp.SessionID)
		require.Empty(t, resp.Topics)
	}
	refused(kerr.InvalidFetchSessionEpoch, func(q *kmsg.FetchRequest) { q.SessionEpoch = 7 })
	refused(kerr.FetchSessionIDNotFound, func(q *kmsg.FetchRequest) { q.SessionID++ })
	refused(kerr.FetchSessionIDNotFound, func(q *kmsg.FetchRequest) { q.SessionID = 0 })
	refused(kerr.FetchSessionTopicIDError, func(q *kmsg.FetchRequest) { q.Version = 12 })
	require.Empty(t, c.next(0), "the session has not suffered")

	// An error of a partition is answered at once, each time, until its cause is removed.
	ghost := &meta.Topic{ID: meta.TopicID{1}}
	add := kafkatest.Fetch(13, ghost, kafkatest.ForEver, 1, kafkatest.Plenty, kafkatest.At(0, 0, kafkatest.Plenty))
	add.SessionID, add.SessionEpoch = c.id, c.epoch
	for range 2 {
		got := c.take(c.Call(add))
		require.Len(t, got, 1)
		kafkatest.RequireCode(t, kerr.UnknownTopicID, got[0].ErrorCode)
		add = c.fetch(kafkatest.ForEver)
	}
	verifySessions(t, s)

	// A session ends when its client asks for that, and another client can open one instead.
	final := c.fetch(0, kafkatest.At(0, 0, kafkatest.Plenty))
	final.SessionEpoch = finalEpoch
	resp := c.Call(final).(*kmsg.FetchResponse)
	require.Zero(t, resp.SessionID)
	require.Len(t, kafkatest.PartitionsOf(resp), 1)
	refused(kerr.FetchSessionIDNotFound, func(*kmsg.FetchRequest) {})
	require.Zero(t, s.sessions.parts.Load())
	verifySessions(t, s)
}

// A waiting fetch is answered when its session ends, or when the leader of one of its partitions
// changes.
func TestSessionThatEndsAnswers(t *testing.T) {
	t.Parallel()
	s := startBroker(t)
	topic := makeTopic(t, s, "t", 2)
	c := openFetchSession(t, s, topic, 2)
	req := c.fetch(kafkatest.ForEver)
	c.Send(req)
	parked(t, s, 1)
	s.endSession(s.sessions.find(c.id))
	c.Receive(req)
	verifySessions(t, s)

	c = openFetchSession(t, s, topic, 2)
	req = c.fetch(kafkatest.ForEver)
	c.Send(req)
	parked(t, s, 1)
	a := topic.Partitions[1]
	a.Leader, a.Epoch, a.Version = 1, a.Epoch+1, a.Version+1
	s.assign(replicaOf(s, topic, 1), topic, a, 0)
	got := c.take(c.Receive(req))
	require.Len(t, got, 1)
	kafkatest.RequireCode(t, kerr.NotLeaderForPartition, got[1].ErrorCode)
	kafkatest.RequireCode(t, kerr.NotLeaderForPartition, c.next(kafkatest.ForEver)[1].ErrorCode)
	a.Leader, a.Epoch, a.Version = 0, a.Epoch+1, a.Version+1
	s.assign(replicaOf(s, topic, 1), topic, a, 0)
	require.Zero(t, c.next(0)[1].ErrorCode)
	verifySessions(t, s)
}

// The number of sessions and of their partitions is limited. Without capacity, a client continues
// without a session; a session that was silent for long is replaced.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	s := startBroker(t, func(c *Config) { c.MaxFetchSessions, c.MaxSessionPartitions = 2, 10 })
	topic := makeTopic(t, s, "t", 12)
	a, b := openFetchSession(t, s, topic, 3), openFetchSession(t, s, topic, 3)
	third := &sessionClient{Conn: dial(t, s), topic: topic}
	resp := third.Call(third.fetch(0, kafkatest.At(0, 0, kafkatest.Plenty))).(*kmsg.FetchResponse)
	require.Zero(t, resp.SessionID)
	require.Len(t, kafkatest.PartitionsOf(resp), 1)

	s.sessions.find(a.id).lastFetch.Add(-int64(sessionIdle) - 1)
	third.next(0, kafkatest.At(0, 0, kafkatest.Plenty))
	kafkatest.RequireCode(t, kerr.FetchSessionIDNotFound, a.Call(a.fetch(0)).(*kmsg.FetchResponse).ErrorCode)
	verifySessions(t, s)

	var wants []kafkatest.Want
	for i := range int32(9) {
		wants = append(wants, kafkatest.At(3+i, 0, kafkatest.Plenty))
	}
	kafkatest.RequireCode(t, kerr.FetchSessionIDNotFound, b.Call(b.fetch(0, wants...)).(*kmsg.FetchResponse).ErrorCode)
	require.EqualValues(t, 1, s.sessions.parts.Load())
	verifySessions(t, s)
}

// A consumer in a session sees each record once and in order while records arrive, whatever
// partitions it names in each fetch, and however small the answers are.
func TestSessionLosesNothing(t *testing.T) {
	t.Parallel()
	const partitions, records = 6, 400
	s := startBroker(t)
	topic := makeTopic(t, s, "t", partitions)
	c := openFetchSession(t, s, topic, partitions)
	producer := dial(t, s)
	var producing sync.WaitGroup
	producing.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range records {
			produceTo(producer, topic, rng.Int32N(partitions), kafkatest.Batch([]string{fmt.Sprint(i)}))
		}
	})
	rng := rand.New(rand.NewPCG(3, 4))
	var at [partitions]int64
	var wants []kafkatest.Want
	for seen := int64(0); seen < records; {
		req := c.fetch(kafkatest.WaitLimit, wants...)
		req.MaxBytes = 1 + rng.Int32N(500)
		wants = nil
		got := c.take(c.Call(req))
		require.NotEmpty(t, got, "a wake-up was lost")
		for p, sp := range got {
			require.Zero(t, sp.ErrorCode)
			for _, raw := range splitBatches(sp.RecordBatches) {
				var b kmsg.RecordBatch
				require.NoError(t, b.ReadFrom(raw))
				require.Equal(t, at[p], b.FirstOffset)
				at[p]++
				seen++
			}
			if len(sp.RecordBatches) > 0 {
				wants = append(wants, kafkatest.At(p, at[p], 1+rng.Int32N(300)))
			}
		}
	}
	producing.Wait()
	require.Empty(t, c.next(0, wants...))
	verifySessions(t, s)
}

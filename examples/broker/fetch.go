package main

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
)

// A fetch asks for records of some partitions, and says how long it will wait
// until there are enough of them. The broker holds it until then. This file is
// what the example is about: the operation that waits in the purgatory.

// fetch is a delayed operation, watched on every partition it reads. It keeps
// what it needs of the request, not the request: thousands of these wait.
type fetch struct {
	srv      *server
	reply    *reply
	version  int16
	maxBytes int
	minBytes int64
	parts    []fetchPart
	arrived  time.Time

	// appended is when the append happened that this fetch saw when it found
	// that it had enough. TryComplete writes it and Complete reads it; the
	// purgatory never runs them at once.
	appended time.Time
}

// fetchPart is one partition of a fetch, in the order the client asked.
type fetchPart struct {
	topic    *fetchTopic
	index    int32
	offset   int64
	maxBytes int
	p        *partition  // nil: err says why
	err      *kerr.Error // found when the request was read
}

// fetchTopic is how the client named the topic, and must be answered.
type fetchTopic struct {
	name string
	id   topicID
}

// overloadThrottle is what a client is asked to wait before it fetches again
// when there was no room to park its fetch.
const overloadThrottle = 100 * time.Millisecond

func handleFetch(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.FetchRequest)
	if q.SessionID != 0 && q.SessionEpoch > 0 {
		// No session was ever given out: answers carry session id 0, and
		// clients then send every partition with every fetch.
		resp := q.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = code(kerr.FetchSessionIDNotFound)
		r.now(resp)
		return
	}
	f := &fetch{
		srv:      c.srv,
		reply:    r,
		version:  q.Version,
		maxBytes: min(int(max(q.MaxBytes, 0)), c.srv.cfg.maxFetch),
		parts:    resolveFetch(c.srv, q),
		arrived:  time.Now(),
	}
	// More than an answer may hold cannot be waited for.
	f.minBytes = min(int64(q.MinBytes), int64(f.maxBytes))

	keys := make([]partitionKey, 0, len(f.parts))
	for i := range f.parts {
		if f.parts[i].err == nil {
			keys = append(keys, f.parts[i].p.key)
		}
	}
	if len(keys) < len(f.parts) || len(keys) == 0 || q.MaxWaitMillis <= 0 {
		f.answer(0) // an error somewhere, or nothing to wait for
		return
	}
	if c.srv.purgatory.Watched()+len(keys) > c.srv.cfg.maxWatched {
		f.overload() // MaxOperations counts fetches; each may watch thousands of keys
		return
	}
	wait := time.Duration(q.MaxWaitMillis) * time.Millisecond
	// c.ctx ends when the client hangs up, and takes the fetch out of the
	// purgatory with it: nobody would read the answer.
	_, err := c.srv.purgatory.TryCompleteElseWatchContext(c.ctx, f, wait, keys...)
	switch {
	case err == nil: // answered, or parked and answered later
	case errors.Is(err, purgatory.ErrFull):
		f.overload()
	case errors.Is(err, purgatory.ErrClosed):
		f.answer(0) // shutting down
	default:
		panic(err) // the keys and the operation are ours: a bug
	}
}

// overload answers a fetch that there is no room to park, with what there is.
// If that is not enough, the client is asked to come back later.
func (f *fetch) overload() {
	f.srv.metrics.overload.Add(1)
	if f.TryComplete() {
		f.answer(0)
	} else {
		f.answer(overloadThrottle)
	}
}

func resolveFetch(s *server, q *kmsg.FetchRequest) []fetchPart {
	n := 0
	for i := range q.Topics {
		n += len(q.Topics[i].Partitions)
	}
	parts := make([]fetchPart, 0, n)
	for i := range q.Topics {
		rt := &q.Topics[i]
		named := &fetchTopic{rt.Topic, rt.TopicID}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			p, err := s.topics.lookup(rt.Topic, rt.TopicID, q.Version >= 13, rp.Partition)
			if err == nil && q.Version >= 9 {
				err = checkEpoch(rp.CurrentLeaderEpoch)
			}
			parts = append(parts, fetchPart{
				topic:    named,
				index:    rp.Partition,
				offset:   rp.FetchOffset,
				maxBytes: int(max(rp.PartitionMaxBytes, 0)),
				p:        p,
				err:      err,
			})
		}
	}
	return parts
}

// TryComplete reports whether there is enough to answer, or a reason not to
// wait for it: any error is worth more to the client than silence.
func (f *fetch) TryComplete() bool {
	var total int64
	var newest time.Time
	for i := range f.parts {
		part := &f.parts[i]
		s := part.p.state(part.offset)
		if s.failed {
			return true
		}
		// What a partition may not give does not count, except that one batch
		// always goes out: else a limit below the batch's size would wait for ever.
		total += min(s.readable, max(int64(part.maxBytes), 1))
		if s.appendedAt.After(newest) {
			newest = s.appendedAt
		}
	}
	if total < f.minBytes {
		return false
	}
	if newest.After(f.arrived) {
		f.appended = newest // it waited for this one; older data was there when it came
	}
	return true
}

// Complete answers, or does not: a client that has hung up is owed nothing.
// Complete runs on a producer's goroutine, on a worker of the purgatory's wheel,
// or on the one that shuts it down; none of them may be held up by this client's
// network. So it only says that the answer may be built.
func (f *fetch) Complete(outcome purgatory.Outcome) {
	if outcome == purgatory.Completed && !f.appended.IsZero() {
		f.srv.metrics.woken.Add(1)
	}
	switch outcome {
	case purgatory.Completed, purgatory.Expired, purgatory.Closed:
		f.answer(0) // with what there is
	case purgatory.Cancelled, purgatory.Failed:
		f.reply.drop()
		f.reply.conn.cancel() // after a panic of TryComplete; else it is done already
	}
}

func (f *fetch) answer(throttle time.Duration) {
	f.reply.answerWoken(func() kmsg.Response { return f.build(throttle) }, f.appended)
}

// build reads the partitions, on the connection's writer. No session: see
// handleFetch. At most maxBytes go out, and each partition's part of them, but
// the first batch of the answer goes out whatever its size, or a consumer could
// never get past it.
func (f *fetch) build(throttle time.Duration) kmsg.Response {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = f.version
	resp.ThrottleMillis = int32(throttle / time.Millisecond)

	c := f.reply.conn
	room := c.outboundRoom(f.maxBytes)
	total := 0
	var topic *fetchTopic
	for i := range f.parts {
		part := &f.parts[i]
		if part.topic != topic {
			topic = part.topic
			st := kmsg.NewFetchResponseTopic()
			st.Topic, st.TopicID = topic.name, topic.id
			resp.Topics = append(resp.Topics, st)
		}
		sp := kmsg.NewFetchResponseTopicPartition()
		sp.Partition = part.index
		sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = -1, -1, -1
		sp.RecordBatches = []byte{} // empty, not null: librdkafka takes null for a broken answer
		err := part.err
		if err == nil {
			got := part.p.read(part.offset, min(part.maxBytes, room-total), total == 0)
			sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = got.next, got.next, got.start
			if err = got.err; err == kerr.UnknownTopicOrPartition && f.version >= 13 {
				err = kerr.UnknownTopicID
			}
			if got.size > 0 {
				sp.RecordBatches = make([]byte, 0, got.size)
				for _, raw := range got.batches {
					sp.RecordBatches = append(sp.RecordBatches, raw...)
				}
				total += got.size
				c.holdOutbound(got.size)
			}
		}
		sp.ErrorCode = code(err)
		st := &resp.Topics[len(resp.Topics)-1]
		st.Partitions = append(st.Partitions, sp)
	}
	return resp
}

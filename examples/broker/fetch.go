package main

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/purgatory"
)

// A fetch requests records of some partitions, with the longest time it will wait
// until there are enough of them. The broker holds it until then. This file is
// what the example is about: the operation that waits in the purgatory.

// watchKey is what a fetch waits on: one watermark of one partition. A consumer
// may read up to the high watermark, a follower up to the end.
type watchKey struct {
	partitionKey
	watermark watermark
}

type watermark uint8

const (
	highWatermark watermark = iota
	theEnd
)

// fetch is a delayed operation, watched on every partition it reads. It keeps
// what it needs of the request, not the request: thousands of these wait.
type fetch struct {
	srv      *server
	reply    *reply
	version  int16
	follower bool
	maxBytes int
	minBytes int64
	parts    []fetchPart
	arrived  time.Time
	maxWait  time.Duration

	// changed is when the append happened, or the high watermark rose, that this
	// fetch saw when it found that it had enough. TryComplete writes it and
	// Complete reads it; the purgatory never runs them at once.
	changed time.Time
}

// fetchPart is one partition of a fetch, in the order the client asked.
type fetchPart struct {
	topic     *fetchTopic
	index     int32
	epoch     int32
	offset    int64
	maxBytes  int
	p         *partition  // nil: see err
	err       *kerr.Error // found when the request was read
	diverging *epochStart // likewise, for a follower that must cut its log back
}

// fetchTopic is how the client named the topic, and must be answered.
type fetchTopic struct {
	name string
	id   topicID
}

// overloadThrottle is what a client is asked to wait before it fetches again
// when there was no room to park its fetch.
const overloadThrottle = 100 * time.Millisecond

// lastReplicaFetch is the last version in which a follower says who it is in a
// plain field. (After it there is a tag for that, which no follower here sends.)
const lastReplicaFetch = 14

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
		follower: q.Version <= lastReplicaFetch && q.ReplicaID >= 0,
		maxBytes: min(int(max(q.MaxBytes, 0)), c.srv.cfg.maxFetch),
		arrived:  time.Now(),
	}
	f.resolve(q)
	// More than an answer may hold cannot be waited for.
	f.minBytes = min(int64(q.MinBytes), int64(f.maxBytes))
	if f.follower {
		if from, ok := c.srv.cluster.links.caller(c.nc); !ok || from != q.ReplicaID {
			resp := q.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = code(kerr.ClusterAuthorizationFailed) // anybody can say so
			r.now(resp)
			return
		}
		f.note(q)
	}

	keys := make([]watchKey, 0, len(f.parts))
	for i := range f.parts {
		if part := &f.parts[i]; part.err == nil && part.diverging == nil {
			keys = append(keys, watchKey{part.p.key, f.watermark()})
		}
	}
	if len(keys) < len(f.parts) || len(keys) == 0 || q.MaxWaitMillis <= 0 {
		f.answer(0) // an error somewhere, or nothing to wait for
		return
	}
	if c.srv.fetches.Watched()+len(keys) > c.srv.cfg.maxWatched {
		c.srv.metrics.overload.Add(1) // MaxOperations counts fetches; each may watch thousands of keys
		f.overload()
		return
	}
	f.maxWait = time.Duration(q.MaxWaitMillis) * time.Millisecond
	// c.ctx ends when the client hangs up, and takes the fetch out of the
	// purgatory with it: nobody would read the answer.
	_, err := c.srv.fetches.TryCompleteElseWatch(c.ctx, f, f.maxWait, keys...)
	if c.srv.notParked(err) {
		f.overload()
	}
}

func (f *fetch) watermark() watermark {
	if f.follower {
		return theEnd
	}
	return highWatermark
}

// note takes a follower's fetch for what it tells the leader: how far it has got.
func (f *fetch) note(q *kmsg.FetchRequest) {
	now, i := time.Now(), 0
	for _, rt := range q.Topics {
		for _, rp := range rt.Partitions {
			part := &f.parts[i]
			i++
			if part.p == nil {
				continue
			}
			done := part.p.fetchedBy(q.ReplicaID, rp.FetchOffset, rp.LogStartOffset, part.epoch, rp.LastFetchedEpoch, now)
			part.err, part.diverging = done.err, done.diverging
			if done.raised {
				f.srv.hasRaised(part.p, part.epoch)
			}
			if done.low >= 0 {
				r := reign{part.p.key, part.epoch}
				f.srv.deletes.Advance(r, f.srv.deleted(r))
			}
			if done.rejoining {
				select {
				case f.srv.rejoining <- struct{}{}:
				default: // keepInSync has been told and has not looked yet
				}
			}
		}
	}
}

// overload answers a fetch that there is no room to park, with what there is.
// If that is not enough, the client is asked to come back later.
func (f *fetch) overload() {
	if f.TryComplete() {
		f.answer(0)
	} else {
		f.answer(overloadThrottle)
	}
}

// resolve finds the partitions.
func (f *fetch) resolve(q *kmsg.FetchRequest) {
	n := 0
	for i := range q.Topics {
		n += len(q.Topics[i].Partitions)
	}
	f.parts = make([]fetchPart, 0, n)
	for i := range q.Topics {
		rt := &q.Topics[i]
		named := &fetchTopic{rt.Topic, rt.TopicID}
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			epoch := int32(-1)
			if q.Version >= 9 {
				epoch = rp.CurrentLeaderEpoch
			}
			p, err := f.srv.lookup(rt.Topic, rt.TopicID, q.Version >= 13, rp.Partition)
			if err == nil {
				err = f.named(p.leads(epoch))
			}
			f.parts = append(f.parts, fetchPart{
				topic:    named,
				index:    rp.Partition,
				epoch:    epoch,
				offset:   rp.FetchOffset,
				maxBytes: int(max(rp.PartitionMaxBytes, 0)),
				p:        p,
				err:      err,
			})
		}
	}
}

// TryComplete reports whether there is enough to answer, or a reason not to
// wait for it: any error is worth more to the client than silence.
func (f *fetch) TryComplete() bool {
	var total int64
	var newest time.Time
	for i := range f.parts {
		part := &f.parts[i]
		s := part.p.state(part.offset, part.epoch, f.follower)
		if s.err != nil {
			// Kept, for by the time the answer is made this broker may lead again, and
			// the client would be told that there is nothing, too early.
			part.err = f.named(s.err)
			return true
		}
		// What a partition may not give does not count, except that one batch
		// always goes out: else a limit below the batch's size would wait for ever.
		total += min(s.readable, max(int64(part.maxBytes), 1))
		if s.changed.After(newest) {
			newest = s.changed
		}
	}
	if total < f.minBytes {
		return false
	}
	if newest.After(f.arrived) {
		f.changed = newest // it waited for this one; older data was there when it came
	}
	return true
}

// Complete answers, or does not: a client that has hung up is owed nothing.
// Complete runs on a producer's goroutine, on a worker of the purgatory's wheel,
// or on the one that shuts it down; none of them may be held up by this client's
// network. So it only lets the answer be built.
func (f *fetch) Complete(outcome purgatory.Outcome, _ error) {
	kind := fetchOperation
	switch {
	case f.follower:
		kind = replicaFetchOperation
	case outcome == purgatory.Completed && !f.changed.IsZero():
		f.srv.metrics.woken.Add(1)
	case outcome == purgatory.Expired && f.srv.cfg.expired != nil:
		f.srv.cfg.expired(f)
	}
	f.srv.settle(kind, outcome, f.arrived, f.reply, func() { f.answer(0) }) // with what there is
}

// wokenAt is for the latency of consumers' answers.
func (f *fetch) wokenAt() time.Time {
	if f.follower {
		return time.Time{}
	}
	return f.changed
}

func (f *fetch) answer(throttle time.Duration) {
	f.reply.answerWoken(func() kmsg.Response { return f.build(throttle) }, f.wokenAt())
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
		sp.ErrorCode = code(f.fill(&sp, part, room-total, total == 0))
		total += len(sp.RecordBatches)
		c.holdOutbound(len(sp.RecordBatches))
		st := &resp.Topics[len(resp.Topics)-1]
		st.Partitions = append(st.Partitions, sp)
	}
	return resp
}

// named is a partition's error as this version of the request has it: it knows
// of a topic that is gone by its name, or by its id.
func (f *fetch) named(err *kerr.Error) *kerr.Error {
	if err == kerr.UnknownTopicOrPartition && f.version >= 13 {
		return kerr.UnknownTopicID
	}
	return err
}

// fill reads one partition into the answer.
func (f *fetch) fill(sp *kmsg.FetchResponseTopicPartition, part *fetchPart, room int, atLeastOne bool) *kerr.Error {
	switch {
	case part.diverging != nil:
		sp.DivergingEpoch.Epoch, sp.DivergingEpoch.EndOffset = part.diverging.epoch, part.diverging.start
		return nil
	case part.err != nil && part.err != kerr.OffsetOutOfRange:
		return part.err
	}
	got := part.p.read(part.offset, part.epoch, f.follower, min(part.maxBytes, room), atLeastOne)
	sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = got.hw, got.hw, got.start
	switch {
	case got.err != nil:
		return f.named(got.err)
	case part.err != nil:
		return part.err // a follower that must begin anew: it needs to know where
	}
	if got.size > 0 {
		sp.RecordBatches = make([]byte, 0, got.size)
		for _, raw := range got.batches {
			sp.RecordBatches = append(sp.RecordBatches, raw...)
		}
	}
	return nil
}

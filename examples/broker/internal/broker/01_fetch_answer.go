package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// overloadThrottle is what a client is asked to wait before it fetches again
// when there was no room to park its fetch.
const overloadThrottle = 100 * time.Millisecond

// overload answers a fetch that there is no room to park, with what there is.
// If that is not enough, the client is asked to come back later.
func (f *fetch) overload() {
	if f.TryComplete() {
		f.answer(0)
	} else {
		f.answer(overloadThrottle)
	}
}

// shortAnswer is how many bytes of records a fetch may have for its answer to be made by who
// completes it.
const shortAnswer = 64 << 10

// wokenAt is for the latency of consumers' answers, which are sent at once if it is recent.
func (f *fetch) wokenAt() time.Time {
	if f.follower {
		return time.Time{}
	}
	return f.changed
}

func (f *fetch) answer(throttle time.Duration) {
	f.reply.AnswerWoken(func() kmsg.Response { return f.build(throttle) }, f.wokenAt(), f.readable <= shortAnswer)
}

// build reads the partitions, where the answer is sent.
func (f *fetch) build(throttle time.Duration) kmsg.Response {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = f.version
	resp.ThrottleMillis = int32(throttle / time.Millisecond)
	if f.session != nil {
		f.session.fill(f, resp)
		return resp
	}
	a := answer{f: f, resp: resp, room: f.conn.OutboundRoom(f.maxBytes)}
	for i := range f.parts {
		part := &f.parts[i]
		sp, _ := a.read(part)
		a.add(part.topic, sp)
	}
	return resp
}

// answer is a fetch's on its way. At most maxBytes go out, and each partition's part of
// them, but the first batch goes out whatever its size, or a consumer could never get past
// it.
type answer struct {
	f           *fetch
	resp        *kmsg.FetchResponse
	topic       *fetchTopic // of the last partition
	room, total int
}

// read reads a partition.
func (a *answer) read(part *fetchPart) (sp kmsg.FetchResponseTopicPartition, err *kerr.Error) {
	sp = kmsg.NewFetchResponseTopicPartition()
	sp.Partition = part.index
	sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = -1, -1, -1
	sp.RecordBatches = []byte{} // empty, not null: librdkafka takes null for a broken answer
	err = a.f.fill(&sp, part, a.room-a.total, a.total == 0)
	sp.ErrorCode = wire.Code(err)
	a.total += len(sp.RecordBatches)
	a.f.conn.HoldOutbound(len(sp.RecordBatches))
	return sp, err
}

// add puts it into the answer.
func (a *answer) add(topic *fetchTopic, sp kmsg.FetchResponseTopicPartition) {
	if a.topic == nil || *a.topic != *topic {
		a.topic = topic
		st := kmsg.NewFetchResponseTopic()
		st.Topic, st.TopicID = topic.name, topic.id
		a.resp.Topics = append(a.resp.Topics, st)
	}
	st := &a.resp.Topics[len(a.resp.Topics)-1]
	st.Partitions = append(st.Partitions, sp)
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
		sp.DivergingEpoch.Epoch, sp.DivergingEpoch.EndOffset = part.diverging.Epoch, part.diverging.Start
		return nil
	case part.err != nil && part.err != kerr.OffsetOutOfRange:
		return part.err
	}
	got := part.p.Read(part.offset, part.epoch, f.follower, min(part.maxBytes, room), atLeastOne)
	sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = got.HighWatermark, got.HighWatermark, got.Start
	switch {
	case got.Err != nil:
		return f.named(got.Err)
	case part.err != nil:
		return part.err // a follower that must begin anew: it needs to know where
	}
	if got.Size > 0 {
		sp.RecordBatches = make([]byte, 0, got.Size)
		for _, raw := range got.Batches {
			sp.RecordBatches = append(sp.RecordBatches, raw...)
		}
	}
	return nil
}

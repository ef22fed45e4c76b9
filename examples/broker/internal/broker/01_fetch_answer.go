package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// overloadThrottle is how long a client is asked to wait before its next fetch when its fetch could
// not be parked.
const overloadThrottle = 100 * time.Millisecond

// overload answers a fetch that cannot be parked with the records there are. If those are not
// enough, the answer asks the client to wait before it fetches again.
func (f *fetch) overload() {
	if f.TryComplete() {
		f.answer(0)
	} else {
		f.answer(overloadThrottle)
	}
}

// shortAnswer is the most bytes of records for which the goroutine that completes a fetch also
// builds its answer.
const shortAnswer = 64 << 10

// wokenAt returns the event from which a consumer's latency is measured. An answer to a recent
// event is sent at once.
func (f *fetch) wokenAt() time.Time {
	if f.follower {
		return time.Time{}
	}
	return f.changed
}

func (f *fetch) answer(throttle time.Duration) {
	f.reply.AnswerWoken(func() kmsg.Response { return f.build(throttle) }, f.wokenAt(), f.readable <= shortAnswer)
}

// build reads the partitions. It runs when the answer is sent.
func (f *fetch) build(throttle time.Duration) kmsg.Response {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = f.version
	resp.ThrottleMillis = int32(throttle / time.Millisecond)
	if f.session != nil {
		f.session.fill(f, resp)
		return resp
	}
	a := answer{f: f, resp: resp, maxBytes: f.conn.OutboundCapacity(f.maxBytes)}
	for i := range f.parts {
		part := &f.parts[i]
		sp, _ := a.read(part)
		a.add(part.topic, sp)
	}
	return resp
}

// answer is a fetch answer under construction. It holds at most maxBytes, and at most each
// partition's own limit, except that the first batch is sent whatever its size: a consumer could
// never get past it otherwise.
type answer struct {
	f               *fetch
	resp            *kmsg.FetchResponse
	topic           *fetchTopic // of the last partition
	maxBytes, total int
}

func (a *answer) read(part *fetchPart) (sp kmsg.FetchResponseTopicPartition, err *kerr.Error) {
	sp = kmsg.NewFetchResponseTopicPartition()
	sp.Partition = part.index
	sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = -1, -1, -1
	sp.RecordBatches = []byte{} // empty, not null: librdkafka takes null for a malformed answer
	err = a.f.fill(&sp, part, a.maxBytes-a.total, a.total == 0)
	sp.ErrorCode = wire.Code(err)
	a.total += len(sp.RecordBatches)
	a.f.conn.ChargeOutbound(len(sp.RecordBatches))
	return sp, err
}

// add appends a partition to the answer.
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

// errorFor maps a partition's error to the one that this version of the request knows: a deleted
// topic is unknown by its name, or by its id.
func (f *fetch) errorFor(err *kerr.Error) *kerr.Error {
	if err == kerr.UnknownTopicOrPartition && f.version >= 13 {
		return kerr.UnknownTopicID
	}
	return err
}

// fill reads one partition into sp.
func (f *fetch) fill(sp *kmsg.FetchResponseTopicPartition, part *fetchPart, maxBytes int, atLeastOne bool) *kerr.Error {
	switch {
	case part.diverging != nil:
		sp.DivergingEpoch.Epoch, sp.DivergingEpoch.EndOffset = part.diverging.Epoch, part.diverging.Start
		return nil
	case part.err != nil && part.err != kerr.OffsetOutOfRange:
		return part.err
	}
	got := part.p.Read(part.offset, part.epoch, f.follower, min(part.maxBytes, maxBytes), atLeastOne)
	sp.HighWatermark, sp.LastStableOffset, sp.LogStartOffset = got.HighWatermark, got.HighWatermark, got.Start
	switch {
	case got.Err != nil:
		return f.errorFor(got.Err)
	case part.err != nil:
		return part.err // a follower that must start over needs the log's start and high watermark
	}
	if got.Size > 0 {
		sp.RecordBatches = make([]byte, 0, got.Size)
		for _, raw := range got.Batches {
			sp.RecordBatches = append(sp.RecordBatches, raw...)
		}
	}
	return nil
}

package kafkatest

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
)

// Produce returns a request to write a batch, with acks=all and a timeout of WaitLimit.
func Produce(version int16, topic *meta.Topic, partition int32, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, int32(WaitLimit/time.Millisecond)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic.Name, topic.ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// Want is one partition of a fetch.
type Want struct {
	partition int32
	offset    int64
	maxBytes  int32
}

// At returns a Want for a fetch from offset.
func At(partition int32, offset int64, maxBytes int32) Want { return Want{partition, offset, maxBytes} }

// Fetch returns a request for records of a topic.
func Fetch(version int16, topic *meta.Topic, wait time.Duration, minBytes, maxBytes int32, wants ...Want) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait/time.Millisecond), minBytes, maxBytes
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic.Name, topic.ID
	for _, w := range wants {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = w.partition, w.offset, w.maxBytes
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// Arguments of [Fetch].
const (
	ForEver = 10 * time.Minute // a max wait that outlasts every test
	Plenty  = 1 << 20
)

// PartitionsOf returns the partitions of a fetch response, of all topics.
func PartitionsOf(resp kmsg.Response) []kmsg.FetchResponseTopicPartition {
	var all []kmsg.FetchResponseTopicPartition
	for _, t := range resp.(*kmsg.FetchResponse).Topics {
		all = append(all, t.Partitions...)
	}
	return all
}

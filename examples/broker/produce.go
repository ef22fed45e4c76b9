package main

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleProduce appends and answers at once: there is one replica, so what is
// in the log is at the high watermark, and acks 1 and all are the same. With
// acks 0 there is no reply, and r is nil.
func handleProduce(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.ProduceRequest)
	resp := q.ResponseKind().(*kmsg.ProduceResponse)
	var changed []partitionKey
	failed := false
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		st.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, sp := &rt.Partitions[j], &st.Partitions[j]
			sp.Default()
			sp.Partition = rp.Partition
			p, done, err := c.srv.produce(q, rt, rp)
			if err != nil {
				sp.ErrorCode, sp.BaseOffset = code(err), -1
				failed = true
				continue
			}
			sp.BaseOffset, sp.LogStartOffset = done.base, done.logStart
			if done.stored {
				changed = append(changed, p.key)
			}
		}
		resp.Topics = append(resp.Topics, st)
	}
	switch {
	case r != nil:
		r.now(resp)
	case failed:
		// Nobody waits for an answer that could say so. A connection that ends is
		// how Kafka tells such a producer that something is wrong.
		_ = c.nc.Close()
	}
	// The producer's answer is on its way. Now the fetches that wait for this:
	// no lock is held, and their completions only hand answers to other
	// connections' writers, so this costs the producer microseconds.
	for _, key := range changed {
		c.srv.purgatory.CheckAndComplete(key)
	}
	c.srv.topics.limitSum()
}

// produce appends one partition's batch.
func (s *server) produce(q *kmsg.ProduceRequest, rt *kmsg.ProduceRequestTopic, rp *kmsg.ProduceRequestTopicPartition) (*partition, appended, *kerr.Error) {
	switch {
	case q.Acks < -1 || q.Acks > 1:
		return nil, appended{}, kerr.InvalidRequiredAcks
	case q.TransactionID != nil:
		return nil, appended{}, kerr.TransactionalIDAuthorizationFailed
	}
	p, err := s.topics.lookup(rt.Topic, rt.TopicID, q.Version >= 13, rp.Partition)
	if err != nil {
		return nil, appended{}, err
	}
	b, err := parseBatch(rp.Records, q.Version, s.cfg.maxBatch)
	if err != nil {
		return nil, appended{}, err
	}
	done, err := p.append(&s.cfg, rp.Records, &b)
	if err == kerr.UnknownTopicOrPartition && q.Version >= 13 {
		err = kerr.UnknownTopicID
	}
	if err == nil && done.stored {
		s.metrics.batches[b.Attributes&codecMask].Add(1)
		s.metrics.records.Add(uint64(b.NumRecords))
	}
	return p, done, err
}

package broker

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
	"github.com/seed-782fa212/limbo/examples/broker/internal/replica"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
	"github.com/seed-782fa212/limbo/purgatory"
)

// produce is a delayed operation. With acks=all its answer waits until every in-sync replica has
// the records: until the high watermark of each of its partitions reaches a number.
// replica.LeaderEpoch describes how the end of a leader epoch completes it.
type produce struct {
	srv     *Server
	reply   *wire.Reply
	resp    *kmsg.ProduceResponse
	waiting []producedPart
	byID    bool
}

// producedPart is a partition whose records are in the leader's log.
type producedPart struct {
	at *kmsg.ProduceResponseTopicPartition
	p  *replica.Partition
	replica.Appended
}

// handleProduce appends the batches. With acks=1 it answers at once; with acks=0 there is no reply,
// and r is nil.
func handleProduce(s *Server, c *wire.Conn, q *kmsg.ProduceRequest, r *wire.Reply) {
	op := &produce{
		srv:   s,
		reply: r,
		resp:  q.ResponseKind().(*kmsg.ProduceResponse),
		byID:  q.Version >= 13,
	}
	failed := op.append(q)
	switch {
	case r == nil && failed:
		// With acks=0 there is no answer that could carry the error. Kafka closes the connection to
		// tell such a producer that something is wrong.
		c.Close()
	case r != nil && (q.Acks != -1 || len(op.waiting) == 0):
		r.Now(op.resp)
		c.Flush()
	}
	// Complete the operations that wait for these records. No lock is held, and completions do not
	// wait for the network. After 100 µs they only start goroutines.
	for _, part := range op.waiting {
		if part.Stored {
			s.onAppend(part.p, part.Appended)
		}
	}
	if q.Acks == -1 && len(op.waiting) > 0 {
		op.wait(c, time.Duration(q.TimeoutMillis)*time.Millisecond)
	}
	s.partitions.LimitSum(s.cfg.MaxLogSum)
}

// append appends the batches of all partitions, and reports whether one was refused.
func (o *produce) append(q *kmsg.ProduceRequest) (failed bool) {
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		st.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, sp := &rt.Partitions[j], &st.Partitions[j]
			sp.Default()
			sp.Partition = rp.Partition
			p, done, err := o.srv.append(q, rt, rp)
			if err != nil {
				sp.ErrorCode, sp.BaseOffset = wire.Code(o.errorFor(err)), -1
				failed = true
				continue
			}
			sp.BaseOffset, sp.LogStartOffset = done.Base, done.LogStart
			o.waiting = append(o.waiting, producedPart{sp, p, done})
		}
		o.resp.Topics = append(o.resp.Topics, st)
	}
	return failed
}

// errorFor maps an error to the one that this version of the request knows.
func (o *produce) errorFor(err *kerr.Error) *kerr.Error {
	if err == kerr.UnknownTopicOrPartition && o.byID {
		return kerr.UnknownTopicID
	}
	return err
}

// wait parks the answer until the high watermarks have passed the records.
func (o *produce) wait(c *wire.Conn, timeout time.Duration) {
	goals := make([]purgatory.Goal[replica.LeaderEpoch, int64], len(o.waiting))
	for i, part := range o.waiting {
		goals[i] = purgatory.Goal[replica.LeaderEpoch, int64]{Key: replica.LeaderEpoch{PartitionKey: part.p.Key, Epoch: part.Epoch}, Number: part.End}
	}
	_, err := o.srv.produces.TryCompleteElseWatch(c.Context(), o, timeout, purgatory.All, goals...)
	if o.srv.notParked(err) {
		o.answer() // partitions that are not replicated yet get a timeout error
	}
}

// Complete runs on the goroutine that handles the last replica's fetch, on a worker, or on the
// goroutine that takes leadership away. It only builds the answer.
func (o *produce) Complete(outcome purgatory.Outcome, _ error) {
	completeParked(outcome, o.reply, o.answer)
}

// answer builds the response, with the outcome for the records of each partition.
func (o *produce) answer() {
	for _, part := range o.waiting {
		if err := part.p.Replicated(part.Epoch, part.End); err != nil {
			part.at.ErrorCode, part.at.BaseOffset = wire.Code(err), -1
		}
	}
	o.reply.Now(o.resp)
}

// append appends one partition's batch.
func (s *Server) append(q *kmsg.ProduceRequest, rt *kmsg.ProduceRequestTopic, rp *kmsg.ProduceRequestTopicPartition) (*replica.Partition, replica.Appended, *kerr.Error) {
	switch {
	case q.Acks < -1 || q.Acks > 1:
		return nil, replica.Appended{}, kerr.InvalidRequiredAcks
	case q.TransactionID != nil:
		return nil, replica.Appended{}, kerr.TransactionalIDAuthorizationFailed
	}
	p, err := s.lookup(rt.Topic, rt.TopicID, q.Version >= 13, rp.Partition)
	if err != nil {
		return nil, replica.Appended{}, err
	}
	if p.Key.Topic == s.offsetsTopicID() {
		return nil, replica.Appended{}, kerr.InvalidTopicException // only coordinators write to this topic
	}
	b, err := log.ParseBatch(rp.Records, q.Version, p.MaxBatch(s.cfg.MaxBatch))
	if err != nil {
		return nil, replica.Appended{}, err
	}
	done, err := p.Append(rp.Records, &b, q.Acks == -1)
	if err == nil && done.Stored {
		s.metrics.Batches[b.Attributes&log.CodecMask].Add(1)
		s.metrics.Records.Add(uint64(b.NumRecords))
	}
	return p, done, err
}

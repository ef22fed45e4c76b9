package main

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// An idempotent producer numbers the records it sends to a partition, so that a
// batch sent twice, because its answer got lost, is stored once. The controller
// hands out producer ids, of which nothing is kept; each partition remembers for
// each id the last batches it took, from the first one on that it sees.

// rememberedBatches is how many a producer may have in flight, and so how far
// back a repeated one can lie. Kafka's clients rely on five.
const rememberedBatches = 5

// producerState is what a partition remembers of one producer. The partition's
// lock guards it.
type producerState struct {
	epoch  int16
	recent []sequenceRange // oldest first, at most rememberedBatches
	usedAt time.Time
}

type sequenceRange struct {
	first, last int32
	base        int64 // the offset it was stored at
}

// nextSequence is the one after seq. Sequences wrap from MaxInt32 to 0.
func nextSequence(seq int32, by int32) int32 {
	return int32((int64(seq) + int64(by)) % (math.MaxInt32 + 1))
}

// check returns what is to become of a batch: an error; or stored before, at base;
// or new. A producer of which nothing is known may begin anywhere: its state may
// have been forgotten for age or space.
func (s *producerState) check(b *kmsg.RecordBatch) (base int64, duplicate bool, _ *kerr.Error) {
	last := nextSequence(b.FirstSequence, b.NumRecords-1)
	switch {
	case s == nil:
		return 0, false, nil
	case b.ProducerEpoch < s.epoch:
		return 0, false, kerr.InvalidProducerEpoch
	case b.ProducerEpoch > s.epoch:
		if b.FirstSequence != 0 {
			return 0, false, kerr.OutOfOrderSequenceNumber
		}
		return 0, false, nil
	}
	for _, r := range s.recent {
		if r.first == b.FirstSequence && r.last == last {
			return r.base, true, nil
		}
	}
	if newest := s.recent[len(s.recent)-1]; b.FirstSequence != nextSequence(newest.last, 1) {
		return 0, false, kerr.OutOfOrderSequenceNumber
	}
	return 0, false, nil
}

// take remembers a batch that check found new.
func (s *producerState) take(b *kmsg.RecordBatch, base int64, now time.Time) {
	if b.ProducerEpoch != s.epoch {
		s.epoch, s.recent = b.ProducerEpoch, s.recent[:0]
	}
	if len(s.recent) == rememberedBatches {
		copy(s.recent, s.recent[1:])
		s.recent = s.recent[:rememberedBatches-1]
	}
	s.recent = append(s.recent, sequenceRange{
		first: b.FirstSequence,
		last:  nextSequence(b.FirstSequence, b.NumRecords-1),
		base:  base,
	})
	s.usedAt = now
}

// producerStates are a partition's producers by id.
type producerStates map[int64]*producerState

// add makes room for a producer that is new here: those idle for too long go,
// and if that is not enough, the one that was quiet the longest.
func (p producerStates) add(id int64, limit int, idle time.Duration, now time.Time) *producerState {
	if len(p) >= limit {
		quietest, quietestID := now, int64(noProducer)
		for id, s := range p {
			switch {
			case now.Sub(s.usedAt) > idle:
				delete(p, id)
			case !s.usedAt.After(quietest):
				quietest, quietestID = s.usedAt, id
			}
		}
		if len(p) >= limit {
			delete(p, quietestID)
		}
	}
	s := &producerState{epoch: -1, recent: make([]sequenceRange, 0, rememberedBatches)}
	p[id] = s
	return s
}

func handleInitProducerID(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.InitProducerIDRequest)
	resp := q.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = noProducer, -1
	if q.TransactionalID != nil {
		resp.ErrorCode = code(kerr.TransactionalIDAuthorizationFailed) // fatal to clients; they would retry others for ever
	} else {
		// Also when a client names the id it had: without transactions a fresh
		// id is as good as a higher epoch, and nothing needs to be remembered.
		resp.ProducerID, resp.ProducerEpoch = c.srv.cluster.controller.nextProducerID(), 0
	}
	r.now(resp)
}

package log

import (
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// An idempotent producer numbers the records that it sends to a partition, so that a batch that it
// sends twice, because the response was lost, is stored once. The controller allocates producer ids
// and keeps no record of them. For each id, each partition remembers the last batches that it
// stored, from the first one that it sees.

// rememberedBatches is the number of batches that a producer may have in flight, and so how far
// back a duplicate can lie. Kafka's clients rely on five.
const rememberedBatches = 5

// Producer is a partition's state of one producer. The partition's lock guards it.
type Producer struct {
	epoch  int16
	recent []sequenceRange // oldest first, at most rememberedBatches
	UsedAt time.Time
}

type sequenceRange struct {
	first, last int32
	base        int64 // the offset at which it was stored
}

// nextSequence returns seq plus by. Sequences wrap from MaxInt32 to 0.
func nextSequence(seq int32, by int32) int32 {
	return int32((int64(seq) + int64(by)) % (math.MaxInt32 + 1))
}

// Check reports whether a batch is invalid (an error), a duplicate of the batch at base, or new. An
// unknown producer may begin at any sequence: its state may have been forgotten for age or space.
func (s *Producer) Check(b *kmsg.RecordBatch) (base int64, duplicate bool, _ *kerr.Error) {
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

// Record records a batch that Check found new.
func (s *Producer) Record(b *kmsg.RecordBatch, base int64, now time.Time) {
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
	s.UsedAt = now
}

// Producers are a partition's producers by id.
type Producers map[int64]*Producer

// Add adds a producer that is new to this partition. If there are limit producers already, it
// removes those that have been idle for too long, or else the one that has been idle the longest.
func (p Producers) Add(id int64, limit int, idle time.Duration, now time.Time) *Producer {
	if len(p) >= limit {
		leastRecent, leastRecentID := now, int64(NoProducer)
		for id, s := range p {
			switch {
			case now.Sub(s.UsedAt) > idle:
				delete(p, id)
			case !s.UsedAt.After(leastRecent):
				leastRecent, leastRecentID = s.UsedAt, id
			}
		}
		if len(p) >= limit {
			delete(p, leastRecentID)
		}
	}
	s := &Producer{epoch: -1, recent: make([]sequenceRange, 0, rememberedBatches)}
	p[id] = s
	return s
}

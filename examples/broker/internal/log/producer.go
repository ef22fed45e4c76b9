package log

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

// Producer is what a partition remembers of one producer. The partition's
// lock guards it.
type Producer struct {
	epoch  int16
	recent []sequenceRange // oldest first, at most rememberedBatches
	UsedAt time.Time
}

type sequenceRange struct {
	first, last int32
	base        int64 // the offset it was stored at
}

// nextSequence is the one after seq. Sequences wrap from MaxInt32 to 0.
func nextSequence(seq int32, by int32) int32 {
	return int32((int64(seq) + int64(by)) % (math.MaxInt32 + 1))
}

// Check returns what is to become of a batch: an error; or stored before, at base;
// or new. A producer of which nothing is known may begin anywhere: its state may
// have been forgotten for age or space.
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

// Take remembers a batch that check found new.
func (s *Producer) Take(b *kmsg.RecordBatch, base int64, now time.Time) {
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

// Add makes room for a producer that is new here: those idle for too long go,
// and if that is not enough, the one that was quiet the longest.
func (p Producers) Add(id int64, limit int, idle time.Duration, now time.Time) *Producer {
	if len(p) >= limit {
		quietest, quietestID := now, int64(NoProducer)
		for id, s := range p {
			switch {
			case now.Sub(s.UsedAt) > idle:
				delete(p, id)
			case !s.UsedAt.After(quietest):
				quietest, quietestID = s.UsedAt, id
			}
		}
		if len(p) >= limit {
			delete(p, quietestID)
		}
	}
	s := &Producer{epoch: -1, recent: make([]sequenceRange, 0, rememberedBatches)}
	p[id] = s
	return s
}

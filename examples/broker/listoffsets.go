package main

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Timestamps that ask for a place instead of a time.
const (
	latestOffset         = -1
	earliestOffset       = -2
	maxTimestampOffset   = -3 // the record with the largest timestamp
	earliestLocalOffset  = -4 // with nothing in tiered storage: the earliest
	latestTieredOffset   = -5 // with nothing in tiered storage: none
	earliestUploadOffset = -6 // the same
)

func handleListOffsets(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.ListOffsetsRequest)
	resp := q.ResponseKind().(*kmsg.ListOffsetsResponse)
	// A partition may be asked for once, as in Kafka: to look for a time is a scan,
	// and a request has room for thousands of them.
	asked := map[*partition]bool{}
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewListOffsetsResponseTopic()
		st.Topic = rt.Topic
		st.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			rp, sp := &rt.Partitions[j], &st.Partitions[j]
			sp.Default()
			sp.Partition, sp.Timestamp, sp.Offset = rp.Partition, -1, -1
			p, err := c.srv.lookup(rt.Topic, topicID{}, false, rp.Partition)
			if err == nil && asked[p] {
				err = kerr.InvalidRequest
			}
			if err == nil {
				believed := int32(-1)
				if q.Version >= 4 {
					believed = rp.CurrentLeaderEpoch
				}
				asked[p] = true
				sp.Offset, sp.Timestamp, sp.LeaderEpoch, err = p.offsetFor(rp.Timestamp, believed)
			}
			if err != nil {
				sp.ErrorCode = code(err)
				continue
			}
			if q.Version == 0 && rp.MaxNumOffsets > 0 && sp.Offset >= 0 {
				sp.OldStyleOffsets = []int64{sp.Offset}
			}
		}
		resp.Topics = append(resp.Topics, st)
	}
	r.now(resp)
}

// offsetFor finds the offset that a timestamp asks for, of what consumers may
// read, with its record's time and leader epoch; -1 for each when there is none.
func (p *partition) offsetFor(ts int64, believed int32) (offset, timestamp int64, epoch int32, _ *kerr.Error) {
	found, offset, epoch, err := p.batchFor(ts, believed)
	if err != nil || found == nil {
		return offset, -1, epoch, err
	}
	if ts == maxTimestampOffset {
		ts = found.maxTimestamp
	}
	offset, timestamp = offsetByTime(found.raw, ts) // reads the batch: not under the lock
	if offset < 0 {
		epoch = -1
	}
	return offset, timestamp, epoch, nil
}

// batchFor finds the batch that holds the answer, or the answer itself.
func (p *partition) batchFor(ts int64, believed int32) (found *storedBatch, offset int64, epoch int32, _ *kerr.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(believed); err != nil {
		return nil, -1, -1, err
	}
	var b storedBatch
	var ok bool
	switch {
	case ts == latestOffset:
		return nil, p.hw, p.assigned.epoch, nil
	case ts == earliestOffset, ts == earliestLocalOffset:
		if epoch = p.log.epochAt(p.log.start); epoch < 0 {
			epoch = p.assigned.epoch
		}
		return nil, p.log.start, epoch, nil
	case ts == maxTimestampOffset:
		b, ok = p.log.newest(p.hw)
	case ts >= 0:
		b, ok = p.log.byTime(ts, p.hw)
	}
	if !ok {
		return nil, -1, -1, nil
	}
	return &b, -1, p.log.epochAt(b.base), nil
}

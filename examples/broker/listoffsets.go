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
			p, err := c.srv.topics.lookup(rt.Topic, topicID{}, false, rp.Partition)
			if err == nil && asked[p] {
				err = kerr.InvalidRequest
			}
			if err == nil && q.Version >= 4 {
				err = checkEpoch(rp.CurrentLeaderEpoch)
			}
			if err != nil {
				sp.ErrorCode = code(err)
				continue
			}
			asked[p] = true
			sp.Offset, sp.Timestamp = p.offsetFor(rp.Timestamp)
			if sp.Offset >= 0 {
				sp.LeaderEpoch = leaderEpoch
			}
			if q.Version == 0 && rp.MaxNumOffsets > 0 && sp.Offset >= 0 {
				sp.OldStyleOffsets = []int64{sp.Offset}
			}
		}
		resp.Topics = append(resp.Topics, st)
	}
	r.now(resp)
}

// checkEpoch compares the epoch a client believes in with the only one there
// is. Clients that do not know say -1.
func checkEpoch(epoch int32) *kerr.Error {
	if epoch > leaderEpoch {
		return kerr.UnknownLeaderEpoch
	}
	return nil
}

// offsetFor answers -1 for both when there is no such record.
func (p *partition) offsetFor(ts int64) (offset, timestamp int64) {
	p.mu.Lock()
	var found storedBatch
	var ok bool
	switch {
	case ts == latestOffset:
		defer p.mu.Unlock()
		return p.log.next, -1
	case ts == earliestOffset, ts == earliestLocalOffset:
		defer p.mu.Unlock()
		return p.log.start, -1
	case ts == maxTimestampOffset:
		if found, ok = p.log.newest(); ok {
			ts = found.maxTimestamp
		}
	case ts >= 0:
		found, ok = p.log.byTime(ts)
	}
	p.mu.Unlock()
	if !ok {
		return -1, -1
	}
	return offsetByTime(found.raw, ts) // reads the batch: not under the lock
}

package main

import (
	"slices"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Leader epochs tell two replicas where their logs part: each batch carries the
// epoch it was written under, an epoch has one leader, and so what two logs have
// of one epoch agrees up to where the shorter one ends. (KIP-101; KIP-595 has
// the leader answer a follower's fetch with that place.)

// epochStart is where the batches of an epoch begin.
type epochStart struct {
	epoch int32
	start int64
}

// noteEpoch adds an epoch's first batch, if it is that.
func noteEpoch(epochs []epochStart, epoch int32, base int64) []epochStart {
	if n := len(epochs); n > 0 && epochs[n-1].epoch >= epoch {
		return epochs
	}
	return append(epochs, epochStart{epoch, base})
}

// dropEpochs forgets those that end before the log starts.
func dropEpochs(epochs []epochStart, logStart int64) []epochStart {
	n := 0
	for n+1 < len(epochs) && epochs[n+1].start <= logStart {
		n++
	}
	return slices.Delete(epochs, 0, n)
}

// cutEpochs forgets those that begin where the log now ends, or later.
func cutEpochs(epochs []epochStart, logEnd int64) []epochStart {
	n := sort.Search(len(epochs), func(i int) bool { return epochs[i].start >= logEnd })
	return epochs[:n:n]
}

// epochEnd answers for an epoch: the largest one here that is not above it, and
// where that ends. -1 and -1 when there is none.
func (l *log) epochEnd(epoch int32) (found int32, end int64) {
	n := sort.Search(len(l.epochs), func(i int) bool { return l.epochs[i].epoch > epoch })
	if n == 0 {
		return -1, -1
	}
	if n == len(l.epochs) {
		return l.epochs[n-1].epoch, l.next
	}
	return l.epochs[n-1].epoch, l.epochs[n].start
}

// checkEpoch compares the epoch that a client or follower believes in with the
// leader's own. Clients that do not know say -1.
func checkEpoch(believed, epoch int32) *kerr.Error {
	switch {
	case believed < 0 || believed == epoch:
		return nil
	case believed < epoch:
		return kerr.FencedLeaderEpoch
	default:
		return kerr.UnknownLeaderEpoch
	}
}

// handleOffsetForLeaderEpoch answers a consumer whether what it has read is still
// in the log after a change of leaders.
func handleOffsetForLeaderEpoch(c *conn, req kmsg.Request, r *reply) {
	q := req.(*kmsg.OffsetForLeaderEpochRequest)
	resp := q.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for i := range q.Topics {
		rt := &q.Topics[i]
		st := kmsg.NewOffsetForLeaderEpochResponseTopic()
		st.Topic = rt.Topic
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			sp.Partition, sp.LeaderEpoch, sp.EndOffset = rp.Partition, -1, -1
			believed := int32(-1)
			if q.Version >= 2 {
				believed = rp.CurrentLeaderEpoch
			}
			p, err := c.srv.lookup(rt.Topic, topicID{}, false, rp.Partition)
			if err == nil {
				sp.LeaderEpoch, sp.EndOffset, err = p.endOfEpoch(rp.LeaderEpoch, believed)
			}
			sp.ErrorCode = code(err)
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	r.now(resp)
}

// endOfEpoch is epochEnd as the leader answers it.
func (p *partition) endOfEpoch(epoch, believed int32) (int32, int64, *kerr.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.leadsLocked(believed); err != nil {
		return -1, -1, err
	}
	found, end := p.log.epochEnd(epoch)
	return found, end, nil // not the high watermark: a new leader's may be behind what the old one has shown
}

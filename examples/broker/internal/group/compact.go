package group

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// Compaction: when a partition of groups and offsets has grown enough, a snapshot rewrites all live
// records. Once it is replicated, everything before it is deleted, here and at the followers. The
// snapshot is a barrier; queue.go says why.

// compactIfDue queues a snapshot if the log has grown by more than OffsetsCompactBytes, and by more
// than the size of the last snapshot. So live records are rewritten at most once for each time that
// clients write them.
func (s *shard) compactIfDue() {
	s.mu.Lock()
	q := &s.writes
	due := !s.ended && !q.compacting && q.sinceSnapshot > max(s.co.cfg.OffsetsCompactBytes, q.snapshotSize)
	if due {
		q.compacting = true
		q.queue = append(q.queue, &write{make: s.snapshot, barrier: true, snapshot: true, done: s.compacted})
	}
	s.mu.Unlock()
}

// snapshot returns the records of all live groups and offsets. For a group that is rebalancing it
// keeps the record in the log, of the last generation: its members are told to join again, but they
// remain members until they have, also for the next coordinator.
func (s *shard) snapshot() []log.Record {
	// The tombstone of an offset that never existed gives even an empty snapshot a position in the
	// log.
	records := []log.Record{offsetTombstone("", offsetKey{"", -1})}
	groups, err := s.all()
	if err != nil {
		return nil // the shard has ended
	}
	rebalancing := map[string]bool{}
	for _, g := range groups {
		g.mu.Lock()
		switch g.state {
		case statePreparing, stateCompleting:
			rebalancing[g.id] = true
		case stateEmpty, stateStable:
			if g.state == stateStable || g.generation > 0 {
				records = append(records, g.recordLocked(g.state == stateStable))
			}
		}
		for k, o := range g.offsets {
			records = append(records, offsetRecord(g.id, k, &o))
		}
		g.mu.Unlock()
	}
	return append(records, s.recordsInLog(rebalancing)...)
}

// recordsInLog returns the records that the log has of some groups. No write to them is in flight.
func (s *shard) recordsInLog(ids map[string]bool) (records []log.Record) {
	if len(ids) == 0 {
		return nil
	}
	kept := newLiveRecords()
	batches, _ := s.co.Store.Records(s.index)
	for _, raw := range batches {
		log.EachRecord(raw, func(_ int64, key, value []byte) {
			if id, ok := groupOf(key); ok && ids[id] {
				kept.group(id, value)
			}
		})
	}
	for id, v := range kept.groups {
		records = append(records, log.Record{Key: encodeGroupKey(id), Value: v.AppendTo(nil)})
	}
	return records
}

// compacted deletes the records that the snapshot has replaced. A snapshot that was not replicated
// does no harm; the next one is made when the log has grown again.
func (s *shard) compacted(first int64, err *kerr.Error) {
	s.mu.Lock()
	s.writes.compacting = false
	s.mu.Unlock()
	if err == nil && first >= 0 {
		s.co.Store.DeleteBefore(s.index, s.epoch, first)
	}
}

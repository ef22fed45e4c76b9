package group

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// Compaction: when enough has been written to a partition of groups and offsets, all that
// is live is written anew, and when that is replicated, what lies before it is
// deleted, here and at the followers. The snapshot is a barrier; queue.go
// says why.

// compactIfDue queues a snapshot if the log has grown by more than the bound,
// and by more than the last snapshot was: so what is live is written at most
// once more for each time that it is written by clients.
func (s *shard) compactIfDue() {
	s.mu.Lock()
	q := &s.writes
	due := !s.ended && !q.compacting && q.grown > max(s.co.cfg.OffsetsCompactBytes, q.snapshot)
	if due {
		q.compacting = true
		q.queue = append(q.queue, &write{make: s.snapshot, barrier: true, snapshot: true, done: s.compacted})
	}
	s.mu.Unlock()
}

// snapshot makes the records of all live groups and offsets. Of a group that is amid a
// rebalance it keeps the record that the log has, of the last generation: its members are
// told to join again, but they are members until they have, for the next coordinator, too.
func (s *shard) snapshot() []log.Record {
	// So that a snapshot of nothing has a place in the log, too: the tombstone of
	// an offset that never was.
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
	return append(records, s.logged(rebalancing)...)
}

// logged returns the records that the log has of some groups. Nothing is on its way there.
func (s *shard) logged(ids map[string]bool) (records []log.Record) {
	if len(ids) == 0 {
		return nil
	}
	kept := newKept()
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

// compacted deletes what the snapshot has replaced. If it did not make it to the
// replicas it has done no harm, and the next one comes when the log has grown
// again.
func (s *shard) compacted(first int64, err *kerr.Error) {
	s.mu.Lock()
	s.writes.compacting = false
	s.mu.Unlock()
	if err == nil && first >= 0 {
		s.co.Store.DeleteBefore(s.index, s.epoch, first)
	}
}

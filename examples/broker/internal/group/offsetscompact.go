package group

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-782fa212/limbo/examples/broker/internal/log"
)

// Compaction: when enough has been written to a partition of offsets, all that
// is live is written anew, and when that is replicated, what lies before it is
// deleted, here and at the followers. The snapshot is a barrier; offsetslog.go
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
		q.queue = append(q.queue, &offsetsWrite{make: s.snapshot, snapshot: true, done: s.compacted})
	}
	s.mu.Unlock()
}

// snapshot makes the records of all live groups and offsets. A group that has no assignment
// just now has its generation written, and its members join anew if the coordinator moves
// before they have one.
func (s *shard) snapshot() []log.Record {
	// So that a snapshot of nothing has a place in the log, too: the tombstone of
	// an offset that never was.
	records := []log.Record{offsetTombstone("", offsetKey{"", -1})}
	groups, err := s.all()
	if err != nil {
		return nil // the shard has ended
	}
	for _, g := range groups {
		g.mu.Lock()
		if g.generation > 0 && g.state != stateDead {
			records = append(records, g.recordLocked(g.state == stateStable))
		}
		for k, o := range g.offsets {
			records = append(records, offsetRecord(g.id, k, &o))
		}
		g.mu.Unlock()
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

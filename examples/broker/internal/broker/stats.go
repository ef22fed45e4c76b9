package broker

import (
	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
	"github.com/seed-782fa212/limbo/purgatory"
)

// AddTo adds this broker's metrics to a sum.
func (s *Server) AddTo(t *metric.Stats) {
	w := &s.wire.Metrics
	t.Connections += s.wire.Usage().Open
	t.FetchSessions += s.sessions.len()
	t.LogBytes += s.partitions.LogBytes.Load()
	t.Groups += s.groups.Usage().Groups
	for _, p := range s.partitions.All() {
		if _, leads := p.LeaderEpoch(); leads {
			t.Leads++
		}
	}
	for kind, st := range s.purgatoryStats() {
		t.AddOperations(kind, st)
		t.Parked += st.Pending
		t.Watched += st.Watched
		t.Timers += st.Wheel.Pending
		t.Wakeups += st.Wheel.Wakeups
	}
	t.Requests += w.Requests.Load()
	t.Answers += w.Answers.Load()
	t.Refused += w.Refused.Load()
	t.Panics += w.Panics.Load()
	wake := w.Wake.Durations()
	t.Wake.Merge(&wake)
	s.metrics.AddTo(t)
}

// purgatoryStats returns the statistics of the purgatories, by kind of operation. Produces include
// the records that this broker writes itself.
func (s *Server) purgatoryStats() map[string]purgatory.Stats {
	stats := s.groups.Stats()
	stats["fetch"], stats["replica_fetch"] = s.fetches.Stats(), s.followerFetches.Stats()
	stats["produce"], stats["delete_records"], stats["topics"] = s.produces.Stats(), s.deletes.Stats(), s.topicChanges.Stats()
	return stats
}

// Waiting returns the number of waiting requests, by kind.
func (s *Server) Waiting() map[string]int {
	waiting := map[string]int{}
	for kind, st := range s.purgatoryStats() {
		waiting[kind] = st.Pending
	}
	return waiting
}

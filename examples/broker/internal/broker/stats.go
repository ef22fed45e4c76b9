package broker

import (
	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
	"github.com/seed-782fa212/limbo/purgatory"
)

// Stats is what a broker holds and what it has counted; or several of them.
type Stats struct {
	Parked  int // operations in purgatories, now
	Watched int // keys that they wait on
	Timers  int // pending on the timing wheel
	Wakeups uint64

	Connections   int   // open
	FetchSessions int   // of consumers and followers
	LogBytes      int64 // kept
	Leads         int   // partitions
	Groups        int64

	Requests, Answers uint64
	Refused           uint64    // connections closed for what they sent
	Panics            uint64    // bugs, recovered
	Overload          uint64    // requests answered at once because a purgatory was full
	Woken             uint64    // parked fetches of consumers that an append completed
	Records           uint64    // appended
	Batches           [8]uint64 // appended, by codec: none, gzip, snappy, lz4, zstd
	LostCommitted     int64     // records cut off a log below its high watermark: there must be none

	Wake       metric.Counts             // from the rise of the high watermark to the write of the fetch answer it completed
	Operations map[string]OperationStats // by kind
}

// OperationStats is what became of one kind of operation.
type OperationStats struct {
	Ended  [purgatory.Failed + 1]uint64 // by outcome
	Waited metric.Counts
}

// AddTo adds what this broker holds and has counted to a sum.
func (s *Server) AddTo(t *Stats) {
	m, w := &s.metrics, &s.wire.Metrics
	t.Connections += s.wire.Usage().Open
	t.FetchSessions += s.sessions.len()
	t.LogBytes += s.partitions.Kept.Load()
	t.Groups += s.groups.Usage().Groups
	for _, p := range s.partitions.All() {
		if _, leads := p.Reign(); leads {
			t.Leads++
		}
	}
	for _, st := range s.held() {
		t.Parked += st.Delayed
		t.Watched += st.Watched
		t.Timers += st.Wheel.Pending
		t.Wakeups += st.Wheel.Wakeups
	}
	t.Requests += w.Requests.Load()
	t.Answers += w.Answers.Load()
	t.Refused += w.Refused.Load()
	t.Panics += m.panics.Load() + w.Panics.Load()
	t.Overload += m.overload.Load()
	t.Woken += m.woken.Load()
	t.Records += m.records.Load()
	t.LostCommitted += m.lostCommitted.Load()
	for i := range t.Batches {
		t.Batches[i] += m.batches[i].Load()
	}
	t.Wake.Add(w.Wake.Counts())
	if t.Operations == nil {
		t.Operations = map[string]OperationStats{}
	}
	for kind := range operationKinds {
		o := t.Operations[kind.String()]
		for outcome := range o.Ended {
			o.Ended[outcome] += m.operations[kind].ended[outcome].Load()
		}
		o.Waited.Add(m.operations[kind].waited.Counts())
		t.Operations[kind.String()] = o
	}
}

// held is what the purgatories hold, by what they are for.
func (s *Server) held() map[string]purgatory.Stats {
	groups := s.groups.Stats()
	return map[string]purgatory.Stats{
		"fetches": s.fetches.Stats(), "produces": s.produces.Stats(), "deletions": s.deletes.Stats(), "changes of topics": s.changes.Stats(),
		"joins": groups[0], "syncs": groups[1],
	}
}

// Waiting returns how many requests wait, by kind.
func (s *Server) Waiting() map[string]int {
	waiting := map[string]int{}
	for kind, st := range s.held() {
		waiting[kind] = st.Delayed
	}
	return waiting
}

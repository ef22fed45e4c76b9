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

// held is what a broker's purgatories say of themselves.
func (s *Server) held() []purgatory.Stats {
	return append([]purgatory.Stats{s.Fetches.Stats(), s.Produces.Stats(), s.Deletes.Stats(), s.changes.Stats()}, s.groups.Stats()...)
}

package metric

import (
	"sync/atomic"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/purgatory"
)

// Counters are the counters behind the table and the tests. The code that performs an action
// increments its counter; counters never decrease.
type Counters struct {
	Panics atomic.Uint64 // bugs: recovered in an operation

	Batches [8]atomic.Uint64 // appended, by codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)
	Records atomic.Uint64    // appended

	Woken    atomic.Uint64 // parked fetches that an append completed
	Overload atomic.Uint64 // requests answered at once because a purgatory was full

	LostCommitted atomic.Int64 // records truncated below the high watermark: must stay 0

	// Heartbeats holds the intervals between heartbeats of group members, by outcome.
	Heartbeats [purgatory.Failed + 1]Histogram
}

// Stats is the state and the counters of a broker, or the sum of several brokers'.
type Stats struct {
	Parked  int // operations in purgatories, now
	Watched int // their watched keys
	Timers  int // pending on the timing wheel
	Wakeups uint64

	Connections   int   // open
	FetchSessions int   // of consumers and followers
	LogBytes      int64 // kept
	Leads         int   // partitions
	Groups        int64

	Requests, Answers uint64
	Refused           uint64    // connections closed for invalid input
	Panics            uint64    // bugs, recovered
	Overload          uint64    // requests answered at once because a purgatory was full
	Woken             uint64    // parked fetches of consumers that an append completed
	Records           uint64    // appended
	Batches           [8]uint64 // appended, by codec: none, gzip, snappy, lz4, zstd
	LostCommitted     int64     // records truncated below the high watermark: must stay 0

	Wake       histogram.Durations       // from a rise of the high watermark to the write of a completed fetch
	Operations map[string]OperationStats // by kind
}

// OperationStats are the outcomes of one kind of operation.
type OperationStats struct {
	Completed, Expired, Cancelled, Closed, Failed uint64
	Waited                                        histogram.Durations // only of operations that were parked
}

// AddOperations adds a purgatory's counts of one kind of operation.
func (t *Stats) AddOperations(kind string, st purgatory.Stats) {
	if t.Operations == nil {
		t.Operations = map[string]OperationStats{}
	}
	sum := t.Operations[kind]
	sum.Completed += st.Completed
	sum.Expired += st.Expired
	sum.Cancelled += st.Cancelled
	sum.Closed += st.Closed
	sum.Failed += st.Failed
	for i := range st.Waited {
		sum.Waited.Merge(&st.Waited[i])
	}
	t.Operations[kind] = sum
}

// AddTo adds the counters to t.
func (c *Counters) AddTo(t *Stats) {
	t.Panics += c.Panics.Load()
	t.Overload += c.Overload.Load()
	t.Woken += c.Woken.Load()
	t.Records += c.Records.Load()
	t.LostCommitted += c.LostCommitted.Load()
	for i := range t.Batches {
		t.Batches[i] += c.Batches[i].Load()
	}
	var beats purgatory.Stats
	for i := range c.Heartbeats {
		beats.Waited[i] = c.Heartbeats[i].Durations()
	}
	w := &beats.Waited
	beats.Completed, beats.Expired = w[purgatory.Completed].Count, w[purgatory.Expired].Count
	beats.Cancelled, beats.Closed = w[purgatory.Cancelled].Count, w[purgatory.Closed].Count
	t.AddOperations("heartbeat", beats)
}

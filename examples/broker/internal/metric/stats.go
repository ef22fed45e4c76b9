package metric

import (
	"sync/atomic"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/purgatory"
)

// Counters count what the table and the tests want to know. All fields are
// written by whoever does the thing, and only ever grow.
type Counters struct {
	Panics atomic.Uint64 // bugs: recovered in an operation

	Batches [8]atomic.Uint64 // appended, by codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd)
	Records atomic.Uint64    // appended

	Woken    atomic.Uint64 // parked fetches that an append completed
	Overload atomic.Uint64 // requests answered at once because a purgatory was full

	LostCommitted atomic.Int64 // records cut off a log below its high watermark: there must be none

	// Heartbeats counts the times between two heartbeats of a member of a group, by outcome.
	Heartbeats [purgatory.Failed + 1]Histogram
}

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

	Wake       histogram.Durations       // from the rise of the high watermark to the write of the fetch answer it completed
	Operations map[string]OperationStats // by kind
}

// OperationStats is what became of one kind of operation.
type OperationStats struct {
	Completed, Expired, Cancelled, Closed, Failed uint64
	Waited                                        histogram.Durations // of those that waited at all
}

// AddOperations adds what a purgatory has counted of a kind of operation.
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

// AddTo adds the counts to a sum.
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

package tour

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

// summary is the result of a drive. Scripts read its JSON, so the fields are fixed.
type summary struct {
	Records    uint64 `json:"records"`
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	OutOfOrder uint64 `json:"out_of_order"`
	Fetches    struct {
		Completed  uint64 `json:"completed"` // parked, and woken by an append
		Expired    uint64 `json:"expired"`
		Cancelled  uint64 `json:"cancelled"`
		Early      uint64 `json:"early"`
		Unanswered int64  `json:"unanswered"`
	} `json:"fetches"`
	WakeMicros struct {
		P50 int64 `json:"p50"`
		P99 int64 `json:"p99"`
	} `json:"wake_us"`
	GoroutinesLeaked int                          `json:"goroutines_leaked"`
	Operations       map[string]operationsSummary `json:"operations"`

	sums          sums
	all           metric.Stats
	failed        uint64 // operations
	missedWakeUps uint64 // fetches that reached their max wait although their data was available
	closed        uint64 // answered by shutdowns
	moved         uint64 // answered because the leader changed
	repeated      uint64 // records that the group saw again
	scenarios     int    // of the tour
	shutdown      time.Duration
	seconds       float64
	polls         uint64
	problems      selfcheck.Problems
}

// summarize reads the counters of a finished drive.
func (d *drive) summarize(goroutinesBefore int, shutdown time.Duration) *summary {
	s := &summary{shutdown: shutdown, seconds: d.producedFor.Seconds()}
	sums := d.ledger.sums()
	s.sums = sums
	s.Records, s.Lost, s.Duplicated, s.OutOfOrder = sums.acked, sums.lost, sums.duplicated, sums.outOfOrder
	ps, all := d.polls, d.cluster.Stats()
	s.all = all
	fetched := all.Operations[fetches]
	s.Fetches.Completed = all.Woken
	s.Fetches.Expired = fetched.Expired
	s.Fetches.Cancelled = fetched.Cancelled
	s.Fetches.Early = ps.early.Load()
	s.Fetches.Unanswered = ps.outstanding()
	s.closed, s.polls, s.moved = fetched.Closed, ps.answered.Load(), ps.leaderChanges.Load()
	s.repeated, s.scenarios = d.readers.duplicateCount(), d.tour.completed
	s.Operations = map[string]operationsSummary{}
	for kind, o := range all.Operations {
		s.Operations[kind] = summarizeOperations(o)
		s.failed += o.Failed
	}
	s.WakeMicros.P50 = all.Wake.Quantile(0.5).Microseconds()
	s.WakeMicros.P99 = all.Wake.Quantile(0.99).Microseconds()

	s.missedWakeUps = d.missedWakeUps.Load()
	s.GoroutinesLeaked = selfcheck.Goroutines(goroutinesBefore)
	s.problems = d.problems
	return s
}

// operationsSummary holds the outcomes of one kind of operation.
type operationsSummary struct {
	Completed uint64 `json:"completed"`
	Expired   uint64 `json:"expired"`
	Cancelled uint64 `json:"cancelled"`
	Closed    uint64 `json:"closed"`
	P50       int64  `json:"p50_us"`
	P99       int64  `json:"p99_us"`
}

// fetches is the kind of consumers' fetches.
const fetches = "fetch"

// summarizeOperations converts the statistics of one kind of operation for the summary.
func summarizeOperations(o metric.OperationStats) operationsSummary {
	return operationsSummary{
		Completed: o.Completed, Expired: o.Expired, Cancelled: o.Cancelled, Closed: o.Closed,
		P50: o.Waited.Quantile(0.5).Microseconds(), P99: o.Waited.Quantile(0.99).Microseconds(),
	}
}

// Checks returns the checks of the run.
func (s *summary) Checks() *selfcheck.Checks {
	var c selfcheck.Checks
	c.Add(s.Records > 0 && s.Lost+s.Duplicated+s.OutOfOrder == 0, "each seen once and in order",
		"%d records: %d lost, %d duplicated, %d out of order", s.Records, s.Lost, s.Duplicated, s.OutOfOrder)
	unreported := s.sums.sent - s.sums.acked - s.sums.failed
	c.Add(s.sums.failed+unreported == 0, "each acknowledged", "%d records given up by their producers, %d not reported", s.sums.failed, unreported)
	c.Add(s.sums.misplaced+s.sums.neverSent == 0, "each at the acknowledged offset",
		"%d at another offset, %d that no producer sent", s.sums.misplaced, s.sums.neverSent)
	c.Add(s.all.LostCommitted == 0, "no committed record was lost", "%d truncated from a follower's log", s.all.LostCommitted)
	c.Add(s.Fetches.Unanswered == 0, "each request answered once", "%d polls, %d unanswered", s.polls, s.Fetches.Unanswered)
	c.Add(s.Fetches.Early == 0, "no fetch answered early", "%d before their data or their max wait", s.Fetches.Early)
	c.Add(s.missedWakeUps == 0, "no wake-up was missed", "%d fetches expired although their data was available", s.missedWakeUps)
	c.Add(s.failed == 0 && s.all.Panics == 0 && s.all.Overload == 0, "no operation failed", "%d failed, %d panics, %d beyond the capacity of a purgatory",
		s.failed, s.all.Panics, s.all.Overload)
	c.Add(s.all.Refused == 0, "no connection was refused", "%d closed for invalid input", s.all.Refused)
	c.Add(s.all.Parked == 0 && s.all.Watched == 0, "the purgatories are empty", "%d operations, %d watches", s.all.Parked, s.all.Watched)
	c.Add(s.GoroutinesLeaked == 0, "no goroutine is left", "%d left", s.GoroutinesLeaked)
	c.AddProblems(s.problems)
	c.Note("produced", "%.0f records/s", float64(s.Records)/s.seconds)
	c.Note("parked fetches", "%d completed by data, %d expired, %d cancelled by hang-up, %d sent on to another leader, %d answered by the shutdown in %v",
		s.Fetches.Completed, s.Fetches.Expired, s.Fetches.Cancelled, s.moved, s.closed, s.shutdown.Round(100*time.Microsecond))
	c.Note("committed to answer written", "p50 %d µs, p99 %d µs", s.WakeMicros.P50, s.WakeMicros.P99)
	c.Note("seen again by the group", "%d records, by members that took over", s.repeated)
	c.Note("faults", "%d, each ended, and the cluster healthy again", s.scenarios)
	return &c
}

// printOperations prints the outcomes of each kind of operation.
func (s *summary) printOperations(out io.Writer) {
	const names, values = "%-16s %10s %9s %10s %8s %10s %10s\n", "%-16s %10d %9d %10d %8d %10v %10v\n"
	_, _ = fmt.Fprintf(out, "\n"+names, "operation", "completed", "expired", "cancelled", "closed", "waited p50", "p99")
	for _, kind := range slices.Sorted(maps.Keys(s.Operations)) {
		o := s.Operations[kind]
		_, _ = fmt.Fprintf(out, values, kind, o.Completed, o.Expired, o.Cancelled, o.Closed,
			time.Duration(o.P50)*time.Microsecond, time.Duration(o.P99)*time.Microsecond)
	}
}

package tour

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/seed-782fa212/limbo/examples/broker/internal/metric"
	"github.com/seed-782fa212/limbo/purgatory"
)

// summary is what a drive came to. Its JSON is for scripts; its fields are
// fixed.
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

	closed   uint64 // answered by shutdowns
	moved    uint64 // answered by a change of leaders
	repeated uint64 // records that the group saw more than once
	stops    int    // of the tour
	shutdown time.Duration
	seconds  float64
	polls    uint64
	problems []string
	stalled  time.Duration // the longest that a goroutine waited for a processor
}

// summarize reads the counters of a drive that is over.
func (d *drive) summarize(goroutinesBefore int, shutdown time.Duration) *summary {
	s := &summary{shutdown: shutdown, seconds: d.busy.Seconds()}
	sums := d.ledger.sums()
	s.Records, s.Lost, s.Duplicated, s.OutOfOrder = sums.acked, sums.lost, sums.duplicated, sums.outOfOrder
	if sums.failed > 0 {
		d.problem("%d records were given up by their producers", sums.failed)
	}
	if n := sums.sent - sums.acked - sums.failed; n > 0 {
		d.problem("of %d records their producers never heard", n)
	}
	if sums.misplaced > 0 {
		d.problem("%d times a record was at another offset than somebody had been told", sums.misplaced)
	}
	if sums.unasked > 0 {
		d.problem("%d records were consumed that nobody produced", sums.unasked)
	}

	ps, all := d.polls, d.cluster.Stats()
	fetched := all.Operations[fetches].Ended
	s.Fetches.Completed = all.Woken
	s.Fetches.Expired = fetched[purgatory.Expired]
	s.Fetches.Cancelled = fetched[purgatory.Cancelled]
	s.Fetches.Early = ps.early.Load()
	s.Fetches.Unanswered = ps.outstanding()
	s.closed, s.polls, s.moved = fetched[purgatory.Closed], ps.answered.Load(), ps.moved.Load()
	s.repeated, s.stops = d.readers.repeated(), d.tour.made
	s.Operations = map[string]operationsSummary{}
	failed := uint64(0)
	for kind, o := range all.Operations {
		s.Operations[kind] = summarized(o)
		failed += o.Ended[purgatory.Failed]
	}
	s.WakeMicros.P50 = all.Wake.Quantile(0.5).Microseconds()
	s.WakeMicros.P99 = all.Wake.Quantile(0.99).Microseconds()

	if n := d.slept.Load(); n > 0 {
		d.problem("%d fetches slept to their max wait on data that was there", n)
	}
	if all.Parked != 0 || all.Watched != 0 {
		d.problem("the purgatories still hold %d operations, %d watches", all.Parked, all.Watched)
	}
	if failed != 0 || all.Panics != 0 {
		d.problem("%d operations failed, %d panics", failed, all.Panics)
	}
	if all.Refused > 0 {
		d.problem("%d connections were closed for what they sent", all.Refused)
	}
	if all.Overload > 0 {
		d.problem("%d operations found no room in a purgatory", all.Overload)
	}
	if all.LostCommitted != 0 {
		d.problem("%d committed records were cut off a follower's log", all.LostCommitted)
	}

	// The last goroutines to go have nothing left to do but return.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s.GoroutinesLeaked = max(0, runtime.NumGoroutine()-goroutinesBefore)
		if s.GoroutinesLeaked == 0 || time.Now().After(end) {
			break
		}
	}
	s.problems = d.problems
	s.stalled = d.stalls.worst(0, time.Since(d.start))
	return s
}

// operationsSummary is what became of one kind of operation.
type operationsSummary struct {
	Completed uint64 `json:"completed"`
	Expired   uint64 `json:"expired"`
	Cancelled uint64 `json:"cancelled"`
	Closed    uint64 `json:"closed"`
	P50       int64  `json:"p50_us"`
	P99       int64  `json:"p99_us"`
}

// fetches is the kind of operation that a consumer's fetch is.
const fetches = "fetch"

// summarized is a kind of operation for the summary.
func summarized(o metric.OperationStats) operationsSummary {
	return operationsSummary{
		Completed: o.Ended[purgatory.Completed], Expired: o.Ended[purgatory.Expired],
		Cancelled: o.Ended[purgatory.Cancelled], Closed: o.Ended[purgatory.Closed],
		P50: o.Waited.Quantile(0.5).Microseconds(), P99: o.Waited.Quantile(0.99).Microseconds(),
	}
}

// ok reports whether everything is as it must be.
func (s *summary) ok() bool {
	return s.Lost == 0 && s.Duplicated == 0 && s.OutOfOrder == 0 && s.Records > 0 &&
		s.Fetches.Early == 0 && s.Fetches.Unanswered == 0 && s.GoroutinesLeaked == 0 && len(s.problems) == 0
}

func (s *summary) print(out io.Writer) {
	check := func(good bool, format string, args ...any) {
		mark := "ok  "
		if !good {
			mark = "FAIL"
		}
		_, _ = fmt.Fprintf(out, "%s  %s\n", mark, fmt.Sprintf(format, args...))
	}
	_, _ = fmt.Fprintln(out)
	check(s.Records > 0 && s.Lost+s.Duplicated+s.OutOfOrder == 0,
		"%d records (%.0f/s), each seen once and in order: %d lost, %d duplicated, %d out of order",
		s.Records, float64(s.Records)/s.seconds, s.Lost, s.Duplicated, s.OutOfOrder)
	check(s.Fetches.Unanswered == 0, "every request answered once: %d polls, %d unanswered", s.polls, s.Fetches.Unanswered)
	check(s.Fetches.Early == 0, "%d fetches answered before their data or their max wait", s.Fetches.Early)
	check(true, "parked fetches: %d completed by data, %d expired, %d cancelled by hang-up, %d sent on to another leader, %d answered by the shutdown in %v",
		s.Fetches.Completed, s.Fetches.Expired, s.Fetches.Cancelled, s.moved, s.closed, s.shutdown.Round(100*time.Microsecond))
	check(true, "committed to answer written: p50 %d µs, p99 %d µs", s.WakeMicros.P50, s.WakeMicros.P99)
	check(true, "the group has seen all of its topic, %d records more than once; %d stops of the tour seen through", s.repeated, s.stops)
	_, _ = fmt.Fprintf(out, "\n%-16s %10s %9s %10s %8s %10s %10s\n", "operation", "completed", "expired", "cancelled", "closed", "p50", "p99")
	for _, kind := range metric.Kinds() {
		o := s.Operations[kind]
		_, _ = fmt.Fprintf(out, "%-16s %10d %9d %10d %8d %10v %10v\n", kind, o.Completed, o.Expired, o.Cancelled, o.Closed,
			time.Duration(o.P50)*time.Microsecond, time.Duration(o.P99)*time.Microsecond)
	}
	_, _ = fmt.Fprintln(out)
	check(s.GoroutinesLeaked == 0, "%d goroutines left", s.GoroutinesLeaked)
	for _, p := range s.problems {
		check(false, "%s", p)
	}
}

func (s *summary) printJSON(out io.Writer) {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // numbers only
	}
	_, _ = fmt.Fprintf(out, "%s\n", line)
}

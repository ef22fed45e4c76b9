package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
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
	GoroutinesLeaked int `json:"goroutines_leaked"`

	closed   uint64 // answered by the shutdown
	shutdown time.Duration
	seconds  float64
	polls    uint64
	problems []string
}

// summarize reads the counters of a drive that is over.
func (d *drive) summarize(goroutinesBefore int, shutdown time.Duration) *summary {
	s := &summary{shutdown: shutdown, seconds: d.load.duration.Seconds()}
	sums := d.ledger.sums()
	s.Records, s.Lost, s.Duplicated, s.OutOfOrder = sums.acked, sums.lost, sums.duplicated, sums.outOfOrder
	if sums.acked != sums.sent {
		d.problem("%d records were never acknowledged", sums.sent-sums.acked)
	}
	if sums.unasked > 0 {
		d.problem("%d records were consumed that nobody produced", sums.unasked)
	}

	m, ps := &d.srv.metrics, d.polls
	stats := d.srv.purgatory.Stats()
	s.Fetches.Completed = m.woken.Load()
	s.Fetches.Expired = stats.Expired
	s.Fetches.Cancelled = stats.Cancelled
	s.Fetches.Early = ps.early.Load()
	s.Fetches.Unanswered = ps.outstanding()
	s.closed, s.polls = stats.Closed, ps.answered.Load()
	wake := m.wake.snapshot()
	s.WakeMicros.P50 = quantile(&wake, 0.5).Microseconds()
	s.WakeMicros.P99 = quantile(&wake, 0.99).Microseconds()

	if n := ps.slept.Load(); n > 0 {
		d.problem("%d polls slept to their max wait on data that was there", n)
	}
	if stats.Delayed != 0 || stats.Watched != 0 || stats.Keys != 0 {
		d.problem("the purgatory still holds %d operations, %d watches, %d keys", stats.Delayed, stats.Watched, stats.Keys)
	}
	if stats.Failed != 0 || m.panics.Load() != 0 {
		d.problem("%d operations failed, %d panics", stats.Failed, m.panics.Load())
	}
	if n := m.refused.Load(); n > 0 {
		d.problem("%d connections were closed for what they sent", n)
	}
	if n := m.overload.Load(); n > 0 {
		d.problem("%d fetches found no room in the purgatory", n)
	}
	if n := ps.closing.Load(); n > stats.Closed {
		d.problem("%d polls were answered empty at the shutdown, but it closed %d", n, stats.Closed)
	}

	// The last goroutines to go have nothing left to do but return.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		s.GoroutinesLeaked = max(0, runtime.NumGoroutine()-goroutinesBefore)
		if s.GoroutinesLeaked == 0 || time.Now().After(end) {
			break
		}
	}
	s.problems = d.problems
	return s
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
	check(true, "parked fetches: %d completed by data, %d expired, %d cancelled by hang-up, %d answered by the shutdown in %v",
		s.Fetches.Completed, s.Fetches.Expired, s.Fetches.Cancelled, s.closed, s.shutdown.Round(100*time.Microsecond))
	check(true, "append to answer written: p50 %d µs, p99 %d µs", s.WakeMicros.P50, s.WakeMicros.P99)
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

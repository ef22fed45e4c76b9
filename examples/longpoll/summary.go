package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// summary is what became of polls and events. The names in JSON are for programs.
type summary struct {
	Polls            int64     `json:"polls"`
	Events           int       `json:"events"`
	Uncertain        int       `json:"uncertain"` // of these, that no node said to be published
	Missed           int       `json:"missed"`    // pairs of an event and one who polls its room
	Repeated         int       `json:"repeated"`  // likewise, seen again or out of order
	Early            int64     `json:"early"`     // answers with nothing, before their time was up
	Unanswered       int64     `json:"unanswered"`
	Wake             quantiles `json:"wake_us"` // from being said to being seen, at the node where it was said
	CrossNodeWake    quantiles `json:"cross_node_wake_us"`
	GoroutinesLeaked int       `json:"goroutines_leaked"`

	seen, wrong, moved int64
	problems           []string
}

type quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

func (s *summary) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// hasSeen reports whether it has seen the last of these.
func (p *poller) hasSeen(numbers []int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(numbers) == 0 || len(p.seen) > 0 && p.seen[len(p.seen)-1] >= numbers[len(numbers)-1]
}

// judge counts what one who polls has missed, and seen again or out of order. What is
// published with certainty must be seen; what is not may be.
func judge(seen, certain []int) (missed, repeated int) {
	for i := 1; i < len(seen); i++ {
		if seen[i] <= seen[i-1] {
			repeated++
		}
	}
	sorted := slices.Clone(seen)
	slices.Sort(sorted)
	for _, number := range certain {
		if _, ok := slices.BinarySearch(sorted, number); !ok {
			missed++
		}
	}
	return missed, repeated
}

func (p *play) summarize(goroutinesBefore int) {
	s, ps := &p.sum, p.pollers
	s.Polls, s.Early, s.Unanswered = ps.polls.Load(), ps.early.Load(), ps.unanswered.Load()
	s.wrong, s.moved = ps.wrong.Load(), ps.moved.Load()
	if err := ps.first.Load(); err != nil {
		s.problem("the first poll that was not answered: %v", *err)
	}
	var wakes, cross []time.Duration
	for _, q := range ps.all {
		missed, repeated := judge(q.seen, p.certain[q.room])
		s.Missed += missed
		s.Repeated += repeated
		s.seen += int64(len(q.seen))
		wakes, cross = append(wakes, q.wakes...), append(cross, q.cross...)
	}
	s.Wake, s.CrossNodeWake = quantilesOf(wakes), quantilesOf(cross)
	for range 200 { // the last goroutines to go have nothing left to do but return
		if s.GoroutinesLeaked = max(0, runtime.NumGoroutine()-goroutinesBefore); s.GoroutinesLeaked == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func quantilesOf(d []time.Duration) (q quantiles) {
	if len(d) == 0 {
		return q
	}
	slices.Sort(d)
	return quantiles{P50: d[len(d)/2].Microseconds(), P99: d[len(d)*99/100].Microseconds()}
}

func (s *summary) ok() bool {
	return s.Polls > 0 && s.Events > 0 && s.seen > 0 && s.Missed+s.Repeated == 0 && s.Early == 0 && s.Unanswered == 0 && s.wrong == 0 &&
		s.GoroutinesLeaked == 0 && len(s.problems) == 0
}

func (s *summary) print(out io.Writer) {
	check := func(good bool, format string, args ...any) {
		mark := "ok  "
		if !good {
			mark = "FAIL"
		}
		fmt.Fprintf(out, "%s  %s\n", mark, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(out)
	check(s.Events > 0 && s.seen > 0, "%d events were seen %d times by those who polled their rooms; of %d nobody knows whether they were published", s.Events, s.seen, s.Uncertain)
	check(s.Missed+s.Repeated == 0, "%d missed, %d seen again or out of order", s.Missed, s.Repeated)
	check(s.Early == 0, "%d polls, %d answered with nothing before their time was up", s.Polls, s.Early)
	check(s.Unanswered == 0, "%d not answered by a node that lived, %d went on to another node", s.Unanswered, s.moved)
	check(s.wrong == 0, "%d answers that were none", s.wrong)
	check(true, "from said to seen, without faults: p50 %d µs, p99 %d µs; at another node p50 %d µs, p99 %d µs", s.Wake.P50, s.Wake.P99, s.CrossNodeWake.P50, s.CrossNodeWake.P99)
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
	fmt.Fprintf(out, "%s\n", line)
}

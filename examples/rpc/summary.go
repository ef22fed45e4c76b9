package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// summary is what became of the calls. The names in JSON are for programs.
type summary struct {
	Calls            int    `json:"calls"`
	InFlight         int    `json:"in_flight"` // at once
	Answered         int64  `json:"answered"`
	Expired          int64  `json:"expired"`
	Cancelled        int64  `json:"cancelled"`
	Failed           int64  `json:"failed"`
	Early            int64  `json:"early"`
	Twice            int    `json:"twice"`  // calls that ended more than once
	Leaked           int    `json:"leaked"` // calls that did not end, or left something behind
	Read             uint64 `json:"replies"`
	Unmatched        uint64 `json:"unmatched"` // replies that were late, or second ones
	GoroutinesLeaked int    `json:"goroutines_leaked"`

	matched  uint64
	wrong    int64
	problems []string
}

func (s *summary) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// summarize adds up what has become of each call, when all is shut down.
func (p *player) summarize(goroutinesBefore int) {
	s, st := &p.sum, p.table.Stats()
	s.Calls = int(p.next.Load())
	s.Answered, s.Expired, s.Cancelled, s.Failed = p.answered.Load(), p.expired.Load(), p.cancelled.Load(), p.failed.Load()
	s.Early, s.wrong, s.Unmatched = p.early.Load(), p.wrong.Load(), st.Unmatched
	for i := range p.results[:s.Calls] {
		switch n := p.results[i].Load(); {
		case n == 0:
			s.Leaked++
		case n > 1:
			s.Twice++
		}
	}
	s.Leaked += st.Waiting + st.Wheel.Pending
	if got := p.failedElsewhere.Load(); got > 0 {
		s.problem("%d calls failed whose connection was not lost", got)
	}
	if lost := p.lost.Load(); lost != s.Failed {
		s.problem("%d calls failed, and %d of them because of their connection", s.Failed, lost)
	}
	for _, c := range []struct {
		what        string
		table, here uint64
	}{
		{"answered", st.Completed, uint64(s.Answered)},
		{"expired", st.Expired, uint64(s.Expired)},
		{"cancelled", st.Cancelled, uint64(s.Cancelled)},
		{"failed", st.Failed, uint64(s.Failed)},
		{"answered by a reply that was matched", uint64(s.Answered), s.matched},
		{"read and not matched", s.Unmatched, s.Read - s.matched},
	} {
		if c.table != c.here {
			s.problem("%s: the table counts %d, and the callers %d", c.what, c.table, c.here)
		}
	}
	for range 100 { // the last goroutines to go have nothing left to do but return
		if s.GoroutinesLeaked = max(0, runtime.NumGoroutine()-goroutinesBefore); s.GoroutinesLeaked == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *summary) ok() bool {
	return s.Calls > 0 && s.Answered > 0 && s.Early == 0 && s.Twice == 0 && s.Leaked == 0 && s.wrong == 0 && s.GoroutinesLeaked == 0 && len(s.problems) == 0
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
	check(s.Twice+s.Leaked == 0, "%d calls, %d in flight at once, each ended once: %d twice, %d left behind", s.Calls, s.InFlight, s.Twice, s.Leaked)
	check(s.wrong == 0, "%d answered, %d of them with another's reply", s.Answered, s.wrong)
	check(s.Early == 0, "%d expired, %d of them early", s.Expired, s.Early)
	check(true, "%d cancelled by their callers, %d failed with their connection", s.Cancelled, s.Failed)
	check(true, "%d replies read, %d of them late or second ones, which ended nothing", s.Read, s.Unmatched)
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

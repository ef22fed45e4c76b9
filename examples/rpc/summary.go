package main

import "github.com/seed-782fa212/limbo/examples/internal/selfcheck"

// summary is the outcome of the calls. Programs read the names in JSON.
type summary struct {
	Calls            int    `json:"calls"`
	InFlight         int    `json:"in_flight"` // at once, on all connections
	Answered         int64  `json:"answered"`
	Expired          int64  `json:"expired"`
	Cancelled        int64  `json:"cancelled"`
	Failed           int64  `json:"failed"`
	Early            int64  `json:"early"`
	Twice            int    `json:"twice"`  // calls that ended more than once
	Leaked           int    `json:"leaked"` // calls that did not end, or left state behind
	Read             uint64 `json:"replies"`
	Unmatched        uint64 `json:"unmatched"` // late and duplicate replies
	GoroutinesLeaked int    `json:"goroutines_leaked"`

	matched  uint64
	wrong    int64
	problems selfcheck.Problems

	wantInFlight int
	onOne        int // in flight at once on one connection
}

// summarize adds up the outcomes of the calls after the shutdown.
func (p *runner) summarize(goroutinesBefore int) {
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
	s.Leaked += st.Pending + st.DoWheel.Pending + st.GoWheel.Pending
	if got := p.failedOther.Load(); got > 0 {
		s.problems.Add("%d calls failed whose connection was not lost", got)
	}
	if lost := p.lost.Load(); lost != s.Failed {
		s.problems.Add("%d calls failed, and %d of them because of their connection", s.Failed, lost)
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
			s.problems.Add("%s: the table counts %d, and the callers %d", c.what, c.table, c.here)
		}
	}
	s.GoroutinesLeaked = selfcheck.Goroutines(goroutinesBefore)
}

// Checks returns the checks of the run.
func (s *summary) Checks() *selfcheck.Checks {
	var c selfcheck.Checks
	c.Add(s.InFlight == s.wantInFlight, "all in flight at once", "%d of %d calls, %d of them on one connection", s.InFlight, s.wantInFlight, s.onOne)
	c.Add(s.Calls > 0 && s.Twice+s.Leaked == 0, "each call ended once", "%d calls: %d twice, %d left behind", s.Calls, s.Twice, s.Leaked)
	c.Add(s.Answered > 0 && s.wrong == 0, "answered by its own reply", "%d calls, %d by another's", s.Answered, s.wrong)
	c.Add(s.Early == 0, "expired, not early", "%d calls, %d of them early", s.Expired, s.Early)
	c.Note("cancelled by its caller", "%d calls", s.Cancelled)
	c.Note("failed with its connection", "%d calls", s.Failed)
	c.Note("late and second replies", "%d of %d replies, which ended nothing", s.Unmatched, s.Read)
	c.Add(s.GoroutinesLeaked == 0, "no goroutine is left", "%d left", s.GoroutinesLeaked)
	c.AddProblems(s.problems)
	return &c
}

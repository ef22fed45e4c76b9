package main

import (
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/examples/internal/selfcheck"
)

// summary is the outcome of polls and events. Programs read the names in JSON.
type summary struct {
	Polls            int64     `json:"polls"`
	Events           int       `json:"events"`
	Uncertain        int       `json:"uncertain"` // of these, not confirmed as published by a node
	Missed           int       `json:"missed"`    // pairs of an event and a poller of its room
	Repeated         int       `json:"repeated"`  // likewise, seen again or out of order
	Early            int64     `json:"early"`     // empty responses before their max wait
	Unanswered       int64     `json:"unanswered"`
	Wake             quantiles `json:"wake_us"` // from publication to arrival, at the publishing node
	CrossNodeWake    quantiles `json:"cross_node_wake_us"`
	GoroutinesLeaked int       `json:"goroutines_leaked"`

	seen, invalid, moved int64
	problems             selfcheck.Problems
}

type quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
}

// hasSeen reports whether the poller has seen the last of these events.
func (p *poller) hasSeen(numbers []int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(numbers) == 0 || len(p.seen) > 0 && p.seen[len(p.seen)-1] >= numbers[len(numbers)-1]
}

// countMissed counts the events that a poller missed, and those that it saw again or out of order.
// A poller must see every confirmed event; it may see others.
func countMissed(seen, confirmed []int) (missed, repeated int) {
	for i := 1; i < len(seen); i++ {
		if seen[i] <= seen[i-1] {
			repeated++
		}
	}
	sorted := slices.Clone(seen)
	slices.Sort(sorted)
	for _, number := range confirmed {
		if _, ok := slices.BinarySearch(sorted, number); !ok {
			missed++
		}
	}
	return missed, repeated
}

func (p *run) summarize(goroutinesBefore int) {
	s, ps := &p.sum, p.pollers
	s.Polls, s.Early, s.Unanswered = ps.polls.Load(), ps.early.Load(), ps.unanswered.Load()
	s.invalid, s.moved = ps.invalid.Load(), ps.moved.Load()
	if err := ps.firstError.Load(); err != nil {
		s.problems.Add("the first poll that was not answered: %v", *err)
	}
	var wakes, cross []time.Duration
	for _, q := range ps.all {
		missed, repeated := countMissed(q.seen, p.confirmed[q.room])
		s.Missed += missed
		s.Repeated += repeated
		s.seen += int64(len(q.seen))
		wakes, cross = append(wakes, q.wakes...), append(cross, q.crossWakes...)
	}
	s.Wake, s.CrossNodeWake = quantilesOf(wakes), quantilesOf(cross)
	s.GoroutinesLeaked = selfcheck.Goroutines(goroutinesBefore)
}

func quantilesOf(d []time.Duration) (q quantiles) {
	if len(d) == 0 {
		return q
	}
	slices.Sort(d)
	return quantiles{P50: d[len(d)/2].Microseconds(), P99: d[len(d)*99/100].Microseconds()}
}

// Checks returns the checks of the run.
func (s *summary) Checks() *selfcheck.Checks {
	var c selfcheck.Checks
	c.Add(s.Events > 0 && s.seen > 0, "events were seen", "%d events, seen %d times by those who poll their rooms", s.Events, s.seen)
	c.Add(s.Missed+s.Repeated == 0, "each once and in order", "%d missed, %d seen again or out of order", s.Missed, s.Repeated)
	c.Add(s.Polls > 0 && s.Unanswered == 0, "polls were answered", "%d polls, %d not answered by a node that lived", s.Polls, s.Unanswered)
	c.Add(s.Early == 0, "none early", "%d answered with nothing before their time was up", s.Early)
	c.Add(s.invalid == 0, "none wrong", "%d answers that no node should give", s.invalid)
	c.Add(s.GoroutinesLeaked == 0, "no goroutine is left", "%d left", s.GoroutinesLeaked)
	c.AddProblems(s.problems)
	c.Note("not known to be published", "%d events, which no client need have received", s.Uncertain)
	c.Note("moved to another node", "%d polls", s.moved)
	c.Note("published to seen", "at the same node: p50 %d µs, p99 %d µs; at another: p50 %d µs, p99 %d µs (before the faults)",
		s.Wake.P50, s.Wake.P99, s.CrossNodeWake.P50, s.CrossNodeWake.P99)
	return &c
}

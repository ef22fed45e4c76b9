package planning

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	second = store.Millis(1000)
	minute = 60 * second
	hour   = 60 * minute
	begin  = store.Millis(946_684_800_000) // of 2000, UTC
)

// sim is an engine and a worker for one plan, on virtual time.
type sim struct {
	t   *testing.T
	now store.Millis
	p   Plan
	h   store.History

	step    Step // the last one
	due     store.Millis
	running map[Occurrence]store.Millis // when they end
	takes   store.Millis                // how long an occurrence runs
	fails   bool                        // it becomes a dead letter
	created []store.Millis
	most    int // that ran at once
}

func newSim(t *testing.T, r Rules) *sim {
	s := &sim{t: t, now: begin, running: map[Occurrence]store.Millis{}, p: Plan{Rules: r, State: State{Cursor: begin}}}
	s.p.Batch = max(r.Batch, 1)
	s.due, _, _ = s.p.Wait(s.now, &s.h)
	return s
}

// previous is what the engine knows about the latest planned occurrence.
func (s *sim) previous() Previous {
	if _, ok := s.running[Occurrence{Planned: s.p.Previous}]; ok {
		return Pending
	}
	return Ended
}

// advance does what a worker does with a plan that is due.
func (s *sim) advance() {
	next, step, known := s.p.Advance(s.now, &s.h, Unknown)
	if !known {
		next, step, known = s.p.Advance(s.now, &s.h, s.previous())
		require.True(s.t, known)
	}
	for _, o := range step.Cancel {
		require.Contains(s.t, s.running, o)
		s.end(o, store.OccurrenceCancelled)
	}
	for _, o := range step.Create {
		require.LessOrEqual(s.t, o.Planned, s.now, "early")
		s.running[o] = s.now + s.takes
		s.created = append(s.created, o.Planned)
	}
	s.most = max(s.most, len(s.running))
	s.p, s.step, s.due = next, step, step.Due
}

// end records the end of an occurrence, and wakes the plan as an engine does.
func (s *sim) end(o Occurrence, outcome store.OccurrenceOutcome) {
	delete(s.running, o)
	s.h.Add(store.Note{Key: o.Key("k\x00"), Outcome: outcome, Error: "boom"})
	if s.step.Wake == store.WakeOnEnd && s.h.Ended() > s.step.Seen || s.step.Wake == store.WakeOnDead && s.h.Dead > s.step.Seen {
		s.due = min(s.due, s.now)
	}
}

// sleep passes time without a worker: occurrences end, but the plan does not advance.
func (s *sim) sleep(d store.Millis) { s.pass(s.now+d, false) }

// run passes time with a worker.
func (s *sim) run(d store.Millis) { s.pass(s.now+d, true) }

func (s *sim) pass(until store.Millis, worker bool) {
	for {
		next := until + 1
		if worker {
			next = min(next, max(s.due, s.now))
		}
		for _, at := range s.running {
			next = min(next, at)
		}
		if next > until {
			s.now = until
			return
		}
		s.now = next
		if worker && s.due <= s.now {
			s.advance()
			continue
		}
		for _, o := range slices.SortedFunc(maps.Keys(s.running), func(a, b Occurrence) int { return int(a.Planned - b.Planned) }) {
			if s.running[o] <= s.now {
				outcome := store.OccurrenceDone
				if s.fails {
					outcome = store.OccurrenceDead
				}
				s.end(o, outcome)
			}
		}
	}
}

// in returns the planned times of the occurrences, since the beginning.
func (s *sim) in(unit store.Millis) (times []int) {
	for _, at := range s.created {
		times = append(times, int((at-begin)/unit))
	}
	return times
}

func count(from, to int) (all []int) {
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

func at(clock string) store.Millis {
	t, err := time.Parse(time.DateTime, "2000-01-01 "+clock)
	if err != nil {
		panic(err)
	}
	return store.MillisAt(t)
}

package calls

import (
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Stats is what a table holds and has counted.
type Stats struct {
	Name string // Options.Name

	Pending int // calls
	Groups  int // that are not closed

	// How calls ended. Completed had a reply; Cancelled are those whose context was done,
	// Failed those that Fail, a lost connection (Group.CloseWithError) or send has ended, Closed
	// those that Close and Shutdown have.
	Completed, Expired, Cancelled, Closed, Failed uint64

	// Calls that were refused: with ErrDuplicate, with ErrFull, and because the table or
	// the group was closed.
	Duplicates, RefusedFull, RefusedClosed uint64

	// Unmatched counts the replies, and calls of Fail, for ids that no call waited for:
	// late ones, second ones, and those that nobody asked for.
	Unmatched uint64

	// Waited is for how long calls have waited, by their outcome: Waited[purgatory.Completed]
	// and so on. Waited[0] is empty.
	Waited [purgatory.Failed + 1]histogram.Durations

	// Late is how long after their deadlines calls expired, those of Go from when a worker
	// was free for their done function.
	Late histogram.Durations

	// Ready counts the calls of Go whose timeout has passed and which wait for a worker, as
	// Options.Workers of these are in done functions. They are in Pending too, and on the
	// wheel no more. Overdue is how long ago the first of them came due; 0 if none waits.
	Ready   int
	Overdue time.Duration

	Wheel timingwheel.Stats // of the timeouts
}

// Len returns the number of calls that wait. It costs what Stats does.
func (t *Table[ID, R]) Len() int { return t.Stats().Pending }

// Stats returns the table's figures. Those of one [Group] are of one moment; groups are read
// one after the other, and so are the parts of the table's own calls. Each call is counted
// once, also of a group that is closed meanwhile, and Pending is at most Options.MaxPending. It
// takes time in proportion to the groups, some 0.7 µs each, and delays other calls no longer
// than it takes to copy the list of them.
func (t *Table[ID, R]) Stats() Stats {
	t.mustBeMade()
	st := Stats{Name: t.options.Name, Wheel: t.wheel.Stats()}
	st.Ready, st.Overdue = t.backlog.waiting()
	t.mu.Lock()
	sum, groups := t.gone.clone(), slices.Clone(t.groups)
	sum.refusedClosed += t.afterwards.refusedClosed.Load()
	sum.unmatched += t.afterwards.unmatched.Load()
	t.mu.Unlock()
	for _, g := range groups {
		if g != t.own {
			st.Groups++
		}
		for i := range g.parts {
			p := &g.parts[i]
			p.mu.Lock()
			st.Pending += len(p.calls)
			sum.add(&p.tally) // also if it is in gone by now: it was not before
			p.mu.Unlock()
		}
	}
	if most := t.options.MaxPending; most > 0 {
		st.Pending = min(st.Pending, most) // a place that one group has left may be another's by now
	}
	for o, h := range sum.waited {
		if h != nil {
			st.Waited[o] = *h
		}
	}
	if sum.late != nil {
		st.Late = *sum.late
	}
	st.Completed, st.Expired, st.Cancelled = sum.ended(purgatory.Completed), sum.ended(purgatory.Expired), sum.ended(purgatory.Cancelled)
	st.Closed, st.Failed = sum.ended(purgatory.Closed), sum.ended(purgatory.Failed)
	st.Duplicates, st.RefusedFull, st.RefusedClosed, st.Unmatched = sum.duplicates, sum.refusedFull, sum.refusedClosed, sum.unmatched
	return st
}

// tally counts what became of calls.
type tally struct {
	waited                                            [purgatory.Failed + 1]*histogram.Durations // nil: none so far
	late                                              *histogram.Durations                       // of those that expired
	duplicates, refusedFull, refusedClosed, unmatched uint64
}

func (y *tally) end(o purgatory.Outcome, waited time.Duration) {
	if y.waited[o] == nil {
		y.waited[o] = new(histogram.Durations)
	}
	y.waited[o].Add(waited)
}

// expired counts how late a call has expired.
func (y *tally) expired(late time.Duration) {
	if y.late == nil {
		y.late = new(histogram.Durations)
	}
	y.late.Add(late)
}

func (y *tally) ended(o purgatory.Outcome) uint64 {
	if y.waited[o] == nil {
		return 0
	}
	return y.waited[o].Count
}

func (y *tally) add(other *tally) {
	for o, h := range other.waited {
		if h == nil {
			continue
		}
		if y.waited[o] == nil {
			y.waited[o] = new(histogram.Durations)
		}
		y.waited[o].Merge(h)
	}
	if other.late != nil {
		if y.late == nil {
			y.late = new(histogram.Durations)
		}
		y.late.Merge(other.late)
	}
	y.duplicates += other.duplicates
	y.refusedFull += other.refusedFull
	y.refusedClosed += other.refusedClosed
	y.unmatched += other.unmatched
}

func (y *tally) clone() (c tally) {
	c.add(y)
	return c
}

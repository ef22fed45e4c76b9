package calls

import (
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Stats are the statistics of a table.
type Stats struct {
	Name string // Options.Name

	Pending int // pending calls
	Groups  int // groups that are not closed

	// Ended calls by outcome: Completed by a reply, Cancelled by their context, Failed by Fail,
	// a lost connection (Group.CloseWithError) or send, Closed by Close and Shutdown.
	Completed, Expired, Cancelled, Closed, Failed uint64

	// Calls refused with ErrDuplicate, with ErrFull, and because the table or the group was
	// closed.
	Duplicates, RefusedFull, RefusedClosed uint64

	// Unmatched counts the replies, and calls of Fail, for ids without a pending call: late,
	// duplicate and unsolicited ones.
	Unmatched uint64

	// Waited is the distribution of waiting times by outcome: Waited[purgatory.Completed] and
	// so on. Waited[0] is empty.
	Waited [purgatory.Failed + 1]histogram.Durations

	// Late is the distribution of how long after their deadlines calls expired; a call of Go
	// expires when a worker is free for its done function.
	Late histogram.Durations

	// DoWheel is the statistics of the wheel with the timeouts of calls of Do.
	DoWheel timingwheel.Stats
	// GoWheel is the statistics of the wheel with the timeouts of calls of Go; zero before the
	// first. Its Ready counts the calls whose timeout has passed and that wait for a worker,
	// because Options.Workers done functions are running; they are counted in Pending too.
	GoWheel timingwheel.Stats
}

// Len returns the number of pending calls. It costs the same as Stats.
func (t *Table[ID, R]) Len() int { return t.Stats().Pending }

// Stats returns the table's statistics. The values of one [Group] are of one moment; groups are
// read one after the other, and so are the parts of the table's own calls. Each call is counted
// once, even if its group is closed in between, and Pending is at most Options.MaxPending.
// Stats takes time proportional to the number of groups, about 0.7 µs each, and delays other
// calls no longer than it takes to copy the list of groups.
func (t *Table[ID, R]) Stats() Stats {
	t.mustBeMade()
	st := Stats{Name: t.options.Name, DoWheel: t.doWheel.Stats()}
	if w := t.goWheel.Load(); w != nil {
		st.GoWheel = w.Stats()
	}
	t.mu.Lock()
	sum, groups := t.closedTally.clone(), slices.Clone(t.groups)
	sum.refusedClosed += t.lateCounts.refusedClosed.Load()
	sum.unmatched += t.lateCounts.unmatched.Load()
	t.mu.Unlock()
	for _, g := range groups {
		if g != t.ungrouped {
			st.Groups++
		}
		for i := range g.parts {
			p := &g.parts[i]
			p.mu.Lock()
			st.Pending += len(p.calls)
			sum.add(&p.tally) // even if closedTally includes it by now: the copy in sum does not
			p.mu.Unlock()
		}
	}
	if limit := t.options.MaxPending; limit > 0 {
		st.Pending = min(st.Pending, limit) // another group may have used freed capacity in between
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

// tally counts the outcomes of calls.
type tally struct {
	waited                                            [purgatory.Failed + 1]*histogram.Durations // nil: no call yet
	late                                              *histogram.Durations                       // of expired calls
	duplicates, refusedFull, refusedClosed, unmatched uint64
}

func (y *tally) countOutcome(o purgatory.Outcome, waited time.Duration) {
	if y.waited[o] == nil {
		y.waited[o] = new(histogram.Durations)
	}
	y.waited[o].Add(waited)
}

// countLate counts how late a call has expired.
func (y *tally) countLate(late time.Duration) {
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

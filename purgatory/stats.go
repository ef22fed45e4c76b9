package purgatory

import (
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Stats is what a purgatory holds and has done. Its figures are exact, and but
// for Keys and Wheel, which may be of a moment later, they are those of one
// moment.
type Stats struct {
	Name string // Options.Name

	Pending int // operations that wait
	Watched int // (operation, key) pairs that wait
	Keys    int // keys with watchers

	// How operations ended. Those that completed without ever waiting are
	// among Completed.
	Completed, Expired, Cancelled, Closed, Failed uint64

	// Panics counts the panics that were recovered and given to Options.OnPanic. An
	// operation whose Complete panics is counted under its outcome all the same.
	Panics uint64

	// Operations that were refused, with ErrFull and ErrClosed.
	RefusedFull, RefusedClosed uint64

	// Checks counts the calls of TryComplete by operations that have ended, or, of a
	// Threshold, how often all their goals' numbers were read: once or twice for each.
	// Of a Purgatory, divided by how many ended it says what a completion takes: 1 for
	// one that never waited, 3 for one that waited and was completed by the first
	// CheckAndComplete of its keys.
	Checks uint64

	// Waited is for how long operations have waited that waited at all, by their
	// outcome: Waited[Completed] and so on. Waited[0] is empty.
	Waited [outcomes]histogram.Durations

	// Late is how late operations expired.
	Late histogram.Durations

	// Wheel is what the timeouts' wheel holds and has done, those of others too if it
	// is shared. An operation's timeout is entered there after 50 ms.
	Wheel timingwheel.Stats
}

// Ended returns the number of operations that have ended, of all outcomes.
func (s Stats) Ended() uint64 { return s.Completed + s.Expired + s.Cancelled + s.Closed + s.Failed }

// histograms are those of a tally.
type histograms struct {
	waited [outcomes]histogram.Durations
	late   histogram.Durations
}

// stats adds up what is counted.
func (c *core) stats() Stats {
	st := Stats{Name: c.options.Name}
	var ended [outcomes]uint64
	c.each(func(t *tally) {
		st.Pending += t.delayed
		st.Watched += t.watched
		st.Keys += int(t.keys.Load())
		st.Checks += t.checks
		st.RefusedFull += t.refusedFull
		st.RefusedClosed += t.refusedClosed
		for o, n := range t.ended {
			ended[o] += n
		}
		if t.histograms != nil {
			for o := range st.Waited {
				st.Waited[o].Merge(&t.histograms.waited[o])
			}
			st.Late.Merge(&t.histograms.late)
		}
	})
	st.Completed, st.Expired, st.Cancelled = ended[Completed], ended[Expired], ended[Cancelled]
	st.Closed, st.Failed = ended[Closed], ended[Failed]
	st.Panics = c.panics.Load()
	st.Wheel = c.clock.Stats()
	return st
}

func (c *core) delayed() (n int) {
	c.each(func(t *tally) { n += t.delayed })
	return n
}

func (c *core) watched() (n int) {
	c.each(func(t *tally) { n += t.watched })
	return n
}

// keyCount locks no part: whoever adds or takes keys may call it.
func (c *core) keyCount() (n int) {
	c.mustBeMade()
	a := &c.tallies
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.parts {
		n += int(t.keys.Load())
	}
	return max(n, 0)
}

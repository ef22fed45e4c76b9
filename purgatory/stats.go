package purgatory

import (
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// Stats are the statistics of a purgatory. The values are exact and of one moment, except Keys
// and Wheel, which may be of a slightly later one.
type Stats struct {
	Name string // Options.Name

	Pending int // pending operations
	Watched int // (operation, key) pairs of pending operations
	Keys    int // keys with watchers

	// Ended operations by outcome. Completed includes operations that completed without
	// waiting.
	Completed, Expired, Cancelled, Closed, Failed uint64

	// Panics counts the panics that were recovered and passed to Options.OnPanic. An operation
	// whose Complete panics is also counted under its outcome.
	Panics uint64

	// Operations refused with ErrFull and ErrClosed.
	RefusedFull, RefusedClosed uint64

	// Checks counts the calls of TryComplete by operations that have ended. In a Threshold it
	// counts how often an operation read all its goals' numbers: once or twice for each
	// operation. In a Purgatory, Checks divided by the number of ended operations is the
	// average cost of a completion: 1 for an operation that never waited, 3 for one that waited
	// and was completed by the first CheckAndComplete of its keys.
	Checks uint64

	// Waited is the distribution of waiting times by outcome, of operations that waited at all:
	// Waited[Completed] and so on. Waited[0] is empty.
	Waited [outcomes]histogram.Durations

	// Late is the distribution of how late operations expired.
	Late histogram.Durations

	// Wheel are the statistics of the timing wheel, which on a shared clock include those of
	// other purgatories. An operation's timeout enters the wheel after 50 ms.
	Wheel timingwheel.Stats
}

// Ended returns the number of operations that have ended, with any outcome.
func (s Stats) Ended() uint64 { return s.Completed + s.Expired + s.Cancelled + s.Closed + s.Failed }

// histograms are the histograms of a tally.
type histograms struct {
	waited [outcomes]histogram.Durations
	late   histogram.Durations
}

// stats adds up the tallies.
func (c *core) stats() Stats {
	st := Stats{Name: c.options.Name}
	var ended [outcomes]uint64
	c.each(func(t *tally) {
		st.Pending += t.pending
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

func (c *core) pending() (n int) {
	c.each(func(t *tally) { n += t.pending })
	return n
}

func (c *core) watched() (n int) {
	c.each(func(t *tally) { n += t.watched })
	return n
}

// keyCount locks no tally, so goroutines that are adding or removing keys may call it.
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

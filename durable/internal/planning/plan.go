package planning

import (
	"math"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Overlap decides what happens at a planned time when the previous occurrence has not ended.
type Overlap uint8

// The values of Overlap.
const (
	Skip Overlap = iota
	BufferOne
	Cancel
	Allow
)

// MaxLimit bounds Limit.
const MaxLimit = math.MaxInt32

// Plan is a schedule's rules and its progress.
type Plan struct {
	Rules
	State
}

// Rules are the part of a schedule's definition that decides which planned times become
// occurrences.
type Rules struct {
	Times
	Limit       int // of created occurrences; 0: no bound
	Overlap     Overlap
	CatchUp     store.Millis // how long after a missed time it may still run
	All         bool         // all missed times run, not only the latest
	PauseOnDead bool
	Batch       int // the most occurrences of one advance, at least 1
}

// State is the progress of a schedule.
type State struct {
	// All planned times up to Cursor have an occurrence, are skipped, or are buffered.
	Cursor     store.Millis
	Previous   store.Millis // the planned time of the latest planned occurrence; 0: none
	Buffered   store.Millis // a planned time that waits for the end of Previous; 0: none
	BacklogEnd store.Millis // planned times after Cursor, up to this one, were missed and still run

	Paused     store.Millis // since when; 0: it is not
	PauseNote  string
	DeadSeen   uint64 // dead letters that PauseOnDead has processed
	Counts     Counts
	Unfinished []Occurrence // the last store.MaxNotes that are not in the History, the oldest first
}

// Counts count occurrences that were created and planned times that were skipped, by reason.
type Counts struct {
	Created, Triggered, Backfilled                uint64
	SkippedOverlap, SkippedMissed, SkippedUpdated uint64
}

// Next returns the first planned time after a time; 0 if there is none, or Limit is reached.
func (p *Plan) Next(after store.Millis) store.Millis {
	if p.Remaining() == 0 {
		return 0
	}
	return p.After(after)
}

// Remaining returns how many occurrences Limit leaves.
func (p *Plan) Remaining() int {
	if p.Limit == 0 {
		return MaxLimit
	}
	n := p.Limit - int(p.Counts.Created)
	if p.Buffered != 0 {
		n--
	}
	return max(n, 0)
}

// InBacklog reports whether a missed time waits for the end of an occurrence.
func (p *Plan) InBacklog() bool { return p.BacklogEnd > p.Cursor }

// Waits reports whether a planned time waits for the end of an occurrence.
func (p *Plan) Waits() bool { return p.Buffered != 0 || p.InBacklog() }

// recheck is how long a plan waits for the end of an occurrence before it checks whether that
// exists. The end wakes the plan, so this matters only if an engine has lost writes.
const recheck = store.Millis(time.Minute / time.Millisecond)

// Wait returns when a plan that has nothing left to do at now is due, and which ends wake it
// earlier.
func (p *Plan) Wait(now store.Millis, h *store.History) (due store.Millis, wake store.Wake, seen uint64) {
	due = store.MaxMillis
	if p.Paused != 0 {
		return due, store.WakeNever, 0
	}
	if next := p.Next(max(p.Cursor, min(now, p.BacklogEnd))); next != 0 {
		due = next
	}
	switch {
	case p.Waits():
		return min(due, now+recheck), store.WakeOnEnd, h.Ended()
	case p.PauseOnDead:
		return due, store.WakeOnDead, h.Dead
	}
	return due, store.WakeNever, 0
}

// Remember records an occurrence as unfinished. It leaves the array of the slice unchanged, which
// other plans may share.
func (p *Plan) Remember(o Occurrence) {
	n := len(p.Unfinished)
	p.Unfinished = append(p.Unfinished[max(n-store.MaxNotes+1, 0):n:n], o)
}

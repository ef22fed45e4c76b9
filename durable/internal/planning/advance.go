package planning

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

const (
	// missedAfter is how late a planned time may be without counting as missed, if the next one has
	// not passed: a worker that dies with a plan blocks it for other workers until the lease
	// expires.
	missedAfter = store.Millis(time.Minute / time.Millisecond)
	// maxBacklog bounds how many missed times run.
	maxBacklog = 1000
)

// Step is one advance of a plan: the changes to the store in addition to the plan itself.
type Step struct {
	Create  []Occurrence
	Cancel  []Occurrence // before Create
	Skipped int
	Due     store.Millis // of the plan, next
	Wake    store.Wake
	Seen    uint64
}

// Previous tells whether the latest planned occurrence waits, runs or is retried.
type Previous uint8

// The values of Previous.
const (
	Unknown Previous = iota
	Pending
	Ended
)

// Advance decides what a plan does at now, and returns the changed plan. It goes through the
// planned times that have passed since Cursor, in order, and moves Cursor over each that it
// creates, skips or buffers.
//
// It reports false if the decision depends on previous, which is Unknown and of which h lists no
// end: most advances need not read it from the store.
func (p Plan) Advance(now store.Millis, h *store.History, previous Previous) (Plan, Step, bool) {
	var ended []Occurrence
	for _, n := range h.Last {
		_, o, _ := ParseKey(n.Key)
		ended = append(ended, o)
	}
	hasEnded := func(o Occurrence) bool { return slices.Contains(ended, o) }
	if p.Previous == 0 || hasEnded(Occurrence{Planned: p.Previous}) {
		previous = Ended
	}
	p.Unfinished = slices.DeleteFunc(slices.Clone(p.Unfinished), hasEnded)
	if p.PauseOnDead && h.Dead > p.DeadSeen && p.Paused == 0 {
		p.Paused, p.PauseNote = now, deadNote(h)
	}
	p.DeadSeen = h.Dead
	a := advance{Plan: p, now: now, previous: previous}
	if p.Paused == 0 {
		a.buffered()
		a.passed()
	}
	a.Skipped = int(a.Counts.SkippedMissed + a.Counts.SkippedOverlap - p.Counts.SkippedMissed - p.Counts.SkippedOverlap)
	a.Due, a.Wake, a.Seen = a.Wait(now, h)
	if a.more {
		a.Due = now
	}
	return a.Plan, a.Step, !a.asked
}

// deadNote returns a pause note that names the dead letter that paused the schedule.
func deadNote(h *store.History) string {
	for _, n := range slices.Backward(h.Last) {
		if n.Outcome == store.OccurrenceDead {
			return fmt.Sprintf("the occurrence %s is a dead letter: %s", KeyText(n.Key), n.Error)
		}
	}
	return "an occurrence is a dead letter"
}

// advance is the state of [Plan.Advance].
type advance struct {
	Plan
	Step
	now      store.Millis
	previous Previous
	asked    bool // the decision depends on previous, which is Unknown
	more     bool // the batch is full, and the plan is due again at once
}

// pending reports whether the latest planned occurrence has not ended.
func (a *advance) pending() bool {
	a.asked = a.asked || a.previous == Unknown
	return a.previous != Ended
}

// buffered creates the buffered occurrence if the previous one has ended.
func (a *advance) buffered() {
	at := a.Buffered
	if at == 0 || a.pending() {
		return
	}
	a.Buffered = 0
	a.create(at)
}

// passed goes through the planned times up to now.
func (a *advance) passed() {
	if a.Remaining() == 0 {
		a.BacklogEnd = 0
		return
	}
	n, times := a.Passed(a.Cursor, a.now, maxBacklog)
	if n == 0 {
		return
	}
	if a.InBacklog() { // times that passed since the backlog began join it
		a.backlog(n, times, 0)
		return
	}
	last := times[len(times)-1]
	late := a.now - last
	missed := n > 1 || late > missedAfter
	if missed && a.All {
		a.backlog(n, times, a.now-a.CatchUp)
		return
	}
	a.Counts.SkippedMissed += uint64(n - 1)
	a.Cursor = last
	if late > missedAfter && late > a.CatchUp {
		a.Counts.SkippedMissed++
		return
	}
	a.regular(last)
}

// backlog runs missed times: n have passed, and times are the last of them. Those before oldest
// are skipped. Times that must wait for the end of another occurrence stay in it.
func (a *advance) backlog(n int, times []store.Millis, oldest store.Millis) {
	for len(times) > 0 && times[0] < oldest {
		a.Cursor = times[0]
		times = times[1:]
	}
	a.Counts.SkippedMissed += uint64(n - len(times))
	if len(times) == 0 {
		return
	}
	a.Cursor = times[0] - 1
	a.BacklogEnd = times[len(times)-1]
	for _, at := range times {
		if a.Remaining() == 0 {
			break
		}
		if len(a.Create) == a.Batch {
			a.more = true
			return
		}
		if a.Overlap != Allow && a.pending() {
			return
		}
		a.Cursor = at
		a.create(at)
	}
	a.BacklogEnd = 0
}

// regular runs a planned time, which is at the cursor, unless the previous occurrence overlaps.
func (a *advance) regular(at store.Millis) {
	if a.Overlap != Allow && a.pending() {
		switch {
		case a.Overlap == BufferOne && a.Buffered == 0:
			a.Buffered = at
			return
		case a.Overlap == Cancel:
			a.Cancel = append(a.Cancel, Occurrence{Planned: a.Previous})
		default:
			a.Counts.SkippedOverlap++
			return
		}
	}
	a.create(at)
}

// create adds the occurrence of a planned time.
func (a *advance) create(at store.Millis) {
	o := Occurrence{Planned: at}
	a.Create = append(a.Create, o)
	a.Remember(o)
	a.State.Previous, a.previous = at, Pending
	a.Counts.Created++
}

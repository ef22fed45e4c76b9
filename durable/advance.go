package durable

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
	// recheck is how long a plan waits for the end of an occurrence before it checks whether that
	// exists. The end wakes the plan, so this matters only if an engine has lost writes.
	recheck = store.Millis(time.Minute / time.Millisecond)
	// maxBacklog bounds how many missed times MissedAll runs.
	maxBacklog = 1000
	// maxEntryBytes bounds the bodies of the entries of one swap, if there is more than one.
	maxEntryBytes = store.MaxClaim
)

// step is one advance of a plan: the changes to the store in addition to the plan itself.
type step struct {
	cancel  []string // keys of occurrences, cancelled before the swap
	entries []store.Entry
	due     store.Millis // of the plan, next
	wake    store.Wake
	seen    uint64
}

// liveFunc reads from the store whether an occurrence waits, runs or is retried.
type liveFunc func(key string) (bool, error)

// advance decides what a plan does at now, and changes the plan accordingly. It does not access
// the store, except through live, which it calls only for the previous occurrence, and only if h
// does not show that it has ended.
//
// It goes through the planned times that have passed since the cursor, in order, and moves the
// cursor over each that it creates, skips or buffers. The result depends only on the plan, the
// history and now, so a worker that repeats another's unfinished work decides the same.
func (p *plan) advance(now store.Millis, h *store.History, live liveFunc) (step, error) {
	a := advance{plan: p, now: now, live: live, ended: map[string]bool{}}
	s := &p.state
	for _, n := range h.Last {
		a.ended[n.Key] = true
	}
	s.unfinished = slices.DeleteFunc(s.unfinished, func(o occurrence) bool { return a.ended[o.key(p.key)] })
	if p.PauseOnDead && h.Dead > s.deadSeen && s.paused == 0 {
		s.paused, s.pauseNote = now, deadNote(h)
	}
	s.deadSeen = h.Dead
	if s.paused == 0 {
		if err := a.buffered(); err != nil {
			return step{}, err
		}
		if err := a.passed(); err != nil {
			return step{}, err
		}
	}
	a.due, a.wake, a.seen = p.wait(now, h)
	if a.more && s.paused == 0 {
		a.due = now
	}
	return a.step, nil
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

// wait returns when a plan that has nothing left to do at now is due, and which ends wake it
// earlier.
func (p *plan) wait(now store.Millis, h *store.History) (due store.Millis, wake store.Wake, seen uint64) {
	s := &p.state
	due = store.MaxMillis
	if s.paused != 0 {
		return due, store.WakeNever, 0
	}
	if next := p.next(max(s.cursor, min(now, s.backlogEnd))); next != 0 {
		due = next
	}
	switch {
	case p.waits():
		return min(due, now+recheck), store.WakeOnEnd, h.Ended()
	case p.PauseOnDead:
		return due, store.WakeOnDead, h.Dead
	}
	return due, store.WakeNever, 0
}

// waits reports whether a planned time waits for the end of an occurrence.
func (p *plan) waits() bool { return p.state.buffered != 0 || p.state.backlogEnd > p.state.cursor }

// next returns the first planned time after a time; 0 if there is none, or Limit is reached.
func (p *plan) next(after store.Millis) store.Millis {
	if p.remaining() == 0 {
		return 0
	}
	return p.series.next(after)
}

// remaining returns how many occurrences Limit leaves.
func (p *plan) remaining() int {
	if p.Limit == 0 {
		return maxLimit
	}
	n := p.Limit - int(p.state.counts.Created)
	if p.state.buffered != 0 {
		n--
	}
	return max(n, 0)
}

// advance is the state of [plan.advance].
type advance struct {
	*plan
	step
	now   store.Millis
	live  liveFunc
	ended map[string]bool // keys of occurrences that have ended, as far as the History lists them
	bytes int             // of the entries' bodies
	more  bool            // the swap is full, and the plan is due again at once
}

// buffered creates the buffered occurrence if the previous one has ended.
func (a *advance) buffered() error {
	at := a.state.buffered
	if at == 0 {
		return nil
	}
	if live, err := a.previousPending(); live || err != nil {
		return err
	}
	a.state.buffered = 0
	a.create(at)
	return nil
}

// passed goes through the planned times up to now.
func (a *advance) passed() error {
	s := &a.state
	if a.remaining() == 0 {
		s.backlogEnd = 0
		return nil
	}
	n, times := a.series.passed(s.cursor, a.now, maxBacklog)
	if n == 0 {
		return nil
	}
	if s.backlogEnd > s.cursor { // a backlog is in progress: times that passed since then join it
		return a.backlog(n, times, 0)
	}
	last := times[len(times)-1]
	late := a.now - last
	missed := n > 1 || late > missedAfter
	catchUp := store.MillisOf(a.CatchUp)
	if missed && a.Missed == MissedAll {
		return a.backlog(n, times, a.now-catchUp)
	}
	a.skip(&s.counts.SkippedMissed, n-1)
	s.cursor = last
	if late > missedAfter && (a.Missed == MissedNone || late > catchUp) {
		a.skip(&s.counts.SkippedMissed, 1)
		return nil
	}
	return a.regular(last)
}

// backlog runs missed times: n have passed, and times are the last of them. Those before oldest
// are skipped. Times that must wait for the end of another occurrence stay in it.
func (a *advance) backlog(n int, times []store.Millis, oldest store.Millis) error {
	s := &a.state
	for len(times) > 0 && times[0] < oldest {
		s.cursor = times[0]
		times = times[1:]
	}
	a.skip(&s.counts.SkippedMissed, n-len(times))
	if len(times) == 0 {
		return nil
	}
	if n > maxBacklog {
		s.cursor = times[0] - 1
	}
	s.backlogEnd = times[len(times)-1]
	for _, at := range times {
		if a.remaining() == 0 {
			break
		}
		if a.full() {
			a.more = true
			return nil
		}
		if a.Overlap != OverlapAllow {
			if live, err := a.previousPending(); live || err != nil {
				return err
			}
		}
		s.cursor = at
		a.create(at)
	}
	s.backlogEnd = 0
	return nil
}

// regular runs a planned time, which is at the cursor, unless the previous occurrence overlaps.
func (a *advance) regular(at store.Millis) error {
	s := &a.state
	if a.Overlap != OverlapAllow {
		live, err := a.previousPending()
		switch {
		case err != nil:
			return err
		case live && a.Overlap == OverlapBufferOne && s.buffered == 0:
			s.buffered = at
			return nil
		case live && a.Overlap == OverlapCancel:
			a.cancel = append(a.cancel, a.previous().key(a.key))
		case live:
			a.skip(&s.counts.SkippedOverlap, 1)
			return nil
		}
	}
	a.create(at)
	return nil
}

func (a *advance) skip(count *uint64, n int) { *count += uint64(n) }

func (a *advance) previous() occurrence { return occurrence{planned: a.state.previous} }

// previousPending reports whether the latest planned occurrence has not ended.
func (a *advance) previousPending() (bool, error) {
	if a.state.previous == 0 {
		return false, nil
	}
	key := a.previous().key(a.key)
	switch {
	case a.ended[key]:
		return false, nil
	case slices.ContainsFunc(a.entries, func(e store.Entry) bool { return e.Key == key }):
		return true, nil
	}
	live, err := a.live(key)
	if err == nil && !live {
		a.ended[key] = true
	}
	return live, err
}

// full reports whether the swap can take no further entry.
func (a *advance) full() bool {
	return len(a.entries) == store.MaxPlanEntries || a.bytes > 0 && a.bytes+len(a.Body) > maxEntryBytes
}

// create adds the occurrence of a planned time.
func (a *advance) create(at store.Millis) {
	o := occurrence{planned: at}
	a.state.previous = at
	a.state.counts.Created++
	a.add(o)
}

func (a *advance) add(o occurrence) {
	a.entries = append(a.entries, a.entry(o, a.now))
	a.bytes += len(a.Body)
	a.remember(o)
}

// remember records an occurrence as unfinished.
func (p *plan) remember(o occurrence) {
	s := &p.state
	s.unfinished = append(s.unfinished, o)
	s.unfinished = s.unfinished[max(len(s.unfinished)-maxUnfinished, 0):]
}

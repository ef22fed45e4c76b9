package main

import (
	"fmt"
	"slices"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// Summary is the result of a tour; -json prints it. Early, lost, ran_after_cancel,
// acknowledged_twice and left_behind must be 0, and so must the corresponding counts of Schedules.
type Summary struct {
	Timers            int    `json:"timers"`             // accepted
	Ran               int    `json:"ran"`                // whose callback was answered with 200
	Early             int    `json:"early"`              // begun or called back before they were due
	Lost              int    `json:"lost"`               // neither ran nor were cancelled, replaced or dead-lettered
	RanAfterCancel    int    `json:"ran_after_cancel"`   // begun after the answer that they were cancelled or replaced
	AcknowledgedTwice int    `json:"acknowledged_twice"` // whose completion the store accepted twice
	Repeated          int    `json:"repeated"`           // callbacks answered with 200 after the first
	Cancelled         int    `json:"cancelled"`
	Dead              int    `json:"dead"`
	LateMS            LateMS `json:"late_ms"` // of the first callback, including kills and pauses
	WorkersKilled     int    `json:"workers_killed"`
	EngineKilled      int    `json:"engine_killed"`
	Cut               int64  `json:"cut"`         // connections to Redis
	CameLate          int64  `json:"came_late"`   // connections whose last requests arrived late
	CameTwice         int64  `json:"came_twice"`  // connections whose requests all arrived twice
	LeftBehind        int    `json:"left_behind"` // entries in the store at the end

	Schedules ScheduleSummary `json:"schedules"`
}

// LateMS are quantiles in milliseconds.
type LateMS struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// wrong returns the counts that must be 0 and are not.
func (s Summary) wrong() (texts []string) {
	for _, c := range []struct {
		name string
		n    int
	}{
		{"early", s.Early}, {"lost", s.Lost}, {"ran_after_cancel", s.RanAfterCancel},
		{"acknowledged_twice", s.AcknowledgedTwice}, {"left_behind", s.LeftBehind},
		{"schedules.early", s.Schedules.Early}, {"schedules.doubled", s.Schedules.Doubled},
		{"schedules.lost", s.Schedules.Lost}, {"schedules.after_delete", s.Schedules.AfterDelete},
	} {
		if c.n != 0 {
			texts = append(texts, fmt.Sprintf("%s is %d, must be 0", c.name, c.n))
		}
	}
	return texts
}

// ok reports whether all counts that must be 0 are 0.
func (s Summary) ok() bool { return len(s.wrong()) == 0 }

// check evaluates the history. dead are the keys of the dead letters, and infos the schedules at
// the end. It records the keys with errors, for print.
func (h *history) check(dead map[string]bool, infos []client.ScheduleInfo) Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Summary{Dead: len(dead), Schedules: h.checkSchedules(dead, infos)}
	var late []int64
	for _, t := range h.timers {
		if t.step == nil || t.step.acked == 0 {
			s.Lost++ // no answer to the scheduler, or a timer that no process scheduled
			h.failedKeys[keyName(t.key)] = true
			continue
		}
		s.Timers++
		if t.succeeded > 0 {
			s.Ran++
			s.Repeated += t.succeeded - 1
		}
		if t.early() {
			s.Early++
			h.failedKeys[keyName(t.key)] = true
		}
		if us, ok := t.late(); ok {
			late = append(late, us)
		}
	}
	for key, steps := range h.keys {
		lost, ranAfter := checkKey(steps, dead[keyName(key)])
		s.Lost += lost
		s.RanAfterCancel += ranAfter
		if lost+ranAfter > 0 {
			h.failedKeys[keyName(key)] = true
		}
		for _, st := range steps {
			if st.timer == nil && st.result == "cancelled" {
				s.Cancelled++
			}
		}
	}
	for id, n := range h.acks {
		if n > 1 {
			s.AcknowledgedTwice++
			h.failedKeys[h.nameOf(event{Kind: eventAcknowledged, ID: id})] = true
		}
	}
	slices.Sort(late)
	s.LateMS = LateMS{P50: quantile(late, 0.50), P99: quantile(late, 0.99)}
	return s
}

// early reports whether a handler began, or a callback arrived, before the due time in force:
// before a reschedule is sent the scheduled one, after its answer the new one, and in between the
// earlier of both.
func (t *timerLifecycle) early() bool {
	before := func(at int64) bool {
		bound := t.notBefore
		for _, m := range t.moves {
			switch {
			case !m.moved || at < m.sent:
			case at > m.acked:
				bound = m.at
			default:
				bound = min(bound, m.at)
			}
		}
		return at < bound*1000
	}
	return slices.ContainsFunc(t.begins, before) || slices.ContainsFunc(t.arrivals, before)
}

// late returns how many µs after its due time the timer's first callback arrived. It returns false
// for a successor, which also waited for a run, and for a timer that was sent twice, which may
// have been one.
func (t *timerLifecycle) late() (us int64, ok bool) {
	if len(t.arrivals) == 0 || t.step.result == "succeeds" || t.step.sends > 1 || t.mode == modeSlow || t.mode.silent() {
		return 0, false
	}
	due := max(t.due*1000, t.step.acked) // an overdue timer cannot arrive before its answer
	for _, m := range t.moves {
		if m.moved {
			due = max(due, m.at*1000)
		}
	}
	return max(slices.Min(t.arrivals)-due, 0), true
}

// checkKey follows the timers of one key through its steps. It returns the number of lost timers,
// and of handlers that began although they must not.
func checkKey(steps []*step, dead bool) (lost, ranAfter int) {
	for i, st := range steps {
		if st.acked == 0 {
			if st.timer == nil {
				lost++ // a cancel without an answer; check counts a schedule without one
			}
			continue
		}
		// The earlier timers of the key must not begin after this step, except one more time if a
		// timer was running at the step.
		allowed := 0
		if st.result == "running" || st.result == "succeeds" {
			allowed = 1
		}
		begun := 0
		for _, earlier := range steps[:i] {
			if earlier.timer != nil {
				for _, at := range earlier.timer.begins {
					if at > st.acked {
						begun++
					}
				}
			}
		}
		ranAfter += max(begun-allowed, 0)

		if st.timer != nil && !st.endedBy(steps[i+1:], dead) {
			lost++
		}
	}
	return lost, ranAfter
}

// endedBy reports whether a timer had a valid end: it ran, is a dead letter, or the next step
// replaced or cancelled it.
func (st *step) endedBy(next []*step, dead bool) bool {
	if st.timer.succeeded > 0 {
		return true
	}
	if len(next) == 0 {
		return dead
	}
	// The next step may have ended the timer even if its answer was lost.
	if next[0].sends > 1 || next[0].acked == 0 {
		return true
	}
	switch next[0].result {
	case "cancelled", "running", "replaced", "succeeds", "replaced dead letter":
		return true
	}
	return next[0].result == "not found" && dead // otherwise the timer was lost before
}

func quantile(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[i]/100) / 10
}

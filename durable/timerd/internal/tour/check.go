package tour

import (
	"slices"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// Summary is what the tour found; it is the line that -json prints. Early, lost,
// ran_after_cancel, acknowledged_twice and left_behind must be 0, and so must those of Schedules.
type Summary struct {
	Timers            int    `json:"timers"`             // accepted
	Ran               int    `json:"ran"`                // whose call-back was answered with 200
	Early             int    `json:"early"`              // begun or called back before they were due
	Lost              int    `json:"lost"`               // neither ran, nor cancelled, replaced or dead
	RanAfterCancel    int    `json:"ran_after_cancel"`   // begun after the answer that they were cancelled or replaced
	AcknowledgedTwice int    `json:"acknowledged_twice"` // of which the store accepted twice that they are done
	Repeated          int    `json:"repeated"`           // call-backs answered with 200 beyond the first
	Cancelled         int    `json:"cancelled"`
	Dead              int    `json:"dead"`
	LateMS            LateMS `json:"late_ms"` // of the first call-back, kills and pauses included
	WorkersKilled     int    `json:"workers_killed"`
	EngineKilled      int    `json:"engine_killed"`
	Cut               int64  `json:"cut"`         // connections to Redis
	CameLate          int64  `json:"came_late"`   // whose last requests came late
	CameTwice         int64  `json:"came_twice"`  // whose requests all came twice
	LeftBehind        int    `json:"left_behind"` // what is in the store at the end

	Schedules ScheduleSummary `json:"schedules"`
}

// LateMS are quantiles in milliseconds.
type LateMS struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// ok reports whether each zero is zero.
func (s Summary) ok() bool {
	return s.Early == 0 && s.Lost == 0 && s.RanAfterCancel == 0 && s.AcknowledgedTwice == 0 && s.LeftBehind == 0 && s.Schedules.ok()
}

// check goes through the book; dead are the keys of the dead letters, and infos the schedules
// at the end. It notes the keys of which something is wrong, for history.
func (b *book) check(dead map[string]bool, infos []client.ScheduleInfo) Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Summary{Dead: len(dead), Schedules: b.checkSchedules(dead, infos)}
	var late []int64
	for _, t := range b.timers {
		if t.step == nil || t.step.acked == 0 {
			s.Lost++ // the scheduler never had an answer, or a timer runs that nobody scheduled
			b.wrong[keyName(t.key)] = true
			continue
		}
		s.Timers++
		if t.succeeded > 0 {
			s.Ran++
			s.Repeated += t.succeeded - 1
		}
		if t.early() {
			s.Early++
			b.wrong[keyName(t.key)] = true
		}
		if us, ok := t.late(); ok {
			late = append(late, us)
		}
	}
	for key, steps := range b.keys {
		lost, after := checkKey(steps, dead[keyName(key)])
		s.Lost += lost
		s.RanAfterCancel += after
		if lost+after > 0 {
			b.wrong[keyName(key)] = true
		}
		for _, st := range steps {
			if st.timer == nil && st.result == "cancelled" {
				s.Cancelled++
			}
		}
	}
	for id, n := range b.acks {
		if n > 1 {
			s.AcknowledgedTwice++
			b.wrong[b.nameOf(event{Kind: eventAcknowledged, ID: id})] = true
		}
	}
	slices.Sort(late)
	s.LateMS = LateMS{P50: quantile(late, 0.50), P99: quantile(late, 0.99)}
	return s
}

// early reports whether a handler began, or a call-back came, before the due time
// that was in force: that of the schedule until a reschedule is sent, that of the
// reschedule once it is answered, either of both in between.
func (t *timerLife) early() bool {
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

// late returns how many µs after it was due the timer's first call-back came. A
// successor waited for a run besides, and what was sent twice is not known to be
// one.
func (t *timerLife) late() (us int64, ok bool) {
	if len(t.arrivals) == 0 || t.step.result == "succeeds" || t.step.sends > 1 || t.mode == modeSlow || t.mode.silent() {
		return 0, false
	}
	due := max(t.due*1000, t.step.acked) // what was overdue when it was scheduled cannot come before
	for _, m := range t.moves {
		if m.moved {
			due = max(due, m.at*1000)
		}
	}
	return max(slices.Min(t.arrivals)-due, 0), true
}

// checkKey follows the timers of one key through its steps, and returns how many
// were lost, and how many handlers began that must not have.
func checkKey(steps []*step, dead bool) (lost, after int) {
	for i, st := range steps {
		if st.acked == 0 {
			if st.timer == nil {
				lost++ // a cancel without an answer; of a schedule check counts it
			}
			continue
		}
		// What is left of the timers before this step may still begin: the one that was
		// claimed when the step met it, once; else none.
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
		after += max(begun-allowed, 0)

		if st.timer != nil && !st.endedBy(steps[i+1:], dead) {
			lost++
		}
	}
	return lost, after
}

// endedBy reports whether a timer came to an end that it may have: it ran, is dead,
// or the next step took its place.
func (st *step) endedBy(next []*step, dead bool) bool {
	if st.timer.succeeded > 0 {
		return true
	}
	if len(next) == 0 {
		return dead
	}
	// An answer that was lost may have hidden that the step did it.
	if next[0].sends > 1 || next[0].acked == 0 {
		return true
	}
	switch next[0].result {
	case "cancelled", "running", "replaced", "succeeds", "replaced dead letter":
		return true
	}
	return next[0].result == "not found" && dead // else there was nothing any more
}

func quantile(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[i]/100) / 10
}

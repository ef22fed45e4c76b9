package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// scheduleLifecycle is the lifecycle of one schedule, from its creation to its deletion. Times are
// in microseconds.
type scheduleLifecycle struct {
	key     int
	puts    []*scheduleStep // created and replaced it
	last    *scheduleStep   // of any kind
	deleted *scheduleStep   // nil: not deleted
	counted *client.Counts  // its counts before the deletion
	planned map[int64]*occurrence
}

// scheduleStep is a request about a schedule.
type scheduleStep struct {
	kind        eventKind
	sent, acked int64 // first try, and answer; 0: none yet
	result      string
	recurs      recurrence // put
	cancels     bool       // delete: also cancel the waiting occurrences
}

// occurrence has the events of one planned time of a schedule.
type occurrence struct {
	ids     map[string]bool
	seen    []int64 // when handlers began and callbacks arrived
	created []int64 // when the requests that created it were sent
	ran     bool    // a callback was answered with 200
}

func (h *history) schedule(number int) *scheduleLifecycle {
	s := h.schedules[number]
	if s == nil {
		s = &scheduleLifecycle{planned: make(map[int64]*occurrence)}
		h.schedules[number] = s
	}
	return s
}

// addSchedule adds an event of a schedule.
func (h *history) addSchedule(e event) error {
	s := h.schedule(e.Schedule)
	switch e.Kind {
	case eventPut, eventDelete, eventPause, eventResume:
		s.key = e.Key
		if s.last != nil && s.last.acked == 0 { // a repetition
			return nil
		}
		s.last = &scheduleStep{kind: e.Kind, sent: e.At, cancels: e.Result == "cancel"}
		switch e.Kind {
		case eventPut:
			s.last.recurs = *e.Recurs
			s.puts = append(s.puts, s.last)
			h.latest[e.Key] = max(h.latest[e.Key], e.Schedule)
		case eventDelete:
			s.deleted = s.last
		}
	case eventDone:
		s.last.acked, s.last.result = e.At, e.Result
	case eventCounted:
		s.counted = e.Counts
	case eventCreated, eventBegins, eventReplies:
		o := s.planned[e.Planned]
		if o == nil {
			o = &occurrence{ids: make(map[string]bool)}
			s.planned[e.Planned] = o
		}
		o.ids[e.ID] = true
		h.occurrences[e.ID] = e.Schedule
		if e.Kind == eventCreated {
			o.created = append(o.created, e.At)
			return nil
		}
		o.seen = append(o.seen, e.At)
		if e.Kind == eventReplies && e.Status == 200 && !o.ran {
			o.ran = true
			h.live.occurrences++
		}
	default:
		return fmt.Errorf("unknown kind %q of a schedule", e.Kind)
	}
	return nil
}

// ScheduleSummary is the result for the schedules of a tour. Early, doubled, lost and after_delete
// must be 0.
type ScheduleSummary struct {
	Schedules   int `json:"schedules"` // created
	Replaced    int `json:"replaced"`
	Deleted     int `json:"deleted"`
	Planned     int `json:"planned"`      // planned times of schedules not deleted, counted by the tour
	Created     int `json:"created"`      // occurrences: counted by these schedules; of deleted ones, known
	Skipped     int `json:"skipped"`      // planned times, counted by these schedules
	Done        int `json:"done"`         // occurrences whose callback was answered with 200
	Early       int `json:"early"`        // occurrences that began or arrived before their planned time
	Doubled     int `json:"doubled"`      // further IDs of a planned time, and unplanned occurrences
	Lost        int `json:"lost"`         // planned times neither created nor skipped; occurrences without an end; missing schedules
	AfterDelete int `json:"after_delete"` // occurrences created after the answer that their schedule is deleted
}

// checkSchedules evaluates the schedules. dead are the keys of the dead letters, and infos are the
// schedules in the store at the end.
func (h *history) checkSchedules(dead map[string]bool, infos []client.ScheduleInfo) (sum ScheduleSummary) {
	stored := make(map[string]*client.ScheduleInfo, len(infos))
	for i := range infos {
		stored[infos[i].Key] = &infos[i]
	}
	deadAt := make(map[string]map[int64]bool)
	for key := range dead {
		if schedule, planned, ok := strings.Cut(key, "\x00"); ok {
			at, _ := strconv.ParseInt(planned, 10, 64)
			if deadAt[schedule] == nil {
				deadAt[schedule] = make(map[int64]bool)
			}
			deadAt[schedule][at] = true
		}
	}
	for number, s := range h.schedules {
		before := sum
		name := scheduleName(s.key)
		info := stored[name]
		if h.latest[s.key] != number {
			info = nil // info belongs to a later schedule
		}
		if len(s.puts) == 0 || s.last.acked == 0 {
			sum.Lost++ // a scheduler never got an answer, or an occurrence has no schedule
			h.failedKeys[name] = true
			continue
		}
		sum.Schedules++
		sum.Replaced += len(s.puts) - 1
		s.check(&sum, info, deadAt[name], number != s.key)
		if sum.Early+sum.Doubled+sum.Lost+sum.AfterDelete > before.Early+before.Doubled+before.Lost+before.AfterDelete {
			h.failedKeys[name] = true
		}
	}
	return sum
}

// check adds one schedule to sum. recreated reports whether the schedule has the key of an earlier
// one, whose occurrences may have ended under it.
func (s *scheduleLifecycle) check(sum *ScheduleSummary, info *client.ScheduleInfo, dead map[int64]bool, recreated bool) {
	ran, ended := 0, 0
	for at, o := range s.planned {
		sum.Doubled += len(o.ids) - 1
		if !s.hasPlanned(at) {
			sum.Doubled++
		}
		if o.ran {
			ran++
		}
		if o.ran || dead[at] {
			ended++
		}
		for _, seen := range o.seen {
			if seen < at*1000 {
				sum.Early++
				break
			}
		}
		if s.deleted != nil && (at > s.deleted.acked/1000 || slices.Max(append(o.created, 0)) > s.deleted.acked) {
			sum.AfterDelete++
		}
	}
	sum.Done += ran
	if s.deleted != nil {
		sum.Deleted++
		sum.Created += len(s.planned)
		s.checkDeleted(sum, info, ended)
		return
	}
	if info == nil {
		sum.Lost++
		return
	}
	c := info.Counts
	created, skipped := int(c.Created), int(c.SkippedOverlap+c.SkippedMissed+c.SkippedUpdated)
	since := info.Created.UnixMilli()
	if since < s.puts[0].sent/1000 || since > s.puts[0].acked/1000 {
		sum.Lost++ // the stored schedule is not the one that was put
		return
	}
	least, most := s.expected(since, math.MaxInt64)
	sum.Planned += min(max(created+skipped, least), most)
	sum.Created += created
	sum.Skipped += skipped
	sum.Lost += max(least-created-skipped, 0)
	sum.Doubled += max(created+skipped-most, 0)
	// Each occurrence is called back until it succeeds, is a dead letter, or is cancelled.
	sum.Lost += max(created-ended-int(c.Cancelled), 0)
	sum.Doubled += max(len(s.planned)-created, 0)
	if !recreated { // a requeued dead letter ends twice
		ends := int(c.Done + c.Dead + c.Cancelled)
		sum.Lost += max(created-ends, 0)
		if c.Dead == 0 {
			sum.Doubled += max(ends-created, 0)
		}
	}
}

// checkDeleted adds a deleted schedule to sum. ended is how many of its occurrences ran or are dead
// letters.
func (s *scheduleLifecycle) checkDeleted(sum *ScheduleSummary, info *client.ScheduleInfo, ended int) {
	if info != nil {
		sum.AfterDelete++
	}
	if s.counted == nil {
		return
	}
	c := s.counted
	_, most := s.expected(s.puts[0].sent/1000, s.deleted.acked/1000)
	sum.Doubled += max(int(c.Created+c.SkippedOverlap+c.SkippedMissed+c.SkippedUpdated)-most, 0)
	overlap := func(p *scheduleStep) bool { return p.recurs.Overlap == "cancel" }
	if s.deleted.cancels || slices.ContainsFunc(s.puts, overlap) {
		return
	}
	sum.Lost += max(int(c.Created)-ended-int(c.Cancelled), 0)
	skips := func(p *scheduleStep) bool {
		return p.recurs.Overlap != "allow" || p.recurs.Missed != "all" || p.recurs.CatchUp != 0
	}
	if len(s.series()) > 1 || slices.ContainsFunc(s.puts, skips) || len(s.planned) == 0 {
		return
	}
	r := s.puts[0].recurs
	last := slices.Max(slices.Collect(maps.Keys(s.planned)))
	for at := r.next(s.puts[0].acked / 1000); at < last; at = r.next(at) {
		if s.planned[at] == nil {
			sum.Lost++
		}
	}
}

// series returns the puts that changed the planned times: the first, and replacements with other
// planned times.
func (s *scheduleLifecycle) series() (all []*scheduleStep) {
	for _, p := range s.puts {
		if n := len(all); n == 0 || !all[n-1].recurs.sameTimes(p.recurs) {
			all = append(all, p)
		}
	}
	return all
}

// hasPlanned reports whether the schedule had a planned time. A put took effect at an unknown time
// between its first try and its answer.
func (s *scheduleLifecycle) hasPlanned(at int64) bool {
	all := s.series()
	for i, p := range all {
		if at > p.sent/1000 && p.recurs.includes(at) && (i == len(all)-1 || at <= all[i+1].acked/1000) {
			return true
		}
	}
	return false
}

// expected returns how many planned times the schedule had after since, up to until. A replacement
// ends one series and begins the next at an unknown ms between its first try and its answer; least
// and most are over all of these.
func (s *scheduleLifecycle) expected(since, until int64) (least, most int) {
	all := s.series()
	last := all[len(all)-1].recurs.count(since, until)
	least, most = last, last
	for i, p := range all[1:] {
		low, high := math.MaxInt, math.MinInt
		for at := p.sent / 1000; at <= p.acked/1000; at++ {
			n := all[i].recurs.count(since, at) - p.recurs.count(since, at)
			low, high = min(low, n), max(high, n)
		}
		least, most = least+low, most+high
	}
	return least, most
}

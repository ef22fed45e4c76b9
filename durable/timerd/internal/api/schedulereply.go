package api

import (
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

// ScheduleResult is the answer to a change of one schedule.
type ScheduleResult struct {
	Key       string   `json:"key"`
	Result    string   `json:"result"`
	Next      []string `json:"next,omitzero"` // of PUT
	Warning   string   `json:"warning,omitempty"`
	Cancelled *int     `json:"cancelled,omitempty"` // of DELETE: number of occurrences
	Path      string   `json:"path,omitempty"`      // of a trigger: of the occurrence's timer
	Planned   string   `json:"planned,omitempty"`
	Count     *int     `json:"count,omitempty"` // of a backfill: number of occurrences
}

// Planned is the answer to a preview.
type Planned struct {
	Next    []string `json:"next"`
	Warning string   `json:"warning,omitempty"`
}

// SchedulePage is a page of the list of schedules.
type SchedulePage struct {
	Schedules []ScheduleInfo `json:"schedules"`
	Next      string         `json:"next,omitempty"` // after of the next page, if there may be one
}

// ScheduleInfo is a schedule in replies. All times are in the schedule's zone.
type ScheduleInfo struct {
	Key       string `json:"key"`
	Path      string `json:"path"` // has the key's exact bytes
	ID        string `json:"id,omitempty"`
	State     string `json:"state"`             // active, paused, ended (no planned time is left) or problem
	Problem   string `json:"problem,omitempty"` // why no worker can create occurrences
	Created   string `json:"created,omitempty"`
	Paused    string `json:"paused,omitempty"` // since when
	PauseNote string `json:"pause_note,omitempty"`
	Recurrence
	Policy
	Topic      string       `json:"topic,omitempty"`
	Next       []string     `json:"next"`
	Overdue    string       `json:"overdue,omitempty"` // planned time that no worker has processed
	Waiting    string       `json:"waiting,omitempty"` // planned time that waits for the end of an occurrence
	Counts     Counts       `json:"counts"`
	Last       []Occurrence `json:"last,omitzero"` // this and all further fields are not in lists
	Callback   *Callback    `json:"callback,omitempty"`
	Body       string       `json:"body,omitempty"`
	BodyBase64 []byte       `json:"body_base64,omitempty"`
}

// Counts has the fields of durable.ScheduleCounts.
type Counts struct {
	Created        uint64 `json:"created"`
	Triggered      uint64 `json:"triggered"`
	Backfilled     uint64 `json:"backfilled"`
	SkippedOverlap uint64 `json:"skipped_overlap"`
	SkippedMissed  uint64 `json:"skipped_missed"`
	SkippedUpdated uint64 `json:"skipped_updated"`
	Done           uint64 `json:"done"`
	Dead           uint64 `json:"dead"`
	Cancelled      uint64 `json:"cancelled"`
}

// Occurrence is one run of a schedule.
type Occurrence struct {
	Path      string `json:"path"` // of its timer
	Planned   string `json:"planned"`
	Requested string `json:"requested,omitempty"` // trigger or backfill
	State     string `json:"state"`
	Begun     string `json:"begun,omitempty"` // its last attempt
	Ended     string `json:"ended,omitempty"`
	Attempts  int    `json:"attempts"`
	Error     string `json:"error,omitempty"` // of its last failed attempt
}

// upcoming adds the next planned times and the warning of a schedule.
func (r *ScheduleResult) upcoming(s durable.Schedule, next []time.Time) {
	r.Next, r.Warning = plannedTimes(next), s.Warning()
}

func plannedTimes(times []time.Time) []string {
	texts := make([]string, len(times))
	for i, at := range times {
		texts[i] = formatPlanned(at)
	}
	return texts
}

// zoneOf returns a schedule's zone, or UTC if it has none or this process does not know it.
func zoneOf(i durable.ScheduleInfo) *time.Location {
	if len(i.Next) > 0 {
		return i.Next[0].Location()
	}
	if zone, err := time.LoadLocation(i.Zone); err == nil {
		return zone
	}
	return time.UTC
}

func stateOf(i durable.ScheduleInfo) string {
	switch {
	case i.Problem != "":
		return "problem"
	case !i.Paused.IsZero():
		return "paused"
	case len(i.Next) == 0 && i.Waiting.IsZero() && i.Overdue.IsZero():
		return "ended"
	}
	return "active"
}

// scheduleInfoOf converts a schedule for a reply, in full or as in lists.
func scheduleInfoOf(i durable.ScheduleInfo, full bool) ScheduleInfo {
	zone := zoneOf(i)
	local := func(at time.Time, format func(time.Time) string) string {
		if at.IsZero() {
			return ""
		}
		return format(at.In(zone))
	}
	reply := ScheduleInfo{
		Key: i.Key, Path: "/schedules/" + escape(i.Key), State: stateOf(i), Problem: i.Problem,
		Created: local(i.Created, formatTime), Paused: local(i.Paused, formatTime), PauseNote: i.PauseNote,
		Recurrence: Recurrence{
			Cron: i.Cron, Zone: i.Zone, Every: durationText(i.Every), Offset: durationText(i.Offset),
			Start: local(i.Start, formatPlanned), End: local(i.End, formatPlanned), Limit: int64(i.Limit),
		},
		Topic: i.Topic, Next: plannedTimes(i.Next), Counts: Counts(i.Counts),
		Overdue: local(i.Overdue, formatPlanned), Waiting: local(i.Waiting, formatPlanned),
	}
	if i.ID != (durable.ID{}) {
		reply.ID = i.ID.String()
	}
	if i.CatchUp > 0 { // otherwise this process cannot read the schedule
		reply.Policy = Policy{
			Jitter: durationText(i.Jitter), Overlap: i.Overlap.String(), Missed: i.Missed.String(),
			CatchUp: i.CatchUp.String(), PauseOnDead: i.PauseOnDead,
		}
	}
	if !full {
		return reply
	}
	reply.Last = make([]Occurrence, len(i.Last))
	for n, o := range i.Last {
		reply.Last[n] = Occurrence{
			Path: pathOf(o.Key), Planned: formatPlanned(o.Planned), Requested: o.Requested, State: o.State.String(),
			Begun: local(o.Begun, formatTime), Ended: local(o.Ended, formatTime), Attempts: o.Attempts, Error: o.Error,
		}
	}
	reply.Callback, reply.Body, reply.BodyBase64 = callOf(i.Body)
	return reply
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

package api

import (
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

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
func scheduleInfoOf(i durable.ScheduleInfo, full bool) wire.ScheduleInfo {
	zone := zoneOf(i)
	local := func(at time.Time, format func(time.Time) string) string {
		if at.IsZero() {
			return ""
		}
		return format(at.In(zone))
	}
	reply := wire.ScheduleInfo{
		Key: i.Key, Path: "/schedules/" + wire.Segment(i.Key), State: stateOf(i), Problem: i.Problem,
		Created: local(i.Created, formatTime), Paused: local(i.Paused, formatTime), PauseNote: i.PauseNote,
		Recurrence: wire.Recurrence{
			Cron: i.Cron, Zone: i.Zone, Every: wire.Duration(i.Every), Offset: wire.Duration(i.Offset),
			Start: local(i.Start, formatPlanned), End: local(i.End, formatPlanned), Limit: int64(i.Limit),
		},
		Topic: i.Topic, Next: plannedTimes(i.Next), Counts: wire.Counts(i.Counts),
		Overdue: local(i.Overdue, formatPlanned), Waiting: local(i.Waiting, formatPlanned),
	}
	if i.ID != (durable.ID{}) {
		reply.ID = i.ID.String()
	}
	if i.CatchUp > 0 { // otherwise this process cannot read the schedule
		reply.Policy = wire.Policy{
			Jitter: wire.Duration(i.Jitter), Overlap: i.Overlap.String(), Missed: i.Missed.String(),
			CatchUp: i.CatchUp.String(), PauseOnDead: i.PauseOnDead,
		}
	}
	if !full {
		return reply
	}
	reply.Last = make([]wire.Occurrence, len(i.Last))
	for n, o := range i.Last {
		reply.Last[n] = wire.Occurrence{
			Path: pathOf(o.Key), Planned: formatPlanned(o.Planned), Requested: o.Requested, State: o.State.String(),
			Begun: local(o.Begun, formatTime), Ended: local(o.Ended, formatTime), Attempts: o.Attempts, Error: o.Error,
		}
	}
	reply.Content = contentOf(i.Body)
	return reply
}

package durable

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable/internal/planning"
	"github.com/seed-782fa212/limbo/durable/store"
)

// ScheduleInfo describes a schedule.
type ScheduleInfo struct {
	Schedule    // as it was put, with defaults; only the Key if Problem is about a format
	ID       ID // the same until the schedule is deleted
	Created  time.Time

	Paused    time.Time // since when; zero: it is not
	PauseNote string

	// Next are the next ten planned times, in the schedule's zone, as if it were not paused.
	// Empty when Limit or End has been reached.
	Next []time.Time
	// Overdue is the first planned time that passed at least a second ago and that no worker has
	// processed; zero if there is none. A schedule that is paused or waits for the end of an
	// occurrence is not overdue. If this process cannot compute the planned time, for the reason
	// in Problem, Overdue is the present.
	Overdue time.Time
	// Waiting is the planned time that waits for the end of an occurrence, by OverlapBufferOne
	// or MissedAll; zero if there is none.
	Waiting time.Time
	// Problem is why no worker can create occurrences, such as a zone that they do not know, or a
	// full store; "" if there is none.
	Problem string

	Counts ScheduleCounts
	Last   []Occurrence // the last ten, the latest first
}

// ScheduleCounts count since the schedule was created.
type ScheduleCounts struct {
	// Created counts occurrences of planned times; Triggered and Backfilled count requested ones.
	Created, Triggered, Backfilled uint64
	// Planned times without an occurrence: because of Overlap, because of Missed, or because the
	// schedule was replaced after they had passed. A later backfill does not decrease them.
	SkippedOverlap, SkippedMissed, SkippedUpdated uint64
	// Ended occurrences. A dead letter that is requeued ends, and counts, again.
	Done, Dead, Cancelled uint64
}

// OccurrenceState is the state of an occurrence.
type OccurrenceState uint8

// The states of an occurrence.
const (
	OccurrencePending   OccurrenceState = iota + 1 // it has not ended; Schedules reads no more than that
	OccurrenceWaiting                              // for its first attempt, or another
	OccurrenceRunning                              // it is leased
	OccurrenceDone                                 // its handler returned nil
	OccurrenceDead                                 // it is a dead letter, or was when it ended
	OccurrenceCancelled                            // it was cancelled
	OccurrenceLost                                 // its timer does not exist, and the store has no note of its end
)

var occurrenceNames = []string{"", "pending", "waiting", "running", "done", "dead", "cancelled", "lost"}

func (s OccurrenceState) String() string { return wordOf("OccurrenceState", occurrenceNames, s) }

// Occurrence is one run of a schedule.
type Occurrence struct {
	Key     string    // of its timer
	Planned time.Time // in the schedule's zone
	// Requested is "trigger" or "backfill" if a user has requested it; "" if it was planned.
	Requested string
	State     OccurrenceState
	Begun     time.Time // when its last attempt was claimed; zero if it waits, or was cancelled while it waited
	Ended     time.Time // zero if it has not
	Attempts  int       // 0 in a list, if it has not ended
	Error     string    // of its last failed attempt; at most 100 bytes
}

// info returns the ScheduleInfo of a view.
func (v *planView) info() ScheduleInfo {
	p := v.plan
	n, h := p.Counts, v.history
	info := ScheduleInfo{
		Schedule: p.Schedule, ID: p.id, Created: timeOf(p.created),
		Paused: timeOf(p.Paused), PauseNote: p.PauseNote, Problem: v.record.LastError,
		Counts: ScheduleCounts{
			n.Created, n.Triggered, n.Backfilled, n.SkippedOverlap, n.SkippedMissed, n.SkippedUpdated,
			h.Done, h.Dead, h.Cancelled,
		},
		Last: v.last(),
	}
	if p.problem != nil {
		info.Problem = p.problem.Error()
		if r := v.record; p.Paused == 0 && (r.Due <= v.now || r.Attempts > 0) {
			info.Overdue = timeOf(v.now)
		}
		return info
	}
	if n := min(10, p.Remaining()); n > 0 {
		info.Next = p.Times.Upcoming(max(p.Cursor, v.now), n)
	}
	next := p.Plan.Next(p.Cursor)
	switch {
	case p.Buffered != 0:
		info.Waiting = p.Local(p.Buffered)
	case p.InBacklog() && next != 0:
		info.Waiting = p.Local(next)
	case p.Paused == 0 && next != 0 && next+1000 <= v.now:
		info.Overdue = p.Local(next)
	}
	return info
}

// last returns the last ten occurrences, from the unfinished ones and the history.
func (v *planView) last() []Occurrence {
	var list []Occurrence
	ended := map[string]bool{}
	for _, n := range v.history.Last {
		ended[n.Key] = true
		o := v.occurrence(n.Key)
		o.State = OccurrenceDone + OccurrenceState(n.Outcome-store.OccurrenceDone)
		o.Begun, o.Ended, o.Attempts, o.Error = timeOf(n.Begun), timeOf(n.Ended), n.Attempts, n.Error
		list = append(list, o)
	}
	for _, u := range v.plan.Unfinished {
		if key := u.Key(v.plan.key); !ended[key] {
			list = append(list, v.occurrence(key))
		}
	}
	slices.SortStableFunc(list, func(a, b Occurrence) int {
		return cmp.Or(b.Planned.Compare(a.Planned), cmp.Compare(b.Key, a.Key))
	})
	return list[:min(len(list), store.MaxNotes)]
}

func (v *planView) occurrence(key string) Occurrence {
	_, o, _ := planning.ParseKey(key)
	return Occurrence{Key: key, Planned: v.plan.Local(o.Planned), Requested: o.Cause.String(), State: OccurrencePending}
}

// observe adds the store's record of an occurrence that has not ended; the zero Record means that
// there is none.
func (o *Occurrence) observe(r store.Record) {
	switch r.State {
	case store.Waiting:
		o.State = OccurrenceWaiting
	case store.Leased:
		o.State, o.Begun = OccurrenceRunning, timeOf(store.Begun(r.Fence))
	case store.Dead:
		o.State, o.Ended = OccurrenceDead, timeOf(r.Died)
	default:
		o.State = OccurrenceLost
	}
	o.Attempts, o.Error = r.Attempts, store.CutNote(r.LastError)
}

// Schedules returns an iterator over the schedules of all shards, in order of their keys. Like
// [Timers.List] it reads pages on demand, and is not a snapshot. Occurrences that have not ended
// are in the state pending; [Timers.GetSchedule] reads their states.
//
// An error comes as the last pair, with a zero ScheduleInfo.
func (t *Timers) Schedules(ctx context.Context) iter.Seq2[ScheduleInfo, error] {
	return t.SchedulesAfter(ctx, "")
}

// SchedulesAfter is [Timers.Schedules], starting after a key.
func (t *Timers) SchedulesAfter(ctx context.Context, key string) iter.Seq2[ScheduleInfo, error] {
	return func(yield func(ScheduleInfo, error) bool) {
		clocks, err := t.clocks(ctx)
		if err != nil {
			yield(ScheduleInfo{}, err)
			return
		}
		after := store.Cursor{}
		if key != "" {
			after.Key = store.PlanKey(key)
		}
		for r, err := range t.merged(ctx, after, t.plans, func(store.Record) store.Millis { return 0 }, nil) {
			if err != nil {
				yield(ScheduleInfo{}, err)
				return
			}
			v := viewOf(r, clocks[t.shardOf(r.Key)].Now)
			if !yield(v.info(), nil) {
				return
			}
		}
	}
}

// plans is the pageReader of plans. An engine also bounds a page by its bytes, so a short page
// that is not empty is not the last.
func (t *Timers) plans(ctx context.Context, shard int, after store.Cursor, limit int) (store.Page, error) {
	records, err := t.store.Plans(ctx, shard, after.Key, limit)
	page := store.Page{Records: records, More: len(records) > 0}
	if page.More {
		page.Next.Key = records[len(records)-1].Key
	}
	return page, err
}

// clocks returns the horizon of each shard.
func (t *Timers) clocks(ctx context.Context) ([]store.Horizon, error) {
	ctx, cancel, err := t.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	shards := make([]int, len(t.schedules))
	for i := range shards {
		shards[i] = i
	}
	return t.store.Horizons(ctx, shards)
}

// KeyText returns a timer's key for display: that of an occurrence as its schedule's key and its
// planned time, such as "report @ 2026-11-24T01:30:00Z", and other keys unchanged.
func KeyText(key string) string { return planning.KeyText(key) }

// OccurrencePrefix returns the Prefix of a [Filter] for the occurrences of a schedule.
func OccurrencePrefix(schedule string) string { return store.PlanKey(schedule) }

// PlannedTime returns the planned time in an occurrence's key, in UTC; the zero time for the key
// of another timer.
func PlannedTime(key string) time.Time {
	_, planned := plannedOf(key)
	return planned
}

// plannedOf returns the schedule and the planned time in an occurrence's key; zero values for the
// key of another timer.
func plannedOf(key string) (schedule string, planned time.Time) {
	schedule, o, ok := planning.ParseKey(key)
	if !ok {
		return "", time.Time{}
	}
	return schedule, o.Planned.Time()
}

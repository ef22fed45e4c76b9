package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// everySecond is a schedule with planned times at 1000, 2000, … 9000 ms. Times of events are in ms
// here.
var everySecond = recurrence{Every: 1000, Overlap: "allow", Missed: "all", End: 9000}

func asks(kind eventKind, at int64) event {
	return event{Kind: kind, At: at * 1000, Schedule: 1, Key: 1}
}

func puts(at int64, r recurrence) event {
	e := asks(eventPut, at)
	e.Recurs = &r
	return e
}

func answered(at int64, result string) event {
	return event{Kind: eventDone, At: at * 1000, Schedule: 1, Result: result}
}

func occurs(kind eventKind, at, planned int64, id string) event {
	e := event{Kind: kind, At: at * 1000, Schedule: 1, Planned: planned, ID: id}
	if kind == eventReplies {
		e.Status = 200
	}
	return e
}

// ranAt returns the events of a correct occurrence.
func ranAt(planned int64) []event {
	id := time.UnixMilli(planned).String()
	return []event{
		occurs(eventCreated, planned+1, planned, id), occurs(eventBegins, planned+2, planned, id),
		occurs(eventReplies, planned+3, planned, id), {Kind: eventAcknowledged, At: planned*1000 + 4000, ID: id},
	}
}

// ranAll returns the events of correct occurrences from one planned time to another, both included.
func ranAll(from, to int64) (all []event) {
	for at := from; at <= to; at += 1000 {
		all = append(all, ranAt(at)...)
	}
	return all
}

func TestCheckFindsFaultsOfSchedules(t *testing.T) {
	with := func(events ...[]event) (all []event) {
		for _, e := range events {
			all = append(all, e...)
		}
		return all
	}
	created := []event{puts(100, everySecond), answered(110, "created")}
	deleted := []event{asks(eventDelete, 5500), answered(5510, "deleted")}
	counts := func(planned, skipped uint64) client.Counts {
		return client.Counts{Created: planned, SkippedMissed: skipped, Done: planned}
	}
	counted := func(c client.Counts) []event {
		e := asks(eventCounted, 5490)
		e.Counts = &c
		return []event{e}
	}
	twoSeconds := everySecond
	twoSeconds.Every = 2000
	replaced := []event{puts(4900, twoSeconds), answered(5100, "replaced")}
	skipping := everySecond
	skipping.Overlap = "skip"

	all := with(created, ranAll(1000, 9000))
	nine := counts(9, 0)
	good := ScheduleSummary{Schedules: 1, Planned: 9, Created: 9, Done: 9}
	change := func(s ScheduleSummary, change func(*ScheduleSummary)) ScheduleSummary {
		change(&s)
		return s
	}
	deletedSummary := ScheduleSummary{Schedules: 1, Deleted: 1, Created: 5, Done: 5}
	for name, c := range map[string]struct {
		events []event
		counts *client.Counts // nil: the schedule is not in the store
		dead   string
		want   ScheduleSummary
	}{
		"good":    {events: all, counts: &nine, want: good},
		"no time": {events: []event{puts(100, everySecond)}, want: ScheduleSummary{Lost: 1}},
		"skipped": {events: with(created, ranAll(1000, 7000)), counts: new(counts(7, 2)),
			want: ScheduleSummary{Schedules: 1, Planned: 9, Created: 7, Skipped: 2, Done: 7}},
		"sent twice": {events: with(created[:1], created[:1], created[1:], ranAll(1000, 9000)), counts: &nine, want: good},

		"begun early": {events: with(all, []event{occurs(eventBegins, 1999, 2000, time.UnixMilli(2000).String())}), counts: &nine,
			want: change(good, func(s *ScheduleSummary) { s.Early = 1 })},
		"called back early": {events: with(all, []event{occurs(eventReplies, 1999, 2000, time.UnixMilli(2000).String())}), counts: &nine,
			want: change(good, func(s *ScheduleSummary) { s.Early = 1 })},

		"two IDs": {events: with(all, []event{occurs(eventReplies, 2500, 2000, "other"), {Kind: eventAcknowledged, ID: "other"}}), counts: &nine,
			want: change(good, func(s *ScheduleSummary) { s.Doubled = 1 })},
		"two IDs created": {events: with(all, []event{occurs(eventCreated, 2500, 2000, "other")}), counts: &nine,
			want: change(good, func(s *ScheduleSummary) { s.Doubled = 1 })},
		"not planned": {events: with(all, []event{occurs(eventReplies, 2600, 2500, "other")}), counts: new(counts(9, 0)),
			want: change(good, func(s *ScheduleSummary) { s.Doubled, s.Done = 2, 10 })}, // and the schedule does not count them
		"after the end": {events: with(all, ranAt(10000)), counts: &nine,
			want: change(good, func(s *ScheduleSummary) { s.Doubled, s.Done = 2, 10 })},
		"counted twice": {events: all, counts: &client.Counts{Created: 9, SkippedOverlap: 1, Done: 9},
			want: change(good, func(s *ScheduleSummary) { s.Doubled, s.Skipped = 1, 1 })},
		"ended twice": {events: all, counts: &client.Counts{Created: 9, Done: 10},
			want: change(good, func(s *ScheduleSummary) { s.Doubled = 1 })},

		"neither created nor skipped": {events: with(created, ranAll(1000, 8000)), counts: new(counts(8, 0)),
			want: ScheduleSummary{Schedules: 1, Planned: 9, Created: 8, Done: 8, Lost: 1}},
		"no callback": {events: with(created, ranAll(1000, 8000)), counts: &nine,
			want: change(good, func(s *ScheduleSummary) { s.Done, s.Lost = 8, 1 })},
		"dead": {events: with(created, ranAll(1000, 8000), ranAt(9000)[:2]), counts: &client.Counts{Created: 9, Done: 8, Dead: 2}, dead: "report-1\x000000000009000",
			want: change(good, func(s *ScheduleSummary) { s.Done = 8 })},
		"cancelled": {events: with(created, ranAll(1000, 8000)), counts: &client.Counts{Created: 9, Done: 8, Cancelled: 1},
			want: change(good, func(s *ScheduleSummary) { s.Done = 8 })},
		"no end":     {events: all, counts: &client.Counts{Created: 9, Done: 8}, want: change(good, func(s *ScheduleSummary) { s.Lost = 1 })},
		"it is gone": {events: all, want: ScheduleSummary{Schedules: 1, Done: 9, Lost: 1}},

		"replaced": {events: with(created, ranAll(1000, 5000), replaced, ranAt(6000), ranAt(8000)), counts: new(counts(7, 0)),
			want: ScheduleSummary{Schedules: 1, Replaced: 1, Planned: 7, Created: 7, Done: 7}},
		"replaced just before": {events: with(created, ranAll(1000, 4000), replaced, ranAt(6000), ranAt(8000)), counts: new(counts(6, 0)),
			want: ScheduleSummary{Schedules: 1, Replaced: 1, Planned: 6, Created: 6, Done: 6}},
		"lost when replaced": {events: with(created, ranAll(1000, 3000), replaced, ranAt(6000), ranAt(8000)), counts: new(counts(5, 0)),
			want: ScheduleSummary{Schedules: 1, Replaced: 1, Planned: 6, Created: 5, Done: 5, Lost: 1}},
		"the old times though replaced": {events: with(created, ranAll(1000, 5000), replaced, ranAll(6000, 8000)), counts: new(counts(8, 0)),
			want: ScheduleSummary{Schedules: 1, Replaced: 1, Planned: 7, Created: 8, Done: 8, Doubled: 2}}, // and one occurrence too many

		"deleted":            {events: with(created, ranAll(1000, 5000), counted(counts(5, 0)), deleted), want: deletedSummary},
		"after the deletion": {events: with(created, ranAll(1000, 6000), counted(counts(5, 0)), deleted), want: change(deletedSummary, func(s *ScheduleSummary) { s.Created, s.Done, s.AfterDelete = 6, 6, 1 })},
		"created by a request after the deletion": {events: with(created, ranAll(1000, 5000), counted(counts(5, 0)), deleted, []event{occurs(eventCreated, 5600, 5000, time.UnixMilli(5000).String())}),
			want: change(deletedSummary, func(s *ScheduleSummary) { s.AfterDelete = 1 })},
		"it is there though deleted": {events: with(created, ranAll(1000, 5000), deleted), counts: new(counts(5, 0)), want: change(deletedSummary, func(s *ScheduleSummary) { s.AfterDelete = 1 })},
		"a gap before the deletion":  {events: with(created, ranAll(1000, 2000), ranAll(4000, 5000), counted(counts(4, 0)), deleted), want: change(deletedSummary, func(s *ScheduleSummary) { s.Created, s.Done, s.Lost = 4, 4, 1 })},
		"no callback, then deleted":  {events: with([]event{puts(100, skipping), answered(110, "created")}, ranAll(1000, 4000), counted(counts(5, 0)), deleted), want: change(deletedSummary, func(s *ScheduleSummary) { s.Created, s.Done, s.Lost = 4, 4, 1 })},
		"too many, then deleted":     {events: with(created, ranAll(1000, 5000), counted(counts(5, 1)), deleted), want: change(deletedSummary, func(s *ScheduleSummary) { s.Doubled = 1 })},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHistory()
			for _, e := range c.events {
				require.NoError(t, b.add(e))
			}
			var infos []client.ScheduleInfo
			if c.counts != nil {
				infos = []client.ScheduleInfo{{Schedule: client.Schedule{Key: "report-1"}, Created: time.UnixMilli(105), Counts: *c.counts}}
			}
			got := b.check(map[string]bool{c.dead: c.dead != ""}, infos)
			require.Equal(t, c.want, got.Schedules)
			ok := c.want.Early+c.want.Doubled+c.want.Lost+c.want.AfterDelete == 0
			require.Equal(t, ok, got.ok())
			require.Equal(t, ok, len(b.failedKeys) == 0)
		})
	}
	require.Error(t, newHistory().add(event{Kind: "x", Schedule: 1}))
}

// If the store accepts the completion of an occurrence twice, the error names its schedule.
func TestCheckFindsOccurrencesAcknowledgedTwice(t *testing.T) {
	b := newHistory()
	events := append([]event{puts(100, everySecond), answered(110, "created")}, ranAt(1000)...)
	for _, e := range append(events, events[len(events)-1]) {
		require.NoError(t, b.add(e))
	}
	require.Equal(t, 1, b.check(nil, nil).AcknowledgedTwice)
	require.True(t, b.failedKeys["report-1"])
}

// A schedule created again under the same key is a different schedule.
func TestScheduleCreatedAgain(t *testing.T) {
	b := newHistory()
	events := append([]event{puts(100, everySecond), answered(110, "created")}, ranAll(1000, 5000)...)
	events = append(events, asks(eventDelete, 5500), answered(5510, "deleted"))
	again := append([]event{puts(5600, everySecond), answered(5610, "created")}, ranAll(6000, 9000)...)
	for _, e := range again {
		if e.Schedule != 0 {
			e.Schedule = 2
		}
		events = append(events, e)
	}
	for _, e := range events {
		require.NoError(t, b.add(e))
	}
	s := b.check(nil, []client.ScheduleInfo{{Schedule: client.Schedule{Key: "report-1"}, Created: time.UnixMilli(5605), Counts: client.Counts{Created: 4, Done: 5}}})
	require.Equal(t, ScheduleSummary{Schedules: 2, Deleted: 1, Planned: 4, Created: 9, Done: 9}, s.Schedules)
	require.True(t, s.ok())
}

// A seed always gives the same schedules, and these have all policies.
func TestRecurring(t *testing.T) {
	l := load{Timers: 20_000, Schedules: 2000, Span: 20 * time.Second, Schedulers: 2, Seed: 3}
	policies, kinds, numbers := map[string]int{}, map[opKind]int{}, map[int]int{}
	jitters, cancels, again := 0, 0, 0
	for i := range l.Schedulers {
		ops := l.planSchedules(i)
		require.Equal(t, ops, l.planSchedules(i))
		last := time.Duration(0)
		for _, o := range ops {
			require.LessOrEqual(t, last, o.at)
			last = o.at
			kinds[o.kind]++
			if o.kind == opDelete && o.cancel {
				cancels++
			}
			if o.kind != opPut {
				continue
			}
			numbers[o.timer] = o.key
			r := o.recurs
			policies[r.Overlap+r.Missed]++
			require.True(t, r.Every >= 1000 && r.Every <= 5000 && r.Offset < r.Every && r.Jitter < r.Every)
			if r.Jitter > 0 {
				jitters++
			}
			if o.timer != o.key-l.Timers {
				again++
			}
		}
	}
	require.Len(t, policies, len(overlapPolicies)*len(missedPolicies))
	require.Len(t, numbers, l.Schedules+again)
	for _, n := range []int{jitters, cancels, again, kinds[opDelete], kinds[opPause], kinds[opResume], kinds[opPut] - len(numbers)} {
		require.Positive(t, n)
	}
}

// The tour computes planned times on its own.
func TestPlannedTimes(t *testing.T) {
	r := recurrence{Every: 1000, Offset: 300, End: 5300}
	require.Equal(t, int64(1300), r.next(300))
	require.Equal(t, int64(1300), r.next(1299))
	require.Equal(t, int64(2300), r.next(1300))
	require.Equal(t, 5, r.count(1000, 9000))
	require.Equal(t, 1, r.count(1299, 1300))
	require.Zero(t, r.count(1300, 2299))
	require.True(t, r.includes(1300))
	require.False(t, r.includes(1301))
	require.False(t, r.includes(6300))
}

package observe

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
	"github.com/stretchr/testify/require"
)

// numbered sets each number of a Stats to a different value, and counts that many durations in
// its histograms.
func numbered[S any]() (st S) {
	n := 1000
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		if h, ok := v.Addr().Interface().(*histogram.Durations); ok {
			n++
			h.Counts[0], h.Count = uint64(n), uint64(n)
			return
		}
		switch v.Kind() {
		case reflect.Int:
			n++
			v.SetInt(int64(n))
		case reflect.Int64:
			n++
			v.SetInt(int64(n) * int64(time.Second))
		case reflect.Uint64:
			n++
			v.SetUint(uint64(n))
		case reflect.Array:
			for i := range v.Len() {
				fill(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					fill(v.Field(i))
				}
			}
		}
	}
	fill(reflect.ValueOf(&st).Elem())
	return st
}

// Each metric has the value that its name says.
func TestMetrics(t *testing.T) {
	wheel, purg, sched := numbered[timingwheel.Stats](), numbered[purgatory.Stats](), numbered[scheduler.Stats]()
	call, poll, queue := numbered[calls.Stats](), numbered[longpoll.Stats](), numbered[delayqueue.Stats]()
	for kind, c := range map[string]struct {
		write func(*metricList)
		want  map[string]any // a number, or a histogram, by name and label
	}{
		"wheel": {func(s *metricList) { s.wheel(wheel) }, map[string]any{
			"timers": wheel.Pending, "ready": wheel.Ready, "overdue_seconds": int(wheel.Overdue.Seconds()),
			"late_seconds": wheel.Late, "scheduled_total": wheel.Scheduled,
			"ended_total outcome=expired": wheel.Expired, "ended_total outcome=stopped": wheel.Stopped,
			"ended_total outcome=discarded": wheel.Discarded, "ended_total outcome=returned": wheel.Returned,
			"refused_total cause=full": wheel.RefusedFull, "refused_total cause=closed": wheel.RefusedClosed,
			"panics_total": wheel.Panics, "cascaded_total": wheel.Cascaded, "wakeups_total": wheel.Wakeups,
			"empty_wakeups_total": wheel.EmptyWakeups, "workers_busy": wheel.Workers - wheel.Idle,
			"workers_idle": wheel.Idle, "levels": wheel.Levels, "memory_bytes": wheel.Bytes,
		}},
		"purgatory": {func(s *metricList) { s.purgatory(purg) }, map[string]any{
			"operations": purg.Pending, "watches": purg.Watched, "keys": purg.Keys,
			"ended_total outcome=completed": purg.Completed, "waited_seconds outcome=completed": purg.Waited[purgatory.Completed],
			"ended_total outcome=expired": purg.Expired, "waited_seconds outcome=expired": purg.Waited[purgatory.Expired],
			"ended_total outcome=cancelled": purg.Cancelled, "waited_seconds outcome=cancelled": purg.Waited[purgatory.Cancelled],
			"ended_total outcome=closed": purg.Closed, "waited_seconds outcome=closed": purg.Waited[purgatory.Closed],
			"ended_total outcome=failed": purg.Failed, "waited_seconds outcome=failed": purg.Waited[purgatory.Failed],
			"late_seconds": purg.Late, "checks_total": purg.Checks, "panics_total": purg.Panics,
			"refused_total cause=full": purg.RefusedFull, "refused_total cause=closed": purg.RefusedClosed,
		}},
		"scheduler": {func(s *metricList) { s.scheduler(sched) }, map[string]any{
			"pending": sched.Pending, "jobs": sched.Jobs, "scheduled_total": sched.Scheduled,
			"ended_total outcome=ended": sched.Ended, "ended_total outcome=stopped": sched.Stopped,
			"ended_total outcome=discarded": sched.Discarded, "ended_total outcome=returned": sched.Returned,
			"refused_total cause=full": sched.RefusedFull, "refused_total cause=closed": sched.RefusedClosed,
			"panics_total": sched.Panics, "clock_steps_total": sched.ClockSteps,
		}},
		"calls": {func(s *metricList) { s.calls(call) }, map[string]any{
			"waiting": call.Pending, "groups": call.Groups, "unmatched_total": call.Unmatched,
			"ended_total outcome=completed": call.Completed, "waited_seconds outcome=completed": call.Waited[purgatory.Completed],
			"ended_total outcome=expired": call.Expired, "waited_seconds outcome=expired": call.Waited[purgatory.Expired],
			"ended_total outcome=cancelled": call.Cancelled, "waited_seconds outcome=cancelled": call.Waited[purgatory.Cancelled],
			"ended_total outcome=closed": call.Closed, "waited_seconds outcome=closed": call.Waited[purgatory.Closed],
			"ended_total outcome=failed": call.Failed, "waited_seconds outcome=failed": call.Waited[purgatory.Failed],
			"refused_total cause=full": call.RefusedFull, "refused_total cause=closed": call.RefusedClosed,
			"refused_total cause=duplicate": call.Duplicates,
			"late_seconds":                  call.Late,
		}},
		"polls": {func(s *metricList) { s.polls(poll) }, map[string]any{
			"waiting": poll.Pending, "clients": poll.Clients,
			"ended_total outcome=ready": poll.Ready, "ended_total outcome=expired": poll.Expired, "ended_total outcome=hung_up": poll.Disconnected,
			"ended_total outcome=cancelled": poll.Cancelled,
			"ended_total outcome=invalid":   poll.Invalid, "ended_total outcome=limited": poll.Limited,
			"ended_total outcome=refused": poll.Refused, "ended_total outcome=failed": poll.Failed,
		}},
		"queue": {func(s *metricList) { s.queue(7, queue) }, map[string]any{
			"elements": 7, "wakeups_total": queue.Wakeups, "promoted_total": queue.Promoted,
			"rearmed_total": queue.Rearmed, "stale_total": queue.Stale,
		}},
	} {
		var s metricList
		c.write(&s)
		require.Len(t, s, len(c.want), kind)
		for _, f := range s {
			key := f.Name
			if f.Label != "" {
				key += " " + f.Label + "=" + f.LabelValue
			}
			want, ok := c.want[key]
			require.True(t, ok, "%s %s", kind, key)
			if f.Type == Histogram {
				require.Equal(t, want, f.Durations, "%s %s", kind, key)
			} else {
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(f.Value), "%s %s", kind, key)
			}
		}
	}
}

package observe

import (
	"github.com/seed-782fa212/limbo/calls"
	"github.com/seed-782fa212/limbo/delayqueue"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/longpoll"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
	"github.com/seed-782fa212/limbo/timingwheel/scheduler"
)

// The metrics of each kind of source.

func (s *metricList) wheel(st timingwheel.Stats) {
	s.gauge("timers", "Timers held, those included that wait for a worker", float64(st.Pending))
	s.gauge("ready", "Timers that are due and wait for a worker", float64(st.Ready))
	s.seconds("overdue_seconds", "How long ago the oldest timer came due that waits for a worker or for the advancer", st.Overdue)
	s.durations("late_seconds", "How long after their deadlines, to the tick, workers took the timers that expired", st.Late)
	s.counter("scheduled_total", "Timers accepted", st.Scheduled)
	s.labelled("ended_total", "Timers that ended, by outcome", "outcome",
		labelled{"expired", st.Expired}, labelled{"stopped", st.Stopped},
		labelled{"discarded", st.Discarded}, labelled{"returned", st.Returned})
	s.refused("Timers", st.RefusedFull, st.RefusedClosed)
	s.counter("panics_total", "Panics of the expiry function", st.Panics)
	s.counter("cascaded_total", "Moves of a timer to a lower level", st.Cascaded)
	s.counter("wakeups_total", "Times that the advancer woke", st.Wakeups)
	s.counter("empty_wakeups_total", "Times that the advancer woke for a bucket whose timers had all been stopped", st.EmptyWakeups)
	s.gauge("workers_busy", "Goroutines that run the expiry function and are not idle", float64(st.Workers-st.Idle))
	s.gauge("workers_idle", "Goroutines that wait for a timer", float64(st.Idle))
	s.gauge("levels", "Levels that some shard needed so far", float64(st.Levels))
	s.gauge("memory_bytes", "Memory held for timers, buckets and levels", float64(st.Bytes))
}

func (s *metricList) refused(what string, full, closed uint64) {
	s.labelled("refused_total", what+" that were refused, by cause", "cause",
		labelled{"full", full}, labelled{"closed", closed})
}

func (s *metricList) purgatory(st purgatory.Stats) {
	s.gauge("operations", "Operations that wait", float64(st.Pending))
	s.gauge("watches", "Pairs of an operation and a key that it waits for", float64(st.Watched))
	s.gauge("keys", "Keys that operations wait for", float64(st.Keys))
	s.outcomes("Operations", st.Completed, st.Expired, st.Cancelled, st.Closed, st.Failed)
	s.waited("How long operations waited that did not end at once, by outcome", st.Waited)
	s.durations("late_seconds", "How long after their deadlines operations expired", st.Late)
	s.refused("Operations", st.RefusedFull, st.RefusedClosed)
	s.counter("panics_total", "Panics of checks, completions, contexts and hooks", st.Panics)
	s.counter("checks_total", "Calls of TryComplete, or readings of a threshold's numbers, by operations that have ended", st.Checks)
}

func (s *metricList) outcomes(what string, completed, expired, cancelled, closed, failed uint64) {
	s.labelled("ended_total", what+" that ended, by outcome", "outcome",
		labelled{"completed", completed}, labelled{"expired", expired}, labelled{"cancelled", cancelled},
		labelled{"closed", closed}, labelled{"failed", failed})
}

// waited adds a histogram for each outcome.
func (s *metricList) waited(help string, by [purgatory.Failed + 1]histogram.Durations) {
	for o := purgatory.Completed; o <= purgatory.Failed; o++ {
		*s = append(*s, Metric{
			Name: "waited_seconds", Help: help, Type: Histogram,
			Label: "outcome", LabelValue: o.String(), Durations: by[o],
		})
	}
}

func (s *metricList) scheduler(st scheduler.Stats) {
	s.gauge("pending", "Calls and jobs held", float64(st.Pending))
	s.gauge("jobs", "Jobs held", float64(st.Jobs))
	s.counter("scheduled_total", "Calls and jobs accepted", st.Scheduled)
	s.labelled("ended_total", "Calls and jobs that ended, by outcome", "outcome",
		labelled{"ended", st.Ended}, labelled{"stopped", st.Stopped},
		labelled{"discarded", st.Discarded}, labelled{"returned", st.Returned})
	s.refused("Calls and jobs", st.RefusedFull, st.RefusedClosed)
	s.counter("panics_total", "Panics of functions, schedules and hooks", st.Panics)
	s.counter("clock_steps_total", "Times that the wall clock was found to have been set", st.ClockSteps)
}

func (s *metricList) calls(st calls.Stats) {
	s.gauge("waiting", "Calls that wait for their reply", float64(st.Pending))
	s.gauge("groups", "Groups that are not closed", float64(st.Groups))
	s.outcomes("Calls", st.Completed, st.Expired, st.Cancelled, st.Closed, st.Failed)
	s.waited("How long calls waited, by outcome", st.Waited)
	s.durations("late_seconds", "How long after their deadlines calls expired", st.Late)
	s.labelled("refused_total", "Calls that were refused, by cause", "cause",
		labelled{"full", st.RefusedFull}, labelled{"closed", st.RefusedClosed}, labelled{"duplicate", st.Duplicates})
	s.counter("unmatched_total", "Replies for ids that no call waited for", st.Unmatched)
}

func (s *metricList) polls(st longpoll.Stats) {
	s.gauge("waiting", "Polls that wait", float64(st.Pending))
	s.gauge("clients", "Clients that have a poll waiting, if they are told apart", float64(st.Clients))
	s.labelled("ended_total", "Polls that ended, by outcome", "outcome",
		labelled{"ready", st.Ready}, labelled{"expired", st.Expired}, labelled{"hung_up", st.Disconnected},
		labelled{"cancelled", st.Cancelled},
		labelled{"invalid", st.Invalid}, labelled{"limited", st.Limited}, labelled{"refused", st.Refused},
		labelled{"failed", st.Failed})
}

func (s *metricList) queue(n int, st delayqueue.Stats) {
	s.gauge("elements", "Elements held", float64(n))
	s.counter("wakeups_total", "Times that a taker woke that had blocked", st.Wakeups)
	s.counter("promoted_total", "Times that a taker woke to become the leader", st.Promoted)
	s.counter("rearmed_total", "Times that a taker woke because an earlier deadline came", st.Rearmed)
	s.counter("stale_total", "Times that a taker woke and nothing was due any more", st.Stale)
}

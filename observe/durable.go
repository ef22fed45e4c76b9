package observe

import (
	"context"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/durable"
)

const (
	// readTimeout limits how long a read of the store may take.
	readTimeout = 2 * time.Second

	// maxAge is the maximum age of a result that is published. Prometheus uses the same lookback
	// period for current values.
	maxAge = 5 * time.Minute
)

// Timers returns the source for a store's timers, of the kind durable. The metrics describe the
// store. Every process that shares the store publishes the same values, so aggregate across
// processes with the maximum: a sum would count every timer once per process.
//
// A scrape does not wait for the store. It returns the result of the last read, with its age,
// and starts another read in a goroutine, of which there is at most one and which ends within
// 2 s. So the values are those of the previous scrape, or a second old while the page is open.
// They are missing, and readable is 0, if the last read failed, took longer than 2 s, or was
// 5 min ago. Timers starts the first read.
//
// A read calls [durable.Timers.Stats], which sends a request to each shard, one after the other.
// Redis counts without reading timers, in 17 commands of O(log n) each. The embedded store reads
// the keys of all timers that are due and not claimed yet: few, unless workers do not keep up.
func Timers(t *durable.Timers) Source {
	must(t != nil, "Timers", "nil")
	r := &storeReader{timers: t}
	r.metrics()
	return Custom("durable", r.metrics)
}

// storeReader reads the store in the background, for readers that must not wait.
type storeReader struct {
	timers *durable.Timers

	mu   sync.Mutex
	busy bool          // guarded by mu; a read is in progress
	at   time.Time     // guarded by mu; when the last completed read began
	last durable.Stats // guarded by mu; result of that read
	err  error         // guarded by mu; error of that read
}

// metrics returns the result of the last read, and starts another unless one is in progress.
func (r *storeReader) metrics() []Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.busy {
		r.busy = true
		go r.read()
	}
	readable := Metric{Name: "readable", Help: "Whether the metrics of the store are here: 0 or 1"}
	age := time.Since(r.at) // centuries, before the first read
	if r.err != nil || age > maxAge {
		return []Metric{readable}
	}
	readable.Value = 1
	return append(storeMetrics(r.last), // a page's list shows the first gauge
		readable,
		Metric{Name: "age_seconds", Help: "How long ago the store was asked for these metrics", Value: age.Seconds()})
}

func (r *storeReader) read() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	st, err := r.timers.Stats(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy, r.at, r.last, r.err = false, began, st, err
}

func storeMetrics(st durable.Stats) []Metric {
	overdue := 0.0
	if st.Overdue > 0 {
		overdue = max(0, st.Now.Sub(st.NextDue).Seconds())
	}
	return []Metric{
		{Name: "waiting", Help: "Timers that wait for their time or for another attempt", Value: float64(st.Waiting)},
		{Name: "overdue", Help: "Timers that wait and are due", Value: float64(st.Overdue)},
		{Name: "overdue_seconds", Help: "How long ago the first timer came due that waits", Value: overdue},
		{Name: "leased", Help: "Timers that a worker runs", Value: float64(st.Leased)},
		{Name: "dead", Help: "Dead letters", Value: float64(st.Dead)},
		{Name: "dropped_total", Help: "Dead letters that were removed because of their number or their age", Type: Counter, Value: float64(st.Dropped)},
		{Name: "scheduled_total", Help: "Timers that were scheduled, replacements and occurrences included; of an embedded store, since it was opened", Type: Counter, Value: float64(st.Scheduled)},
		{Name: "schedules", Help: "Schedules", Value: float64(st.Schedules)},
		{Name: "schedules_overdue", Help: "Schedules that are to create an occurrence, and have not", Value: float64(st.SchedulesOverdue)},
	}
}

// Worker returns the source for a worker, of the kind durable_worker.
//
// Its metrics describe one worker and can be summed, except limbo_durable_worker_members, which
// describes the store.
func Worker(w *durable.Worker) Source {
	must(w != nil, "Worker", "nil")
	return Custom("durable_worker", func() []Metric {
		st := w.Stats()
		list := []Metric{
			{Name: "running", Help: "Handlers that run", Value: float64(st.Running)},
			{Name: "ending", Help: "Handlers that have returned, whose ends are not written yet or whose OnDead has not returned", Value: float64(st.Ending)},
			{Name: "members", Help: "Workers that live, this one included; 0 if that is not known", Value: float64(st.Members)},
			{Name: "preferred_shards", Help: "Shards that this worker is the first to claim from", Value: float64(st.Preferred)},
			{Name: "claimed_total", Help: "Leases that this worker got", Type: Counter, Value: float64(st.Claimed)},
		}
		for _, run := range []struct {
			outcome string
			n       uint64
		}{
			{"done", st.Done}, {"retried", st.Retried}, {"snoozed", st.Snoozed}, {"released", st.Released},
			{"dead_lettered", st.DeadLettered}, {"dead_lettered_lost", st.DeadLetteredLost}, {"cancelled", st.Cancelled}, {"lost", st.Lost}, {"unwritten", st.Unwritten},
		} {
			list = append(list, Metric{
				Name: "ended_total", Help: "Runs by outcome", Type: Counter, Label: "outcome", LabelValue: run.outcome, Value: float64(run.n),
			})
		}
		return append(list,
			Metric{Name: "panics_total", Help: "Panics of handlers", Type: Counter, Value: float64(st.Panics)},
			Metric{Name: "repaired_total", Help: "Records without a state that claims have removed", Type: Counter, Value: float64(st.Repaired)},
			Metric{Name: "late_seconds", Help: "How long after timers were due this worker started their handlers", Type: Histogram, Durations: st.Late},
			Metric{Name: "planned_total", Help: "Times that this worker advanced a schedule", Type: Counter, Value: float64(st.Planned)},
			Metric{Name: "occurrences_total", Help: "Occurrences of schedules that this worker created at planned times", Type: Counter, Value: float64(st.Occurrences)},
			Metric{Name: "skipped_total", Help: "Planned times that this worker skipped, because of the schedule's overlap or missed", Type: Counter, Value: float64(st.Skipped)},
			Metric{Name: "plan_failures_total", Help: "Times that this worker could not advance a schedule, and put it off", Type: Counter, Value: float64(st.PlanFailures)},
			Metric{Name: "planned_late_seconds", Help: "How long after their planned times this worker created occurrences", Type: Histogram, Durations: st.PlannedLate})
	})
}

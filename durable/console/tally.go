package console

import (
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/histogram"
)

const rateOver = 10 * time.Second

// outcomes counts the outcomes of runs.
type outcomes struct {
	completed, retried, snoozed, deadLettered, cancelled uint64
}

func outcomesOf(w durable.WorkerInfo) outcomes {
	return outcomes{completed: w.Done, retried: w.Retried, snoozed: w.Snoozed, deadLettered: w.DeadLettered, cancelled: w.Cancelled}
}

func (o *outcomes) fields() [5]*uint64 {
	return [...]*uint64{&o.completed, &o.retried, &o.snoozed, &o.deadLettered, &o.cancelled}
}

func (o *outcomes) add(other outcomes) {
	to, from := o.fields(), other.fields()
	for i := range to {
		*to[i] += *from[i]
	}
}

// minus returns the growth since earlier counts, or false if a count has fallen.
func (o outcomes) minus(was outcomes) (outcomes, bool) {
	grown, earlier := o.fields(), was.fields()
	for i := range grown {
		if *grown[i] < *earlier[i] {
			return outcomes{}, false
		}
		*grown[i] -= *earlier[i]
	}
	return o, true
}

func (o outcomes) perSecond(over time.Duration) *runRates {
	per := func(n uint64) float64 { return float64(n) / over.Seconds() }
	return &runRates{
		Completed: per(o.completed), Retried: per(o.retried), Snoozed: per(o.snoozed),
		DeadLettered: per(o.deadLettered), Cancelled: per(o.cancelled),
	}
}

// lateSince returns the growth of a histogram since an earlier one, or false if a count has fallen.
func lateSince(now, was histogram.Durations) (histogram.Durations, bool) {
	now.Count, now.Sum = 0, max(now.Sum-was.Sum, 0)
	for i := range now.Counts {
		if now.Counts[i] < was.Counts[i] {
			return histogram.Durations{}, false
		}
		now.Counts[i] -= was.Counts[i]
		now.Count += now.Counts[i]
	}
	return now, true
}

// growth returns a worker's counts since an earlier poll. Counts that have fallen belong to another
// worker with the same name, which began at zero.
func growth(now, was durable.WorkerInfo) (outcomes, histogram.Durations) {
	ran, ok := outcomesOf(now).minus(outcomesOf(was))
	late, lateOK := lateSince(now.Late, was.Late)
	if !ok || !lateOK {
		return outcomesOf(now), now.Late
	}
	return ran, late
}

// sums are the totals of a tally at a poll.
type sums struct {
	at        time.Time // by this process's clock
	scheduled uint64
	outcomes
	late    histogram.Durations
	workers map[string]outcomes
}

// tally turns the counters of the store and the workers, any of which may restart at zero, into
// rates over the last rateOver. A worker that is new at a poll counts in full if it began after the
// previous poll. Otherwise its earlier counts are unknown, and it counts from this poll on.
type tally struct {
	begun     bool
	polled    time.Time // the last poll, by the engine's clock
	scheduled uint64    // at the last poll
	workers   map[string]durable.WorkerInfo
	points    []sums
}

// add adds the results of a poll that began at the given time.
func (t *tally) add(at time.Time, s durable.Stats, workers []durable.WorkerInfo) {
	next := sums{at: at, workers: make(map[string]outcomes, len(workers))}
	if n := len(t.points); n > 0 {
		last := t.points[n-1]
		next.scheduled, next.outcomes, next.late = last.scheduled, last.outcomes, last.late
		for _, w := range workers {
			next.workers[w.Name] = last.workers[w.Name]
		}
	}
	if t.begun {
		if s.Scheduled >= t.scheduled {
			next.scheduled += s.Scheduled - t.scheduled
		} else {
			next.scheduled += s.Scheduled
		}
	}
	known := make(map[string]durable.WorkerInfo, len(workers))
	for _, w := range workers {
		was, ok := t.workers[w.Name]
		known[w.Name] = w
		if !ok && (!t.begun || !w.Since.After(t.polled)) {
			continue
		}
		ran, late := growth(w, was)
		next.add(ran)
		next.late.Merge(&late)
		sum := next.workers[w.Name]
		sum.add(ran)
		next.workers[w.Name] = sum
	}
	t.begun, t.polled, t.scheduled, t.workers = true, s.Now, s.Scheduled, known
	t.points = append(t.points, next)
	for len(t.points) > 2 && at.Sub(t.points[1].at) >= rateOver {
		t.points = t.points[1:]
	}
}

// gap forgets the points, so that the rates restart after a time without replies.
func (t *tally) gap() { t.points = nil }

// over returns the first and the last point, or false if there are fewer than two.
func (t *tally) over() (first, last sums, ok bool) {
	if len(t.points) < 2 {
		return first, last, false
	}
	return t.points[0], t.points[len(t.points)-1], true
}

func (t *tally) rates() *rates {
	first, last, ok := t.over()
	if !ok {
		return nil
	}
	over := last.at.Sub(first.at)
	ran, _ := last.minus(first.outcomes)
	return &rates{Scheduled: float64(last.scheduled-first.scheduled) / over.Seconds(), runRates: *ran.perSecond(over)}
}

func (t *tally) lateness() *lateness {
	first, last, ok := t.over()
	if !ok {
		return nil
	}
	late, _ := lateSince(last.late, first.late)
	return &lateness{
		Runs: late.Count, P50: late.Quantile(0.5).Seconds(), P99: late.Quantile(0.99).Seconds(), Over: last.at.Sub(first.at).Seconds(),
	}
}

// worker returns the rates of a worker, or nil if there are fewer than two points.
func (t *tally) worker(name string) *runRates {
	first, last, ok := t.over()
	if !ok {
		return nil
	}
	ran, _ := last.workers[name].minus(first.workers[name])
	return ran.perSecond(last.at.Sub(first.at))
}

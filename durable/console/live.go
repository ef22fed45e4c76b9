package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/internal/webpage"
)

const (
	pollFor   = 2 * time.Second  // timeout of a poll; then the store counts as down
	pollAgain = 10 * time.Second // longest time between polls, even of a slow store
)

// overview counts what the store holds.
type overview struct {
	Shards  int    `json:"shards"`
	Waiting int    `json:"waiting"`
	Overdue int    `json:"overdue"` // waiting timers that are due
	Running int    `json:"running"`
	Dead    int    `json:"dead"`
	Dropped uint64 `json:"dropped"` // dead letters that the store's limits removed

	Schedules        int `json:"schedules"`
	SchedulesOverdue int `json:"schedules_overdue"`

	Now          time.Time `json:"now"` // by the engine's clock
	NextDue      time.Time `json:"next_due,omitzero"`
	NextLeaseEnd time.Time `json:"next_lease_end,omitzero"`
}

func overviewOf(s durable.Stats) overview {
	return overview{
		Shards: s.Shards, Waiting: s.Waiting, Overdue: s.Overdue, Running: s.Leased, Dead: s.Dead, Dropped: s.Dropped,
		Schedules: s.Schedules, SchedulesOverdue: s.SchedulesOverdue,
		Now: s.Now, NextDue: s.NextDue, NextLeaseEnd: s.NextLeaseEnd,
	}
}

func (c *Console) overview(r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), readFor)
	defer cancel()
	s, err := c.timers.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return overviewOf(s), nil
}

// runRates are the outcomes of runs, per second.
type runRates struct {
	Completed    float64 `json:"completed"`
	Retried      float64 `json:"retried"`
	Snoozed      float64 `json:"snoozed"`
	DeadLettered float64 `json:"dead_lettered"`
	Cancelled    float64 `json:"cancelled"`
}

// rates are those of the store and of all workers, per second, over the last rateOver.
type rates struct {
	Scheduled float64 `json:"scheduled"`
	runRates
}

// lateness is how late runs began, over all workers.
type lateness struct {
	Runs uint64  `json:"runs"`
	P50  float64 `json:"p50_seconds"` // upper bounds: at most twice the true value
	P99  float64 `json:"p99_seconds"`
	Over float64 `json:"over_seconds"`
}

// workerState is a worker of any process.
type workerState struct {
	Name      string    `json:"name"`
	Live      bool      `json:"live"`
	Heartbeat time.Time `json:"heartbeat"`
	Slots     int       `json:"slots"`
	Running   int       `json:"running"`   // running handlers
	Preferred int       `json:"preferred"` // shards from which it claims first
	PerSecond *runRates `json:"per_second,omitempty"`
}

// maxWorkers bounds the workers in an event.
const maxWorkers = 200

// workerList lists the workers, the live ones first.
type workerList struct {
	Live    int           `json:"live"`
	Dead    int           `json:"dead"` // without a heartbeat
	Slots   int           `json:"slots"`
	Running int           `json:"running"`
	Items   []workerState `json:"items"` // at most maxWorkers
}

func (t *tally) workerList(workers []durable.WorkerInfo) *workerList {
	list := workerList{Items: []workerState{}}
	slices.SortStableFunc(workers, func(a, b durable.WorkerInfo) int {
		switch {
		case a.Live != b.Live && a.Live:
			return -1
		case a.Live != b.Live:
			return 1
		case !a.Live:
			return b.Heartbeat.Compare(a.Heartbeat)
		}
		return 0 // Workers returns them by name
	})
	for _, w := range workers {
		if w.Live {
			list.Live++
			list.Slots += w.Slots
			list.Running += w.Running
		} else {
			list.Dead++
		}
		if len(list.Items) < maxWorkers {
			list.Items = append(list.Items, workerState{
				Name: readable(w.Name), Live: w.Live, Heartbeat: w.Heartbeat, Slots: w.Slots, Running: w.Running, Preferred: w.Preferred,
				PerSecond: t.worker(w.Name),
			})
		}
	}
	return &list
}

// live is an event of the stream. Nil fields are not known yet.
type live struct {
	Overview  *overview   `json:"overview,omitempty"`
	PerSecond *rates      `json:"per_second,omitempty"`
	Late      *lateness   `json:"late,omitempty"`
	Due       *due        `json:"due,omitempty"`
	Workers   *workerList `json:"workers,omitempty"`
	Polled    float64     `json:"polled_seconds,omitempty"` // duration of the last successful poll
	Error     string      `json:"error,omitempty"`          // why the store does not answer
	Since     time.Time   `json:"since,omitzero"`           // when the failures began
	jobList
}

// events returns the function that makes the events of the streams, one per second. Each event has
// the current bulk actions; the other values come from polls of the store, at most one per second.
func (c *Console) events() func(context.Context) ([]byte, time.Time) {
	var e live
	var metrics tally
	counter := dueCounter{timers: c.timers}
	var again time.Time // when to poll next
	var told time.Time  // this process's time at e.Overview.Now
	poll := func(ctx context.Context) {
		begun := time.Now()
		s, workers, err := c.poll(ctx)
		took := time.Since(begun)
		if err != nil {
			if e.Since.IsZero() {
				e.Since = begun.UTC()
			}
			e.Error, e.PerSecond, e.Late, took = readable(err.Error()), nil, nil, 0
			metrics.gap()
		} else {
			metrics.add(begun, s, workers)
			if !e.Since.IsZero() { // the store was down, which does not make it slow
				took = 0
			}
			o := overviewOf(s)
			told = time.Now()
			e.Overview, e.Error, e.Since, e.Polled = &o, "", time.Time{}, took.Seconds()
			e.PerSecond, e.Late, e.Workers = metrics.rates(), metrics.lateness(), metrics.workerList(workers)
			e.Due = counter.newest(ctx, s.Now)
		}
		again = begun.Add(min(webpage.Pause(took), pollAgain))
	}
	return func(ctx context.Context) ([]byte, time.Time) {
		begun := time.Now()
		if !begun.Before(again) {
			poll(ctx)
		}
		if e.Overview != nil {
			now := time.Now()
			e.Overview.Now, told = e.Overview.Now.Add(now.Sub(told)), now
		}
		e.jobList = c.jobList()
		text, err := json.Marshal(e)
		if err != nil { // a time after the year 9999, which no engine stores
			text = []byte(`{"error":"the values cannot be written as JSON","bulk":[]}`)
		}
		return webpage.Event("live", text), begun.Add(time.Second)
	}
}

// poll asks the store for its counts and workers.
func (c *Console) poll(ctx context.Context) (s durable.Stats, workers []durable.WorkerInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	if s, err = c.timers.Stats(ctx); err == nil {
		workers, err = c.timers.Workers(ctx)
	}
	return s, workers, err
}

// serveLive sends an event each second, until the session ends or the console is closed.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request) {
	err := c.authorize(r)
	if err == nil {
		err = c.feed.Serve(w, r, func() ([]byte, bool) { return nil, c.authorize(r) == nil })
	}
	if errors.Is(err, webpage.ErrTooMany) {
		err = &failure{Status: http.StatusServiceUnavailable, RetryAfter: 10, Message: err.Error()}
	} else if errors.Is(err, webpage.ErrClosed) {
		err = &failure{Status: http.StatusServiceUnavailable, Message: "the console is closed"}
	}
	if err != nil {
		writeError(w, err)
	}
}

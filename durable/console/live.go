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
	pollFor   = 2 * time.Second  // one poll: later, the store does not answer
	pollAgain = 10 * time.Second // at the latest, however long a poll has taken: people wait for the next
)

// overview counts what the store holds.
type overview struct {
	Shards  int    `json:"shards"`
	Waiting int    `json:"waiting"`
	Overdue int    `json:"overdue"` // of those that wait
	Running int    `json:"running"`
	Dead    int    `json:"dead"`
	Dropped uint64 `json:"dropped"` // dead letters that the store's limits have removed

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

// runRates are outcomes of runs, per second.
type runRates struct {
	Completed    float64 `json:"completed"`
	Retried      float64 `json:"retried"`
	Snoozed      float64 `json:"snoozed"`
	DeadLettered float64 `json:"dead_lettered"`
	Cancelled    float64 `json:"cancelled"`
}

// rates are of the store and of all workers, per second, over the last rateOver.
type rates struct {
	Scheduled float64 `json:"scheduled"`
	runRates
}

// lateness is how late runs began, of all workers.
type lateness struct {
	Runs uint64  `json:"runs"`
	P50  float64 `json:"p50_seconds"` // bounds of classes: at most twice the true value
	P99  float64 `json:"p99_seconds"`
	Over float64 `json:"over_seconds"`
}

// workerState is a worker of any process.
type workerState struct {
	Name      string    `json:"name"`
	Live      bool      `json:"live"`
	Heartbeat time.Time `json:"heartbeat"`
	Slots     int       `json:"slots"`
	Running   int       `json:"running"`   // handlers
	Preferred int       `json:"preferred"` // shards that it is the first to claim from
	PerSecond *runRates `json:"per_second,omitempty"`
}

// maxWorkers bounds the workers of an event.
const maxWorkers = 200

// workerList is the workers, the live ones first.
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
		return 0 // by name, as they come
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

// live is an event of the stream. What is nil is not known yet.
type live struct {
	Overview  *overview   `json:"overview,omitempty"`
	PerSecond *rates      `json:"per_second,omitempty"`
	Late      *lateness   `json:"late,omitempty"`
	Due       *due        `json:"due,omitempty"`
	Workers   *workerList `json:"workers,omitempty"`
	Polled    float64     `json:"polled_seconds,omitempty"` // how long the last poll that was answered took
	Error     string      `json:"error,omitempty"`          // why the store does not answer
	Since     time.Time   `json:"since,omitzero"`           // when that began
	Bulk      []jobState  `json:"bulk"`
}

// events returns what makes the events of the streams, one each second, with the bulk actions as
// they are then. The store is polled for the rest, at most as often.
func (c *Console) events() func(context.Context) ([]byte, time.Time) {
	var e live
	var figures tally
	counter := dueCounter{timers: c.timers}
	var again time.Time // when to poll
	var told time.Time  // when e.Overview.Now was the engine's time
	poll := func(ctx context.Context) {
		begun := time.Now()
		s, workers, err := c.poll(ctx)
		took := time.Since(begun)
		if err != nil {
			if e.Since.IsZero() {
				e.Since = begun.UTC()
			}
			e.Error, e.PerSecond, e.Late, took = readable(err.Error()), nil, nil, 0
			figures.gap()
		} else {
			figures.add(begun, s, workers)
			if !e.Since.IsZero() { // the poll has waited for a store that was down, which is not slow
				took = 0
			}
			o := overviewOf(s)
			told = time.Now()
			e.Overview, e.Error, e.Since, e.Polled = &o, "", time.Time{}, took.Seconds()
			e.PerSecond, e.Late, e.Workers = figures.rates(), figures.lateness(), figures.workerList(workers)
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
		e.Bulk = c.bulk.jobStates()
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

// serveLive sends an event each second. It ends with the session, and when the console is
// closed.
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

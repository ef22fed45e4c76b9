package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/internal/webpage"
)

const (
	pollFor  = 2 * time.Second // one poll: later, the store does not answer
	rateOver = 10              // polls
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

// rates are net changes per second over the last rateOver polls: the store counts what it
// holds, and not how many timers came and went.
type rates struct {
	Waiting float64 `json:"waiting"`
	Running float64 `json:"running"`
	Dead    float64 `json:"dead"`
	Dropped float64 `json:"dropped"`
}

// workerState is a worker of this process.
type workerState struct {
	Name      string     `json:"name"`
	Running   int        `json:"running"`              // handlers
	Preferred int        `json:"preferred"`            // shards that it is the first to claim from
	Members   int        `json:"members"`              // live workers of all processes; 0: unknown
	PerSecond *runCounts `json:"per_second,omitempty"` // over the last rateOver polls
}

// runCounts are the outcomes of runs, per second.
type runCounts struct {
	Completed    float64 `json:"completed"`
	Retried      float64 `json:"retried"`
	Snoozed      float64 `json:"snoozed"`
	DeadLettered float64 `json:"dead_lettered"`
	Cancelled    float64 `json:"cancelled"`
}

// workerStates returns the workers, with rates from statistics of a time before.
func (c *Console) workerStates(now, was []durable.WorkerStats, over time.Duration) []workerState {
	states := make([]workerState, len(now))
	for i, st := range now {
		states[i] = workerState{
			Name: readable(c.options.Workers[i].Name()), Running: st.Running, Preferred: st.Preferred, Members: st.Members,
		}
		if over > 0 {
			per := func(now, was uint64) float64 { return float64(now-was) / over.Seconds() }
			states[i].PerSecond = &runCounts{
				Completed: per(st.Done, was[i].Done), Retried: per(st.Retried, was[i].Retried), Snoozed: per(st.Snoozed, was[i].Snoozed),
				DeadLettered: per(st.Buried+st.BuriedLost, was[i].Buried+was[i].BuriedLost), Cancelled: per(st.Cancelled, was[i].Cancelled),
			}
		}
	}
	return states
}

// live is an event of the stream.
type live struct {
	Overview  *overview  `json:"overview,omitempty"` // nil: the store has not answered yet
	PerSecond *rates     `json:"per_second,omitempty"`
	Error     string     `json:"error,omitempty"` // why the store does not answer
	Since     time.Time  `json:"since,omitzero"`  // when that began
	Bulk      []jobState `json:"bulk"`

	Workers []workerState `json:"workers,omitempty"`
}

// events returns what makes the events of the streams: each call polls the store.
func (c *Console) events() func(context.Context) ([]byte, time.Time) {
	type point struct {
		at time.Time
		overview
	}
	type work struct {
		at    time.Time
		stats []durable.WorkerStats
	}
	var points []point // the last rateOver+1
	var works []work   // the last rateOver+1
	var e live
	return func(ctx context.Context) ([]byte, time.Time) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(ctx, pollFor)
		s, err := c.timers.Stats(ctx)
		cancel()
		took := time.Since(begun)
		if err != nil {
			if e.Since.IsZero() {
				e.Since = begun.UTC()
			}
			e.Error, e.PerSecond, points, took = readable(err.Error()), nil, nil, 0
		} else {
			o := overviewOf(s)
			e.Overview, e.PerSecond, e.Error, e.Since = &o, nil, "", time.Time{}
			points = append(points, point{begun, o})
			points = points[max(len(points)-rateOver-1, 0):]
			if first := points[0]; len(points) > 1 {
				per := func(now, was float64) float64 { return (now - was) / begun.Sub(first.at).Seconds() }
				e.PerSecond = &rates{
					Waiting: per(float64(o.Waiting), float64(first.Waiting)), Running: per(float64(o.Running), float64(first.Running)),
					Dead: per(float64(o.Dead), float64(first.Dead)), Dropped: per(float64(o.Dropped), float64(first.Dropped)),
				}
			}
		}
		if len(c.options.Workers) > 0 {
			w := work{at: begun}
			for _, worker := range c.options.Workers {
				w.stats = append(w.stats, worker.Stats())
			}
			works = append(works, w)
			works = works[max(len(works)-rateOver-1, 0):]
			e.Workers = c.workerStates(w.stats, works[0].stats, begun.Sub(works[0].at))
		}
		e.Bulk = c.bulk.jobStates()
		text, err := json.Marshal(e)
		if err != nil { // a time after the year 9999, which no engine stores
			text = []byte(`{"error":"the values cannot be written as JSON","bulk":[]}`)
		}
		return webpage.Event("live", text), begun.Add(webpage.Pause(took))
	}
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

package api

import (
	"net/http"

	"github.com/seed-782fa212/limbo/durable"
)

// Worker is a worker in replies.
type Worker struct {
	Name         string `json:"name"`
	Live         bool   `json:"live"`
	Heartbeat    string `json:"heartbeat"`       // by the store's clock
	Since        string `json:"since,omitempty"` // absent if this version cannot read the heartbeat
	Slots        int    `json:"slots"`
	Running      int    `json:"running"`
	Preferred    int    `json:"preferred_shards"`
	Done         uint64 `json:"done"`
	Retried      uint64 `json:"retried"`
	Snoozed      uint64 `json:"snoozed"`
	DeadLettered uint64 `json:"dead_lettered"`
	Cancelled    uint64 `json:"cancelled"`
	Late         *Late  `json:"late,omitempty"` // absent before the first attempt
}

// Late is how late attempts began after their timers were due.
type Late struct {
	Count uint64  `json:"count"` // attempts
	P50   float64 `json:"p50_seconds"`
	P99   float64 `json:"p99_seconds"`
}

// workers lists the workers of all processes that share the store.
func (s *Server) workers(r *http.Request) (int, any, error) {
	infos, err := s.o.Timers.Workers(r.Context())
	if err != nil {
		return 0, nil, err
	}
	workers := make([]Worker, len(infos))
	for i := range infos {
		workers[i] = workerOf(&infos[i])
	}
	return http.StatusOK, map[string][]Worker{"workers": workers}, nil
}

func workerOf(w *durable.WorkerInfo) Worker {
	shown := Worker{
		Name: w.Name, Live: w.Live, Heartbeat: formatTime(w.Heartbeat), Since: formatTime(w.Since),
		Slots: w.Slots, Running: w.Running, Preferred: w.Preferred,
		Done: w.Done, Retried: w.Retried, Snoozed: w.Snoozed, DeadLettered: w.DeadLettered, Cancelled: w.Cancelled,
	}
	if w.Late.Count > 0 {
		shown.Late = &Late{w.Late.Count, w.Late.Quantile(.5).Seconds(), w.Late.Quantile(.99).Seconds()}
	}
	return shown
}

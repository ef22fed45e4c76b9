package api

import (
	"net/http"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
)

// workers lists the workers of all processes that share the store.
func (s *Server) workers(r *http.Request) (int, any, error) {
	infos, err := s.o.Timers.Workers(r.Context())
	if err != nil {
		return 0, nil, err
	}
	workers := make([]wire.Worker, len(infos))
	for i := range infos {
		workers[i] = workerOf(&infos[i])
	}
	return http.StatusOK, wire.Workers{Workers: workers}, nil
}

func workerOf(w *durable.WorkerInfo) wire.Worker {
	shown := wire.Worker{
		Name: w.Name, Live: w.Live, Heartbeat: formatTime(w.Heartbeat), Since: formatTime(w.Since),
		Slots: w.Slots, Running: w.Running, Preferred: w.Preferred,
		Done: w.Done, Retried: w.Retried, Snoozed: w.Snoozed, DeadLettered: w.DeadLettered, Cancelled: w.Cancelled,
	}
	if w.Late.Count > 0 {
		shown.Late = &wire.Late{Count: w.Late.Count, P50: w.Late.Quantile(.5).Seconds(), P99: w.Late.Quantile(.99).Seconds()}
	}
	return shown
}

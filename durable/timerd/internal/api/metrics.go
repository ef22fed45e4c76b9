package api

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/observe"
)

// requests counts the requests by route and status, with their durations.
type requests struct {
	mu       sync.Mutex
	routes   map[string]histogram.Durations // guarded by mu
	statuses map[int]uint64                 // guarded by mu
}

func (r *requests) add(route string, status int, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.routes[route]
	h.Add(took)
	r.routes[route] = h
	r.statuses[status]++
}

// Metrics returns the metrics of the server's requests, for [observe.Custom].
func (s *Server) Metrics() (all []observe.Metric) {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	for _, route := range slices.Sorted(maps.Keys(s.requests.routes)) {
		all = append(all, observe.Metric{
			Name: "request_seconds", Help: "How long requests took, by route", Type: observe.Histogram,
			Label: "route", LabelValue: route, Durations: s.requests.routes[route],
		})
	}
	for _, status := range slices.Sorted(maps.Keys(s.requests.statuses)) {
		all = append(all, observe.Metric{
			Name: "requests_total", Help: "Requests by status of the answer", Type: observe.Counter,
			Label: "status", LabelValue: strconv.Itoa(status), Value: float64(s.requests.statuses[status]),
		})
	}
	return all
}

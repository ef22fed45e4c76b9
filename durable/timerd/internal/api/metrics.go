package api

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-782fa212/limbo/durable/store"
)

// Metrics writes Prometheus' text format.
type Metrics struct{ b strings.Builder }

// Family begins a family of samples; kind is counter, gauge or histogram.
func (m *Metrics) Family(name, kind, help string) {
	fmt.Fprintf(&m.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Sample writes one value. Labels are names and values in turn.
func (m *Metrics) Sample(name string, value float64, labels ...string) {
	m.b.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		m.b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&m.b, "%s=%q", labels[i], labels[i+1])
	}
	if len(labels) > 0 {
		m.b.WriteByte('}')
	}
	m.b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

// Single is Family and its only sample.
func (m *Metrics) Single(name, kind, help string, value float64) {
	m.Family(name, kind, help)
	m.Sample(name, value)
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	var m Metrics
	total, err := s.stats.of(ctx, s.o.Store)
	up := 1.0
	if err != nil {
		s.o.Logger.Warn("metrics: the store does not answer", "error", err)
		up = 0
	}
	m.Single("limbo_store_up", "gauge", "Whether the store answers.", up)
	if err == nil {
		m.Family("limbo_timers", "gauge", "Timers in the store.")
		m.Sample("limbo_timers", float64(total.Waiting), "state", "waiting")
		m.Sample("limbo_timers", float64(total.Leased), "state", "leased")
		m.Sample("limbo_timers", float64(total.Dead), "state", "dead")
		m.Single("limbo_timers_overdue", "gauge", "Of the waiting timers, those that are due.", float64(total.Overdue))
		m.Single("limbo_dead_dropped_total", "counter", "Dead letters that the bounds removed.", float64(total.Dropped))
	}
	s.counts.write(&m)
	if s.o.Metrics != nil {
		s.o.Metrics(&m)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(m.b.String()))
}

// statsCache keeps the store's counts for a second, so that whoever asks often
// does not load the store.
type statsCache struct {
	mu    sync.Mutex
	at    time.Time
	total store.Stats
}

func (c *statsCache) of(ctx context.Context, st store.Store) (store.Stats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < time.Second {
		return c.total, nil
	}
	var total store.Stats
	for shard := range st.Shards() {
		n, err := st.Stats(ctx, shard)
		if err != nil {
			return total, err
		}
		total.Waiting += n.Waiting
		total.Overdue += n.Overdue
		total.Leased += n.Leased
		total.Dead += n.Dead
		total.Dropped += n.Dropped
	}
	c.at, c.total = time.Now(), total
	return total, nil
}

// counts are the requests by route and status.
type counts struct {
	mu     sync.Mutex
	routes map[string]*routeCount
}

type routeCount struct {
	mu       sync.Mutex
	statuses map[int]uint64
	took     time.Duration
}

func (c *counts) route(pattern string) *routeCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.routes == nil {
		c.routes = make(map[string]*routeCount)
	}
	if c.routes[pattern] == nil {
		c.routes[pattern] = &routeCount{statuses: make(map[int]uint64)}
	}
	return c.routes[pattern]
}

func (c *routeCount) add(status int, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statuses[status]++
	c.took += took
}

func (c *counts) write(m *Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	patterns := slices.Sorted(maps.Keys(c.routes))
	m.Family("limbo_timerd_requests_total", "counter", "Requests by route and status.")
	for _, p := range patterns {
		rc := c.routes[p]
		rc.mu.Lock()
		for _, status := range slices.Sorted(maps.Keys(rc.statuses)) {
			m.Sample("limbo_timerd_requests_total", float64(rc.statuses[status]), "route", p, "status", strconv.Itoa(status))
		}
		rc.mu.Unlock()
	}
	m.Family("limbo_timerd_request_seconds_total", "counter", "Time that requests took, by route.")
	for _, p := range patterns {
		rc := c.routes[p]
		rc.mu.Lock()
		m.Sample("limbo_timerd_request_seconds_total", rc.took.Seconds(), "route", p)
		rc.mu.Unlock()
	}
}

// Histogram counts durations, in buckets of seconds. It is safe for concurrent use.
type Histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	micros  atomic.Uint64
}

var bounds = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 3600}

// Observe counts one; below 0 is 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	i, _ := slices.BinarySearch(bounds[:], d.Seconds())
	h.buckets[i].Add(1)
	h.micros.Add(uint64(d.Microseconds()))
}

// Write writes the histogram as a family.
func (h *Histogram) Write(m *Metrics, name, help string) {
	m.Family(name, "histogram", help)
	sum := 0.0
	for i := range h.buckets {
		le := math.Inf(1)
		if i < len(bounds) {
			le = bounds[i]
		}
		sum += float64(h.buckets[i].Load())
		m.Sample(name+"_bucket", sum, "le", strconv.FormatFloat(le, 'g', -1, 64))
	}
	m.Sample(name+"_sum", float64(h.micros.Load())/1e6)
	m.Sample(name+"_count", sum)
}

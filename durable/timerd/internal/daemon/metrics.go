package daemon

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/observe"
)

// metrics returns the registry of metrics that the page shows and both listeners publish. Run adds
// the API's own metrics.
func (d *daemon) metrics(timers *durable.Timers) (*observe.Registry, error) {
	r := observe.New()
	_, err := r.Add("timers", observe.Timers(timers))
	if err == nil && d.worker != nil {
		_, err = r.Add("worker", observe.Worker(d.worker))
	}
	if err == nil && d.worker != nil {
		_, err = r.Add("webhook", observe.Custom("webhook", d.webhookMetrics))
	}
	return r, err
}

// metricsOf serves a registry to Prometheus.
func metricsOf(metrics *observe.Registry) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// webhookMetrics returns the webhook's metrics.
func (d *daemon) webhookMetrics() []observe.Metric {
	st := d.hook.Stats()
	callsTotal := func(result string, n uint64) observe.Metric {
		return observe.Metric{Name: "calls_total", Help: "Callbacks by result", Type: observe.Counter, Label: "result", LabelValue: result, Value: float64(n)}
	}
	return []observe.Metric{
		{Name: "hosts", Help: "Hosts with callbacks in progress", Value: float64(st.Hosts)},
		callsTotal("done", st.Done), callsTotal("retried", st.Retried), callsTotal("discarded", st.Discarded),
		{Name: "postponed_total", Help: "Callbacks postponed because their host had too many", Type: observe.Counter, Value: float64(st.Postponed)},
		{Name: "late_seconds", Help: "How long after its due time the first attempt of a timer began", Type: observe.Histogram, Durations: d.late.snapshot()},
	}
}

// lateness records how late the first attempts of timers began.
type lateness struct {
	mu sync.Mutex
	h  histogram.Durations // guarded by mu
}

func (l *lateness) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.h.Add(max(d, 0))
}

func (l *lateness) snapshot() histogram.Durations {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.h
}

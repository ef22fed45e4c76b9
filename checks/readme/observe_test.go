package readme

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/stretchr/testify/require"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// observe/README
func serveMetrics(fetches *purgatory.Purgatory[string], address string) (*http.Server, error) {
	r := observe.New()
	if _, err := r.Add("fetches", observe.Purgatory(fetches, nil)); err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	if err := metrics.Register(r); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return &http.Server{Addr: address, Handler: mux}, nil
}

// end

// observe/README
func export(r *observe.Registry, exporter metric.Exporter) (*metric.MeterProvider, error) {
	metrics := prometheus.NewRegistry()
	if err := metrics.Register(r); err != nil {
		return nil, err
	}
	bridge := bridge.NewMetricProducer(bridge.WithGatherer(metrics))
	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(bridge))
	return metric.NewMeterProvider(metric.WithReader(reader)), nil
}

// end

// fetches is a purgatory in which one operation has waited and was cancelled.
func fetches(t *testing.T) *purgatory.Purgatory[string] {
	p, err := purgatory.New[string](purgatory.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	pending, err := p.TryCompleteElseWatch(t.Context(), parked{}, time.Minute, "topic")
	require.NoError(t, err)
	require.True(t, pending.Cancel(nil))
	return p
}

type parked struct{}

func (parked) TryComplete() bool                 { return false }
func (parked) Complete(purgatory.Outcome, error) {}

func TestMetrics(t *testing.T) {
	server, err := serveMetrics(fetches(t), "127.0.0.1:0")
	require.NoError(t, err)
	w := httptest.NewRecorder()
	server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "\nlimbo_purgatory_ended_total{name=\"fetches\",outcome=\"cancelled\"} 1\n")
}

// kept is an exporter that keeps the last export.
type kept struct {
	metric.Exporter // nil, for the methods that are not called

	mu   sync.Mutex
	data map[string]metricdata.Aggregation // guarded by mu
}

func (k *kept) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.data = map[string]metricdata.Aggregation{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			k.data[m.Name] = m.Data
		}
	}
	return nil
}

func (*kept) Temporality(metric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (*kept) Aggregation(k metric.InstrumentKind) metric.Aggregation {
	return metric.DefaultAggregationSelector(k)
}
func (*kept) ForceFlush(context.Context) error { return nil }
func (*kept) Shutdown(context.Context) error   { return nil }

func TestOpenTelemetry(t *testing.T) {
	r := observe.New()
	_, err := r.Add("fetches", observe.Purgatory(fetches(t), nil))
	require.NoError(t, err)
	exporter := new(kept)
	provider, err := export(r, exporter)
	require.NoError(t, err)
	require.NoError(t, provider.ForceFlush(t.Context()))
	require.NoError(t, provider.Shutdown(t.Context()))
	ended, ok := exporter.data["limbo_purgatory_ended_total"].(metricdata.Sum[float64])
	require.True(t, ok)
	require.True(t, ended.IsMonotonic)
	sum := 0.0
	for _, p := range ended.DataPoints {
		sum += p.Value
	}
	require.InDelta(t, 1, sum, 0)
	waited, ok := exporter.data["limbo_purgatory_waited_seconds"].(metricdata.ExponentialHistogram[float64])
	require.True(t, ok, "%T", exporter.data["limbo_purgatory_waited_seconds"])
	count := uint64(0)
	for _, p := range waited.DataPoints {
		require.EqualValues(t, 0, p.Scale)
		count += p.Count
	}
	require.EqualValues(t, 1, count)
}

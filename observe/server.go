package observe

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewServer makes a server of the page, at /, and of what Prometheus scrapes, at /metrics,
// for a process that has none. Give it a listener, on loopback: see [Handler].
//
//	go server.Serve(listener)
//	...
//	server.Shutdown(ctx)
func NewServer(r *Registry) *http.Server {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(r) // an empty registry refuses nothing
	page := NewHandler(r)
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	s.RegisterOnShutdown(page.Close)
	return s
}

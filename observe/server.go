package observe

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewServer makes a server of the page, at /, and of the metrics for Prometheus, at /metrics,
// for a process that has no server. Give it a listener on loopback: see [Handler].
//
//	go server.Serve(listener)
//	...
//	server.Shutdown(ctx)
//
// A request to a loopback address must have localhost or an IP address as its Host; others are
// answered with 403. Otherwise a page of another site could resolve a name of its own to
// loopback and read the responses as its own. A proxy on the same machine must send Host:
// localhost instead of its own name.
func NewServer(r *Registry) *http.Server {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(r) // cannot fail: the registry is empty
	page := NewHandler(r)
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: guard(mux), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	s.RegisterOnShutdown(page.Close)
	return s
}

// guard refuses requests to loopback whose Host is a name.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLoopback(r) && !isAddress(r.Host) {
			http.Error(w, fmt.Sprintf("Host is %q, must be localhost or an IP address on loopback", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a request came to a loopback address.
func isLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

func isAddress(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

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

// NewServer makes a server of the page, at /, and of what Prometheus scrapes, at /metrics,
// for a process that has none. Give it a listener, on loopback: see [Handler].
//
//	go server.Serve(listener)
//	...
//	server.Shutdown(ctx)
//
// What comes to an address of loopback must be for localhost or for an IP address: another
// Host is answered with 403. A page in a browser can have a name of its own lead to loopback,
// and then reads what it gets as its own. Have a proxy on the same machine that would pass on
// its own name send Host: localhost.
func NewServer(r *Registry) *http.Server {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(r) // an empty registry refuses nothing
	page := NewHandler(r)
	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: guard(mux), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	s.RegisterOnShutdown(page.Close)
	return s
}

// guard refuses what came to loopback by a name.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLoopback(r) && !isAddress(r.Host) {
			http.Error(w, fmt.Sprintf("Host is %q, must be localhost or an IP address on loopback", r.Host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a request came to an address of loopback.
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

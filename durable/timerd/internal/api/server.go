// Package api is timerd's HTTP interface to durable timers.
package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/timerd/internal/wire"
	"github.com/seed-782fa212/limbo/histogram"
)

const (
	// MaxRequest bounds the body of a request about one timer.
	MaxRequest = 256 << 10
	// MaxBatch bounds the body of POST /timers.
	MaxBatch = 8 << 20

	callTimeout   = 15 * time.Second // for the whole handling of a request
	healthTimeout = 2 * time.Second
)

// Options configure a Server. Timers is required.
type Options struct {
	Timers *durable.Timers
	// Token, if not empty, is required in each request except GET /, GET /healthz and GET /openapi.json.
	Token  string
	Logger *slog.Logger // default: slog.Default()
	// Metrics serves GET /metrics; nil: no such route. The server's own metrics are those of
	// [Server.Metrics].
	Metrics http.Handler
	// Console serves all requests for /console/, and checks the token itself; nil: no console.
	Console http.Handler
}

// Server is the http.Handler of the API.
type Server struct {
	o             Options
	handler       http.Handler
	schedulePosts map[string]http.Handler // by the rest of their patterns after schedulesPath
	other         http.Handler            // for requests without a route
	token         [sha256.Size]byte
	requests      requests
}

// New returns a server, or an error that names a missing option.
func New(o Options) (*Server, error) {
	switch {
	case o.Timers == nil:
		return nil, errors.New("timerd: Options.Timers is nil, must be given")
	case o.Logger == nil:
		o.Logger = slog.Default()
	}
	s := &Server{
		o: o, token: sha256.Sum256([]byte(o.Token)), schedulePosts: map[string]http.Handler{},
		requests: requests{routes: map[string]histogram.Durations{}, statuses: map[int]uint64{}},
	}
	s.other = s.json("other", noRoute)
	outer, guarded := http.NewServeMux(), http.NewServeMux()
	for _, r := range s.routes() {
		h := r.other
		if h == nil {
			h = s.json(r.pattern, r.json)
		}
		switch {
		case r.open:
			outer.Handle(r.pattern, h)
		case strings.HasPrefix(r.pattern, "POST "+schedulesPath):
			s.schedulePosts[strings.TrimPrefix(r.pattern, "POST "+schedulesPath)] = h
		default:
			guarded.Handle(r.pattern, h)
		}
	}
	if o.Console != nil {
		console := http.StripPrefix("/console", o.Console)
		outer.Handle("/console", console) // redirects to the page
		outer.Handle("/console/", console)
	}
	outer.HandleFunc("GET /{$}", s.root)
	guarded.Handle("POST "+schedulesPath+"{path...}", http.HandlerFunc(s.postSchedule))
	guarded.Handle("/", s.other)
	// No web page of another origin has a reason to change timers.
	outer.Handle("/", http.NewCrossOriginProtection().Handler(s.guard(guarded)))
	s.handler = outer
	return s, nil
}

// route is an operation of the API. New serves only these routes, and a test compares them with
// openapi.json.
type route struct {
	pattern string       // of a ServeMux, except those that postSchedule serves
	json    handlerFunc  // nil if other is set
	other   http.Handler // for replies that are not JSON
	open    bool         // needs no token
}

func (s *Server) routes() []route {
	routes := []route{
		{pattern: "PUT /timers/{key...}", json: s.put},
		{pattern: "GET /timers/{key...}", json: s.get},
		{pattern: "PATCH /timers/{key...}", json: s.reschedule},
		{pattern: "DELETE /timers/{key...}", json: s.cancel},
		{pattern: "POST /timers", json: s.batch},
		{pattern: "GET /timers", json: s.timers},
		{pattern: "GET /dead", json: s.dead},
		{pattern: "POST /dead/{key...}", json: s.requeue},
		{pattern: "DELETE /dead/{key...}", json: s.purge},
		{pattern: "PUT /schedules/{key...}", json: s.putSchedule},
		{pattern: "GET /schedules/{key...}", json: s.getSchedule},
		{pattern: "DELETE /schedules/{key...}", json: s.deleteSchedule},
		{pattern: "GET /schedules", json: s.schedules},
		{pattern: "POST /schedules/preview", json: s.preview},
		{pattern: "POST /schedules/{key}/pause", json: s.pauseSchedule},
		{pattern: "POST /schedules/{key}/resume", json: s.resumeSchedule},
		{pattern: "POST /schedules/{key}/trigger", json: s.triggerSchedule},
		{pattern: "POST /schedules/{key}/backfill", json: s.backfillSchedule},
		{pattern: "GET /workers", json: s.workers},
		{pattern: "GET /healthz", json: s.health, open: true},
		{pattern: "GET /openapi.json", json: document, open: true},
	}
	if s.o.Metrics != nil {
		routes = append(routes, route{pattern: "GET /metrics", other: s.o.Metrics})
	}
	return routes
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// root leads a browser to the console, and tells other clients what there is. It needs no token,
// because it reads nothing.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if s.o.Console != nil && strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html") {
		w.Header().Set("Location", "console/") // relative, as a proxy may add a path
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	paths := map[string]string{"api": "/openapi.json", "health": "/healthz"}
	if s.o.Console != nil {
		paths["console"] = "/console/"
	}
	if s.o.Metrics != nil {
		paths["metrics"] = "/metrics"
	}
	writeJSON(w, http.StatusOK, paths)
}

// handlerFunc returns a status and a reply, or an error.
type handlerFunc func(*http.Request) (int, any, error)

func noRoute(r *http.Request) (int, any, error) {
	return 0, nil, &wire.Error{Status: http.StatusNotFound, Code: "no_route", Message: fmt.Sprintf("there is no %s %s", r.Method, quote(r.URL.Path))}
}

// json makes a handler of h. The handler bounds the request and its time, counts it and logs it.
func (s *Server) json(pattern string, h handlerFunc) http.Handler {
	limit := int64(MaxRequest)
	if pattern == "POST /timers" {
		limit = MaxBatch
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		status, reply, err := h(r)
		level := slog.LevelDebug
		if err != nil {
			e := asError(err)
			status = e.Status
			f := wire.Failure{Error: e}
			f.Timers, _ = reply.([]wire.Result)
			f.Count, _ = reply.(int)
			reply = f
			if status >= 500 {
				level = slog.LevelWarn
			}
		}
		writeJSON(w, status, reply)
		took := time.Since(began)
		s.requests.add(pattern, status, took)
		if s.o.Logger.Enabled(ctx, level) {
			attrs := []any{"route", pattern, "key", r.PathValue("key"), "status", status, "took", took}
			if err != nil {
				attrs = append(attrs, "error", err)
			}
			s.o.Logger.Log(ctx, level, "request", attrs...)
		}
	})
}

func writeJSON(w http.ResponseWriter, status int, reply any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(reply) // the client may have disconnected
}

// guard refuses requests without the token. Without a configured token it refuses requests by a
// host name: a web page can point a name of its own at this address, and then its requests are not
// cross-origin.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.o.Token == "" && !isAddress(r.Host) {
			s.refuse(w, &wire.Error{Status: http.StatusForbidden, Code: "host", Field: "Host", Value: quote(r.Host), Range: "an IP address or localhost",
				Message: fmt.Sprintf("Host is %s, must be an IP address or localhost where no token is set", quote(r.Host))})
			return
		}
		if s.o.Token != "" && !s.authorized(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="timerd"`)
			s.refuse(w, &wire.Error{Status: http.StatusUnauthorized, Code: "token", Message: "the request has no valid token: Authorization: Bearer …"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) refuse(w http.ResponseWriter, e *wire.Error) {
	s.requests.add("refused", e.Status, 0)
	writeJSON(w, e.Status, wire.Failure{Error: e})
}

// authorized compares digests, so that its time does not depend on the token.
func (s *Server) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

func isAddress(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

func (s *Server) health(r *http.Request) (int, any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTimeout)
	defer cancel()
	if err := s.o.Timers.Ping(ctx); err != nil {
		return 0, nil, &wire.Error{Status: http.StatusServiceUnavailable, Code: "store", Message: "the store does not answer: " + err.Error()}
	}
	return http.StatusOK, wire.Health{Status: "ok"}, nil
}

package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/store"
)

const token = "a token of some length"

func TestToken(t *testing.T) {
	f := newFixture(t, store.Limits{}, token)
	for _, path := range []string{"/timers", "/timers/a", "/dead", "/metrics", "/elsewhere"} {
		for _, value := range []string{"", token, "Bearer", "Bearer ", "Bearer a token of some", "Bearer " + token + "x", "Basic " + token} {
			f.header = http.Header{"Authorization": {value}}
			f.expect(401, `{"error":{"code":"token","message":"the request has no valid token: Authorization: Bearer …"}}`, "GET", path, "")
		}
	}
	f.header = http.Header{}
	f.expect(200, `{"status":"ok"}`, "GET", "/healthz", "") // for monitoring, without a token
	for _, value := range []string{"Bearer " + token, "bearer " + token} {
		f.header = http.Header{"Authorization": {value}, "Host": {"timerd.example.com"}}
		f.expect(200, `{"timers":[]}`, "GET", "/timers", "")
	}
}

// A web page can neither send requests from another origin, nor reach the API by a host name of its
// own.
func TestBrowsersAreRefused(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for _, host := range []string{"127.0.0.1", "127.0.0.1:7717", "[::1]:7717", "localhost", "LOCALHOST:7717"} {
		f.header = http.Header{"Host": {host}}
		f.expect(200, `{"timers":[]}`, "GET", "/timers", "")
	}
	for _, host := range []string{"rebind.example.com", "rebind.example.com:7717", "127.0.0.1.example.com"} {
		f.header = http.Header{"Host": {host}}
		status, reply := f.do("GET", "/timers", "")
		require.Equal(t, 403, status)
		require.Contains(t, reply, `must be an IP address or localhost where no token is set`)
	}
	f.header = http.Header{"Sec-Fetch-Site": {"cross-site"}}
	status, _ := f.do("POST", "/timers", `{"timers":[{"key":"a","after":"1s",`+callback+`}]}`)
	require.Equal(t, 403, status)
	f.header = http.Header{}
	f.expect(200, `{"timers":[]}`, "GET", "/timers", "")
}

// The root leads a browser to the console, and says where things are otherwise, without a token.
func TestRoot(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	get := func(o Options, accept string) *httptest.ResponseRecorder {
		o.Timers = f.server.o.Timers
		s, err := New(o)
		require.NoError(t, err)
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		require.Equal(t, "Accept", w.Header().Get("Vary"))
		return w
	}
	all := Options{Token: token, Console: http.NotFoundHandler(), Metrics: http.NotFoundHandler()}
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	w := get(all, browser)
	require.Equal(t, 303, w.Code)
	require.Equal(t, "console/", w.Header().Get("Location"))
	w = get(all, "*/*")
	require.Equal(t, 200, w.Code)
	require.JSONEq(t, `{"api":"/openapi.json","console":"/console/","health":"/healthz","metrics":"/metrics"}`, w.Body.String())
	for _, accept := range []string{"", browser} {
		w = get(Options{}, accept)
		require.Equal(t, 200, w.Code)
		require.JSONEq(t, `{"api":"/openapi.json","health":"/healthz"}`, w.Body.String())
	}
}

// GET /metrics is the handler from the Options, behind the server's guard.
func TestMetrics(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	f.expect(404, `{"error":{"code":"no_route","message":"there is no GET \"/metrics\""}}`, "GET", "/metrics", "")
	s, err := New(Options{Timers: f.server.o.Timers, Token: token, Metrics: http.NotFoundHandler()})
	require.NoError(t, err)
	f.server = s
	f.header.Set("Authorization", "Bearer "+token)
	status, text := f.do("GET", "/metrics", "")
	require.Equal(t, 404, status)
	require.Equal(t, "404 page not found", text)
}

func TestOptions(t *testing.T) {
	_, err := New(Options{})
	require.EqualError(t, err, "timerd: Options.Timers is nil, must be given")
}

// Requests are counted, timed and logged: failures of the store as warnings, others at debug level.
func TestRequestsAreCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, store.Limits{}, "")
		var log strings.Builder
		level := new(slog.LevelVar)
		f.server.o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		f.server.o.Timers = timersOn(t, slow{f.store})
		f.do("GET", "/timers/a", "")
		require.Empty(t, log.String())

		level.Set(slog.LevelDebug)
		f.do("GET", "/timers/a", "")
		require.Regexp(t, `level=DEBUG msg=request route="GET /timers/{key...}" key=a status=404 took=2s error="durable: no such timer or schedule"\n$`, log.String())
		f.do("PUT", "/timers/a", `{"after":"1h",`+callback+`}`)
		log.Reset()
		f.do("GET", "/timers/a", "")
		require.Regexp(t, `level=DEBUG msg=request route="GET /timers/{key...}" key=a status=200 took=2s\n$`, log.String())

		level.Set(slog.LevelInfo)
		log.Reset()
		f.store.Close()
		f.do("GET", "/timers/a", "")
		require.Regexp(t, `level=WARN msg=request .*status=503 .*error="durable: store is closed"\n$`, log.String())

		status := map[string]float64{}
		for _, metric := range f.server.Metrics() {
			switch {
			case metric.Name == "requests_total":
				status[metric.LabelValue] = metric.Value
			case metric.LabelValue == "GET /timers/{key...}":
				require.Equal(t, uint64(4), metric.Durations.Count)
				require.Equal(t, 8.0, metric.Durations.Sum)
			}
		}
		require.Equal(t, map[string]float64{"200": 1, "201": 1, "404": 2, "503": 1}, status)
	})
}

type slow struct{ store.Store }

func (s slow) Get(ctx context.Context, shard int, key string) (store.Record, error) {
	time.Sleep(2 * time.Second)
	return s.Store.Get(ctx, shard, key)
}

func TestDefaultLogger(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	var log strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	server, err := New(Options{Timers: f.server.o.Timers})
	require.NoError(t, err)
	f.server = server
	f.store.Close()
	f.do("GET", "/timers/a", "")
	require.Contains(t, log.String(), "level=WARN msg=request")
}

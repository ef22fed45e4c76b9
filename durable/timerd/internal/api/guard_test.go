package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/store"
)

const token = "a token of some length"

func TestToken(t *testing.T) {
	f := newFixture(t, store.Limits{}, token)
	for _, path := range []string{"/timers", "/timers/a", "/dead", "/metrics", "/elsewhere"} {
		for _, value := range []string{"", token, "Bearer", "Bearer ", "Bearer a token of some", "Bearer " + token + "x", "Basic " + token} {
			f.header = http.Header{"Authorization": {value}}
			f.is(401, `{"error":{"code":"token","message":"the request has no valid token: Authorization: Bearer …"}}`, "GET", path, "")
		}
	}
	f.header = http.Header{}
	f.is(200, `{"status":"ok"}`, "GET", "/healthz", "") // for those who watch it
	for _, value := range []string{"Bearer " + token, "bearer " + token} {
		f.header = http.Header{"Authorization": {value}, "Host": {"timerd.example.com"}}
		f.is(200, `{"timers":[]}`, "GET", "/timers", "")
	}
}

// A page in a browser can neither send here, nor get here by a name of its own.
func TestBrowsersAreRefused(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	for _, host := range []string{"127.0.0.1", "127.0.0.1:7717", "[::1]:7717", "localhost", "LOCALHOST:7717"} {
		f.header = http.Header{"Host": {host}}
		f.is(200, `{"timers":[]}`, "GET", "/timers", "")
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
	f.is(200, `{"timers":[]}`, "GET", "/timers", "")
}

func TestMetrics(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	var late Histogram
	f.server.o.Metrics = func(m *Metrics) { late.Write(m, "late_seconds", "How late.") }
	late.Observe(-time.Second)
	late.Observe(time.Millisecond)
	late.Observe(2 * time.Second)
	late.Observe(24 * time.Hour)
	f.do("PUT", "/timers/a", `{"after":"0s",`+callback+`}`)
	f.do("PUT", "/timers/b", `{"after":"1h",`+callback+`}`)
	f.do("PUT", "/timers/c", `{`)
	status, text := f.do("GET", "/metrics", "")
	require.Equal(t, 200, status)
	for _, line := range []string{
		"limbo_store_up 1",
		`limbo_timers{state="waiting"} 2`,
		`limbo_timers{state="leased"} 0`,
		`limbo_timers{state="dead"} 0`,
		"limbo_timers_overdue 1",
		"limbo_dead_dropped_total 0",
		`limbo_timerd_requests_total{route="PUT /timers/{key...}",status="201"} 2`,
		`limbo_timerd_requests_total{route="PUT /timers/{key...}",status="400"} 1`,
		"# TYPE late_seconds histogram",
		`late_seconds_bucket{le="0.001"} 2`,
		`late_seconds_bucket{le="1"} 2`,
		`late_seconds_bucket{le="2.5"} 3`,
		`late_seconds_bucket{le="3600"} 3`,
		`late_seconds_bucket{le="+Inf"} 4`,
		"late_seconds_sum 86402.001",
		"late_seconds_count 4",
	} {
		require.Contains(t, strings.Split(text, "\n"), line)
	}
	require.Equal(t, "text/plain; version=0.0.4; charset=utf-8", f.serve(f.request("GET", "/metrics", "")).Header().Get("Content-Type"))
	f.store.Close()
	f.server.stats.at = time.Time{}
	var log strings.Builder
	f.server.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	_, text = f.do("GET", "/metrics", "")
	require.Contains(t, log.String(), `level=WARN msg="metrics: the store does not answer" error="durable: store is closed"`)
	require.Contains(t, text, "\nlimbo_store_up 0\n")
	require.NotContains(t, text, "limbo_timers{")
}

func TestOptions(t *testing.T) {
	_, err := New(Options{})
	require.EqualError(t, err, "timerd: Options.Timers is nil, must be given")
	_, err = New(Options{Timers: new(durable.Timers)})
	require.EqualError(t, err, "timerd: Options.Store is nil, must be given")
}

// The server reads the store's counts once a second at most, however often it is asked.
func TestMetricsDoNotLoadTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, store.Limits{}, "")
		counted := &counting{Store: f.store}
		f.server.o.Store = counted
		for range 10 {
			status, text := f.do("GET", "/metrics", "")
			require.Equal(t, 200, status)
			require.Contains(t, text, "limbo_store_up 1\n")
			time.Sleep(99 * time.Millisecond)
		}
		require.Equal(t, shards, counted.stats)
		time.Sleep(10 * time.Millisecond)
		f.do("GET", "/metrics", "")
		require.Equal(t, 2*shards, counted.stats)
	})
}

type counting struct {
	store.Store
	stats int
}

func (c *counting) Stats(ctx context.Context, shard int) (store.Stats, error) {
	c.stats++
	return c.Store.Stats(ctx, shard)
}

// Requests are counted, with their time, and logged: failures of the store as
// warnings, others only for those who debug.
func TestRequestsAreCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, store.Limits{}, "")
		var log strings.Builder
		level := new(slog.LevelVar)
		f.server.o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
		f.server.o.Store = slow{f.store}
		f.do("GET", "/timers/a", "")
		require.Empty(t, log.String())
		_, text := f.do("GET", "/metrics", "")
		require.Contains(t, text, "\nlimbo_timerd_request_seconds_total{route=\"GET /timers/{key...}\"} 2\n")

		level.Set(slog.LevelDebug)
		f.do("GET", "/timers/a", "")
		require.Regexp(t, `level=DEBUG msg=request route="GET /timers/{key...}" key=a status=404 took=2s error="durable: no such timer"\n$`, log.String())
		f.do("PUT", "/timers/a", `{"after":"1h",`+callback+`}`)
		log.Reset()
		f.do("GET", "/timers/a", "")
		require.Regexp(t, `level=DEBUG msg=request route="GET /timers/{key...}" key=a status=200 took=2s\n$`, log.String())

		level.Set(slog.LevelInfo)
		log.Reset()
		f.store.Close()
		f.do("GET", "/timers/a", "")
		require.Regexp(t, `level=WARN msg=request .*status=503 .*error="durable: store is closed"\n$`, log.String())
		_, text = f.do("GET", "/metrics", "")
		require.Contains(t, text, "\nlimbo_timerd_request_seconds_total{route=\"GET /timers/{key...}\"} 8\n")
	})
}

type slow struct{ store.Store }

func (s slow) Get(ctx context.Context, shard int, key string) (store.Record, error) {
	time.Sleep(2 * time.Second)
	return s.Store.Get(ctx, shard, key)
}

// Without a Logger there is the default one.
func TestDefaultLogger(t *testing.T) {
	f := newFixture(t, store.Limits{}, "")
	var log strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	server, err := New(Options{Timers: f.server.o.Timers, Store: f.store})
	require.NoError(t, err)
	f.server = server
	f.store.Close()
	f.do("GET", "/timers/a", "")
	require.Contains(t, log.String(), "level=WARN msg=request")
}

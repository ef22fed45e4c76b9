package api

import (
	"net/http"
	"strings"
	"testing"
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
	f.store.Close()
	f.server.stats.at = time.Time{}
	_, text = f.do("GET", "/metrics", "")
	require.Contains(t, text, "\nlimbo_store_up 0\n")
	require.NotContains(t, text, "limbo_timers{")
}

func TestOptions(t *testing.T) {
	_, err := New(Options{})
	require.EqualError(t, err, "timerd: Options.Timers is nil, must be given")
}

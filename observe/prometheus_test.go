package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/seed-782fa212/limbo/internal/programs"
	"github.com/stretchr/testify/require"
)

// The metrics follow Prometheus's conventions, as checked by its own library and by the
// installed promtool.
func TestPromlint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(scrape(t, newEveryKind(t).registry))).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestPromtoolMetrics(t *testing.T) {
	promtool := exec.Command(need.Program(t, "prometheus", "promtool"), "check", "metrics")
	promtool.Stdin = strings.NewReader(scrape(t, newEveryKind(t).registry))
	output, err := promtool.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Empty(t, string(output))
}

// prometheusServer is a real Prometheus that scrapes a registry each second.
type prometheusServer struct {
	address string       // of its API
	asked   time.Time    // when the current question was first asked
	again   *time.Ticker // ticks between repetitions of the question
	act     func()       // called between repetitions, if not nil
}

// startPrometheus starts a server that accepts native histograms or classic ones.
func startPrometheus(t *testing.T, r *Registry, native bool) *prometheusServer {
	t.Helper()
	path := need.Program(t, "prometheus", "prometheus")
	if isBefore(t, path, 2, 40) { // no native histograms, and does not print its address
		need.Skip(t, "prometheus of 2.40 or newer", "prometheus")
	}
	registered := prometheus.NewRegistry()
	registered.MustRegister(r)
	observed := httptest.NewServer(promhttp.HandlerFor(registered, promhttp.HandlerOpts{}))
	t.Cleanup(observed.Close)
	dir := t.TempDir()
	rules, err := filepath.Abs("prometheus/alerts.yml")
	require.NoError(t, err)
	args, nativeToo := []string(nil), ""
	switch {
	case native && isBefore(t, path, 3, 8):
		args = append(args, "--enable-feature=native-histograms")
	case native:
		nativeToo = `"scrape_native_histograms": true, `
	}
	config := fmt.Sprintf(`{"global": {"evaluation_interval": "1s"}, "rule_files": [%q],
		"scrape_configs": [{"job_name": "limbo", "scrape_interval": "1s", "scrape_timeout": "1s",
		%s"static_configs": [{"targets": [%q]}]}]}`, rules, nativeToo, observed.Listener.Addr().String())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	p := &prometheusServer{asked: time.Now(), again: time.NewTicker(50 * time.Millisecond)}
	t.Cleanup(p.again.Stop)
	args = append(args,
		"--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", // the server chooses the port
	)
	server, err := programs.Start(exec.Command(path, args...))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = server.Stop(time.Minute)
		if t.Failed() {
			t.Logf("prometheus said:\n%s", server.Output())
		}
	})
	require.NoError(t, server.Ready(func() error {
		found := listening.FindStringSubmatch(server.Output())
		if found == nil {
			return errors.New("it does not say where it listens")
		}
		p.address = found[1]
		return nil
	}))
	return p
}

var listening = regexp.MustCompile(`address="?(127\.0\.0\.1:[1-9][0-9]*)`)

// isBefore reports whether a server's version is before major.minor.
func isBefore(t *testing.T, path string, major, minor int) bool {
	t.Helper()
	output, err := exec.Command(path, "--version").CombinedOutput()
	require.NoError(t, err)
	var its [2]int
	_, err = fmt.Sscanf(string(output), "prometheus, version %d.%d", &its[0], &its[1])
	require.NoError(t, err, "%s", output)
	return its[0] < major || its[0] == major && its[1] < minor
}

// series is a series in the result of a query, with its last value.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (s series) number(t *testing.T) float64 {
	t.Helper()
	text, ok := s.Value[1].(string)
	require.True(t, ok, s)
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}

// query returns the current result of a query.
func (p *prometheusServer) query(ctx context.Context, promql string) ([]series, error) {
	at := "http://" + p.address + "/api/v1/query?" + url.Values{"query": {promql}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusBadRequest {
		return nil, badQuery{promql, string(body)}
	}
	var found struct {
		Data struct {
			Result []series `json:"result"`
		} `json:"data"`
	}
	err = json.Unmarshal(body, &found)
	return found.Data.Result, err
}

type badQuery struct{ query, answer string }

func (e badQuery) Error() string { return e.query + ": " + e.answer }

// eventually repeats a query until it returns a number. The server is another process, so the
// test can only poll it.
func (p *prometheusServer) eventually(t *testing.T, promql string) []series {
	t.Helper()
	p.asked = time.Now()
	for {
		found, err := p.query(t.Context(), promql)
		if err == nil && slices.ContainsFunc(found, func(s series) bool { return !math.IsNaN(s.number(t)) }) {
			return found
		}
		var bad badQuery
		require.NotErrorAs(t, err, &bad)
		if p.act != nil {
			p.act()
		}
		p.pause(t, "no number:", promql, err)
	}
}

// pause waits until it is time to repeat the question; the test fails after a minute of
// repetitions.
func (p *prometheusServer) pause(t *testing.T, about ...any) {
	t.Helper()
	if time.Since(p.asked) > waitLimit {
		t.Fatal(append([]any{"a minute has passed:"}, about...)...)
	}
	<-p.again.C
}

// only returns the single number in the result of a query.
func (p *prometheusServer) only(t *testing.T, promql string) float64 {
	t.Helper()
	found := p.eventually(t, promql)
	require.Len(t, found, 1, promql)
	return found[0].number(t)
}

// A real server finds the published values, in histograms of both kinds, and the metrics of all
// queries of the dashboard and the alerts.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	for _, native := range []bool{false, true} {
		t.Run(fmt.Sprintf("native=%t", native), func(t *testing.T) {
			t.Parallel()
			e := newEveryKind(t)
			p := startPrometheus(t, e.registry, native)
			requireValues(t, e, p, native)
			p.act = e.act
			for _, query := range dashboardQueries(t) {
				p.eventually(t, query)
			}
			requireRules(t, p)
		})
	}
}

func requireValues(t *testing.T, e *everyKind, p *prometheusServer, native bool) {
	for query, want := range map[string]float64{
		`up == 1`:                            1,
		`limbo_journal_records{name="disk"}`: 3,
		`limbo_journal_written_bytes_total{name="disk"}`:                4096,
		`limbo_journal_invalid_metrics`:                                 0,
		`limbo_purgatory_operations{name="fetches"}`:                    1,
		`limbo_purgatory_refused_total{name="fetches",cause="full"}`:    1,
		`limbo_purgatory_ended_total{name="offsets",outcome="expired"}`: 1,
		`limbo_purgatory_ended_total{name="votes",outcome="completed"}`: 1,
		`limbo_wheel_timers{name="sessions"}`:                           1,
		`limbo_calls_ended_total{name="requests",outcome="completed"}`:  1,
		`limbo_scheduler_jobs{name="cron"}`:                             1,
		`limbo_polls_ended_total{name="news",outcome="ready"}`:          1,
		`limbo_queue_elements{name="mail"}`:                             0,
	} {
		require.InDelta(t, want, p.only(t, query), 0, query)
	}

	// The durations 0, 1 ns, 30 ms, 30 ms, 1 s and 1 h are in the classes up to 953 ns, 31.25 ms
	// and 1 s, and in the one above 512 s.
	name := "limbo_journal_synced_seconds_bucket"
	if native {
		name = "limbo_journal_synced_seconds"
	}
	within := func(q, above, upTo float64) {
		t.Helper()
		got := p.only(t, fmt.Sprintf(`histogram_quantile(%g, %s{name="disk"})`, q, name))
		require.Greater(t, got, above, "the quantile %g", q)
		require.LessOrEqual(t, got, upTo, "the quantile %g", q)
	}
	within(0.2, -math.Ldexp(1, -20), math.Ldexp(1, -20))
	within(0.5, math.Ldexp(1, -6), math.Ldexp(1, -5))
	within(0.8, 0.5, 1)
	if native {
		within(1, 512, 1024)
		require.InDelta(t, 6, p.only(t, `histogram_count(limbo_journal_synced_seconds)`), 0)
		require.InDelta(t, e.durations.Sum, p.only(t, `histogram_sum(limbo_journal_synced_seconds)`), 0)
		// An empty histogram is known to be native, and so keeps its kind.
		require.InDelta(t, 0, p.only(t, `histogram_count(limbo_purgatory_late_seconds{name="fetches"})`), 0)
		return
	}
	within(1, 511, 512)
	require.InDelta(t, 6, p.only(t, `limbo_journal_synced_seconds_count`), 0)
	require.InDelta(t, e.durations.Sum, p.only(t, `limbo_journal_synced_seconds_sum`), 0)
	require.InDelta(t, 2, p.only(t, `limbo_journal_synced_seconds_bucket{le=~"9.53.*e-07"}`), 0)
	require.InDelta(t, 5, p.only(t, `limbo_journal_synced_seconds_bucket{le=~"512(.0)?"}`), 0)
}

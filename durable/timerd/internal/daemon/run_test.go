package daemon

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/webhook"
	"github.com/seed-782fa212/limbo/internal/need"
	"github.com/seed-782fa212/limbo/observe"
)

// start runs a daemon on a folder until the returned function is called, which returns Run's error.
func start(t *testing.T, c Config) (url string, stop func() error) {
	c.Listen = "127.0.0.1:0"
	c.Logger = slog.New(slog.DiscardHandler)
	c.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	addr := make(chan net.Addr, 1)
	c.OnListen = func(a net.Addr) { addr <- a }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c) }()
	stop = func() error {
		cancel()
		return <-done
	}
	select {
	case a := <-addr:
		return "http://" + a.String(), stop
	case err := <-done:
		require.NoError(t, err)
		return "", nil
	}
}

// The log gives a console address that a browser on this machine can open.
func TestConsoleURL(t *testing.T) {
	for _, c := range []struct {
		config Config
		listen string
		want   string
	}{
		{Config{Console: "on"}, "127.0.0.1:7717", "http://127.0.0.1:7717/console/"},
		{Config{Console: "read-only", TLSCert: "cert"}, "[::1]:443", "https://[::1]:443/console/"},
		{Config{Console: "on"}, "0.0.0.0:80", "http://localhost:80/console/"},
		{Config{Console: "on"}, "[::]:80", "http://localhost:80/console/"},
		{Config{Console: "off"}, "127.0.0.1:80", "off"},
		{Config{}, "127.0.0.1:80", "off"},
	} {
		address := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.listen))
		require.Equal(t, c.want, c.config.consoleURL(address))
	}
}

func do(t *testing.T, method, url, body string) (int, string) {
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}

// When a process has stopped, the next one makes the callbacks of its timers, signed, and then
// removes the timers. A shutdown lets a running callback end.
func TestTimersOutliveTheProcess(t *testing.T) {
	secret := []byte("0123456789abcdef")
	called, finish := make(chan string), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := webhook.Verify(secret, r.Header, body, time.Now(), time.Minute); err != nil {
			body = []byte(err.Error())
		}
		called <- string(body)
		<-finish
	}))
	defer receiver.Close()
	c := Config{Store: "pebble:" + filepath.Join(t.TempDir(), "timers"), Secret: secret, Grace: time.Minute}

	url, stop := start(t, c) // without a worker
	status, reply := do(t, "PUT", url+"/timers/a", `{"after":"0s","callback":{"url":"`+receiver.URL+`"},"body":"hello"}`)
	require.Equal(t, 201, status, reply)
	require.NoError(t, stop())

	c.Workers = 2
	url, stop = start(t, c)
	require.Equal(t, "hello", <-called)
	_, reply = do(t, "GET", url+"/timers/a", "")
	require.Contains(t, reply, `"state":"leased"`)
	_, reply = do(t, "GET", url+"/metrics", "")
	require.Contains(t, reply, "\nlimbo_durable_worker_running{name=\"worker\"} 1\n")
	require.Contains(t, reply, "\nlimbo_webhook_late_seconds_count{name=\"webhook\"} 1\n")
	require.Contains(t, reply, "\nlimbo_timerd_requests_total{name=\"api\",status=\"200\"} 1\n")
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	finish <- struct{}{}
	require.NoError(t, <-stopped)

	url, stop = start(t, c)
	status, _ = do(t, "GET", url+"/timers/a", "")
	require.Equal(t, 404, status) // the callback was acknowledged
	status, _ = do(t, "GET", url+"/healthz", "")
	require.Equal(t, 200, status)
	require.NoError(t, stop())
}

// A schedule makes callbacks at its planned times, never early, with its key and the planned time.
func TestSchedulesCallBack(t *testing.T) {
	called := make(chan http.Header, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		r.Header.Set("Early", fmt.Sprint(r.Header.Get("Limbo-Planned") > time.Now().UTC().Format("2006-01-02T15:04:05.000Z")))
		called <- r.Header
	}))
	defer receiver.Close()
	url, stop := start(t, Config{Store: "pebble:" + filepath.Join(t.TempDir(), "timers"), Workers: 2})
	status, reply := do(t, "PUT", url+"/schedules/order%2F7", `{"every":"1s","limit":2,"overlap":"allow","missed":"all","callback":{"url":"`+receiver.URL+`"},"body":"hello"}`)
	require.Equal(t, 201, status, reply)
	first, second := <-called, <-called
	for _, header := range []http.Header{first, second} {
		require.Equal(t, "false", header.Get("Early"))
		require.Equal(t, "order%2F7", header.Get("Limbo-Schedule"))
		planned := parse(t, header.Get("Limbo-Planned"))
		require.Equal(t, planned.Truncate(time.Second), planned)
		require.Contains(t, reply, `"`+planned.Format(time.RFC3339)+`"`)
		require.Equal(t, fmt.Sprintf("order%%2F7%%00%013d", planned.UnixMilli()), header.Get("Limbo-Timer"))
	}
	require.NotEqual(t, first.Get("Idempotency-Key"), second.Get("Idempotency-Key"))
	require.Eventually(t, func() bool {
		_, reply = do(t, "GET", url+"/schedules/order%2F7", "")
		return strings.Contains(reply, `"created":2,"triggered":0,"backfilled":0,"skipped_overlap":0,"skipped_missed":0,"skipped_updated":0,"done":2,`)
	}, time.Minute, 10*time.Millisecond)
	require.Contains(t, reply, `"state":"ended"`)
	require.NoError(t, stop())
}

func parse(t *testing.T, text string) time.Time {
	at, err := time.Parse("2006-01-02T15:04:05.000Z", text)
	require.NoError(t, err)
	return at
}

// The page and its /metrics show the timers, and the worker if there is one.
func TestPage(t *testing.T) {
	for _, workers := range []int{0, 1} {
		page := make(chan net.Addr, 1)
		c := Config{Store: "pebble:" + filepath.Join(t.TempDir(), "timers"), Workers: workers, Page: "127.0.0.1:0", OnPage: func(a net.Addr) { page <- a }}
		url, stop := start(t, c)
		status, reply := do(t, "PUT", url+"/timers/a", `{"after":"1h","callback":{"url":"`+url+`"}}`)
		require.Equal(t, 201, status, reply)
		at := "http://" + (<-page).String()
		require.Eventually(t, func() bool { // a scrape shows the values of the previous one
			_, reply = do(t, "GET", at+"/metrics", "")
			return strings.Contains(reply, "\nlimbo_durable_waiting{name=\"timers\"} 1\n")
		}, time.Minute, time.Millisecond)
		require.Equal(t, workers == 1, strings.Contains(reply, "\nlimbo_durable_worker_running{name=\"worker\"} 0\n"), reply)
		_, reply = do(t, "GET", at+"/", "")
		require.Contains(t, reply, "<!doctype html>")
		require.NoError(t, stop())
	}
}

// Browsers open connections and send nothing on them. These do not fail the shutdown.
func TestPageStopsDespiteASilentConnection(t *testing.T) {
	page := make(chan net.Addr, 1)
	d := &daemon{c: Config{Page: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), OnPage: func(a net.Addr) { page <- a }}}
	stop, err := d.startPage(observe.New())
	require.NoError(t, err)
	at := (<-page).String()
	silent, err := net.Dial("tcp", at)
	require.NoError(t, err)
	defer silent.Close()
	// The server accepts connections in order, so after this reply it has accepted the silent one.
	status, _ := do(t, "GET", "http://"+at+"/", "")
	require.Equal(t, 200, status)
	expired, cancel := context.WithTimeout(t.Context(), 0) // expires at once
	defer cancel()
	require.NoError(t, stop(expired))
	_, err = silent.Read(make([]byte, 1))
	require.Error(t, err, "it is closed")
}

// promtool accepts the metrics of both listeners.
func TestPromtool(t *testing.T) {
	promtool := need.Program(t, "prometheus", "promtool")
	page := make(chan net.Addr, 1)
	url, stop := start(t, Config{Store: "pebble:" + filepath.Join(t.TempDir(), "timers"), Workers: 1, Page: "127.0.0.1:0", OnPage: func(a net.Addr) { page <- a }})
	for _, where := range []string{url, "http://" + (<-page).String()} {
		_, text := do(t, "GET", where+"/metrics", "")
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text + "\n") // which do trimmed
		output, err := check.CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Empty(t, string(output))
	}
	require.NoError(t, stop())
}

// The API and the page publish the same metrics, and README.md names all of them.
func TestMetricsAreDocumented(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	page := make(chan net.Addr, 1)
	url, stop := start(t, Config{Store: "pebble:" + filepath.Join(t.TempDir(), "timers"), Workers: 1, Page: "127.0.0.1:0", OnPage: func(a net.Addr) { page <- a }})
	at := "http://" + (<-page).String()
	do(t, "GET", url+"/timers/a", "")
	var published [2][]string
	for i, where := range []string{url, at} {
		var text string
		require.Eventually(t, func() bool { // until the store has been read
			_, text = do(t, "GET", where+"/metrics", "")
			return strings.Contains(text, "limbo_durable_waiting")
		}, time.Minute, time.Millisecond)
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		require.NoError(t, err)
		require.Empty(t, problems)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(text, -1) {
			published[i] = append(published[i], m[1])
			if !strings.HasSuffix(m[1], "_invalid_metrics") {
				require.Regexp(t, "`"+m[1]+"[`{]", string(readme))
			}
		}
	}
	require.Greater(t, len(published[0]), 20)
	require.Equal(t, published[0], published[1])
	require.NoError(t, stop())
}

func TestRunRefusesBadConfigs(t *testing.T) {
	for want, c := range map[string]Config{
		"-listen":                                            {Listen: "0.0.0.0:1", Store: "pebble:x"},
		`-http is "0.0.0.0:1"`:                               {Listen: "127.0.0.1:0", Page: "0.0.0.0:1", Store: "pebble:x"},
		`-http is "page"`:                                    {Listen: "127.0.0.1:0", Page: "page", Store: "pebble:x"},
		`-memory is "3", must be 4 to 4096`:                  {Listen: "127.0.0.1:0", Store: "pebble:x", Memory: 3},
		`-memory is "4097", must be 4 to 4096`:               {Listen: "127.0.0.1:0", Store: "pebble:x", Memory: 4097},
		"Options.Shards is -1":                               {Listen: "127.0.0.1:0", Store: "pebble:" + t.TempDir(), Shards: -1},
		"webhook: Options.PerHost is -1, must be 1 to 10000": {Listen: "127.0.0.1:0", Store: "pebble:" + t.TempDir(), Workers: 1, PerHost: -1},
		"WorkerOptions.Lease is 1ns":                         {Listen: "127.0.0.1:0", Store: "pebble:" + t.TempDir(), Workers: 1, Lease: 1},
	} {
		c.Logger = slog.New(slog.DiscardHandler)
		require.ErrorContains(t, Run(t.Context(), c), want)
	}
}

func TestStoreNameHidesSecrets(t *testing.T) {
	require.Equal(t, "redis://user:xxxxx@host:1/0", storeName("redis://user:secret@host:1/0?password=secret"))
	require.Equal(t, "pebble:/a?b", storeName("pebble:/a?b"))
	here, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, "pebble:"+filepath.Join(here, "timerd.db"), storeName("pebble:timerd.db"))
}

// The API's listener also serves the console, which shows a timer's callback without its secrets.
func TestConsole(t *testing.T) {
	url, stop := start(t, Config{Store: "pebble:" + t.TempDir(), Console: consoleReadOnly, Workers: 0})
	status, reply := do(t, "PUT", url+"/timers/order-7", `{"after":"1h","callback":{"url":"http://127.0.0.1:1/remind","headers":{"Authorization":"Bearer secret"}},"body":"seven"}`)
	require.Equal(t, 201, status, reply)
	for _, path := range []string{"/console", "/console/", "/console/main.js"} {
		status, reply := do(t, "GET", url+path, "")
		require.Equal(t, 200, status, path)
		require.NotContains(t, reply, "there is no")
	}
	status, reply = do(t, "GET", url+"/console/api/timers?state=waiting&prefix=order-", "")
	require.Equal(t, 200, status, reply)
	require.Contains(t, reply, "order-7")
	status, reply = do(t, "GET", url+"/console/api/timer?key="+base64.RawURLEncoding.EncodeToString([]byte("order-7")), "")
	require.Equal(t, 200, status, reply)
	require.Contains(t, reply, "http://127.0.0.1:1/remind")
	require.Contains(t, reply, "seven")
	require.NotContains(t, reply, "Bearer secret")
	status, reply = do(t, "POST", url+"/console/api/timers/cancel", `{}`)
	require.Equal(t, 403, status, reply)
	// The page's commands for curl use the API, and can run a timer now.
	status, reply = do(t, "GET", url+"/console/api/session", "")
	require.Equal(t, 200, status)
	require.Contains(t, reply, `"api":"../"`)
	status, reply = do(t, "PATCH", url+"/timers/order-7", `{"after": "0s"}`)
	require.Equal(t, 200, status, reply)
	require.NoError(t, stop())

	url, stop = start(t, Config{Store: "pebble:" + t.TempDir(), Console: consoleOff})
	status, _ = do(t, "GET", url+"/console/", "")
	require.Equal(t, 404, status)
	require.NoError(t, stop())
	require.EqualError(t, Run(t.Context(), Config{Listen: "127.0.0.1:0", Store: "pebble:x", Console: "maybe"}), `timerd: -console is "maybe", must be on, read-only or off`)
}

// The console refuses a schedule with a body that timerd cannot run.
func TestConsoleChecksBodies(t *testing.T) {
	url, stop := start(t, Config{Store: "pebble:" + t.TempDir(), Console: consoleOn})
	put := func(body string) (int, string) {
		req, err := http.NewRequest(http.MethodPost, url+"/console/api/schedules/put", strings.NewReader(fmt.Sprintf(
			`{"key":%q,"cron":"@daily","body_base64":%q}`, base64.RawURLEncoding.EncodeToString([]byte("report")), base64.StdEncoding.EncodeToString([]byte(body)))))
		require.NoError(t, err)
		req.Header = http.Header{"Content-Type": {"application/json"}, "X-Limbo-Console": {"1"}, "Origin": {url}}
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		reply, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(reply)
	}
	status, reply := put("daily")
	require.Equal(t, 400, status, reply)
	require.Contains(t, reply, "it must be a call, such as")
	status, reply = put(`{"v":1,"url":"https://example.org/run","text":"what is sent"}`)
	require.Equal(t, 200, status, reply)
	require.NoError(t, stop())
}

// With a token, the console serves its page to everybody, and data only to users with the token.
func TestConsoleAsksForTheToken(t *testing.T) {
	url, stop := start(t, Config{Store: "pebble:" + t.TempDir(), Console: consoleOn, Token: "0123456789abcdef"})
	status, _ := do(t, "GET", url+"/console/", "")
	require.Equal(t, 200, status)
	status, _ = do(t, "GET", url+"/console/api/timers?state=waiting", "")
	require.Equal(t, 401, status)
	require.NoError(t, stop())
}

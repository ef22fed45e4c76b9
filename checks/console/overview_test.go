package console

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/checks/internal/chrome"
	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/seed-782fa212/limbo/durable/memstore"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/internal/need"
)

// busy runs workers, and schedules timers for them, until the test ends. Some timers fail their
// first attempt, and some fail for good.
func (s *scene) busy(workers ...string) {
	s.t.Helper()
	ctx, stop := context.WithCancel(background)
	var all sync.WaitGroup
	for _, name := range workers {
		worker, err := s.timers.NewWorker(func(ctx context.Context, f durable.Fired) error {
			switch n := rand.IntN(30); {
			case n == 0:
				return durable.Discard(fmt.Errorf("status 422: the address is not valid"))
			case n < 4 && f.Attempt == 1:
				return fmt.Errorf("dial tcp 10.0.0.7:443: connect: connection refused")
			}
			select {
			case <-time.After(time.Duration(rand.ExpFloat64() * float64(40*time.Millisecond))):
			case <-ctx.Done():
			}
			return nil
		}, durable.WorkerOptions{Name: name, Concurrency: 16, Backoff: time.Second})
		require.NoError(s.t, err)
		all.Go(func() { _ = worker.Run(ctx) })
	}
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = s.timers.Schedule(ctx, durable.Timer{
				Key: fmt.Sprintf("session/%07d", n), Topic: fmt.Sprintf("topic-%02d", n%100), After: time.Duration(rand.ExpFloat64() * float64(time.Minute)),
			})
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	s.t.Cleanup(func() {
		stop()
		all.Wait()
	})
}

// heartbeat makes a worker that expires at once.
func (s *scene) heartbeat(name string) {
	s.t.Helper()
	_, err := s.engine.Heartbeat(background, store.Heartbeat{Worker: name, TTL: time.Millisecond})
	require.NoError(s.t, err)
}

func cells(row string) string {
	return fmt.Sprintf(`[...[...document.querySelectorAll("tr")].find(r => r.textContent.includes(%s)).cells].map(c => c.textContent).join("|")`, quote(row))
}

// The overview shows live the contents of the store, how fast and how late timers run, the due
// times, the workers of all processes, and whether the engine answers.
func TestOverview(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := openTab(t, s.console(console.Options{}).address)
	x.shows("No worker is live.")
	x.shows("No run began in the last")
	x.Until(`document.querySelector(".dues").innerText.includes("Nothing in the next minute")`)
	s.schedule(durable.Timer{Key: "soon", After: 55 * time.Second}, durable.Timer{Key: "later", After: 30 * time.Minute}, durable.Timer{Key: "tomorrow", After: 23 * time.Hour})
	x.shows("1 in the next minute")
	x.shows("2 in the next hour")
	x.shows("3 in the next day")
	x.shows("No worker is live: timers do not run.")
	s.waiting("order/", 10)
	x.Until(`[...document.querySelectorAll(".tile")].some(e => e.textContent.startsWith("Waiting13"))`)

	s.heartbeat("dead.example.org")
	s.busy(markup[:40])
	x.Until(cells(markup[:40]) + `.includes("|live|")`)
	x.Until(`/ of 16\|[1-9.]+\/s/.test(` + cells(markup[:40]) + `)`)
	x.Until(cells("dead.example.org") + `.includes("|no heartbeat for ")`)
	x.Until(`/^Scheduled\|[1-9][0-9.]*\/s/.test(` + cells("Scheduled") + `)`)
	x.Until(`/\(p99\)\|[0-9.]+ (µs|ms|s)\|/.test(` + cells("(p99)") + `)`)
	x.Until(`[...document.querySelectorAll("path.line")].filter(p => p.getAttribute("d").includes("L")).length === 6`)
	require.Empty(t, eval[string](x, unnamed))

	s.engine.down.Store(true)
	x.shows("does not answer since")
	x.Until(`document.querySelector(".tiles").classList.contains("stale")`)
	s.engine.down.Store(false)
	x.Until(`document.body.innerText.includes("answers; a poll takes") && !document.querySelector(".stale")`)

	x.click(".tile", "Dead letters")
	x.Until(`location.hash === "#/timers?state=dead"`)
	x.view("#/overview")
	x.Until(`document.querySelector("path.line").getAttribute("d").includes("L")`) // the lines are kept
}

// stopping is an engine that counts due timers only for about the next ten minutes.
type stopping struct{ store.Store }

func (s stopping) CountDue(ctx context.Context, shard int, edges []store.Millis) (store.DueCounts, error) {
	counts, err := s.Store.CountDue(ctx, shard, edges)
	counts.Through = edges[0] + 600_000
	for i := range counts.Counts {
		if edges[i] >= counts.Through {
			counts.Counts[i] = 0
		}
	}
	return counts, err
}

// The page does not show zero for periods that the engine has not counted.
func TestCountsThatStop(t *testing.T) {
	t.Parallel()
	inMemory, err := memstore.New(memstore.Options{})
	require.NoError(t, err)
	s := sceneOn(t, stopping{inMemory})
	x := openTab(t, s.console(console.Options{}).address)
	x.Until(`document.querySelector(".dues")?.innerText.includes("in the next minute")`)
	s.schedule(durable.Timer{Key: "soon", After: 55 * time.Second}, durable.Timer{Key: "later", After: 30 * time.Minute})
	x.Until(`document.querySelector(".dues").innerText.includes("1 in the next minute") && !document.querySelector(".dues").innerText.includes("At least 1 in the next minute")`)
	x.shows("At least 1 in the next hour")
	x.shows("At least 1 in the next day")
	x.shows("there is too much to count")
}

// A running timer is shown with its worker and its attempt, in the list and on its own page.
func TestRunningTimer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	worker := s.run(func(durable.Fired) (error, bool) { return nil, false })
	s.schedule(durable.Timer{Key: "video/1"})
	x := openTab(t, s.console(console.Options{}).address)
	require.Eventually(t, func() bool { return s.stats().Leased == 1 }, waitLimit, 10*time.Millisecond)
	x.view("#/timers?state=running")
	x.Until(fmt.Sprintf(`document.querySelector("tbody tr").textContent.includes(%s)`, quote(worker.Name())))
	x.click("tbody a", "video/1")
	x.shows("attempt 1 runs")
	x.shows(worker.Name())
}

// A shell that runs the commands for curl sends the requests that the API expects, with keys of
// any bytes.
func TestCopyAsCurl(t *testing.T) {
	t.Parallel()
	need.Program(t, "curl", "curl")
	s := newScene(t)
	token := tokenOf(t)
	type request struct{ method, list, key, body, token string }
	got := make(chan request, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/it's/{list}/{key...}", func(_ http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		got <- request{r.Method, r.PathValue("list"), r.PathValue("key"), string(body[:n]), r.Header.Get("Authorization")}
	})
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)
	run := func(command string) request {
		t.Helper()
		require.NotContains(t, command, token)
		shell := exec.Command("sh", "-c", command)
		shell.Env = append(os.Environ(), "TOKEN="+token)
		out, err := shell.CombinedOutput()
		require.NoError(t, err, "%s\n%s", command, out)
		select {
		case r := <-got:
			return r
		default:
			require.Fail(t, "no request came", "%s\n%s", command, out)
			return request{}
		}
	}
	keys := []string{
		"order-7", "a/b/../c", ".", "..", "it's \"quoted\" $HOME `id` \\ !", markup, "tab\tline\nbell\a\x1bx", "bad \xff\xfe utf-8",
		"[1-3]{a,b}%41?x=1#f;&|", "-X", strings.Repeat("long/", 102) + "12", "grüße-日本",
	}
	var timers []durable.Timer
	for _, key := range keys {
		timers = append(timers, durable.Timer{Key: key, After: time.Hour})
	}
	s.schedule(timers...)
	x := openTab(t, s.console(console.Options{Token: token, API: api.URL + "/it's"}).address)
	x.login()
	command := func(key, label string) string {
		t.Helper()
		shown := fmt.Sprintf(`document.querySelector("pre[aria-label='%s with curl']")`, label)
		x.view("#/timer?key=" + key64(key))
		x.Until(fmt.Sprintf(`location.hash.endsWith(%s) && document.querySelector(".timer [data-key]")?.dataset.key === %s`, quote(key64(key)), quote(key64(key))))
		return eval[string](x, shown+".textContent")
	}
	for _, key := range keys {
		require.Equal(t, request{"GET", "timers", key, "", "Bearer " + token}, run(command(key, "Get")))
	}
	require.Equal(t, request{"PATCH", "timers", keys[4], `{"after": "0s"}`, "Bearer " + token}, run(command(keys[4], "Run now")))
	require.Equal(t, request{"DELETE", "timers", keys[5], "", "Bearer " + token}, run(command(keys[5], "Cancel")))
	s.fail(map[string]string{"dead": "connection refused"})
	require.Equal(t, request{"POST", "dead", "dead", "", "Bearer " + token}, run(command("dead", "Requeue")))
	require.Equal(t, request{"DELETE", "dead", "dead", "", "Bearer " + token}, run(command("dead", "Purge")))

	x.click(".commands summary", "")
	x.Script(`navigator.clipboard.writeText = async text => { window.copied = text }`)
	x.click("button", "Copy: Requeue")
	x.shows("The command is copied: Requeue.")
	require.Equal(t, command("dead", "Requeue"), eval[string](x, "window.copied"))
}

// The overview of a busy store, for pictures: see TestScreenshots. It needs a minute, so it runs
// only if the environment variable is set. busy-1400-dark is in docs as console-overview.
func TestOverviewScreenshots(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("LIMBO_SCREENSHOTS")
	if folder == "" {
		t.Skip("LIMBO_SCREENSHOTS names no folder for the pictures, which take a minute")
	}
	s := newScene(t)
	s.waiting("order/2026-11/", 1500)
	s.heartbeat("orders-4.example.org-1f00c3d1")
	s.busy("orders-1.example.org", "orders-2.example.org", "orders-3.example.org")
	x := openInWindow(t, s.console(console.Options{}).address)
	x.WaitLimit = 2 * time.Minute
	x.Until(`performance.now() > 50000`)
	for _, width := range []int64{390, 1400, 2560} {
		for _, scheme := range []string{"light", "dark"} {
			x.Do(chrome.Media("prefers-color-scheme", scheme), chromedp.EmulateViewport(width, 900))
			x.Until(fmt.Sprintf("innerWidth === %d", width))
			x.Until(`[...document.querySelectorAll("svg.chart")].every(s => Math.abs(s.viewBox.baseVal.width - s.clientWidth) < 30)`)
			require.LessOrEqual(t, eval[int64](x, "document.documentElement.scrollWidth"), width)
			picture, err := chromedp.Run(x.Ctx, chromedp.FullScreenshot(100))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("busy-%d-%s.png", width, scheme)), picture, 0o600))
		}
	}
}

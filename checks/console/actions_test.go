package console

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/seed-782fa212/limbo/durable/store"
)

// faulty is an engine that can fail.
type faulty struct {
	store.Store
	down   atomic.Bool // every call fails
	cancel atomic.Bool // Cancel fails
	miss   atomic.Bool // Cancel does not find the first timer of each call

	beforeCancel func(keys []string) // called before each Cancel, if not nil
}

var errDown = errors.New("dial tcp 10.0.0.1:6379: connect: connection refused")

func (f *faulty) Stats(ctx context.Context, shard int) (store.Stats, error) {
	if f.down.Load() {
		return store.Stats{}, errDown
	}
	return f.Store.Stats(ctx, shard)
}

func (f *faulty) List(ctx context.Context, shard int, q store.Query) (store.Page, error) {
	if f.down.Load() {
		return store.Page{}, errDown
	}
	return f.Store.List(ctx, shard, q)
}

func (f *faulty) Cancel(ctx context.Context, shard int, keys []string) ([]store.CancelResult, error) {
	if f.cancel.Load() {
		return nil, errDown
	}
	if f.beforeCancel != nil {
		f.beforeCancel(keys)
	}
	results, err := f.Store.Cancel(ctx, shard, keys)
	if f.miss.Load() && len(results) > 0 {
		results[0] = store.NotFound
	}
	return results, err
}

// A bulk action lists the timers that changed before it reached them.
func TestMissed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/<b>", 40)
	x := openTab(t, s.console(console.Options{}).address)
	s.engine.miss.Store(true)
	x.view("#/timers")
	x.click("[data-action=all-cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("40 timers match.")`)
	x.click("dialog button", "Cancel")
	x.shows("36 of 40 timers cancelled")
	x.shows("4 timers changed before the action came to them")
	x.click(".job summary", "")
	x.Until(`document.querySelectorAll(".job .keys li").length === 4 && document.querySelector(".job .keys").textContent.includes("order/<b>")`)
}

// The page shows since when the store fails. A bulk action waits for the store, and can be
// stopped.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/", 20)
	x := openTab(t, s.console(console.Options{}).address)
	s.engine.cancel.Store(true)
	x.view("#/timers?state=waiting")
	x.click("[data-action=all-cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("20 timers match.")`)
	x.click("dialog button", "Cancel")
	x.shows("The store has not answered since")
	x.Until(`document.getElementById("bulk-count").textContent === "1 running"`)
	x.click(".job button", "Stop")
	x.Until(`document.querySelector(".job .badge").textContent === "stopped"`)
	require.Equal(t, 20, s.stats().Waiting)

	s.engine.down.Store(true)
	x.Until(`document.getElementById("state").textContent === "store fails" && !document.getElementById("notice").hidden`)
	x.view("#/timers?state=dead")
	x.shows("the store does not answer: dial tcp")
	s.engine.down.Store(false)
	x.Until(`document.getElementById("state").textContent === "live" && document.getElementById("notice").hidden`)
	x.click("button", "Try again")
	x.shows("No timer is dead.")
}

// The page shows every field of a timer as text, regardless of its content.
func TestTimer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.schedule(durable.Timer{Key: markup, Topic: markup, Body: []byte(`{"n":12345678901234567890,"a":"<i>"}`), After: time.Hour},
		durable.Timer{Key: "binary\xff", Body: []byte{0, 1, 255, 'a'}, After: time.Hour})
	s.fail(map[string]string{"dead/1": markup + "\nline 2"})
	x := openTab(t, s.console(console.Options{}).address)
	x.view("#/timers")
	x.Until(rows + " === 2")
	x.click("tbody a", "<script>")
	x.Until(`document.querySelector("h2").textContent.startsWith("<script>")`)
	body := `document.querySelector("pre[aria-label=Body]").textContent`
	x.Until(body + `.includes('"n": 12345678901234567890')`)
	x.click("label", "Text")
	require.Equal(t, `{"n":12345678901234567890,"a":"<i>"}`, eval[string](x, body))
	x.click("label", "Hex")
	require.True(t, strings.HasPrefix(eval[string](x, body), "000000  7b 22 6e 22"))

	x.view("#/timer?key=" + key64("binary\xff"))
	x.shows(`binary\xff`)
	require.Equal(t, "000000  00 01 ff 61"+strings.Repeat(" ", 36)+"  ...a", eval[string](x, body))
	x.click("[data-action=cancel]", "")
	x.click("dialog button", "Cancel")
	x.shows("no timer or schedule has this key")
	require.Equal(t, 1, s.stats().Waiting)

	x.view("#/timer?key=" + key64("dead/1"))
	x.shows("line 2")
	x.click("[data-action=requeue]", "")
	x.click("dialog button", "Requeue")
	x.Until(`document.querySelector("dd .badge").textContent === "waiting"`)
	require.Equal(t, "Timer · limbo console", eval[string](x, "document.title"))
	require.Zero(t, eval[int](x, "document.images.length"))
}

// The page asks for the token once. A half-filled form survives the end of the session.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := openInWindow(t, s.console(console.Options{Token: tokenOf(t)}).address)
	x.fill("dialog.login [name=token]", "wrong")
	x.click("dialog.login button", "Log in")
	x.shows("this is not the token")
	x.Do(chromedp.KeyEvent("\u001b"))
	x.Until(`document.querySelector("dialog.login[open]")`)
	x.login()
	require.Empty(t, eval[string](x, "document.cookie"), "no script reads it")
	x.Do(chromedp.Reload())
	x.Until(`document.querySelector(".tile")`)
	require.False(t, eval[bool](x, `Boolean(document.querySelector("dialog"))`))

	x.view("#/edit")
	x.fill("[name=key]", "nightly")
	x.fill("[name=cron]", "@daily")
	x.Script(`fetch("api/logout", { method: "POST", body: "{}", headers: { "Content-Type": "application/json", "X-Limbo-Console": "1" } })`)
	x.Until(`document.querySelector("dialog.login")`)
	require.Equal(t, "nightly", eval[string](x, `document.querySelector("[name=key]").value`))
	x.login()
	x.click("button", "Create")
	x.shows("The schedule is created.")
	x.click("#logout", "")
	require.Eventually(t, func() bool { // the page reloads in the meantime
		asked, err := chromedp.Run(x.Ctx, chromedp.Evaluate[bool](`Boolean(document.querySelector("dialog.login")) && !document.querySelector(".edit, .schedule")`))
		return err == nil && asked
	}, waitLimit, 50*time.Millisecond)
}

// A request that was refused before a login, and whose reply comes after it, is sent again: the page
// does not ask for the token a second time.
func TestLateRefusal(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := openTab(t, s.console(console.Options{Token: tokenOf(t)}).address)
	x.login()
	x.view("#/edit")
	x.Until(`document.querySelector("[name=cron]")`)
	x.Script(`const real = window.fetch; window.fetch = async (path, options) => {
		const reply = await real(path, options)
		if (path.includes("preview") && reply.status === 401) await new Promise(resolve => { window.release = resolve })
		return reply
	}`)
	x.Script(`window.left = false; fetch("api/logout", { method: "POST", body: "{}", headers: { "Content-Type": "application/json", "X-Limbo-Console": "1" } }).then(() => { window.left = true })`)
	x.Until(`window.left`)
	x.fill("[name=cron]", "@daily")
	x.Until(`window.release`)
	x.login()
	x.Script(`window.release()`)
	x.Until(`document.querySelectorAll(".next li").length === 10`)
	require.False(t, eval[bool](x, `Boolean(document.querySelector("dialog.login"))`))
}

// The page shows a lost connection, and reconnects. A hidden tab has no stream.
func TestConnection(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	site := s.console(console.Options{})
	x := openTab(t, site.address)
	state := `document.getElementById("state").textContent`
	x.Until(state + ` === "live"`)
	site.down.Store(true)
	site.cut()
	x.Until(state + ` === "connection lost"`)
	site.down.Store(false)
	x.Until(state + ` === "live"`)
	hide := func(hidden string) {
		x.Script(`Object.defineProperty(document, "hidden", { value: ` + hidden + `, configurable: true }); document.dispatchEvent(new Event("visibilitychange"))`)
	}
	hide("true")
	x.Until(state + ` === "paused while hidden"`)
	require.Eventually(t, func() bool { return site.streams.Load() == 0 }, waitLimit, 10*time.Millisecond)
	hide("false")
	x.Until(state + ` === "live"`)
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/", 3)
	_, _, err := s.timers.PutSchedule(background, durable.Schedule{Key: "a", Cron: "@daily"})
	require.NoError(t, err)
	x := openTab(t, s.console(console.Options{ReadOnly: true}).address)
	x.Until(`!document.getElementById("read-only").hidden`)
	for fragment, until := range map[string]string{
		"#/timers":                            rows + " === 3",
		"#/timer?key=" + key64("order/00000"): `document.querySelector("pre")`,
		"#/schedules":                         rows + " === 1",
		"#/schedule?key=" + key64("a"):        `document.querySelector(".next li")`,
		"#/edit":                              `document.body.innerText.includes("The console is read-only.")`,
	} {
		x.view(fragment)
		x.Until(until)
		require.Zero(t, eval[int](x, `document.querySelectorAll("[data-action], form button.danger").length`), fragment)
		require.False(t, eval[bool](x, `document.body.innerText.includes("New schedule")`))
	}
}

// Times are in the viewer's zone, with UTC next to them.
func TestZone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.schedule(durable.Timer{Key: "a", At: time.Date(2040, 1, 2, 3, 4, 5, 0, time.UTC)}, durable.Timer{Key: "b", At: time.Date(2040, 7, 2, 12, 0, 0, 0, time.UTC)})
	_, _, err := s.timers.PutSchedule(background, durable.Schedule{Key: "s", Cron: "0 9 2 1 *", Zone: "Asia/Tokyo", Start: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)})
	require.NoError(t, err)
	x := openTab(t, s.console(console.Options{}).address)
	x.Do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "America/New_York"})
		return err
	}))
	x.view("#/timers")
	x.shows("2040-01-01 22:04:05 (2040-01-02 03:04:05 UTC)")
	x.shows("2040-07-02 08:00:00 (12:00:00 UTC)")
	x.view("#/schedules")
	x.shows("2040-01-02 09:00:00 UTC+09:00")
	x.shows("2040-01-01 19:00:00 local")
	x.view("#/timer?key=" + key64("a"))
	x.click("[data-action=move]", "")
	x.fill("dialog [name=at]", "2041-06-01T00:00")
	x.click("dialog button", "Move")
	x.shows("1 of 1 timer moved.")
	info, err := s.timers.Get(background, "a")
	require.NoError(t, err)
	require.Equal(t, time.Date(2041, 6, 1, 4, 0, 0, 0, time.UTC), info.Due)
}

func number(n int) string {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	return string(b)
}

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
	down   atomic.Bool // all of it
	cancel atomic.Bool // Cancel
	miss   atomic.Bool // Cancel of the first timer of each call, which it does not find
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
	results, err := f.Store.Cancel(ctx, shard, keys)
	if f.miss.Load() && len(results) > 0 {
		results[0] = store.NotFound
	}
	return results, err
}

const rows = `document.querySelectorAll("tbody tr").length`

func TestTimers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/", 120)
	s.waiting("other/", 3)
	x := openTab(t, s.console(console.Options{}).address)
	x.view("#/timers")
	x.shows("123 timers match.")
	x.Until(rows + " === 50")
	x.Script(`document.querySelector("tbody input").click()`)
	x.click("a.button", "Next page")
	x.Until(rows + ` === 50 && document.querySelector(".pager a").textContent === "First page"`)
	x.Script(`document.querySelector("tbody input").click()`)
	x.shows("2 selected.") // on two pages
	x.click("a.button", "Next page")
	x.Until(rows + " === 23")
	x.click("button", "Clear selection")
	x.Until(`!document.body.innerText.includes("selected")`)

	x.view("#/timers?state=waiting")
	x.Until(rows + " === 50")
	x.fill("[name=prefix]", "order/")
	x.click("button", "Search")
	x.shows("120 timers match.")
	x.Until(rows + " === 50")

	// Two that are selected are cancelled.
	x.Script(`for (const box of [...document.querySelectorAll("tbody input")].slice(0, 2)) box.click()`)
	x.shows("2 selected.")
	x.click("[data-action=cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("order/00001")`)
	x.click("dialog button", "Cancel")
	x.shows("2 of 2 timers cancelled.")
	x.shows("118 timers match.")
	require.Equal(t, "main", eval[string](x, "document.activeElement.id"), "the button is gone")
	require.Equal(t, 121, s.stats().Waiting)

	// One runs now, another is moved.
	x.Until(`!document.querySelector("[aria-busy]") && document.querySelector("tbody a").textContent === "order/00002"`)
	x.Script(`document.querySelector("tbody input").click()`)
	x.click("[data-action=run]", "")
	x.click("dialog button", "Run timer")
	x.shows("1 of 1 timer due now.")
	require.Equal(t, 1, s.stats().Overdue)
	x.Until(`!document.querySelector("[aria-busy]") && ` + rows + ` === 50`)
	x.Script(`document.querySelectorAll("tbody input")[1].click()`)
	x.click("[data-action=move]", "")
	x.fill("dialog [name=at]", "2040-01-02T03:04")
	x.click("dialog button", "Move")
	x.shows("1 of 1 timer moved.")
	info, err := s.timers.Get(background, "order/00003")
	require.NoError(t, err)
	require.Equal(t, 2040, info.Due.Year())

	// Escape changes nothing, and returns the focus to the button.
	x.Until(`!document.querySelector("[aria-busy]") && ` + rows + ` === 50`)
	x.Script(`document.querySelector("thead input").click()`)
	x.shows("50 selected.")
	x.Script(`document.querySelector("[data-action=cancel]").focus()`)
	x.click("[data-action=cancel]", "")
	x.Until(`document.querySelector("dialog[open]")`)
	x.Do(chromedp.KeyEvent("\u001b"))
	x.Until(`!document.querySelector("dialog") && document.activeElement.dataset.action === "cancel"`)
	require.Equal(t, 121, s.stats().Waiting)
}

// A bulk action begins only after the user has typed the count.
func TestBulk(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/", 700)
	s.waiting("other/", 3)
	x := openTab(t, s.console(console.Options{}).address)
	x.view("#/timers?state=waiting&prefix=order/")
	x.click("[data-action=all-cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("700 timers match.")`)
	x.click("dialog button", "Cancel")
	x.Until(`document.querySelector("dialog [name=count]").validity.valueMissing`)
	x.fill("dialog [name=count]", "70")
	x.click("dialog button", "Cancel")
	x.Until(`document.querySelector("dialog").innerText.includes("The number is 700.")`)

	s.waiting("order/more/", 200) // since the count was shown
	x.fill("dialog [name=count]", "700")
	x.click("dialog button", "Cancel")
	x.Until(`document.querySelector("dialog").innerText.includes("900 timers match now: confirm that number")`)
	require.Equal(t, 903, s.stats().Waiting)
	x.fill("dialog [name=count]", "900")
	x.click("dialog button", "Cancel")
	x.Until(`location.hash === "#/bulk"`)
	x.shows("900 of 900 timers cancelled, 4 of 4 shards finished.")
	x.Until(`document.querySelector(".job .badge").textContent === "done"`)
	require.Equal(t, 3, s.stats().Waiting)
}

// A bulk action lists the timers that changed before it came to them.
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

// Dead letters that match are requeued without typing, as they are few, and purged.
func TestBulkOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.fail(map[string]string{"a": "connection refused", "b": "connection REFUSED", "c": "no such host"})
	x := openTab(t, s.console(console.Options{}).address)
	x.view("#/timers?state=dead&error=refused")
	x.click("[data-action=all-requeue]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("2 timers match.")`)
	x.click("dialog button", "Requeue")
	x.shows("2 of 2 timers requeued")
	require.Equal(t, 2, s.stats().Waiting)
	x.view("#/timers?state=dead")
	x.Until(rows + " === 1")
	x.Script(`document.querySelector("tbody input").click()`)
	x.click("[data-action=purge]", "")
	x.click("dialog button", "Purge")
	x.shows("1 of 1 timer purged.")
	x.shows("No timer is dead.")
	require.Zero(t, s.stats().Dead)
}

// A store that fails is shown with since when; a bulk action waits for it, and can be stopped.
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

// All that a timer has is shown as text, whatever it is.
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

func TestSchedules(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := openTab(t, s.console(console.Options{}).address)
	x.view("#/schedules")
	x.shows("There is no schedule.")
	x.click("a", "New schedule")
	x.fill("[name=key]", "reports/<b>")
	x.fill("[name=cron]", "61 2 * * *")
	x.fill("[name=zone]", "Europe/Berlin")
	x.Until(`document.querySelector(".preview .error").textContent.includes("61")`)
	x.fill("[name=cron]", "30 2 * * *")
	x.Until(`document.querySelectorAll(".preview li").length === 10`)
	x.shows("every day at 02:30, Europe/Berlin")
	x.fill("[name=topic]", "reports")
	x.fill("[name=body]", "grüße")
	x.click("button", "Create")
	x.shows("The schedule is created.")
	key := "reports/<b>"
	get := func() durable.ScheduleInfo {
		info, err := s.timers.GetSchedule(background, key)
		require.NoError(t, err)
		return info
	}
	require.Equal(t, []string{"30 2 * * *", "Europe/Berlin", "reports", "grüße"}, []string{get().Cron, get().Zone, get().Topic, string(get().Body)})

	// A second one with the key is refused, and the form keeps what was entered.
	x.view("#/edit")
	x.fill("[name=key]", key)
	x.fill("[name=cron]", "@daily")
	x.click("button", "Create")
	x.shows("the key has a schedule already")
	require.Equal(t, "@daily", eval[string](x, `document.querySelector("[name=cron]").value`))

	x.view("#/edit?key=" + key64(key))
	x.Until(`document.querySelector("[name=body]").value === "grüße"`)
	x.click("label", "Period")
	x.fill("[name=every]", "5")
	x.Script(`document.querySelector("[name=every_unit]").value = "60000"`)
	x.Script(`document.querySelector("summary").click()`)
	x.Script(`document.querySelector("[name=overlap]").value = "allow"`)
	x.click("button", "Save")
	x.shows("The schedule is replaced.")
	require.Equal(t, 5*time.Minute, get().Every)
	require.Equal(t, durable.OverlapAllow, get().Overlap)

	x.click("[data-action=pause]", "")
	x.fill("dialog [name=note]", "the printer is broken")
	x.click("dialog button", "Pause")
	x.shows("The schedule is paused.")
	require.Equal(t, "the printer is broken", get().PauseNote)
	x.click("[data-action=resume]", "")
	x.shows("The schedule is resumed.")
	x.click("[data-action=trigger]", "")
	x.click("dialog button", "Trigger")
	x.shows("An occurrence is due now.")
	x.click("[data-action=backfill]", "")
	x.Until(`document.querySelector("dialog [name=from]")`)
	x.click("dialog button", "Backfill")
	x.shows("occurrences are due now.")
	waiting := s.stats().Waiting
	require.Greater(t, waiting, 280, "5 minutes for a day")
	x.click("a", "Its timers")
	x.shows(number(waiting) + " timers match.")
	x.view("#/schedules")
	x.Until(rows + ` === 1 && document.querySelectorAll(".strip li").length === 10`)
	x.click("[data-action=delete]", "")
	x.Script(`document.querySelector("dialog [name=cancel]").click()`)
	x.click("dialog button", "Delete")
	x.shows("The schedule is deleted.")
	x.shows("There is no schedule.")
	st := s.stats()
	require.Equal(t, []int{0, 0}, []int{st.Schedules, st.Waiting})
}

// The token is asked for once. When the session has ended, a form that is half filled in stays.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := openTab(t, s.console(console.Options{Token: "correct horse battery staple"}).address)
	login := func() {
		t.Helper()
		x.fill("dialog.login [name=token]", "correct horse battery staple")
		x.click("dialog.login button", "Log in")
	}
	x.fill("dialog.login [name=token]", "wrong")
	x.click("dialog.login button", "Log in")
	x.shows("this is not the token")
	x.Do(chromedp.KeyEvent("\u001b"))
	x.Until(`document.querySelector("dialog.login[open]")`)
	login()
	x.Until(`!document.querySelector("dialog") && document.getElementById("state").textContent === "live"`)
	require.Empty(t, eval[string](x, "document.cookie"), "no script reads it")
	x.Script("location.reload()")
	x.Until(`document.querySelector(".tile")`)
	require.False(t, eval[bool](x, `Boolean(document.querySelector("dialog"))`))

	x.view("#/edit")
	x.fill("[name=key]", "nightly")
	x.fill("[name=cron]", "@daily")
	x.Script(`fetch("api/logout", { method: "POST", body: "{}", headers: { "Content-Type": "application/json", "X-Limbo-Console": "1" } })`)
	x.Until(`document.querySelector("dialog.login")`)
	require.Equal(t, "nightly", eval[string](x, `document.querySelector("[name=key]").value`))
	login()
	x.Until(`document.getElementById("state").textContent === "live"`)
	x.click("button", "Create")
	x.shows("The schedule is created.")
	x.click("#logout", "")
	require.Eventually(t, func() bool { // the page is loaded again meanwhile
		asked, err := chromedp.Run(x.Ctx, chromedp.Evaluate[bool](`Boolean(document.querySelector("dialog.login")) && !document.querySelector(".edit, .schedule")`))
		return err == nil && asked
	}, patience, 50*time.Millisecond)
}

// A lost connection is shown, and recovers. A hidden tab has no stream.
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
	require.Eventually(t, func() bool { return site.streams.Load() == 0 }, patience, 10*time.Millisecond)
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

package console

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/checks/internal/servers"
	"github.com/seed-782fa212/limbo/durable/pebblestore"
	"github.com/seed-782fa212/limbo/durable/redisstore"
	"github.com/seed-782fa212/limbo/durable/store"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

const maxDead = 100_000 // dead letters of each shard

// tokenOf returns the token of a test. Tabs share their cookies, and consoles with one token their
// sessions.
func tokenOf(t *testing.T) string { return "correct-horse-battery-staple-" + t.Name() }

// daemon is a timerd without a worker, so due timers wait.
type daemon struct {
	t       *testing.T
	address string
	client  *client.Client
	pid     int
}

// onTimerd runs a test with timerd on each engine, after seed has filled the store. Further
// flags of timerd can replace those of startTimerd.
func onTimerd(t *testing.T, seed func(*scene), test func(*testing.T, *daemon), flags ...string) {
	t.Parallel()
	t.Run("folder", func(t *testing.T) { inFolder(t, seed, test, flags...) })
	t.Run("Redis", func(t *testing.T) { onRedis(t, seed, test, flags...) })
}

// inFolder is onTimerd with the folder's engine only.
func inFolder(t *testing.T, seed func(*scene), test func(*testing.T, *daemon), flags ...string) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "timers")
	engine, err := pebblestore.Open(folder, pebblestore.Options{Shards: 4, Limits: store.Limits{MaxDead: maxDead}})
	require.NoError(t, err)
	s := sceneOn(t, engine)
	seed(s)
	s.close()
	test(t, startTimerd(t, "pebble:"+folder, flags...))
}

// onRedis is onTimerd with Redis only.
func onRedis(t *testing.T, seed func(*scene), test func(*testing.T, *daemon), flags ...string) {
	t.Parallel()
	server := servers.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: server.Address, ReadTimeout: time.Minute, ContextTimeoutEnabled: true, MaxRetries: -1})
	defer c.Close()
	engine, err := redisstore.Open(background, c, redisstore.Options{Namespace: "limbo", Shards: 4, Limits: store.Limits{MaxDead: maxDead}})
	require.NoError(t, err)
	s := sceneOn(t, engine)
	seed(s)
	s.close()
	test(t, startTimerd(t, "redis://"+server.Address+"/0", flags...))
}

func startTimerd(t *testing.T, store string, flags ...string) *daemon {
	t.Helper()
	server := servers.Timerd(t, tokenOf(t), append([]string{"-store", store, "-shards", "4", "-workers", "0", "-max-dead", strconv.Itoa(maxDead)}, flags...)...)
	c, err := client.New("http://"+server.Address, client.Options{Token: tokenOf(t)})
	require.NoError(t, err)
	return &daemon{t: t, address: "http://" + server.Address + "/console/", client: c, pid: server.Pid}
}

// open opens the console in a tab, and logs in.
func (d *daemon) open(t *testing.T) tab {
	t.Helper()
	x := openTab(t, d.address)
	x.login()
	return x
}

func (x tab) login() {
	x.Helper()
	x.fill("dialog.login [name=token]", tokenOf(x.T))
	x.click("dialog.login button", "Log in")
	x.Until(`!document.querySelector("dialog.login") && document.getElementById("state").textContent === "live"`)
}

func (d *daemon) each(state client.State) iter.Seq[client.TimerInfo] {
	return func(yield func(client.TimerInfo) bool) {
		d.t.Helper()
		for info, err := range d.client.List(background, client.Query{State: state, ListOptions: client.ListOptions{PageSize: 500}}) {
			require.NoError(d.t, err)
			if !yield(info) {
				return
			}
		}
	}
}

func (d *daemon) list(state client.State) []client.TimerInfo {
	d.t.Helper()
	return slices.Collect(d.each(state))
}

// counts requires a number of waiting timers, and of dead ones.
func (d *daemon) counts(waiting, dead int) {
	d.t.Helper()
	count := func(state client.State) (n int) {
		for range d.each(state) {
			n++
		}
		return n
	}
	require.Equal(d.t, []int{waiting, dead}, []int{count(client.Waiting), count(client.Dead)})
}

func (d *daemon) get(key string) client.TimerInfo {
	d.t.Helper()
	info, err := d.client.Get(background, key)
	require.NoError(d.t, err)
	return info
}

func (d *daemon) waiting(prefix string, n int) {
	d.t.Helper()
	var timers []client.Timer
	for _, one := range waitingTimers(prefix, n) {
		timers = append(timers, client.Timer{Key: one.Key, Topic: one.Topic, After: one.After, Callback: client.Callback{URL: "https://example.org/"}})
	}
	_, err := d.client.ScheduleMany(background, timers)
	require.NoError(d.t, err)
}

const rows = `document.querySelectorAll("tbody tr").length`

// loaded waits until the list has been read again and has a number of rows.
func (x tab) loaded(n int) {
	x.Helper()
	x.Until(fmt.Sprintf(`!document.querySelector("[aria-busy]") && %s === %d`, rows, n))
}

// choose selects rows of a list.
func (x tab) choose(from, to int) {
	x.Helper()
	x.Script(fmt.Sprintf(`for (const box of [...document.querySelectorAll("tbody input")].slice(%d, %d)) box.click()`, from, to))
}

// all applies an action to all matching timers of a list, few enough to need no typing.
func (x tab) all(action, button string, n int, result string) {
	x.Helper()
	x.click("[data-action=all-"+action+"]", "")
	x.Until(fmt.Sprintf(`document.querySelector("dialog").innerText.includes("%d timers match.")`, n))
	x.click("dialog button", button)
	x.shows(fmt.Sprintf("%d of %d timers %s, 4 of 4 shards finished.", n, n, result))
	x.Until(`document.querySelector(".job .badge").textContent === "done"`)
}

func TestTimers(t *testing.T) {
	onTimerd(t, func(s *scene) {
		s.waiting("order/", 120)
		s.waiting("other/", 3)
	}, testTimers)
}

func testTimers(t *testing.T, d *daemon) {
	x := openInWindow(t, d.address)
	x.login()
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

	// Cancel two selected timers.
	x.choose(0, 2)
	x.shows("2 selected.")
	x.click("[data-action=cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("order/00001")`)
	x.click("dialog button", "Cancel")
	x.shows("2 of 2 timers cancelled.")
	x.shows("118 timers match.")
	require.Equal(t, "main", eval[string](x, "document.activeElement.id"), "the button is gone")
	d.counts(121, 0)

	// Run one timer now, move another.
	due := func() (n int) {
		for _, info := range d.list(client.Waiting) {
			if time.Until(info.Due) < time.Minute {
				n++
			}
		}
		return n
	}
	x.Until(`!document.querySelector("[aria-busy]") && document.querySelector("tbody a").textContent === "order/00002"`)
	x.choose(0, 1)
	x.click("[data-action=run]", "")
	x.click("dialog button", "Run timer")
	x.shows("1 of 1 timer due now.")
	require.Equal(t, 1, due())
	x.loaded(50)
	x.choose(1, 2)
	x.click("[data-action=move]", "")
	x.fill("dialog [name=at]", "2040-01-02T03:04")
	x.click("dialog button", "Move")
	x.shows("1 of 1 timer moved.")
	require.Equal(t, 2040, d.get("order/00003").Due.Year())

	// Escape changes nothing, and returns the focus to the button.
	x.loaded(50)
	x.Script(`document.querySelector("thead input").click()`)
	x.shows("50 selected.")
	x.Script(`document.querySelector("[data-action=cancel]").focus()`)
	x.click("[data-action=cancel]", "")
	x.Until(`document.querySelector("dialog[open]")`)
	x.Do(chromedp.KeyEvent("\u001b"))
	x.Until(`!document.querySelector("dialog") && document.activeElement.dataset.action === "cancel"`)
	d.counts(121, 0)
	x.click("button", "Clear selection")

	// By topic; then all of a prefix, few enough to need no typing.
	x.fill("[name=topic]", "topic-07")
	x.click("button", "Search")
	x.shows("2 timers match.")
	x.loaded(2)
	x.view("#/timers?state=waiting&prefix=other/")
	x.click("[data-action=all-move]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("3 timers match.")`)
	x.fill("dialog [name=at]", "2041-01-02T03:04")
	x.click("dialog button", "Move")
	x.shows("3 of 3 timers moved, 4 of 4 shards finished.")
	require.Equal(t, 2041, d.get("other/00002").Due.Year())
	x.view("#/timers?state=waiting&prefix=other/")
	x.all("run", "Run", 3, "moved")
	x.Until(`document.querySelectorAll(".job").length === 2 && document.querySelector(".job .badge").textContent === "done"`) // the first said the same
	require.Equal(t, 4, due())

	// A timer on its own page.
	x.view("#/timer?key=" + key64("order/00050"))
	x.click("[data-action=move]", "")
	x.fill("dialog [name=at]", "2042-01-02T03:04")
	x.click("dialog button", "Move")
	x.shows("1 of 1 timer moved.")
	require.Equal(t, 2042, d.get("order/00050").Due.Year())
	x.click("[data-action=run]", "")
	x.click("dialog button", "Run")
	x.shows("1 of 1 timer due now.")
	require.Equal(t, 5, due())
	x.click("[data-action=cancel]", "")
	x.click("dialog button", "Cancel")
	x.shows("no timer or schedule has this key")
	d.counts(120, 0)
}

// A bulk action starts only after the user has typed the count.
func TestBulk(t *testing.T) {
	onTimerd(t, func(s *scene) {
		s.waiting("order/", 700)
		s.waiting("other/", 3)
	}, testBulk)
}

func testBulk(t *testing.T, d *daemon) {
	x := d.open(t)
	x.view("#/timers?state=waiting&prefix=order/")
	x.click("[data-action=all-cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("700 timers match.")`)
	x.click("dialog button", "Cancel")
	x.Until(`document.querySelector("dialog [name=count]").validity.valueMissing`)
	x.fill("dialog [name=count]", "70")
	x.click("dialog button", "Cancel")
	x.Until(`document.querySelector("dialog").innerText.includes("The number is 700.")`)

	d.waiting("order/more/", 200) // after the count was shown
	x.fill("dialog [name=count]", "700")
	x.click("dialog button", "Cancel")
	x.Until(`document.querySelector("dialog").innerText.includes("900 timers match now: confirm that number")`)
	d.counts(903, 0)
	x.fill("dialog [name=count]", "900")
	x.click("dialog button", "Cancel")
	x.Until(`location.hash === "#/bulk"`)
	x.shows("900 of 900 timers cancelled, 4 of 4 shards finished.")
	x.Until(`document.querySelector(".job .badge").textContent === "done"`)
	d.counts(3, 0)
}

// Dead letters are requeued and purged: all matching ones, the selected ones, and one on its
// page.
func TestDeadLetters(t *testing.T) {
	onTimerd(t, func(s *scene) {
		dead := map[string]string{"a": "connection refused", "b": "connection REFUSED"}
		for i := range 8 {
			dead[fmt.Sprint("c", i)] = "no such host"
		}
		s.fail(dead)
	}, testDeadLetters)
}

func testDeadLetters(t *testing.T, d *daemon) {
	x := d.open(t)
	x.view("#/timers?state=dead")
	x.loaded(10)
	x.fill("[name=error]", "refused")
	x.click("button", "Search")
	x.shows("2 timers match.")
	x.all("requeue", "Requeue", 2, "requeued")
	d.counts(2, 8)

	x.view("#/timers?state=dead")
	x.loaded(8)
	x.choose(0, 2)
	x.click("[data-action=purge]", "")
	x.click("dialog button", "Purge")
	x.shows("2 of 2 timers purged.")
	x.loaded(6)
	x.choose(0, 1)
	x.click("[data-action=requeue]", "")
	x.click("dialog button", "Requeue")
	x.shows("1 of 1 timer requeued.")
	x.loaded(5)
	d.counts(3, 5)

	dead := d.list(client.Dead)
	x.view("#/timer?key=" + key64(dead[0].Key))
	x.click("[data-action=requeue]", "")
	x.click("dialog button", "Requeue")
	x.Until(`document.querySelector("dd .badge").textContent === "waiting"`)
	require.Equal(t, client.Waiting, d.get(dead[0].Key).State)
	x.view("#/timer?key=" + key64(dead[1].Key))
	x.click("[data-action=purge]", "")
	x.click("dialog button", "Purge")
	x.shows("no timer or schedule has this key")
	d.counts(4, 3)
	x.view("#/timers?state=dead")
	x.all("purge", "Purge", 3, "purged")
	d.counts(4, 0)
	x.view("#/timers?state=dead")
	x.shows("No timer is dead.")
}

func TestSchedules(t *testing.T) {
	onTimerd(t, func(*scene) {}, testSchedules)
}

func testSchedules(t *testing.T, d *daemon) {
	x := d.open(t)
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
	x.fill("[name=body]", `{"v":1,"url":"https://example.org/","text":"grüße"}`)
	x.click("button", "Create")
	x.shows("The schedule is created.")
	key := "reports/<b>"
	get := func() client.ScheduleInfo {
		info, err := d.client.GetSchedule(background, key)
		require.NoError(t, err)
		return info
	}
	require.Equal(t, []string{"30 2 * * *", "Europe/Berlin", "reports", "grüße"}, []string{get().Cron, get().Zone, get().Topic, string(get().Body)})

	// A body that timerd cannot run is refused, and so is a second schedule with the same key.
	// The form keeps its input.
	x.view("#/edit")
	x.fill("[name=key]", key)
	x.fill("[name=cron]", "@daily")
	x.click("button", "Create")
	x.shows("the body is refused: it must be a call")
	x.fill("[name=body]", `{"v":1,"url":"https://example.org/"}`)
	x.click("button", "Create")
	x.shows("the key has a schedule already")
	require.Equal(t, "@daily", eval[string](x, `document.querySelector("[name=cron]").value`))

	x.view("#/edit?key=" + key64(key))
	x.Until(`document.querySelector("[name=cron]").value === "30 2 * * *"`)
	x.click("label", "Period")
	x.fill("[name=every]", "5")
	x.Script(`document.querySelector("[name=every_unit]").value = "60000"`)
	x.Script(`document.querySelector("summary").click()`)
	x.Script(`document.querySelector("[name=overlap]").value = "allow"`)
	x.click("button", "Save")
	x.shows("The schedule is replaced.")
	require.Equal(t, 5*time.Minute, get().Every)
	require.Equal(t, client.OverlapAllow, get().Overlap)
	require.Equal(t, "grüße", string(get().Body), "it is kept")

	x.click("[data-action=pause]", "")
	x.fill("dialog [name=note]", "the printer is broken")
	x.click("dialog button", "Pause")
	x.shows("The schedule is paused.")
	require.Equal(t, "the printer is broken", get().PauseNote)
	x.click("[data-action=resume]", "")
	x.shows("The schedule is resumed.")
	require.Equal(t, client.ScheduleActive, get().State)
	x.click("[data-action=trigger]", "")
	x.click("dialog button", "Trigger")
	x.shows("An occurrence is due now.")
	x.click("[data-action=backfill]", "")
	x.Until(`document.querySelector("dialog [name=from]")`)
	x.click("dialog button", "Backfill")
	x.shows("occurrences are due now.")
	waiting := len(d.list(client.Waiting))
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
	d.counts(0, 0)
}

// A timer whose callback is running is shown with its worker, and cancelling it ends the
// callback.
func TestRunningCallback(t *testing.T) {
	onTimerd(t, func(*scene) {}, func(t *testing.T, d *daemon) {
		begun, ended := make(chan struct{}), make(chan struct{})
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the caller disconnects
			close(begun)
			<-r.Context().Done()
			close(ended)
		}))
		t.Cleanup(func() {
			receiver.CloseClientConnections() // Close waits for a callback that has not ended
			receiver.Close()
		})
		_, err := d.client.Schedule(background, client.Timer{Key: "video/1", Callback: client.Callback{
			URL: receiver.URL, Timeout: 10 * time.Minute, // longer than the page needs to load
		}})
		require.NoError(t, err)
		within(t, begun, "the callback to begin")
		x := d.open(t)
		x.view("#/timers?state=running")
		x.click("tbody a", "video/1")
		x.shows("attempt 1 runs")
		require.NotEmpty(t, d.get("video/1").Worker)
		x.click("[data-action=cancel]", "")
		x.click("dialog button", "Cancel")
		x.shows("1 of 1 timer cancelled.")
		within(t, ended, "the callback to end")
		require.Eventually(t, func() bool {
			_, err := d.client.Get(background, "video/1")
			return errors.Is(err, client.ErrNotFound)
		}, waitLimit, 10*time.Millisecond)
	}, "-workers", "4", "-allow", "127.0.0.1/32", "-lease", "1h") // so that the lease does not end the callback
}

// within waits for an event of another process.
func within(t *testing.T, event <-chan struct{}, name string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(waitLimit):
		require.FailNow(t, "waited in vain for "+name)
	}
}

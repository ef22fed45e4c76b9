package console

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// big makes TestMillion take minutes, and log its steps with -v. Run one part of it at a time:
// LIMBO_MILLION=1 go test -v -timeout 20m -run Million/folder, Million/little, Million/Redis.
var big = os.Getenv("LIMBO_MILLION") != ""

// Lists, searches and a bulk action succeed with 6,000 timers in a folder, and with 1,100,000 on
// each engine if big. With that many and -memory 32, timerd's memory grows by at most 100 MB
// from its start; with the default of 128, which the first reads fill, by at most 128 MiB more.
// The times of the steps are logged, not checked.
func TestMillion(t *testing.T) {
	if !big {
		millionSeed{5_000, 1_000}.run(t, inFolder, 0)
		return
	}
	t.Parallel()
	all := millionSeed{1_000_000, maxDead}
	t.Run("folder", func(t *testing.T) { all.run(t, inFolder, 128) })
	t.Run("little", func(t *testing.T) { all.run(t, inFolder, 0, "-memory", "32") })
	t.Run("Redis", func(t *testing.T) { all.run(t, onRedis, 0) })
}

type millionSeed struct{ waiting, dead int }

const rare = 12 // timers whose keys begin with rare/, due in the middle

func (m millionSeed) run(t *testing.T, on func(*testing.T, func(*scene), func(*testing.T, *daemon), ...string), cache int, flags ...string) {
	on(t, func(s *scene) {
		failures := make(map[string]string, m.dead)
		for i := range m.dead {
			failures[fmt.Sprintf("mail/%05d", i)] = "connection refused"
		}
		s.fail(failures)
		s.waiting("order/", m.waiting)
		s.schedule(waitingTimers("rare/", m.waiting/2+rare)[m.waiting/2:]...)
	}, func(t *testing.T, d *daemon) {
		before := d.peakMemory()
		testMillion(t, d, m.waiting, m.dead)
		if peak := d.peakMemory(); big && peak > 0 {
			t.Logf("timerd's memory: %d MiB at its start, %d MiB at most", before>>20, peak>>20)
			require.LessOrEqual(t, peak-before, 100_000_000+cache<<20)
		}
	}, flags...)
}

func testMillion(t *testing.T, d *daemon, waiting, dead int) {
	d.counts(waiting+rare, dead)
	begun := time.Now()
	step := func(name string) {
		t.Helper()
		t.Logf("%6d ms  %s", time.Since(begun).Milliseconds(), name)
		begun = time.Now()
	}
	x := d.open(t)
	step("the console opens")
	x.turn(func() { x.view("#/timers?state=waiting") })
	step("first page of waiting timers")
	require.Equal(t, "order/00000", x.firstKey())
	x.turn(func() { x.click("a.button", "Next page") })
	step("next page")
	require.Equal(t, "order/00050", x.firstKey())
	x.shows(grouped(waiting+rare) + " timers match.")
	begun = time.Now()
	x.turn(func() { x.click(".tabs a", "Dead") })
	step("first page of dead letters")
	require.Equal(t, 50, eval[int](x, rows))

	for _, search := range []struct {
		name, state, field, text string
		found                    int
	}{
		{"a prefix that 12 waiting timers have", "waiting", "prefix", "rare/", rare},
		{"a topic that no waiting timer has", "waiting", "topic", "none", 0},
		{"an error that no dead letter has", "dead", "error", "no such host", 0},
	} {
		x.turn(func() { x.view("#/timers?state=" + search.state) })
		x.fill("[name="+search.field+"]", search.text)
		begun = time.Now()
		x.turn(func() { x.click("button", "Search") })
		step(search.name + ": first page")
		found, pages := eval[int](x, rows), 1
		// A page of a slow search ends early, and the next page continues the search.
		for ; eval[bool](x, `[...document.querySelectorAll(".pager a")].some(a => a.textContent === "Next page")`); pages++ {
			x.turn(func() { x.click(".pager a", "Next page") })
			found += eval[int](x, rows)
		}
		step(fmt.Sprintf("%s: the rest of %d pages", search.name, pages))
		require.Equal(t, search.found, found, search.name)
		x.Until(`!document.querySelector(".bar").textContent.includes("Counting")`)
		step(search.name + ": its count: " + eval[string](x, `document.querySelector(".bar [role=status]").textContent`))
	}

	x.turn(func() { x.view("#/timers?state=dead") })
	x.click("[data-action=all-requeue]", "")
	x.Until(fmt.Sprintf(`document.querySelector("dialog").innerText.includes("%s timers match.")`, grouped(dead)))
	x.fill("dialog [name=count]", strconv.Itoa(dead))
	begun = time.Now()
	x.click("dialog button", "Requeue")
	x.Until(`location.hash === "#/bulk" && document.querySelector(".job")`)
	step("all dead letters: the action is shown")
	changed := `/([0-9,]+) of ` + grouped(dead) + ` timers requeued/.exec(document.querySelector(".job").innerText)`
	x.Until(changed + `[1] !== "0"`)
	step("progress: " + eval[string](x, changed+"[0]") + ", " + eval[string](x, `document.querySelector(".job .badge").textContent`))
	require.NoError(t, chromedp.Cancel(x.Ctx)) // closes the tab

	x = openTab(t, d.address+"#/bulk") // in the session of the first tab
	x.WaitLimit = 10 * waitLimit
	x.Until(`document.querySelector(".job .badge")`)
	step("another tab: " + eval[string](x, changed+"[0]"))
	x.Until(`document.querySelector(".job .badge").textContent === "done"`)
	step("all dead letters are requeued")
	x.shows(fmt.Sprintf("%[1]s of %[1]s timers requeued, 4 of 4 shards finished.", grouped(dead)))
	d.counts(waiting+rare+dead, 0)
}

// peakMemory returns timerd's peak resident memory, in bytes, or 0 on systems other than Linux.
func (d *daemon) peakMemory() int {
	d.t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.pid))
	require.NoError(d.t, err)
	kib := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
	require.NotNil(d.t, kib, "%s", status)
	n, err := strconv.Atoi(string(kib[1]))
	require.NoError(d.t, err)
	return n << 10
}

// turn runs act and waits for the list that it opens.
func (x tab) turn(act func()) {
	x.Helper()
	x.Script(`document.querySelector(".list")?.setAttribute("data-left", "")`)
	act()
	x.Until(`document.querySelector(".list:not([data-left], [aria-busy])") && !document.querySelector(".list .error")`)
}

func (x tab) firstKey() string {
	x.Helper()
	return eval[string](x, `document.querySelector("tbody a").textContent`)
}

// grouped formats a number like the pages: 1,234,567.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

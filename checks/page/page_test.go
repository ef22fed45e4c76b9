package page

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	cdppage "github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/checks/internal/chrome"
	"github.com/seed-782fa212/limbo/histogram"
	"github.com/seed-782fa212/limbo/observe"
	"github.com/seed-782fa212/limbo/purgatory"
	"github.com/seed-782fa212/limbo/timingwheel"
)

// TestPage tests each feature of the page, with a tab and a site of its own.
func TestPage(t *testing.T) {
	t.Parallel()
	browser := chrome.Browser(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, context.Context)
	}{
		{"the ring fills and empties", testRing},
		{"a purgatory's metrics and lists", testPurgatory},
		{"the search finds", testSearch},
		{"hostile names and keys are inert", testHostile},
		{"the stream reconnects", testReconnects},
		{"errors are told in words", testErrors},
		{"a source that is removed", testRemoved},
		{"paused", testPaused},
		{"metrics of a user's own", testCustom},
		{"gaps in the chart", testGaps},
		{"the keyboard", testKeyboard},
		{"what cascades falls inward", testCascades},
		{"contrast and the width of a phone", testLegible},
		{"fifty sources", testFiftySources},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, browser)
		})
	}
}

// visit opens a tab at a source. The test fails if a script throws, or if the console gets a
// message, such as the browser's report of a policy violation.
func visit(t *testing.T, browser context.Context, s *site, fragment string, before ...chromedp.Action[chromedp.Void]) chrome.Tab {
	t.Helper()
	x := openTab(t, browser)
	var mu sync.Mutex
	var complaints []string
	require.NoError(t, chromedp.Listen(x.Ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			complaints = append(complaints, fmt.Sprintf("%+v", e.ExceptionDetails))
		case *cdpruntime.EventConsoleAPICalled:
			complaints = append(complaints, "console: "+string(e.Type))
		case *cdppage.EventJavascriptDialogOpening:
			complaints = append(complaints, "dialog: "+e.Message)
		}
	}))
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, complaints)
	})
	x.Do(onNewDocument(`window.refusals = [], document.addEventListener("securitypolicyviolation", e => window.refusals.push(e.violatedDirective + " " + e.sample))`))
	x.Do(before...)
	x.Do(chromedp.Navigate(s.url() + fragment))
	t.Cleanup(func() { require.Empty(t, chrome.Eval[[]string](x, `window.refusals`)) })
	x.Until(`document.getElementById("state").dataset.state === "live"`)
	return x
}

// module assigns one of the page's modules to the global variable module.
func module(x chrome.Tab, path string) {
	x.Helper()
	x.Script(fmt.Sprintf(`window.module = null; import(%q).then(m => { window.module = m })`, path))
	x.Until(`window.module`)
}

func newWheel(t *testing.T, o timingwheel.Options) *timingwheel.Wheel[int] {
	t.Helper()
	w, err := timingwheel.New(func(int) {}, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := w.Shutdown(background, timingwheel.Discard)
		require.NoError(t, err)
	})
	return w
}

// ring is the number of visible pieces in the ring of a level.
func ring(level int) string {
	return fmt.Sprintf(`(document.querySelectorAll("path.fill")[%d]?.getAttribute("d").match(/M/g) ?? []).length`, level)
}

func testRing(t *testing.T, browser context.Context) {
	r := observe.New()
	w := newWheel(t, timingwheel.Options{Tick: time.Minute, WheelSize: 32})
	add(t, r, "w", observe.Wheel(w))
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "#wheel/w")
	x.Until(`document.querySelector(".total").textContent === "0"`)
	require.Zero(t, chrome.Eval[int](x, `document.querySelectorAll("path.fill").length && `+ring(0)))

	var timers []timingwheel.Timer
	for i := range 40 { // 20 on each of the two lower levels, one to a bucket
		d := time.Duration(i+1) * time.Minute
		if i >= 20 {
			d = time.Duration(i*32+16) * time.Minute
		}
		timer, err := w.Schedule(i, d)
		require.NoError(t, err)
		timers = append(timers, timer)
	}
	x.Until(`document.querySelector(".total").textContent === "40"`)
	x.Until(ring(0) + ` >= 18 && ` + ring(1) + ` >= 18`) // some may be in the current bucket, which is drawn separately
	box := chrome.Eval[float64](x, `document.querySelectorAll("path.fill")[0].getBBox().width`)
	require.Greater(t, box, 40.0, "it is seen")
	label := chrome.Eval[string](x, `document.querySelector("svg.wheel").getAttribute("aria-label")`)
	require.Contains(t, label, "40 timers")
	require.Contains(t, label, "Level 0, 64 min round: ")

	for _, timer := range timers {
		require.True(t, w.Stop(timer))
	}
	x.Until(`document.querySelector(".total").textContent === "0"`)
	x.Until(ring(0) + ` === 0 && ` + ring(1) + ` === 0`)
	x.Until(`document.querySelector(".tiles").innerText.includes("nothing")`)
}

func testPurgatory(t *testing.T, browser context.Context) {
	r := observe.New()
	p := newPurgatory(t)
	add(t, r, "fetches", observe.Purgatory(p, nil))
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "") // the first source with lists is selected
	x.Until(`location.hash === "#purgatory/fetches"`)
	watch(t, p, time.Hour, "hot", "key-0")
	watch(t, p, time.Hour, "many", "1", "2", "3", "4", "5")
	for i := range 29 {
		watch(t, p, time.Hour, "hot", fmt.Sprintf("key-%d", i))
	}
	ends := watch(t, p, time.Hour, "ends")
	x.Until(`document.querySelector(".tiles dd").textContent === "32"`)
	x.Until(`document.querySelector("nav [aria-current] .value").textContent === "32"`)
	x.Until(cell("Hottest keys", 0, 0) + ` === "hot"`)
	x.Until(cell("Hottest keys", 0, 1) + ` === "30"`)
	x.Until(has("Oldest operations", "hot, key-0"))
	x.Until(cell("Oldest operations", 0, 1) + ` === "2"`) // two operations have these keys
	x.Until(cell("Oldest operations", 0, 3) + `.endsWith(" min")`)
	x.Until(rows("Oldest operations") + ` === 20`)
	x.Until(has("Oldest operations", "many, 1, 2, 3, and 2 more"))
	require.Equal(t, "0", chrome.Eval[string](x, cell("Ended, by outcome", 0, 3)), "completed")
	require.True(t, ends.ForceComplete())
	x.Until(cell("Ended, by outcome", 0, 3) + ` === "1"`)
	x.Until(`document.querySelector("svg.chart[aria-label^='Ended a second']")`)
	x.Until(`document.querySelector("path.line").getAttribute("d").includes("L")`)
	x.Until(`[...document.querySelectorAll("h3")].some(h => h.textContent === "Time waited")`)
	x.Until(cell("Time waited", 0, 1) + ` === "1"`)
	// Switch to all since the start, and back, without a new snapshot.
	x.Do(chromedp.Click(chromedp.CSS(".head button")))
	x.Until(`document.querySelector(".head button").textContent === "since the start"`)

	for range 2 { // stopped and started again
		x.Do(chromedp.Click(chromedp.CSS("#pause")))
	}
	x.Until(`document.getElementById("state").textContent === "live"`)
}

func body(caption string) string {
	return fmt.Sprintf(`document.querySelector('[aria-label="%s"] tbody')`, caption)
}

func rows(caption string) string { return body(caption) + `.rows.length` }

// has is true if a row of the table begins with a text.
func has(caption, text string) string {
	return fmt.Sprintf(`[...%s.rows].some(r => r.cells[0].textContent === %q)`, body(caption), text)
}

func cell(caption string, row, column int) string {
	return fmt.Sprintf(`%s.rows[%d].cells[%d].textContent`, body(caption), row, column)
}

func testSearch(t *testing.T, browser context.Context) {
	r := observe.New()
	p := newPurgatory(t)
	add(t, r, "p", observe.Purgatory(p, nil))
	for i := range 150 {
		watch(t, p, time.Hour, fmt.Sprintf("orders-%d", i))
	}
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "#purgatory/p")
	x.Until(`document.getElementById("search-key")`)
	search := func(text, answer string) {
		x.Script(`document.getElementById("search-key").value = ""; document.getElementById("search-key").focus()`)
		x.Do(chromedp.KeyEvent(text + kb.Enter))
		x.Until(fmt.Sprintf(`document.querySelector(".answer").textContent === %q`, answer))
	}
	search("orders-149", "1 pending operation has this text in a key, as of now.")
	require.Equal(t, "orders-149", chrome.Eval[string](x, cell("Search results", 0, 0)))
	search("absent", "No pending operation has this text in a key.")
	require.True(t, chrome.Eval[bool](x, `document.querySelector('[aria-label="Search results"]').hidden`))
	search("orders-", "More than 100 pending operations have this text in a key, as of now.")
	require.Equal(t, 100, chrome.Eval[int](x, rows("Search results")))
	search("", "Type a part of a key first.")
}

func testHostile(t *testing.T, browser context.Context) {
	hostile := []string{
		`<img src=x onerror="window.hacked=1;alert(1)">`,
		`</script><script>window.hacked=2</script>`,
		`"><svg onload=window.hacked=3>`,
		"javascript:window.hacked=4//'`${window.hacked=5}",
		"user\u202egpj.exe",
		"a\x00b\x1b[31m\r\n\ndata: {}\n\n",
		"__proto__", "constructor", "50%2Foff/#?&",
	}
	r := observe.New()
	p := newPurgatory(t)
	var replacer []string
	for i, name := range hostile {
		add(t, r, name, observe.Purgatory(p, nil))
		// A source has no such kinds and metrics. They are inserted on the way to the page.
		letter := string(rune('a' + i))
		add(t, r, "custom", observe.Custom("kind_"+letter, func() []observe.Metric {
			return []observe.Metric{
				{Name: "metric_" + letter, Value: 1}, {Name: "ended_total", Label: "outcome", LabelValue: name, Type: observe.Counter, Value: 1},
				{Name: "x", Label: "label_" + letter, LabelValue: name, Type: observe.Histogram}, {Name: "odd_" + letter, Value: math.NaN()},
			}
		}))
		asJSON, err := json.Marshal(name)
		require.NoError(t, err)
		for _, word := range []string{"kind_", "metric_", "label_", "odd_"} {
			replacer = append(replacer, word+letter, string(asJSON[1:len(asJSON)-1]))
		}
		watch(t, p, time.Hour, name, strings.Repeat(name, 1<<16/len(name)))
	}
	s := startSite(t, r, "127.0.0.1:0")
	s.replacer.Store(strings.NewReplacer(replacer...))
	x := visit(t, browser, s, "")
	x.Until(rows("Oldest operations") + fmt.Sprintf(` === %d`, len(hostile)))
	x.Until(rows("Hottest keys") + ` > 10`)
	links := chrome.Eval[int](x, `document.querySelectorAll("nav a").length`)
	require.Equal(t, 2*len(hostile)+1, links, "with the wheel")
	for i := range links { // each is shown, and is the source of its link
		x.Script(fmt.Sprintf(`document.querySelectorAll("nav a")[%d].click()`, i))
		x.Until(fmt.Sprintf(`document.querySelectorAll("nav a")[%d].hasAttribute("aria-current") &&
			document.querySelector("article h2 bdi")?.textContent === document.querySelectorAll("nav a .name")[%d].textContent`, i, i))
		x.Until(`!document.querySelector("article [aria-label='Oldest operations']") || ` + rows("Oldest operations") + fmt.Sprintf(` === %d`, len(hostile)))
		require.Zero(t, chrome.Eval[int](x, `document.querySelectorAll("img, iframe, object, embed, [onerror], [onload]").length`))
		require.Equal(t, 1, chrome.Eval[int](x, `document.scripts.length`))
		require.False(t, chrome.Eval[bool](x, `/[\u202e\0\x1b]/.test(document.body.innerText)`))
		require.Less(t, chrome.Eval[int](x, `Math.max(0, ...[...document.querySelectorAll("td, th")].map(e => e.textContent.length))`), 2500, "cut")
	}
	require.True(t, chrome.Eval[bool](x, `window.hacked === undefined && ({}).hacked === undefined`))
	require.Contains(t, chrome.Eval[string](x, `document.querySelector("nav").innerText`), `user\u{202e}gpj.exe`)

	// The same holds for the address.
	x.Script(`location.hash = "#<img src=x onerror=window.hacked=6>/%3Cimg%20src=x%3E"`)
	x.Until(`document.querySelector("main").innerText.includes("<img src=x>")`)
	x.Script(`location.hash = "#%ff/a/b"`)
	x.Until(`document.querySelector("main").innerText.includes("names no source")`)
	require.True(t, chrome.Eval[bool](x, `window.hacked === undefined && document.images.length === 0`))
}

func testReconnects(t *testing.T, browser context.Context) {
	r := observe.New()
	w := newWheel(t, timingwheel.Options{})
	add(t, r, "w", observe.Wheel(w))
	first := startSite(t, r, "127.0.0.1:0")
	x := visit(t, browser, first, "#wheel/w")
	first.stop()
	x.Until(`document.getElementById("state").dataset.state === "reconnecting"`)
	_, err := w.Schedule(0, time.Hour)
	require.NoError(t, err)
	second := startSite(t, r, first.address)
	x.Until(`document.getElementById("state").dataset.state === "live" && document.querySelector(".total").textContent === "1"`)

	// A closed handler of a running server refuses requests, until there is a new handler.
	second.handler.Load().Close()
	x.Until(`document.getElementById("state").dataset.state === "closed"`)
	x.Until(`document.getElementById("notice").textContent.includes("shutting down (503)")`)
	_, err = w.Schedule(0, time.Hour)
	require.NoError(t, err)
	second.handler.Store(observe.NewHandler(r))
	x.Until(`document.getElementById("state").dataset.state === "live" && document.querySelector(".total").textContent === "2"`)
	require.True(t, chrome.Eval[bool](x, `document.getElementById("notice").hidden`))
}

func testErrors(t *testing.T, browser context.Context) {
	r := observe.New()
	p := newPurgatory(t)
	remove := add(t, r, "p", observe.Purgatory(p, nil))
	begun, free, busy := make(chan struct{}), make(chan struct{}), newPurgatory(t)
	watch(t, busy, time.Hour, "slow to be shown")
	add(t, r, "busy", observe.Purgatory(busy, func(string) string {
		close(begun)
		<-free
		return ""
	}))
	add(t, r, "sick", observe.Custom("sick", func() []observe.Metric { return []observe.Metric{{Name: "rate", Value: math.NaN()}} }))
	s := startSite(t, r, "127.0.0.1:0")
	x := visit(t, browser, s, "#purgatory/p")
	x.Until(`document.getElementById("search-key")`)
	x.Until(`[...document.querySelectorAll(".warn")].some(w => w.textContent === "problem")`)
	another := make(chan error, 1) // search
	go func() {
		reply, err := http.Get(s.url() + "search.json?kind=purgatory&name=busy&key=slow")
		if err == nil {
			err = reply.Body.Close()
		}
		another <- err
	}()
	<-begun
	search := func(says string) {
		x.Script(`document.getElementById("search-key").value = "k"; document.querySelector("form").requestSubmit()`)
		x.Until(fmt.Sprintf(`document.querySelector(".answer").textContent === %q`, says))
	}
	search("The server is busy: another search is running (503). Try again in 1 s.")
	close(free)
	require.NoError(t, <-another)
	x.Do(chromedp.Click(chromedp.CSS("#pause"))) // paused, so that the page does not notice the removal before it searches
	remove()
	search("The source does not exist: no source has this kind and name (404).")
	x.Do(chromedp.Click(chromedp.CSS("#pause")))
	x.Script(`location.hash = "#sick/sick"`)
	x.Until(`document.querySelector(".failure:not([hidden])").textContent === 'the metric "rate" was omitted: it is not finite'`)
}

func testRemoved(t *testing.T, browser context.Context) {
	r := observe.New()
	p := newPurgatory(t)
	remove := add(t, r, "p", observe.Purgatory(p, nil))
	watch(t, p, time.Hour, "k")
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "#purgatory/p")
	x.Until(rows("Hottest keys") + ` === 1`)
	add(t, r, "other", observe.Purgatory(p, nil))
	remove()
	x.Until(`document.querySelector(".failure:not([hidden])")?.textContent.startsWith("This source was removed.")`)
	x.Until(`!document.querySelector("nav a[href='#purgatory/p']")`)
	require.Equal(t, 1, chrome.Eval[int](x, rows("Hottest keys")), "its last ones stay")
	add(t, r, "p", observe.Purgatory(p, nil)) // the source comes back
	x.Until(`document.querySelector(".failure").hidden && !document.querySelector("article").classList.contains("stale")`)
}

// While the page is paused, it shows the state of that moment.
func testPaused(t *testing.T, browser context.Context) {
	r := observe.New()
	p, q := newPurgatory(t), newPurgatory(t)
	remove := add(t, r, "p", observe.Purgatory(p, nil))
	add(t, r, "q", observe.Purgatory(q, nil))
	watch(t, p, time.Hour, "k").ForceComplete()
	watch(t, q, time.Hour, "k")
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "#purgatory/p")
	x.Until(`document.querySelector("[aria-label='Hottest keys']")`)
	count := func(n int) string {
		return fmt.Sprintf(`document.querySelector(".tiles dd").textContent === "%d"`, n)
	}
	press := func() { x.Do(chromedp.Click(chromedp.CSS("#pause"))) }
	module(x, "./main.js")
	snapshots := func(n int) { // that arrive while the page is paused
		x.Script(`window.was = module.newest`)
		for range n {
			x.Until(`module.newest !== window.was`)
			x.Script(`window.was = module.newest`)
		}
	}
	press()
	x.Until(`document.getElementById("state").textContent === "paused"`)
	remove()
	watch(t, q, time.Hour, "k", "later")
	snapshots(2)
	x.Script(`dispatchEvent(new Event("resize"))`)
	x.Do(chromedp.Click(chromedp.CSS(".head button")))
	x.Until(`document.querySelector(".head button").textContent === "since the start"`)
	require.Equal(t, "1", chrome.Eval[string](x, cell("Time waited", 0, 1)))
	x.Do(chromedp.Click(chromedp.CSS("nav a[href='#purgatory/q']")))
	x.Until(`document.querySelector("article h2 bdi").textContent === "q" && ` + count(1))
	x.Until(rows("Hottest keys") + ` === 2`) // there were none to freeze, so the first ones to arrive are shown
	watch(t, q, time.Hour, "even later")
	snapshots(2)
	require.Equal(t, 2, chrome.Eval[int](x, rows("Hottest keys")))
	x.Do(chromedp.Click(chromedp.CSS("nav a[href='#purgatory/p']"))) // removed, but not in the frozen state
	x.Until(`document.querySelector("article h2 bdi").textContent === "p" && document.querySelector(".failure").hidden`)
	require.Equal(t, "1", chrome.Eval[string](x, cell("Time waited", 0, 1)))
	require.True(t, chrome.Eval[bool](x, rows("Hottest keys")+` === 0 && document.getElementById("notice").hidden`))

	// Everything that has arrived is shown at once.
	x.Script(`document.getElementById("pause").click(); location.hash = "#purgatory/q"; dispatchEvent(new Event("resize"))`)
	require.True(t, chrome.Eval[bool](x, `!document.querySelector("nav a[href='#purgatory/p']")`))
	x.Until(`document.getElementById("state").textContent === "live" && document.querySelector("article h2 bdi").textContent === "q" && ` + count(3))
	x.Until(has("Hottest keys", "even later"))
}

func testCustom(t *testing.T, browser context.Context) {
	r := observe.New()
	add(t, r, "broker 1: a/b", observe.Custom("disk", func() []observe.Metric {
		return []observe.Metric{
			{Name: "waiting", Value: 17}, {Name: "a", Value: 4}, {Name: "sick", Value: math.NaN()},
			{Name: "ended_total", Type: observe.Counter, Label: "by", LabelValue: "count", Value: 5},
			{Name: "ended_total", Type: observe.Counter, Label: "by", LabelValue: "purge", Value: 6},
			{Name: "took", Type: observe.Histogram, Label: "by", LabelValue: "count", Durations: one(time.Second)},
		}
	}))
	add(t, r, "broken", observe.Wheel(broken{}))
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "#disk/broker 1: a/b") // as a person types it
	x.Until(`document.querySelector("article h2 bdi")?.textContent === "broker 1: a/b"`)
	x.Until(`document.querySelector("nav [aria-current] .value").textContent === "17"`)
	x.Until(`document.title === "broker 1: a/b · limbo"`)
	x.Until(cell("Ended, by outcome", 0, 3) + ` === "5"`)
	x.Until(cell("Ended, by outcome", 1, 3) + ` === "6"`)
	x.Until(cell("Took", 0, 0) + ` === "count"`)
	require.Equal(t, 1, chrome.Eval[int](x, `document.querySelectorAll(".histogram").length`), "the counter is none")
	x.Script(`location.hash = "#wheel/broken"`)
	x.Until(`document.querySelector(".failure:not([hidden])")?.textContent === "reading the metrics panicked: no levels"`)
	require.NotContains(t, chrome.Eval[string](x, `document.body.innerText`), "NaN")

	// The message of a search that timed out.
	module(x, "./pane.js")
	x.Script(`window.lists = module.makeLists({ kind: "purgatory" }, async () => window.answer); document.body.append(window.lists.root)`)
	for answer, says := range map[string]string{
		`{ found: [], more: false, timed_out: true }`:                                "The search took too long and was ended; nothing was found so far.",
		`{ found: [{ keys: ["k"], age_seconds: 1 }], more: false, timed_out: true }`: "1 pending operation has this text in a key, as of now. There may be others: the search took too long and was ended.",
	} {
		x.Script(`window.answer = ` + answer + `; window.lists.root.querySelector("input").value = "k"; window.lists.root.querySelector("form").requestSubmit()`)
		x.Until(fmt.Sprintf(`window.lists.root.querySelector(".answer").textContent === %q`, says))
	}
}

// A long silence is a gap in the chart; long intervals are not.
func testGaps(t *testing.T, browser context.Context) {
	x := visit(t, browser, startSite(t, observe.New(), "127.0.0.1:0"), "")
	module(x, "./ended.js")
	for times, want := range map[string]string{
		`0, 1, 2, 3`:          `1, 1, 1`,
		`0, 1, 2.4, 6, 7`:     `1, 1, 1, 1`, // a hiccup
		`0, 1, 2, 60, 61`:     `1, 1, null, 1`,
		`0, 1, 2, 60`:         `1, 1, null`,
		`0, 20, 40, 62, 80`:   `1, 1, 1, 1`, // 20 times the duration of a snapshot
		`0, 20, 40, 140, 160`: `1, 1, null, 1`,
		`0, 1, 2, 22, 42`:     `1, 1, 1, 1`, // intervals become long
		`0, 20, 40, 41, 42`:   `1, 1, 1, 1`,
	} {
		require.Equal(t, "["+strings.ReplaceAll(want, " ", "")+"]", chrome.Eval[string](x, `JSON.stringify(module.rates([`+times+`].map(t => ({ t })), p => p.t).map(([, rate]) => rate && Math.round(rate)))`), times)
	}
}

// tabStops presses Tab until a text has the focus, and returns all texts that had it.
func tabStops(x chrome.Tab, last string) (met []string) {
	x.Helper()
	for len(met) == 0 || met[len(met)-1] != last {
		require.Less(x, len(met), 10, "%q", met)
		x.Do(chromedp.KeyEvent(kb.Tab))
		met = append(met, focusOf(x))
		require.Equal(x, "solid 3px", chrome.Eval[string](x, `(s => s.outlineStyle + " " + s.outlineWidth)(getComputedStyle(document.activeElement))`), "the focus is seen at %s", met)
	}
	return met
}

func focusOf(x chrome.Tab) string {
	x.Helper()
	return chrome.Eval[string](x, `(e => (e.querySelector(".name") ?? e).textContent || e.id)(document.activeElement)`)
}

// noteMoves records the page's calls that move the starting point of Tab navigation. Each of
// these calls moves it in at least one browser, or is allowed to.
var noteMoves = onNewDocument(`window.moves = []
	for (const [of, names] of [
		[Element.prototype, ["scrollIntoView", "scrollIntoViewIfNeeded"]], [Selection.prototype, Object.keys(Selection.prototype)],
		[HTMLElement.prototype, ["focus", "blur", "click"]], [SVGElement.prototype, ["focus", "blur"]],
		[HTMLInputElement.prototype, ["select", "setSelectionRange"]],
	]) for (const name of names) {
		const was = Object.getOwnPropertyDescriptor(of, name)?.value
		if (typeof was === "function") of[name] = function (...given) {
			window.moves.push(name)
			return was.apply(this, given)
		}
	}`)

// requireUnmoved fails if the page has moved the starting point of Tab navigation.
func requireUnmoved(x chrome.Tab) {
	x.Helper()
	require.Empty(x, chrome.Eval[[]string](x, `window.moves`))
	require.True(x, chrome.Eval[bool](x, `document.activeElement === document.body && !document.querySelector("[autofocus]")`))
	require.False(x, chrome.Eval[bool](x, `Boolean(document.getElementById(location.hash.slice(1)))`), "the address names no element")
}

func testKeyboard(t *testing.T, browser context.Context) {
	r := observe.New()
	p := newPurgatory(t)
	add(t, r, "first", observe.Purgatory(p, nil))
	add(t, r, "second", observe.Purgatory(p, nil))
	s := startSite(t, r, "127.0.0.1:0")
	stops := []string{"Skip to the metrics", "Pause", "◐ auto", "first", "second"}

	// Tab begins at the top of the page, regardless of how the page was opened.
	x := visit(t, browser, s, "#purgatory/second", noteMoves)
	x.Until(`document.title === "second · limbo"`)
	requireUnmoved(x)
	require.Equal(t, stops, tabStops(x, "second"))
	x.Script(`document.activeElement.blur(); scrollTo(0, 300)`)
	require.Positive(t, chrome.Eval[float64](x, `scrollY`))
	x.Do(chromedp.Reload())
	x.Until(`document.title === "second · limbo"`)
	requireUnmoved(x)
	require.Equal(t, stops, tabStops(x, "second"))

	x = visit(t, browser, s, "", noteMoves)
	x.Until(`document.querySelectorAll("nav a").length === 3 && document.title === "first · limbo"`)
	requireUnmoved(x)
	require.Equal(t, stops, tabStops(x, "second"))
	x.Do(chromedp.KeyEvent(kb.Enter))
	x.Until(`location.hash === "#purgatory/second" && document.querySelector("article h2 bdi").textContent === "second"`)
	x.Until(`document.title === "second · limbo"`)
	require.Equal(t, "second", focusOf(x), "where it was")
	require.Empty(t, chrome.Eval[[]string](x, `window.moves.filter(name => name !== "click")`))
	x.Script(`document.getElementById("theme").focus()`)
	for _, theme := range []string{"dark", "light", "auto"} {
		x.Do(chromedp.KeyEvent(kb.Enter))
		x.Until(fmt.Sprintf(`document.documentElement.dataset.theme === %q`, theme))
	}
	x.Script(`document.getElementById("skip").focus()`)
	x.Do(chromedp.KeyEvent(kb.Enter))
	x.Until(`document.activeElement.id === "main"`)
	require.Empty(t, chrome.Eval[[]string](x, `[...document.querySelectorAll("table")].filter(t => !t.caption?.textContent ||
		[...t.tHead.rows[0].cells].some(c => c.scope !== "col" || !c.textContent) || [...t.tBodies[0].rows].some(r => r.cells[0].scope !== "row")).map(t => t.outerHTML)`))
	require.Empty(t, chrome.Eval[[]string](x, `[...document.querySelectorAll("svg")].filter(s => s.getAttribute("role") !== "img" || !/\d/.test(s.getAttribute("aria-label"))).map(s => s.outerHTML)`))
}

// The wheel's timers move down a level while the page is open.
func testCascades(t *testing.T, browser context.Context) {
	openWheel := func(t *testing.T, motion string) chrome.Tab {
		r := observe.New()
		w := newWheel(t, timingwheel.Options{Tick: 10 * time.Millisecond, WheelSize: 4})
		add(t, r, "w", observe.Wheel(w))
		for i := range 2000 { // for two minutes, some each second
			_, err := w.Schedule(0, time.Duration(i)*60*time.Millisecond)
			require.NoError(t, err)
		}
		x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "#wheel/w", chrome.Media("prefers-reduced-motion", motion))
		x.Until(`document.querySelector(".drops")`)
		x.Script(`window.fell = window.landed = window.seen = 0
			new MutationObserver(list => { for (const m of list) { window.fell += m.addedNodes.length; window.landed += m.removedNodes.length } }).observe(document.querySelector(".drops"), { childList: true })
			new MutationObserver(() => window.seen++).observe(document.querySelector("#time"), { childList: true, characterData: true, subtree: true })`)
		return x
	}
	const moves = `/[1-9]/.test([...document.querySelectorAll(".tiles dt")].find(e => e.textContent === "cascaded").nextSibling.textContent)`
	t.Run("seen", func(t *testing.T) {
		t.Parallel()
		x := openWheel(t, "no-preference")
		x.Until(moves + ` && window.fell > 0`)
		x.Until(`window.landed > 0`) // they do not pile up
	})
	t.Run("not if motion is to be reduced", func(t *testing.T) {
		t.Parallel()
		x := openWheel(t, "reduce")
		x.Until(moves + ` && window.seen >= 3`)
		require.Zero(t, chrome.Eval[int](x, `window.fell`))
	})
}

// Every text has a contrast of at least 4.5, in both themes, and no page is wider than a phone.
func testLegible(t *testing.T, browser context.Context) {
	r := observe.New()
	p := newPurgatory(t)
	w := newWheel(t, timingwheel.Options{Tick: time.Minute, WheelSize: 32})
	add(t, r, strings.Repeat("a-very-long-name", 8), observe.Purgatory(p, nil))
	add(t, r, "w", observe.Wheel(w))
	add(t, r, "sick", observe.Custom("sick", func() []observe.Metric { return []observe.Metric{{Name: "rate", Value: math.NaN()}} }))
	for i := range 50 {
		_, err := w.Schedule(0, time.Duration(i)*20*time.Minute)
		require.NoError(t, err)
		watch(t, p, time.Hour, strings.Repeat("k", 200), "key")
	}
	watch(t, p, time.Hour, "c").ForceComplete()
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "")
	x.Script(asWideAsDejaVuSans)
	module(x, "./shared/stream.js")
	for _, theme := range []string{"light", "dark"} {
		for _, size := range [][2]int64{{1280, 900}, {390, 844}} {
			x.Do(chrome.Media("prefers-color-scheme", theme), chromedp.EmulateViewport(size[0], size[1]))
			x.Until(fmt.Sprintf(`innerWidth === %d && matchMedia("(prefers-color-scheme: %s)").matches`, size[0], theme))
			for i := range 4 {
				x.Script(fmt.Sprintf(`document.querySelectorAll("nav a")[%d].click()`, i))
				x.Until(fmt.Sprintf(`document.querySelectorAll("nav a")[%d].hasAttribute("aria-current") && document.querySelector("article")?.dataset.id === location.hash.slice(1)`, i))
				x.Until(`!document.querySelector(".lists") || ` + rows("Hottest keys") + ` > 0`)
				x.Script(`document.querySelector("details").open = true`)
				require.Empty(t, chrome.Eval[[]string](x, contrast), "%s %d", theme, size[0])
				require.LessOrEqual(t, chrome.Eval[int64](x, `document.documentElement.scrollWidth`), size[0])
			}
			for _, state := range []string{"live", "silent for 12 s", "reconnecting"} {
				require.True(t, chrome.Eval[bool](x, `module.setState("reconnecting", "`+state+`"), (all => Math.max(...all.map(r => r.top)) < Math.min(...all.map(r => r.bottom)))(
					[...document.querySelectorAll("header > :not(#skip)")].map(e => e.getBoundingClientRect()))`), "one line: %s", state)
			}
		}
	}
}

// asWideAsDejaVuSans spaces letters so that texts are as wide as in that wide font, regardless
// of the installed fonts.
const asWideAsDejaVuSans = `
	const text = document.body.appendChild(document.createElement("span"))
	text.style.font = "14px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
	text.style.position = "absolute"
	text.textContent = "reconnecting silent for 12 s"
	const each = (191.7 - text.getBoundingClientRect().width) / text.textContent.length
	document.styleSheets[0].insertRule("* { letter-spacing: " + each + "px }")
	text.remove()`

// contrast returns the texts whose colours are too similar to their background, by the formula
// of WCAG 2.
const contrast = `(() => {
	const parse = c => c.match(/[\d.]+/g).map(Number)
	const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
	const behind = e => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor)
			if (c.length < 4 || c[3] === 1) return c
		}
		return [255, 255, 255]
	}
	const bad = []
	const probe = document.body.appendChild(document.createElement("i")) // colours of what is drawn, or is not shown at the moment
	for (const name of ["good", "slow", "calm", "odd", "bad", "hand", "accent", "dim"]) for (const back of ["panel", "back"]) {
		probe.style.color = "var(--" + name + ")"
		probe.style.background = "var(--" + back + ")"
		const style = getComputedStyle(probe)
		const [a, b] = [luminance(parse(style.color)), luminance(parse(style.backgroundColor))].sort((x, y) => y - x)
		if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(name + " on " + back)
	}
	probe.remove()
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	for (let n = walker.nextNode(); n; n = walker.nextNode()) {
		const e = n.parentElement
		if (!n.textContent.trim() || !e.checkVisibility() || e.closest("script, noscript")) continue
		const style = getComputedStyle(e)
		const [a, b] = [luminance(parse(e.namespaceURI.includes("svg") ? style.fill : style.color)), luminance(behind(e))].sort((x, y) => y - x)
		if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(n.textContent + " " + (a + 0.05) / (b + 0.05))
	}
	return bad
})()`

func testFiftySources(t *testing.T, browser context.Context) {
	r := observe.New()
	p := newPurgatory(t)
	for i := range 50 {
		add(t, r, fmt.Sprintf("tenant-%d", i), observe.Purgatory(p, nil))
	}
	x := visit(t, browser, startSite(t, r, "127.0.0.1:0"), "#purgatory/tenant-49", noteMoves)
	x.Until(`document.querySelectorAll("nav a").length === 51`)
	x.Until(`document.querySelector(".wheel-section h3")?.textContent === "Wheel “tenant-0”"`) // shared with tenant-0
	require.True(t, chrome.Eval[bool](x, `(b => b.top >= 0 && b.bottom <= innerHeight)(document.querySelector("[aria-current]").getBoundingClientRect())`), "the selected one is in sight")
	require.Positive(t, chrome.Eval[float64](x, `document.querySelector("nav").scrollTop`), "the list was scrolled for it")
	requireUnmoved(x)
	require.Equal(t, []string{"Skip to the metrics"}, tabStops(x, "Skip to the metrics"))
	x.Do(chromedp.Focus(chromedp.CSS("#filter")), chromedp.KeyEvent("NANT-17"))
	x.Until(`[...document.querySelectorAll("nav a")].filter(a => a.checkVisibility()).map(a => a.querySelector(".name").textContent).join() === "tenant-17"`)
}

// broken is a wheel that panics.
type broken struct{}

func (broken) Stats() timingwheel.Stats    { return timingwheel.Stats{Pending: 3} }
func (broken) Levels() []timingwheel.Level { panic("no levels") }

// neverCompletes is an operation that waits until it is completed or expires.
type neverCompletes struct{}

func (neverCompletes) TryComplete() bool                 { return false }
func (neverCompletes) Complete(purgatory.Outcome, error) {}

func newPurgatory(t *testing.T) *purgatory.Purgatory[string] {
	t.Helper()
	p, err := purgatory.New[string](purgatory.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Shutdown(background)) })
	return p
}

func watch(t *testing.T, p *purgatory.Purgatory[string], timeout time.Duration, keys ...string) purgatory.Pending {
	t.Helper()
	h, err := p.TryCompleteElseWatch(background, neverCompletes{}, timeout, keys...)
	require.NoError(t, err)
	return h
}

func add(t *testing.T, r *observe.Registry, name string, s observe.Source) (remove func()) {
	t.Helper()
	remove, err := r.Add(name, s)
	require.NoError(t, err)
	return remove
}

func one(d time.Duration) (h histogram.Durations) {
	h.Add(d)
	return h
}

package console

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/seed-782fa212/limbo/durable/timerd/client"
)

// An operator with an outdated list is told which timers another operator has changed.
func TestTwoOperators(t *testing.T) {
	onRedis(t, func(s *scene) { s.waiting("order/", 303) }, func(t *testing.T, d *daemon) {
		a := d.open(t)
		b := openTab(t, d.address) // the tabs share the session
		for _, x := range []tab{a, b} {
			x.view("#/timers?state=waiting")
			x.loaded(50)
			x.choose(0, 3)
		}
		b.Script(`document.querySelectorAll("tbody input")[0].click()`)
		b.click("[data-action=cancel]", "")
		b.click("dialog button", "Cancel")
		b.shows("2 of 2 timers cancelled.")

		a.click("[data-action=cancel]", "")
		a.Until(`document.querySelector("dialog").innerText.includes("3 timers selected:")`)
		a.click("dialog button", "Cancel")
		a.shows("2 timers were not changed")
		a.Until(`[...document.querySelectorAll("dialog .keys li")].map(e => e.textContent).join() === "order/00001: not found,order/00002: not found"`)
		a.click("dialog button", "OK")
		a.shows("1 of 3 timers cancelled.")

		// Both cancel the rest at the same time. Each timer is cancelled once.
		for _, x := range []tab{a, b} {
			x.view("#/timers?state=waiting&prefix=order/")
			x.click("[data-action=all-cancel]", "")
			x.Until(`document.querySelector("dialog").innerText.includes("300 timers match.")`)
			x.fill("dialog [name=count]", "300")
		}
		a.Script(`document.querySelector("dialog button.danger").click()`)
		b.Script(`document.querySelector("dialog button.danger").click()`)
		// The later of the two may find no timers left, and then asks for the new count instead.
		for _, x := range []tab{a, b} {
			x.Until(`location.hash === "#/bulk" || document.querySelector("dialog .error").textContent.includes("match now: confirm that number")`)
		}
		x := openTab(t, d.address+"#/bulk")
		x.Until(`document.querySelector(".job") && [...document.querySelectorAll(".job .badge")].every(e => e.textContent === "done")`)
		changed := eval[int](x, `[...document.querySelectorAll(".job")].map(e => Number(/(\d+) of \d+ timers cancelled/.exec(e.innerText)[1])).reduce((a, b) => a + b)`)
		require.Equal(t, 300, changed)
	})
}

// Timers end, and others are scheduled, while a bulk action runs.
func TestTimersChangeDuringBulk(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/", 600)
	x := openTab(t, s.console(console.Options{}).address)
	var changed atomic.Bool
	cancelledKey := make(chan string, 1)
	s.engine.beforeCancel = func(keys []string) {
		if changed.Swap(true) {
			return
		}
		// This runs between the action's read and its change.
		key := keys[len(keys)-1]
		if _, err := s.timers.Cancel(background, key); err != nil {
			t.Error(err)
		}
		s.waiting("other/", 20)
		cancelledKey <- key
	}
	x.view("#/timers?state=waiting&prefix=order/")
	x.click("[data-action=all-cancel]", "")
	x.fill("dialog [name=count]", "600")
	x.click("dialog button", "Cancel")
	x.shows("599 of 600 timers cancelled")
	x.Until(`document.querySelector(".job .badge").textContent === "done"`)
	x.shows("1 timer changed before the action came to them")
	x.click(".job summary", "")
	x.Until(`document.querySelector(".job .keys li")?.textContent === ` + quote(<-cancelledKey))
	require.Equal(t, 20, s.stats().Waiting, "others are as they were")
}

// hostileKeys are keys, and their representation on the page.
var hostileKeys = []struct{ key, shown string }{
	{markup, markup},
	{`"><svg onload=document.title='stolen'>`, `"><svg onload=document.title='stolen'>`},
	{"a\x1b[31m\r\n\tdata: {}", `a\u{1b}[31m\u{d}\u{a}\u{9}data: {}`},
	{"user\u202egpj.exe", `user\u{202e}gpj.exe`},
	{"\xff\xfe", `\xff\xfe`},
	{"__proto__", "__proto__"},
	{"50%2Foff/#?&=+", "50%2Foff/#?&=+"},
	{strings.Repeat("k", 512), strings.Repeat("k", 512)},
}

// Keys with markup, control characters and bytes that are not UTF-8 are shown as text, and each
// can be changed. A body may have 64 KiB.
func TestHostileTimers(t *testing.T) {
	onRedis(t, func(*scene) {}, func(t *testing.T, d *daemon) {
		body := bytes.Repeat([]byte{0, 0xff, '<'}, 15_000) // 60,000 bytes in base64
		for i, one := range hostileKeys {
			_, err := d.client.Schedule(background, client.Timer{
				Key: one.key, Topic: markup[:60], After: time.Hour + time.Duration(i)*time.Minute, Body: body,
				Callback: client.Callback{URL: "https://example.org/", Headers: map[string]string{"Authorization": "Bearer hunter2", "X-A": markup}},
			})
			require.NoError(t, err)
		}
		x := d.open(t)
		for i, one := range hostileKeys {
			x.view("#/timers?state=waiting")
			x.loaded(len(hostileKeys) - i)
			require.Contains(t, eval[string](x, `document.querySelector("tbody a").textContent`), one.shown)
			x.Script(`document.querySelector("tbody a").click()`)
			x.Until(`document.querySelector("h2 bdi")?.textContent === ` + quote(one.shown))
			x.Until(`document.querySelector("pre[aria-label=Body]").textContent.length > 60000`)
			require.False(t, eval[bool](x, `document.body.innerText.includes("hunter2")`))
			require.Equal(t, "Timer · limbo console", eval[string](x, "document.title"))
			require.Zero(t, eval[int](x, `document.images.length + document.querySelectorAll("svg, main script").length`))
			require.LessOrEqual(t, eval[int](x, "document.documentElement.scrollWidth"), 1400)
			x.click("[data-action=cancel]", "")
			x.click("dialog button", "Cancel")
			x.shows("no timer or schedule has this key")
		}
		d.counts(0, 0)
	})
}

// A program's 64 KiB body is shown in each form.
func TestLargeBody(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.schedule(durable.Timer{Key: "json", After: time.Hour, Body: fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("<", 1<<16-8))},
		durable.Timer{Key: "bytes", After: time.Hour, Body: bytes.Repeat([]byte{0xfe, 0x0a}, 1<<15)})
	x := openTab(t, s.console(console.Options{}).address)
	body := `document.querySelector("pre[aria-label=Body]").textContent`
	x.view("#/timer?key=" + key64("json"))
	x.Until(body + ".length === 65536 + 5") // indented
	x.shows("Body, 64 KiB")
	x.click("label", "Text")
	require.Equal(t, 1<<16, eval[int](x, body+".length"))
	x.view("#/timer?key=" + key64("bytes"))
	x.Until(body + `.startsWith("000000  fe 0a")`)
	require.Equal(t, 1<<12, eval[int](x, body+`.split("\n").length`))
}

// After five wrong tokens the right token is refused too, until the minute ends.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	x := openTab(t, s.console(console.Options{Token: tokenOf(t)}).address)
	for i := range 5 {
		x.fill("dialog.login [name=token]", fmt.Sprint("guess ", i))
		x.Script(`document.querySelector("dialog.login .error").textContent = ""`)
		x.click("dialog.login button", "Log in")
		x.shows("this is not the token")
		x.Until(`!document.querySelector("dialog.login button").disabled`)
	}
	x.fill("dialog.login [name=token]", tokenOf(t))
	x.Do(chromedp.Focus(chromedp.CSS("dialog.login input")), chromedp.KeyEvent("\r"))
	x.shows("too many wrong tokens came from this address: wait a minute")
	require.Regexp(t, `\(\d+ s\)$`, eval[string](x, `document.querySelector("dialog.login .error").textContent`))
	require.True(t, eval[bool](x, `Boolean(document.querySelector("dialog.login[open]"))`))
}

package console

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/checks/internal/chrome"
	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
)

// No view scrolls sideways, in both themes and three sizes. If the environment variable
// LIMBO_SCREENSHOTS names a folder, the test takes pictures. Three of them are in docs:
// dead-1400-light as console-light, schedules-1400-dark as console-dark, timer-390-light as
// console-phone.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.realistic()
	x := openInWindow(t, s.console(console.Options{API: "../../"}).address)
	folder := os.Getenv("LIMBO_SCREENSHOTS")
	dead := "#/timer?key=" + key64("mail/0000")
	draw := func(name string) {
		t.Helper()
		for _, width := range []int64{390, 1400, 2560} {
			for _, scheme := range []string{"light", "dark"} {
				if scheme == "dark" && (width == 2560 || folder == "") {
					continue
				}
				x.Do(chrome.Media("prefers-color-scheme", scheme), chromedp.EmulateViewport(width, 900))
				x.Until(fmt.Sprintf("innerWidth === %d", width))
				require.LessOrEqual(t, eval[int64](x, "document.documentElement.scrollWidth"), width, name)
				if folder == "" {
					continue
				}
				picture, err := chromedp.Run(x.Ctx, chromedp.CaptureScreenshot())
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o600))
			}
		}
	}
	for _, view := range []struct{ name, fragment, until string }{
		{"overview", "#/overview", `document.querySelector(".workers tbody tr").textContent.includes("/s") && document.querySelector(".due rect")`},
		{"waiting", "#/timers?state=waiting", `document.querySelectorAll("tbody tr").length === 50`},
		{"running", "#/timers?state=running", `document.querySelectorAll("tbody tr").length === 2`},
		{"dead", "#/timers?state=dead&error=connection", `document.querySelectorAll("tbody tr").length === 50 && document.body.innerText.includes("77 timers match")`},
		{"timer", dead, `document.querySelector("pre")`},
		{"bulk", "#/bulk", `document.querySelector(".jobs p")`},
		{"schedules", "#/schedules", `document.querySelectorAll("tbody tr").length === 5`},
		{"schedule", "#/schedule?key=" + key64("reports/daily-sales"), `document.querySelectorAll("tbody tr").length === 8`},
		{"edit", "#/edit?key=" + key64("reports/daily-sales"), `document.querySelectorAll(".next li").length === 10`},
	} {
		x.view(view.fragment)
		x.Until(view.until)
		require.Empty(t, eval[string](x, unnamed), view.name)
		require.NotRegexp(t, `undefined|NaN|\[object|false|null`, eval[string](x, "document.body.innerText"), view.name)
		draw(view.name)
	}
	require.Equal(t, "Edit schedule · limbo console", eval[string](x, "document.title"))

	x.view("#/timers?state=waiting&prefix=order/")
	x.Until(`document.querySelectorAll("tbody tr").length === 50`)
	x.Script(`for (const box of [...document.querySelectorAll("tbody input")].slice(0, 7)) box.click()`)
	draw("selected")
	x.click("[data-action=move]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("and 2 more")`)
	draw("move")
	x.click("dialog button", "Close")
	x.click("button", "Clear selection")
	x.click("[data-action=all-cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("1,500 timers match.")`)
	draw("cancel-all")
	x.fill("dialog [name=count]", "1,500")
	s.engine.cancel.Store(true)
	x.click("dialog button", "Cancel")
	x.shows("The store has not answered since")
	draw("bulk-waits")
	s.engine.cancel.Store(false)
	x.shows("1,500 of 1,500 timers cancelled")
	draw("bulk-done")
}

// unnamed selects controls without a name for a screen reader, and duplicate ids.
const unnamed = `[...document.querySelectorAll("a, button, input, select, textarea")].filter(e =>
		!(e.textContent.trim() && !e.matches("select, textarea")) && !e.ariaLabel && !e.labels?.length).map(e => e.outerHTML)
	.concat([...document.querySelectorAll("[id]")].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i)).join(", ")`

func (s *scene) stats() durable.Stats {
	s.t.Helper()
	st, err := s.timers.Stats(background)
	require.NoError(s.t, err)
	return st
}

func key64(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

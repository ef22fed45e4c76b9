package console

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
)

// Each view, in both themes and two sizes, is drawn without scrolling sideways. The environment
// variable LIMBO_SCREENSHOTS names a folder that keeps the pictures.
func TestScreenshots(t *testing.T) {
	s := newScene(t)
	s.realistic()
	x := openTab(t, s.console(console.Options{}).address)
	folder := os.Getenv("LIMBO_SCREENSHOTS")
	if folder == "" {
		folder = t.TempDir()
	}
	dead := "#/timer?key=" + key64("mail/0000")
	for _, view := range []struct{ name, fragment, until string }{
		{"overview", "#/overview", `document.querySelector(".tile small").textContent.includes("per second")`},
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
		x.until(view.until)
		for _, width := range []int64{390, 1400, 2560} {
			for _, scheme := range []string{"light", "dark"} {
				if width == 2560 && scheme == "dark" {
					continue
				}
				x.do(media(scheme), chromedp.EmulateViewport(width, 900))
				x.until(fmt.Sprintf("innerWidth === %d", width))
				require.LessOrEqual(t, eval[int64](x, "document.documentElement.scrollWidth"), width, view.name)
				picture, err := chromedp.Run(x.ctx, chromedp.CaptureScreenshot())
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%s-%d-%s.png", view.name, width, scheme)), picture, 0o600))
			}
		}
	}
	require.Equal(t, "Edit schedule · limbo console", eval[string](x, "document.title"))
}

func (s *scene) stats() durable.Stats {
	s.t.Helper()
	st, err := s.timers.Stats(background)
	require.NoError(s.t, err)
	return st
}

func (s *scene) eventually(is func(durable.Stats) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return is(s.stats()) }, patience, 10*time.Millisecond)
}

func key64(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

package page

import (
	"bytes"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/seed-782fa212/limbo/checks/internal/chrome"
	"github.com/stretchr/testify/require"
)

var (
	screenshots = flag.String("screenshots", "", "the `folder` for pictures of the page; default: one that goes with the test")
	liveliness  = flag.Duration("liveliness", 0, "for how long, up to a minute, to have the page open before")
)

// Each kind of pane can be drawn, in both themes and for both sizes. Two of the pictures are in
// docs.
//
//	go test ./checks/page -run Screenshots -screenshots /tmp -liveliness 40s
func TestScreenshots(t *testing.T) {
	t.Parallel()
	folder := *screenshots
	s := newScene(t)
	browser := chrome.Browser(t)
	type shot struct {
		name          string
		width, height int64
		full          bool
		scheme, of    string
	}
	shots := []shot{
		{"observe-dark", 1280, 900, false, "dark", "purgatory/fetches"},
		{"observe-light", 1280, 900, false, "light", "purgatory/fetches"},
		{"observe-phone", 390, 844, false, "light", "purgatory/fetches"},
		{"phone-dark-full", 390, 844, true, "dark", "purgatory/fetches"},
		{"dark-full", 1280, 900, true, "dark", "purgatory/fetches"},
		{"wheel-light-full", 1280, 900, true, "light", "wheel/sessions"},
		{"calls-dark-full", 1280, 900, true, "dark", "calls/to-brokers"},
		{"custom-light", 1280, 900, true, "light", "deploy/build"},
		{"phone-wheel", 390, 844, true, "light", "wheel/sessions"},
	}
	p := startSite(t, s.registry, "127.0.0.1:0")
	x := openTab(t, browser, chromedp.Navigate(p.url()+"#"+shots[0].of))
	x.Until(fmt.Sprintf(`document.querySelector("article") && performance.now() >= %d`, liveliness.Milliseconds()))
	if folder == "" {
		folder, shots = t.TempDir(), shots[2:4] // a phone's, and a whole page
	}
	for _, shot := range shots {
		x.Do(chrome.Media("prefers-color-scheme", shot.scheme), chromedp.EmulateViewport(shot.width, shot.height))
		x.Script(fmt.Sprintf(`location.hash = %q`, "#"+shot.of))
		x.Until(fmt.Sprintf(`document.querySelector("article").dataset.id === %q && innerWidth === %d`, shot.of, shot.width))
		x.Until(`!document.querySelector(".lists") || document.querySelector(".lists section:last-child tbody").rows.length > 0`)
		take := chromedp.CaptureScreenshot()
		if shot.full {
			take = chromedp.FullScreenshot(100)
		}
		picture, err := chromedp.Run(x.Ctx, take)
		require.NoError(t, err)
		drawn, err := png.DecodeConfig(bytes.NewReader(picture))
		require.NoError(t, err)
		require.EqualValues(t, shot.width, drawn.Width)
		require.NoError(t, os.WriteFile(filepath.Join(folder, shot.name+".png"), picture, 0o644))
	}
}

package page

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/seed-782fa212/limbo/checks/internal/chrome"
)

// axe-core finds no serious problem in any kind of pane.
func TestAccessible(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	p := startSite(t, s.registry, "127.0.0.1:0")
	x := openTab(t, chrome.Browser(t), chromedp.EmulateViewport(1280, 900), chromedp.Navigate(p.url()))
	axe := chrome.NewAxe(x)
	for _, id := range []string{"purgatory/fetches", "calls/to-brokers", "wheel/sessions", "scheduler/cleaning", "queue/retries", "deploy/build"} {
		x.Script(fmt.Sprintf(`location.hash = %q`, "#"+id))
		x.Until(fmt.Sprintf(`document.querySelector("article").dataset.id === %q`, id))
		x.Until(`!document.querySelector(".lists") || document.querySelector(".lists section:last-child tbody").rows.length > 0`)
		axe.Check(id)
	}
}

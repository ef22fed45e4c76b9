package console

import (
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/durable/console"
)

// balanced serves three consoles of one store behind a load balancer that sends each request to
// the next of them. It returns the address.
func (s *scene) balanced(o console.Options) string {
	s.t.Helper()
	var targets []*url.URL
	for i := range 3 {
		o.Process = fmt.Sprint("timerd-", i)
		target, err := url.Parse(s.console(o).address)
		require.NoError(s.t, err)
		target.Path = ""
		targets = append(targets, target)
	}
	var n atomic.Int64
	balancer := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(targets[n.Add(1)%3])
		r.Out.Host = r.In.Host
	}})
	s.t.Cleanup(balancer.Close)
	return balancer.URL + "/ops/console/"
}

// Behind a load balancer one login is enough. The page shows and stops the bulk actions of all
// processes, and a logout ends the streams of other tabs.
func TestLoadBalancer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/", 20)
	address := s.balanced(console.Options{Token: tokenOf(t)})
	x := openTab(t, address)
	x.login()
	for range 3 {
		x.view("#/timers?state=waiting")
		x.loaded(20)
		x.view("#/schedules")
		x.shows("There is no schedule.")
	}
	require.False(t, eval[bool](x, `Boolean(document.querySelector("dialog"))`))

	s.engine.cancel.Store(true) // so that the actions run until they are stopped
	x.view("#/timers?state=waiting")
	x.click("[data-action=all-cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("20 timers match.")`)
	x.click("dialog button", "Cancel")
	x.Until(`document.querySelector(".job") && document.getElementById("bulk-count").textContent === "1 running"`)
	x.Script(`const seen = new Set(), start = async () => {
		while (seen.size < 3) {
			const reply = await fetch("api/bulk", {
				method: "POST", body: JSON.stringify({ action: "cancel", filter: { state: "waiting" } }),
				headers: { "Content-Type": "application/json", "X-Limbo-Console": "1" },
			})
			if (reply.ok) seen.add((await reply.json()).process)
		}
		window.started = true
	}; start()`)
	x.Until(`window.started`)

	x.Do(chromedp.Reload())
	x.Until(`[0, 1, 2].every(n => [...document.querySelectorAll(".job")].some(job => job.innerText.includes("by timerd-" + n)))`)
	x.Script(`for (const button of document.querySelectorAll(".job button")) button.click()`)
	x.Until(`[...document.querySelectorAll(".job .badge")].every(badge => badge.textContent === "stopped")`)
	x.Until(`document.getElementById("bulk-count").textContent === ""`)
	require.Equal(t, 20, s.stats().Waiting)

	other := openTab(t, address)
	other.Until(`document.getElementById("state").textContent === "live"`)
	x.click("#logout", "")
	other.Until(`document.querySelector("dialog.login[open]")`)
}

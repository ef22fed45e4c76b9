//go:build unix

package console

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-782fa212/limbo/checks/internal/servers"
)

// The page shows since when a Redis hangs. Lists and a bulk action wait for it, and continue
// without further input when it answers again.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	d := startTimerd(t, "redis://"+server.Address+"/0")
	d.waiting("order/", 50)
	x := d.open(t)
	x.view("#/timers?state=waiting")
	x.loaded(50)
	x.click("[data-action=all-cancel]", "")
	x.Until(`document.querySelector("dialog").innerText.includes("50 timers match.")`)

	require.NoError(t, server.Suspend())
	x.Until(`document.getElementById("state").textContent === "store fails" && !document.getElementById("notice").hidden`)
	require.Regexp(t, `^The store has not answered since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d`, eval[string](x, `document.getElementById("notice").textContent`))
	x.click("dialog button", "Cancel") // counts first
	x.Until(`document.querySelector("dialog .error").textContent !== ""`)
	x.Until(`document.querySelector("dialog button.danger").disabled === false`)

	require.NoError(t, server.Resume())
	x.Until(`document.getElementById("state").textContent === "live" && document.getElementById("notice").hidden`)
	x.click("dialog button", "Cancel")
	x.shows("50 of 50 timers cancelled")
	d.counts(0, 0)
}

package console

import (
	"fmt"
	"testing"

	"github.com/seed-782fa212/limbo/checks/internal/chrome"
	"github.com/seed-782fa212/limbo/durable"
	"github.com/seed-782fa212/limbo/durable/console"
	"github.com/stretchr/testify/require"
)

// axe-core finds no serious problem in any view.
func TestAccessibleViews(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.realistic()
	x := openTab(t, s.console(console.Options{Token: tokenOf(t)}).address)
	axe := chrome.NewAxe(x.Tab)
	x.Until(`document.querySelector("dialog.login[open]")`)
	axe.Check("login")
	x.fill("dialog.login [name=token]", "wrong")
	x.click("dialog.login button", "Log in")
	x.shows("this is not the token")
	axe.Check("login refused")
	x.login()

	const form = `document.querySelectorAll(".next li").length === 10`
	for _, view := range []struct{ name, fragment, until string }{
		{"overview", "#/overview", `document.querySelector(".dues")?.innerText.includes("in the next minute") && document.querySelector("tbody tr")`},
		{"waiting", "#/timers?state=waiting&prefix=order/", `!document.querySelector("[aria-busy]") && ` + rows + ` === 50`},
		{"running", "#/timers?state=running", rows + ` === 2`},
		{"dead", "#/timers?state=dead&error=connection", rows + ` === 50`},
		{"no timers", "#/timers?prefix=none", `document.body.innerText.includes("No timer matches.")`},
		{"timer", "#/timer?key=" + key64("order/2026-11/00000"), `document.querySelector("pre")`},
		{"running timer", "#/timer?key=" + key64("import/catalogue"), `document.querySelector("dl")`},
		{"dead letter", "#/timer?key=" + key64("mail/0000"), `document.querySelector("pre")`},
		{"missing timer", "#/timer?key=" + key64("none"), `document.querySelector(".error")`},
		{"no bulk actions", "#/bulk", `document.querySelector(".jobs p")`},
		{"schedules", "#/schedules", rows + ` === 5`},
		{"schedule", "#/schedule?key=" + key64("reports/daily-sales"), rows + ` === 8`},
		{"edit", "#/edit?key=" + key64("cache/refresh"), form},
		{"new schedule", "#/edit", `document.querySelector("[name=cron]")`},
	} {
		x.view(view.fragment)
		x.Until(view.until)
		axe.Check(view.name)
	}
	x.fill("[name=cron]", "61 * * * *")
	x.Until(`document.querySelector(".preview .error")`)
	x.click("summary", "")
	axe.Check("all fields of a schedule, with an error")
}

// The same holds for dialogs, a bulk action, and a store that fails.
func TestAccessibleDialogs(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.waiting("order/", 1500)
	dead := map[string]string{}
	for i := range 10 {
		dead[fmt.Sprint("mail/", i)] = "connection refused"
	}
	s.fail(dead)
	_, _, err := s.timers.PutSchedule(background, durable.Schedule{Key: "backup/nightly", Cron: "15 1 * * 1-5"})
	require.NoError(t, err)
	x := openTab(t, s.console(console.Options{}).address)
	axe := chrome.NewAxe(x.Tab)
	dialog := func(action, until string) {
		t.Helper()
		x.click("[data-action="+action+"]", "")
		x.Until(`document.querySelector("dialog[open] h2") && ` + until)
		axe.Check("dialog: " + action)
	}
	x.view("#/schedule?key=" + key64("backup/nightly"))
	x.Until(`document.querySelector("[data-action=pause]")`)
	for _, action := range []string{"pause", "trigger", "backfill", "delete"} {
		dialog(action, "true")
		x.click("dialog button", "Close")
	}
	x.view("#/timers?state=dead")
	x.loaded(10)
	x.choose(0, 7)
	dialog("requeue", "true")
	x.click("dialog button", "Close")
	x.view("#/timers?state=waiting&prefix=order/")
	x.loaded(50)
	x.choose(0, 7)
	dialog("move", "true")
	x.click("dialog button", "Close")
	x.click("button", "Clear selection")
	dialog("all-cancel", `document.querySelector("dialog [name=count]")`)
	x.fill("dialog [name=count]", "15")
	x.click("dialog button", "Cancel")
	x.shows("The number is 1,500.")
	axe.Check("wrong number")

	s.engine.cancel.Store(true)
	x.fill("dialog [name=count]", "1500")
	x.click("dialog button", "Cancel")
	x.shows("The store has not answered since")
	axe.Check("bulk action that waits")
	s.engine.down.Store(true)
	x.Until(`!document.getElementById("notice").hidden`)
	axe.Check("store fails")
	s.engine.down.Store(false)
	s.engine.cancel.Store(false)
	s.engine.miss.Store(true)
	x.Until(`document.querySelector(".job .badge").textContent === "done"`)
	x.click(".job summary", "")
	x.Until(`document.querySelector(".job .keys li")`)
	axe.Check("bulk action that is done")
}

// The page: it selects the view by the address's fragment.

import { begin, post, session } from "./api.js"
import { bulkView, isOver } from "./bulk.js"
import { say } from "./dialogs.js"
import { $, fill, h } from "./shared/dom.js"
import { bulkActions, connect, listen } from "./live.js"
import { overviewView } from "./overview.js"
import { editView, scheduleView, schedulesView } from "./schedules.js"
import { timersView } from "./timers.js"
import { timerView } from "./timer.js"

const views = {
  overview: overviewView, timers: timersView, timer: timerView, bulk: bulkView,
  schedules: schedulesView, schedule: scheduleView, edit: editView,
}
const parents = { timer: "timers", schedule: "schedules", edit: "schedules" }

let view = null

function show() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?")
  const name = Object.hasOwn(views, path) ? path : "overview"
  view?.off()
  view = views[name](new URLSearchParams(query ?? ""))
  fill($("main"), view.root)
  document.title = view.title + " · limbo console"
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.getAttribute("href") === "#/" + (parents[name] ?? name)) link.setAttribute("aria-current", "page")
    else link.removeAttribute("aria-current")
  }
}

addEventListener("hashchange", () => {
  say("")
  show()
  scrollTo(0, 0)
  $("main").focus({ preventScroll: true })
})

$("skip").addEventListener("click", () => $("main").focus())

const tabs = new BroadcastChannel("limbo console at " + location.pathname)

$("logout").addEventListener("click", async () => {
  try {
    await post("api/logout")
    tabs.postMessage("logout")
  } finally { location.reload() }
})

listen(() => {
  const running = bulkActions().filter(job => !isOver(job)).length
  fill($("bulk-count"), running > 0 && [String(running), h("span", { class: "hidden" }, " running")])
})

async function start() {
  try {
    await begin()
  } catch (e) {
    fill($("main"), h("p", { class: "empty error" }, e.message, " ", h("button", { type: "button", click: start }, "Try again")))
    return
  }
  document.body.classList.toggle("read-only", session.readOnly)
  const reopen = connect()
  // Behind a load balancer, the stream may come from a process that does not know of a logout.
  tabs.addEventListener("message", () => document.hidden || reopen())
  show()
}

start()

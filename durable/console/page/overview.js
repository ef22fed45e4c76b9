// The numbers of the store, live.

import { fill, h, setText } from "./shared/dom.js"
import { number, perSecond, plural, visible } from "./shared/format.js"
import { bothTimes, change, relative, table, tableRow } from "./parts.js"
import { listen } from "./live.js"

const tiles = [
  { name: "waiting", label: "Waiting", href: "#/timers?state=waiting", rate: "waiting" },
  { name: "overdue", label: "Overdue", href: "#/timers?state=waiting", bad: n => n > 0, note: "due, and waiting" },
  { name: "running", label: "Running", href: "#/timers?state=running", rate: "running" },
  { name: "dead", label: "Dead letters", href: "#/timers?state=dead", rate: "dead", bad: n => n > 0 },
  { name: "dropped", label: "Dropped dead letters", rate: "dropped", note: "removed by the store's limits" },
  { name: "schedules", label: "Schedules", href: "#/schedules" },
  { name: "schedules_overdue", label: "Overdue schedules", href: "#/schedules", bad: n => n > 0 },
]

const workerColumns = [
  { label: "Worker", class: "main" }, { label: "Running handlers", class: "number" }, { label: "Completed", class: "number" },
  { label: "Retried", class: "number" }, { label: "Dead-lettered", class: "number" }, { label: "Snoozed", class: "number" },
  { label: "Cancelled", class: "number" }, { label: "Preferred shards", class: "number" }, { label: "Live workers", class: "number" },
]

function workerCells(w) {
  const rate = name => w.per_second ? perSecond(w.per_second[name]) : "–"
  return [visible(w.name), number(w.running), rate("completed"), rate("retried"), rate("dead_lettered"), rate("snoozed"), rate("cancelled"),
    number(w.preferred), w.members ? number(w.members) : "unknown"]
}

// workersSection shows the workers of the server's process, if it has told of some.
function workersSection() {
  const box = h("div", { class: "list" })
  const root = h("section", { hidden: true }, h("h3", {}, "Workers of this process"), box)
  function update(workers) {
    root.hidden = workers.length === 0
    const rows = [...box.querySelectorAll("tbody tr")]
    if (rows.length !== workers.length) {
      fill(box, workers.length > 0 && table("Workers", workerColumns, workers.map(w => tableRow(workerColumns, workerCells(w)))))
    } else workers.forEach((w, i) => workerCells(w).forEach((text, j) => setText(rows[i].cells[j], text)))
  }
  return { root, update }
}

export function overviewView() {
  const made = tiles.map(tile => {
    const value = h("strong"), note = h("small")
    const root = h(tile.href ? "a" : "div", { class: "tile", href: tile.href }, h("span", {}, tile.label), value, note)
    return { ...tile, root, value, note: note, text: tile.note }
  })
  const clocks = h("dl"), workers = workersSection()
  const grid = h("div", { class: "tiles" }, made.map(tile => tile.root))
  const off = listen(live => {
    grid.classList.toggle("stale", Boolean(live.error))
    workers.update(live.workers ?? [])
    const o = live.overview
    if (!o) return
    for (const tile of made) {
      const n = o[tile.name]
      setText(tile.value, number(n))
      tile.root.classList.toggle("bad", Boolean(tile.bad?.(n)))
      setText(tile.note, live.per_second && tile.rate ? change(live.per_second[tile.rate]) : tile.text ?? "")
    }
    const facts = [
      ["Engine's clock", bothTimes(o.now)],
      ["Next timer is due", o.next_due ? `${bothTimes(o.next_due)}, ${relative(o.next_due)}` : "none waits"],
      ["Next lease ends", o.next_lease_end ? `${bothTimes(o.next_lease_end)}, ${relative(o.next_lease_end)}` : "none runs"],
      ["Store", plural(o.shards, "shard", "shards")],
    ]
    if (!clocks.children.length) clocks.append(...facts.flatMap(([name]) => [h("dt", {}, name), h("dd")]))
    facts.forEach(([, text], i) => setText(clocks.children[2 * i + 1], text))
  })
  return {
    title: "Overview", off,
    root: h("div", { class: "view overview" }, h("h2", {}, "Overview"), grid,
      h("p", { class: "dim" }, "The changes per second are net, over the last ten seconds: timers that come and go in between do not count."),
      workers.root,
      h("section", {}, h("h3", {}, "Times"), clocks)),
  }
}

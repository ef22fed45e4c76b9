// The numbers of the store, live.

import { bothTimes, change, h, number, plural, relative, setText } from "./dom.js"
import { listen } from "./live.js"

const tiles = [
  { name: "waiting", label: "Waiting", href: "#/timers?state=waiting", rate: "waiting" },
  { name: "overdue", label: "Overdue", href: "#/timers?state=waiting", bad: n => n > 0, note: "wait although they are due" },
  { name: "running", label: "Running", href: "#/timers?state=running", rate: "running" },
  { name: "dead", label: "Dead letters", href: "#/timers?state=dead", rate: "dead", bad: n => n > 0 },
  { name: "dropped", label: "Dropped dead letters", rate: "dropped", note: "removed by the store's limits" },
  { name: "schedules", label: "Schedules", href: "#/schedules" },
  { name: "schedules_overdue", label: "Overdue schedules", href: "#/schedules", bad: n => n > 0 },
]

export function overviewView() {
  const made = tiles.map(tile => {
    const value = h("strong"), note = h("small")
    const root = h(tile.href ? "a" : "div", { class: "tile", href: tile.href }, h("span", {}, tile.label), value, note)
    return { ...tile, root, value, note: note, text: tile.note }
  })
  const clocks = h("dl")
  const grid = h("div", { class: "tiles" }, made.map(tile => tile.root))
  const off = listen(live => {
    grid.classList.toggle("stale", Boolean(live.error))
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
      h("section", {}, h("h3", {}, "Times"), clocks)),
  }
}

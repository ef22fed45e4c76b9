// The overview, live: the contents of the store, the rates and lateness of timers, the due timers,
// and the workers.

import { drawBars, drawNone, isSilence, keepWindow, lineChart } from "./shared/chart.js"
import { fill, h, setAttribute, setText, svg } from "./shared/dom.js"
import { duration, number, perSecond, plural, seconds, visible } from "./shared/format.js"
import { listen } from "./live.js"
import { bothTimes, clock, relative, table, tableRow } from "./parts.js"

const tiles = [
  { name: "waiting", label: "Waiting", href: "#/timers?state=waiting" },
  { name: "overdue", label: "Overdue", href: "#/timers?state=waiting", bad: n => n > 0, note: () => "due, and waiting" },
  { name: "running", label: "Running", href: "#/timers?state=running", note: live => live.workers ? `in ${plural(live.workers.slots, "slot", "slots")} of all workers` : "" },
  { name: "dead", label: "Dead letters", href: "#/timers?state=dead", bad: n => n > 0, note: live => live.overview.dropped > 0 ? `${number(live.overview.dropped)} removed by the store's limits` : "" },
  { name: "schedules", label: "Schedules", href: "#/schedules" },
  { name: "schedules_overdue", label: "Overdue schedules", href: "#/schedules", bad: n => n > 0 },
]

const rates = [["scheduled", "Scheduled", "calm"], ["completed", "Completed", "good"], ["retried", "Retried", "slow"], ["dead_lettered", "Dead-lettered", "bad"]]
const quantiles = [["p50_seconds", "Half within (p50)", "calm"], ["p99_seconds", "99 % within (p99)", "slow"]]

// The values of the last minutes, collected in all views while the page is open.
const points = []

listen(live => {
  const t = performance.now() / 1000
  points.push({ t, rates: live.error ? null : live.per_second, late: live.error ? null : live.late })
  keepWindow(points)
})

// seriesOf makes a chart's lines of the points; valueOf returns null for an unknown value.
const seriesOf = (lines, valueOf, write, none) => lines.map(([name, text, tone]) => {
  const values = points.map((p, i) => [p.t, isSilence(points, i) ? null : valueOf(p, name) ?? null])
  const known = values.map(([, v]) => v).filter(v => v !== null), now = values.at(-1)?.[1] ?? null
  return { name, text, tone, points: values, cells: [now === null ? none : write(now), known.length ? write(Math.max(...known)) : "–"] }
})

function charts() {
  const pace = lineChart("Timers a second", "Timers a second, over the last 10 seconds", ["", "Now", "Highest"])
  const late = lineChart("Lateness: from the due time to the start of the run", "Lateness, over the last 10 seconds", ["", "Now", "Highest"], { axis: seconds, least: 0.001 })
  const idle = h("p", { class: "note", role: "status" })
  late.root.append(idle)

  function update(live) {
    const first = points[0].t, end = points.at(-1).t
    pace.update(first, end, seriesOf(rates, (p, name) => p.rates?.[name], perSecond, "–"))
    late.update(first, end, seriesOf(quantiles, (p, name) => p.late?.runs ? p.late[name] : null, s => seconds(s), "–"))
    setText(idle, live.late && live.late.runs === 0 ? `No run began in the last ${duration(Math.round(live.late.over_seconds))}.`
      : live.late ? `${plural(live.late.runs, "run", "runs")} in the last ${duration(Math.round(live.late.over_seconds))}. Bounds: the true value is at least half as long.` : "")
  }
  return { root: h("div", { class: "columns" }, pace.root, late.root), update }
}

// The histograms of due timers: the span, the seconds per bar, the bars per label, and the length
// of a bar in words.
const spans = [["minute", 2, 5, "2 seconds"], ["hour", 60, 10, "a minute"], ["day", 3600, 4, "an hour"]]

function dueSection() {
  const parts = spans.map(([name, each, labels, bar]) => {
    const bars = svg("g"), picture = svg("svg", { class: "chart", role: "img" }, bars), sum = h("strong"), peak = h("span", { class: "dim" })
    return { name, each, labels, bar, bars, picture, sum, peak, root: h("div", { class: "due" }, h("p", {}, sum, peak), picture) }
  })
  const note = h("p", { class: "note", role: "status" })
  const root = h("section", {}, h("h3", {}, "Due next"), h("div", { class: "dues" }, parts.map(p => p.root)), note)

  function draw(part, due) {
    const { name, each, labels, bar, bars, picture, sum, peak } = part, counts = due[name]
    const width = Math.max(part.root.clientWidth, 200), from = Date.parse(due.from)
    const through = due.through ? (Date.parse(due.through) - from) / 1000 : Infinity
    const known = counts.filter((_, i) => i * each < through), total = known.reduce((a, b) => a + b, 0)
    const cut = through < counts.length * each
    const text = `${cut ? "At least " + number(total) : total === 0 ? "Nothing" : number(total)} in the next ${name}`
    setText(sum, text)
    if (total === 0) drawNone(picture, bars, width, cut ? "not counted" : "nothing is due")
    else drawBars(picture, bars, width, counts.map((n, i) => ({
      label: i % labels === 0 ? i === 0 ? "now" : "in " + seconds(i * each) : "",
      parts: [{ tone: "calm", count: i < known.length ? n : 0, title: `in ${seconds(i * each)} to ${seconds((i + 1) * each)}` }],
    })))
    const most = Math.max(0, ...known), at = known.indexOf(most) * each
    setText(peak, most > 0 ? `, at most ${number(most)} in ${bar}` : "")
    setAttribute(picture, "aria-label", text + (most > 0 ? `; the most, ${number(most)}, in ${seconds(at)} to ${seconds(at + each)}` : ""))
  }

  function update(due) {
    if (!due) {
      setText(note, "What is due is being counted.")
      return
    }
    if (due.minute) for (const part of parts) draw(part, due)
    const said = []
    if (due.minute) said.push(`Counted ${relative(due.from)}.`)
    if (due.through) said.push(`The store has counted what is due until ${bothTimes(due.through)}, and then stopped: there is too much to count. What is due later is not shown.`)
    if (due.error) said.push(`The last count failed: ${due.error}`)
    setText(note, said.join(" "))
  }
  return { root, update }
}

const workerColumns = [
  { label: "Worker", class: "main" }, { label: "State" }, { label: "Last heartbeat", class: "time" }, { label: "Slots in use", class: "number" },
  { label: "Completed", class: "number" }, { label: "Retried", class: "number" }, { label: "Dead-lettered", class: "number" },
  { label: "Snoozed", class: "number" }, { label: "Cancelled", class: "number" }, { label: "Preferred shards", class: "number" },
]

function workerCells(w) {
  const rate = name => w.live && w.per_second ? perSecond(w.per_second[name]) : "–"
  const age = Math.max((clock.now() - Date.parse(w.heartbeat)) / 1000, 0)
  return [visible(w.name), w.live ? "live" : "no heartbeat for " + duration(age), age < 1 ? "now" : duration(age) + " ago",
    w.live ? `${number(w.running)} of ${number(w.slots)}` : "–",
    rate("completed"), rate("retried"), rate("dead_lettered"), rate("snoozed"), rate("cancelled"), w.live ? number(w.preferred) : "–"]
}

// hintOf says why due timers do not run, if the counts show it.
function hintOf(workers, overview) {
  if (workers.live === 0) return overview.waiting + overview.dead + overview.schedules > 0 ? "No worker is live: timers do not run." : "No worker is live."
  if (overview.overdue > 0 && workers.running >= workers.slots) return "All slots are in use, and timers are overdue: more slots or workers are needed, or faster handlers."
  return ""
}

function workersSection() {
  const box = h("div"), hint = h("p", { class: "warning", role: "status" }), more = h("p", { class: "note" }), heading = h("h3", {}, "Workers")
  const root = h("section", { class: "workers" }, heading, hint, box, more)
  function update(workers, overview) {
    const { items } = workers
    setText(heading, `Workers: ${number(workers.live)} live` + (workers.dead ? `, ${number(workers.dead)} without a heartbeat` : "") +
      `, ${number(workers.running)} of ${plural(workers.slots, "slot", "slots")} in use`)
    setText(hint, hintOf(workers, overview))
    hint.hidden = hint.textContent === ""
    const rows = [...box.querySelectorAll("tbody tr")]
    if (rows.length !== items.length) {
      fill(box, items.length > 0 && table("Workers", workerColumns, items.map(w => tableRow(workerColumns, workerCells(w).map(text => h("bdi", {}, text))))))
    } else items.forEach((w, i) => workerCells(w).forEach((text, j) => setText(rows[i].cells[j].firstChild, text)))
    box.querySelectorAll("tbody tr").forEach((row, i) => setAttribute(row.cells[1].firstChild, "class", items[i].live ? "badge done" : "badge dead"))
    const left = workers.live + workers.dead - items.length
    setText(more, (left > 0 ? `And ${plural(left, "more worker", "more workers")}. ` : "") + (workers.dead ? "A worker that died without leaving is shown for an hour; others run what it had when their leases end." : ""))
    more.hidden = more.textContent === ""
  }
  return { root, update }
}

function engineFacts(live) {
  const o = live.overview
  return [
    ["Engine", live.error ? `does not answer since ${bothTimes(live.since)}, ${relative(live.since)}: ${live.error}` : `answers; a poll takes ${seconds(live.polled_seconds)}`],
    ["Engine's clock", bothTimes(o.now)],
    ["Next timer is due", o.next_due ? `${bothTimes(o.next_due)}, ${relative(o.next_due)}` : "none waits"],
    ["Next lease ends", o.next_lease_end ? `${bothTimes(o.next_lease_end)}, ${relative(o.next_lease_end)}` : "none runs"],
    ["Shards", number(o.shards)],
  ]
}

export function overviewView() {
  const made = tiles.map(tile => {
    const value = h("strong"), note = h("small")
    return { ...tile, value, noteText: note, root: h("a", { class: "tile", href: tile.href }, h("span", {}, tile.label), value, note) }
  })
  const facts = h("dl"), moving = charts(), due = dueSection(), workers = workersSection()
  const root = h("div", { class: "view overview" }, h("h2", {}, "Overview"), h("div", { class: "tiles" }, made.map(tile => tile.root)),
    moving.root, due.root, workers.root, h("section", {}, h("h3", {}, "Engine"), facts))

  function update(live) {
    for (const part of root.children) part.classList.toggle("stale", Boolean(live.error) && part !== facts.parentNode)
    if (!live.overview) return
    for (const tile of made) {
      const n = live.overview[tile.name]
      setText(tile.value, number(n))
      tile.root.classList.toggle("bad", Boolean(tile.bad?.(n)))
      setText(tile.noteText, tile.note?.(live) ?? "")
    }
    moving.update(live)
    due.update(live.due)
    if (live.workers) workers.update(live.workers, live.overview)
    const now = engineFacts(live)
    if (!facts.children.length) facts.append(...now.flatMap(([name]) => [h("dt", {}, name), h("dd")]))
    now.forEach(([, text], i) => setText(facts.children[2 * i + 1], text))
  }

  let last = null, drawn = 0
  const again = () => { // with the new width
    cancelAnimationFrame(drawn)
    drawn = requestAnimationFrame(() => { if (last) update(last) })
  }
  addEventListener("resize", again)
  const off = listen(live => {
    last = live
    if (root.isConnected) update(live)
    else again() // the view has a width only once it is shown
  })
  return {
    title: "Overview", root,
    off() {
      off()
      removeEventListener("resize", again)
    },
  }
}

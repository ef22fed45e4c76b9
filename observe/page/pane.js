// The view of one source: its numbers, its charts, the lists, and a plain table of all metrics.

import { h, keepRows, scrollTable, setAttribute, setText } from "./shared/dom.js"
import { bytes, number, perSecond, plural, seconds, visible } from "./shared/format.js"
import { endedChart, recentRate } from "./ended.js"
import { histogram, isHistogram, quantile, since } from "./histogram.js"
import { metricText, inOrder, words } from "./names.js"
import { nextDue, wheelPicture } from "./wheel.js"

export const isGroup = value => typeof value === "object" && value !== null && !isHistogram(value)

export function sum(group) {
  return Object.values(group ?? {}).reduce((all, n) => all + (typeof n === "number" ? n : 0), 0)
}

// The metric that stands for a source in the list.
const mainMetric = { purgatory: "operations", calls: "waiting", polls: "waiting", scheduler: "pending", queue: "elements", wheel: "timers" }

export function mainNumber(source) {
  const name = Object.hasOwn(mainMetric, source.kind) ? mainMetric[source.kind] : source.main
  const value = name && Object.hasOwn(source.metrics, name) ? source.metrics[name] : null
  return typeof value === "number" ? metricText(name, value) : "–"
}

// problemText describes a source's problem for the list; empty if none is known.
export function problemText(source, points) {
  if (source.problem) return "problem"
  if (source.metrics.overdue_seconds >= 1) return "overdue " + seconds(source.metrics.overdue_seconds)
  const last = points[points.length - 1], first = points.find(p => p.t >= last.t - 60)
  return last && last.refused > first.refused ? "refusing" : ""
}

// tiles returns the numbers at the top, as [label, text, whether it is bad].
function tiles(source, points, wheel) {
  const f = source.metrics
  const rate = name => perSecond(recentRate(points, p => p.counters[name]))
  const refused = ["refused", number(sum(f.refused_total)), problemText(source, points) === "refusing"]
  switch (source.kind) {
    case "purgatory":
      return [["operations", number(f.operations)], ["watches", number(f.watches)], ["keys", number(f.keys)],
        ["checks", rate("checks_total")], refused, ...wheelTiles(wheel)]
    case "calls":
      return [["waiting", number(f.waiting)], ["groups", number(f.groups)],
        ["replies unmatched", number(f.unmatched_total)], refused, ...wheelTiles(wheel)]
    case "wheel":
      return [["timers pending", number(f.timers)], ...wheelTiles(source), ["workers busy", `${number(f.workers_busy)} of ${number(f.workers_busy + f.workers_idle)}`],
        ["scheduled", rate("scheduled_total")], ["cascaded", rate("cascaded_total")], ["wake-ups", rate("wakeups_total")],
        ["memory", bytes(f.memory_bytes)], refused]
    default:
      return Object.entries(f).filter(([name, value]) => typeof value === "number" && (name !== "invalid_metrics" || value > 0)).map(([name, value]) =>
        name.endsWith("_total") ? [words(name.slice(0, -6)), number(value)] : [words(name.replace(/_(seconds|bytes)$/, "")), metricText(name, value)])
  }
}

function wheelTiles(wheel) {
  if (!wheel) return []
  const f = wheel.metrics
  return [["next due", nextDue(wheel.levels ?? [], f)], ["ready backlog", number(f.ready), f.ready > 1000],
    ["oldest overdue", seconds(f.overdue_seconds), f.overdue_seconds >= 1]]
}

// plainRows returns all metrics, as the rows of a plain table.
function plainRows(source, points) {
  const rows = []
  const add = (name, label, value) => {
    if (isHistogram(value)) {
      const counted = since(value)
      rows.push([words(name), label, number(value.count), value.count ? `mean ${seconds(counted.sum / counted.count)}, p50 ${quantile(counted, 0.5)}, p99 ${quantile(counted, 0.99)}` : ""])
      return
    }
    const counter = label === "" && name.endsWith("_total")
    rows.push([words(name), label, metricText(name, value), counter ? perSecond(recentRate(points, p => p.counters[name])) : ""])
  }
  for (const [name, value] of Object.entries(source.metrics)) {
    if (isGroup(value)) for (const [label, one] of Object.entries(value)) add(name, words(label), one)
    else add(name, "", value)
  }
  return rows
}

function waitingRow(x) {
  const keys = (x.keys ?? []).map(visible)
  const shown = keys.slice(0, 4).join(", ") + (keys.length > 4 ? `, and ${keys.length - 4} more` : "")
  return [{ text: shown || "–", title: keys.length > 4 ? keys.join(", ") : "", key: true }, seconds(x.age_seconds),
    x.left_seconds === undefined ? "never expires" : x.left_seconds < 0 ? "overdue " + seconds(-x.left_seconds) : seconds(x.left_seconds)]
}

// groupRow shows operations with the same keys: their number, and the oldest.
function groupRow(x) {
  const [keys, ...rest] = waitingRow(x)
  return [keys, number(x.count), ...rest]
}

// makePane builds the elements for a source, and returns functions that update them. toggle
// switches histograms between all since the start and the last minutes.
export function makePane(id, source, search, toggle) {
  const title = h("h2", { tabindex: "-1" }, h("span", { class: "kind" }, words(source.kind)), " ", h("bdi", {}, visible(source.name)))
  const removed = h("p", { class: "failure", role: "status", hidden: true })
  const problem = h("p", { class: "failure", role: "status", hidden: true })
  const numbers = h("dl", { class: "tiles" })
  const columns = [h("div"), h("div")]
  const pictures = h("div", { class: "pictures" }, ...columns)
  const rest = h("div")
  const plain = scrollTable("All metrics", "Metric", "Which", "Value", "Rate, or quantiles")
  const custom = !Object.hasOwn(mainMetric, source.kind) || source.kind === "queue" || source.kind === "scheduler" || source.kind === "polls"
  const all = h("details", { class: "panel", open: custom }, h("summary", {}, "All metrics"), plain.box)
  const root = h("article", { "data-id": id }, title, removed, problem, numbers, pictures, rest, all)

  let wheel = null, chart = null, names = "", lists = null
  const histograms = new Map()

  function updateTiles(list) {
    while (numbers.children.length > list.length) numbers.lastChild.remove()
    list.forEach(([label, text, bad], i) => {
      const tile = numbers.children[i] ?? numbers.appendChild(h("div", {}, h("dt"), h("dd")))
      setText(tile.firstChild, label)
      setText(tile.lastChild, text)
      setAttribute(tile, "class", bad ? "bad" : "")
    })
  }

  // place puts a picture into the shorter column.
  function place(picture) {
    columns[columns[0].offsetHeight <= columns[1].offsetHeight ? 0 : 1].append(picture)
  }

  function update(source, record, wheelSource, sinceStart) {
    const points = record.points
    removed.hidden = true
    root.classList.remove("stale")
    problem.hidden = !source.problem
    setText(problem, source.problem ? visible(source.problem) : "")
    updateTiles(tiles(source, points, source.kind === "wheel" ? null : wheelSource))
    if (wheelSource) {
      if (!wheel) {
        wheel = wheelPicture(wheelSource.name === source.name ? "Wheel" : "Wheel “" + visible(wheelSource.name) + "”")
        place(wheel.root)
      }
      wheel.update(wheelSource)
    }
    const ended = source.metrics.ended_total
    if (isGroup(ended)) {
      if (!chart || names !== Object.keys(ended).join("\n")) {
        const made = endedChart()
        if (chart) chart.root.replaceWith(made.root)
        else place(made.root)
        chart = made
        names = Object.keys(ended).join("\n")
      }
      chart.update(points, inOrder(Object.keys(ended)))
    }
    const mark = record.marks[0]
    const span = "in the last " + seconds(Math.max(Math.round(points[points.length - 1].t - (mark?.t ?? 0)), 1))
    for (const name of inOrder(Object.keys(source.metrics))) {
      const value = source.metrics[name]
      if (!isHistogram(value) && !(isGroup(value) && Object.values(value).some(isHistogram))) continue
      if (!histograms.has(name)) {
        histograms.set(name, histogram(name, toggle))
        place(histograms.get(name).root)
      }
      histograms.get(name).update(value, sinceStart ? undefined : mark?.metrics[name], sinceStart ? "since the start" : span)
    }
    if (source.lists && !lists) {
      lists = makeLists(source, search)
      rest.append(lists.root)
    }
    keepRows(plain.body, plainRows(source, points))
  }

  function showRemoved(text) {
    removed.hidden = false
    root.classList.add("stale")
    setText(removed, text)
  }
  return { id, root, title, update, showRemoved, lists: l => lists?.update(l) }
}

// makeLists builds the lists of pending operations, and the search.
export function makeLists(source, search) {
  const hot = scrollTable("Hottest keys", "Key", "Waiting", "Oldest")
  const oldest = source.kind === "calls" ? scrollTable("Oldest calls", "Id", "Age", "Time left")
    : scrollTable("Oldest operations", "Keys", "Operations", "Age", "Time left")
  const results = scrollTable("Search results", source.kind === "calls" ? "Id" : "Keys", "Age", "Time left")
  const input = h("input", { type: "search", id: "search-key", "aria-label": "Text in a key to search for", placeholder: "Text in a key", autocomplete: "off", spellcheck: "false", maxlength: "1024" })
  const button = h("button", { type: "submit" }, "Search")
  const answer = h("p", { class: "answer", role: "status" })
  results.box.hidden = true
  const form = h("form", { role: "search" }, input, button)
  form.addEventListener("submit", async event => {
    event.preventDefault()
    if (input.value === "") {
      setText(answer, "Type a part of a key first.")
      return
    }
    setText(answer, "Searching…")
    button.disabled = true
    const text = input.value
    const { found, more, timed_out: timedOut, error } = await search(source, text)
    button.disabled = false
    results.box.hidden = !found?.length
    if (error) setText(answer, error)
    else if (found.length === 0) setText(answer, timedOut ? "The search took too long and was ended; nothing was found so far." : "No pending operation has this text in a key.")
    else setText(answer, `${more ? "More than " : ""}${plural(found.length, "pending operation has", "pending operations have")} this text in a key, as of now.` +
      (timedOut ? " There may be others: the search took too long and was ended." : ""))
    keepRows(results.body, (found ?? []).map(waitingRow))
  })
  const root = h("div", { class: "lists" },
    h("section", { class: source.kind === "calls" ? "" : "search" }, h("h3", {}, "Search"), form, answer, results.box),
    source.kind === "calls" ? null : h("section", {}, h("h3", {}, "Hottest keys"), hot.box),
    h("section", {}, h("h3", {}, source.kind === "calls" ? "Oldest calls" : "Oldest operations"), oldest.box))

  function update(list) {
    const keys = [...list.keys].sort((a, b) => b.watching - a.watching || (a.key < b.key ? -1 : 1)) // so that rows keep their places
    keepRows(hot.body, keys.map(k => [{ text: visible(k.key), key: true }, number(k.watching), seconds(k.oldest_seconds)]))
    keepRows(oldest.body, list.oldest.map(source.kind === "calls" ? waitingRow : groupRow))
  }
  return { root, update }
}

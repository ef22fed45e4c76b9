// Histograms of durations, in classes whose bounds are powers of two of a second.

import { drawBars, drawNone } from "./shared/chart.js"
import { h, keepRows, scrollTable, setAttribute, setText, svg } from "./shared/dom.js"
import { number, seconds } from "./shared/format.js"
import { inOrder, toneOf, words } from "./names.js"

// A label may have the value count, too, but a histogram has both properties.
export const isHistogram = value => typeof value?.count === "number" && typeof value.sum_seconds === "number"

// classesOf maps each class's power of two to its count.
function classesOf(durations) {
  const classes = new Map()
  durations?.bounds_seconds?.forEach((bound, i) => {
    if (durations.counts[i]) classes.set(Math.round(Math.log2(bound)), durations.counts[i])
  })
  return classes
}

const lastClass = 10 // above 512 s

export function since(durations, before) {
  const classes = classesOf(durations), old = classesOf(before)
  for (const [power, n] of old) classes.set(power, (classes.get(power) ?? 0) - n)
  const counts = [...classes].map(([power, n]) => [Math.min(power, lastClass), n]).filter(([, n]) => n > 0).sort((a, b) => a[0] - b[0])
  const count = (durations?.count ?? 0) - (before?.count ?? 0)
  return { counts, count, sum: (durations?.sum_seconds ?? 0) - (before?.sum_seconds ?? 0) }
}

function bound(power) {
  return power >= lastClass ? "> 512 s" : "≤ " + seconds(2 ** power)
}

// quantile is the upper bound of the quantile's class, at most twice the true value.
export function quantile(counted, q) {
  let seen = 0
  for (const [power, n] of counted.counts) {
    seen += n
    if (seen >= q * counted.count) return bound(power)
  }
  return "–"
}

// histogram shows a metric with one histogram, or one for each value of a label. toggle changes
// the period.
export function histogram(metric, toggle) {
  const name = words(metric.replace(/_seconds$/, ""))
  const heading = name === "waited" ? "Time waited" : name === "late" ? "Lateness" : name[0].toUpperCase() + name.slice(1)
  const choice = h("button", { type: "button", click: toggle })
  const bars = svg("g")
  const picture = svg("svg", { class: "chart", role: "img" }, bars)
  const list = scrollTable(heading, "Which", "Number", "Mean", "p50", "p99")
  const root = h("section", { class: "histogram" }, h("div", { class: "head" }, h("h3", {}, heading), choice), picture, list.box)

  // update shows value, minus before if that is defined. span is the text for the period.
  function update(value, before, span) {
    setText(choice, span)
    setAttribute(choice, "aria-label", `${heading} ${span}; change to ${before === undefined ? "the last minutes" : "all since the start"}`)
    const grouped = !isHistogram(value)
    const series = (grouped ? inOrder(Object.keys(value)) : [""]).map((key, i) => ({
      key, tone: grouped ? toneOf(key, i) : "calm",
      ...since(grouped ? value[key] : value, grouped ? before?.[key] : before),
    }))
    const powers = series.flatMap(s => s.counts.map(([power]) => power))
    const width = Math.max(root.clientWidth - 26, 240)
    if (powers.length === 0) drawNone(picture, bars, width, "none " + span)
    else {
      const low = Math.min(...powers), n = Math.max(Math.max(...powers) - low + 1, 6)
      drawBars(picture, bars, width, Array.from({ length: n }, (_, i) => ({
        label: low + i <= lastClass ? bound(low + i) : "",
        parts: series.map(s => ({
          tone: s.tone, count: s.counts.find(([p]) => p === low + i)?.[1] ?? 0, title: bound(low + i) + (s.key && ", " + words(s.key)),
        })),
      })))
    }
    keepRows(list.body, series.map(s => [{ text: words(s.key) || "all", tone: s.tone + " swatch" }, number(s.count),
      s.count > 0 ? seconds(s.sum / s.count) : "–", quantile(s, 0.5), quantile(s, 0.99)]))
    setAttribute(picture, "aria-label", `${heading} ${span}: ` + series.map(s =>
      `${words(s.key) || "all"} ${number(s.count)}` + (s.count > 0 ? `, p50 ${quantile(s, 0.5)}, p99 ${quantile(s, 0.99)}` : "")).join("; "))
  }
  return { root, update }
}

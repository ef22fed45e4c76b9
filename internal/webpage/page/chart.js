// Charts: lines over the last minutes that the page has been open, and bars.

import { h, keepRows, scrollTable, setAttribute, svg } from "./dom.js"
import { number, seconds, short } from "./format.js"

export const windowSeconds = 300
const spans = [60, 120, windowSeconds] // of the axis, until the page has been open for longer

// niceTop is the end of an axis: value rounded up to 1, 2 or 5 times a power of ten, at least
// least.
export function niceTop(value, least = 1) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, least)))
  return [1, 2, 5, 10].map(n => n * power).find(top => top >= value)
}

// keepWindow removes points that are too old for a chart.
export function keepWindow(points) {
  while (points.length > 0 && points[0].t < points.at(-1).t - windowSeconds) points.shift()
}

// isSilence reports whether a point follows a gap: an interval of more than 5 s that is far
// longer than its neighbours, because the page was hidden or the stream broke. Intervals of a
// slow server are always long, up to minutes.
export function isSilence(points, i) {
  const interval = k => k > 0 && k < points.length ? points[k].t - points[k - 1].t : 0
  return interval(i) > 5 && interval(i) > 3 * Math.max(interval(i - 1), interval(i + 1))
}

// lineChart makes a section with a line for each series, and a table that names them. heads are
// the table's column headings; axis formats the values of the vertical axis, whose end is at
// least least.
export function lineChart(heading, caption, heads, { axis = short, least = 1 } = {}) {
  const grid = svg("g", { class: "grid" }), lines = svg("g", { class: "lines" })
  const picture = svg("svg", { class: "chart", role: "img" }, grid, lines)
  const names = scrollTable(caption, ...heads)
  const root = h("section", { class: "lines-section" }, h("h3", {}, heading), picture, names.box)
  const paths = new Map()

  // update draws the series {name, text, tone, points, cells} from first to end, in seconds.
  // Their points are [t, value], with a null value for a gap.
  function update(first, end, series) {
    const width = Math.max(root.clientWidth - 26, 240), height = 150
    const left = 48, right = 8, top = 8, bottom = 20
    setAttribute(picture, "viewBox", `0 0 ${width} ${height}`)
    setAttribute(picture, "height", String(height))
    const most = niceTop(Math.max(least, ...series.flatMap(s => s.points.map(([, value]) => value ?? 0))), least)
    const span = spans.find(s => end - first <= s) ?? windowSeconds
    const x = t => left + (width - left - right) * (1 - (end - t) / span)
    const y = value => top + (height - top - bottom) * (1 - value / most)

    grid.replaceChildren()
    for (const part of [0, 0.5, 1]) {
      const at = y(most * part)
      grid.append(svg("line", { x1: left, x2: width - right, y1: at, y2: at }),
        svg("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, axis(most * part)))
    }
    const step = span / (span === 300 ? 5 : 4) * (width < 420 && span < 300 ? 2 : 1)
    for (let ago = 0; ago <= span; ago += step) {
      if (width < 420 && span === 300 && ago === 240) continue
      grid.append(svg("text", { x: x(end - ago), y: height - 5, "text-anchor": ago === span ? "start" : ago === 0 ? "end" : "middle" },
        ago === 0 ? "now" : "−" + seconds(ago)))
    }
    series.forEach((s, i) => {
      let d = "", pen = "M"
      for (const [t, value] of s.points) {
        if (value !== null) d += `${pen}${x(t).toFixed(1)} ${y(value).toFixed(1)}`
        pen = value === null ? "M" : "L"
      }
      if (!paths.has(s.name)) paths.set(s.name, lines.appendChild(svg("path", { class: `line tone-${s.tone} dash-${i % 5}` })))
      setAttribute(paths.get(s.name), "d", d)
    })
    keepRows(names.body, series.map((s, i) => [{ text: s.text, tone: s.tone + " swatch dash-" + i % 5 }, ...s.cells]))
    setAttribute(picture, "aria-label", `${heading}, the last 5 minutes. Now: ` + (series.map(s => `${s.text} ${s.cells[0]}`).join(", ") || "none"))
  }
  return { root, update }
}

// drawBars draws columns into an empty group, at least six columns wide. Each is {label, total,
// parts} with parts {tone, count, title}, the lowest first; a total of "" is not written. Labels
// that do not fit are omitted.
export function drawBars(picture, group, width, columns) {
  const height = 130, top = 14, bottom = 20, room = 64
  setAttribute(picture, "viewBox", `0 0 ${width} ${height}`)
  setAttribute(picture, "height", String(height))
  const each = width / Math.max(columns.length, 6), gap = each > 8 ? 1 : 0.5
  const sums = columns.map(c => c.parts.reduce((sum, part) => sum + part.count, 0))
  const most = Math.max(1, ...sums)
  let labelled = -Infinity // end of the last label
  group.replaceChildren()
  columns.forEach((column, i) => {
    const x = i * each
    let y = height - bottom
    group.append(svg("line", { class: "base", x1: x + gap, x2: x + each - gap, y1: y, y2: y }))
    for (const part of column.parts) {
      if (part.count === 0) continue
      const tall = Math.max((height - top - bottom) * part.count / most, 2)
      y -= tall
      group.append(svg("rect", { class: "bar tone-" + part.tone, x: x + gap, y, width: Math.max(each - 2 * gap, 1), height: tall },
        svg("title", {}, `${part.title}: ${number(part.count)}`)))
    }
    if (sums[i] > 0 && each > 36) group.append(svg("text", { x: x + each / 2, y: y - 3, "text-anchor": "middle", class: "small" }, short(sums[i])))
    const at = Math.min(Math.max(x + each / 2, 28), width - 28)
    if (column.label && at - labelled >= room) {
      labelled = at
      group.append(svg("text", { x: at, y: height - 5, "text-anchor": "middle", class: "small" }, column.label))
    }
  })
}

// drawNone writes a text instead of bars.
export function drawNone(picture, group, width, text) {
  drawBars(picture, group, width, [])
  group.append(svg("text", { x: width / 2, y: 65, "text-anchor": "middle" }, text))
}

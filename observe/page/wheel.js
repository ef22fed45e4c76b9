// The picture of a wheel. The levels are rings, the lowest innermost. The present is at the top
// of each ring, under the hand, and the future follows clockwise: the rings turn, and timers
// that are about to fall due approach the hand from its right.

import { niceTop } from "./shared/chart.js"
import { h, keepRows, scrollTable, setAttribute, setText, svg } from "./shared/dom.js"
import { number, plural, seconds, short } from "./shared/format.js"

const centre = 200, innermost = 58, outermost = 184

// fullness is the drawn height of a bucket: the logarithm of its count, up to that of a full
// bucket.
function fullness(count, top) {
  return count === 0 ? 0 : 0.1 + 0.9 * Math.log10(1 + count) / Math.log10(1 + top)
}

function onCircle(radius, part) {
  const angle = 2 * Math.PI * part
  return `${(centre + radius * Math.sin(angle)).toFixed(2)} ${(centre - radius * Math.cos(angle)).toFixed(2)}`
}

// segment is the path of a part of a ring, between two radii and two fractions of the circle.
function segment(inner, outer, from, to) {
  const large = to - from > 0.5 ? 1 : 0
  return `M${onCircle(inner, from)}L${onCircle(outer, from)}A${outer} ${outer} 0 ${large} 1 ${onCircle(outer, to)}` +
    `L${onCircle(inner, to)}A${inner} ${inner} 0 ${large} 0 ${onCircle(inner, from)}Z`
}

// ahead returns the buckets, starting with the present.
function ahead(level) {
  return [...level.buckets.slice(level.now), ...level.buckets.slice(0, level.now)]
}

// nextDue is the time within which the first timer falls due: the end of its bucket.
export function nextDue(levels, metrics) {
  if (metrics.ready > 0 || metrics.overdue_seconds > 0) return "now"
  const ends = levels.map(level => {
    const first = ahead(level).findIndex(n => n > 0)
    return first < 0 ? Infinity : (first + 1) * level.span_seconds
  })
  const end = Math.min(...ends)
  return end === Infinity ? "nothing" : "≤ " + seconds(end)
}

function fallingAllowed() {
  return !matchMedia("(prefers-reduced-motion: reduce)").matches
}

export function wheelPicture(title) {
  const rings = svg("g"), hand = svg("g", { class: "hand" }), drops = svg("g", { class: "drops" })
  const total = svg("text", { class: "total", x: centre, y: centre + 4, "text-anchor": "middle" })
  const unit = svg("text", { class: "unit", x: centre, y: centre + 20, "text-anchor": "middle" }, "timers")
  const picture = svg("svg", { class: "wheel", viewBox: "0 0 400 400", role: "img" }, rings, hand, drops, total, unit)
  const scale = h("p", { class: "note" })
  const levelsTable = scrollTable("Levels", "Level", "Bucket", "Whole ring", "Timers")
  const root = h("section", { class: "wheel-section" }, h("h3", {}, title),
    h("div", { class: "wheel-box" }, h("div", {}, picture), h("div", {}, levelsTable.box, scale)))
  let drawn = [], pending = [], cascaded

  const radius = (i, n) => innermost + (outermost - innermost) * i / n
  const thickness = n => Math.min((outermost - innermost) / n - 6, 46)

  function outline(n) {
    rings.replaceChildren()
    drawn = []
    for (let i = 0; i < n; i++) {
      const inner = radius(i, n), middle = inner + thickness(n) / 2
      const fill = svg("path", { class: "fill", "data-level": i })
      const present = svg("path", { class: "present" })
      const label = svg("text", { class: "label", x: centre, y: centre + middle + 4, "text-anchor": "middle" })
      rings.append(svg("circle", { class: "track", cx: centre, cy: centre, r: middle, "stroke-width": thickness(n) }), fill, present, label)
      drawn.push({ inner, fill, present, label })
    }
    const end = n ? radius(n - 1, n) + thickness(n) + 4 : outermost
    hand.replaceChildren(
      svg("line", { x1: centre, x2: centre, y1: centre - innermost + 12, y2: centre - end }),
      svg("text", { x: centre, y: centre - end - 4, "text-anchor": "middle" }, "now ↻"))
  }

  // fall shows timers that moved down a level as dots that fall inward at the hand.
  function fall(moves) {
    const from = drawn.map((_, i) => i).filter(i => i > 0 && pending[i] > 0)
    if (moves <= 0 || from.length === 0 || !fallingAllowed()) return
    const dots = Math.min(3 + Math.ceil(Math.log2(moves)), 14)
    for (let k = 0; k < dots; k++) {
      const level = from[k % from.length]
      const half = thickness(drawn.length) / 2
      const outer = centre - drawn[level].inner - half, inner = centre - drawn[level - 1].inner - half
      const dot = drops.appendChild(svg("circle", { r: 4, cx: centre + 4 + 3 * k, cy: outer }))
      const takes = 700, after = 15 * k
      dot.animate([{ transform: "none", opacity: 0 }, { transform: "none", opacity: 1, offset: 0.2 },
        { transform: `translate(${-2 * k}px, ${inner - outer}px)`, opacity: 1, offset: 0.8 },
        { transform: `translate(${-2 * k}px, ${inner - outer}px)`, opacity: 0 }],
      { duration: takes, delay: after, easing: "ease-in", fill: "both" })
      setTimeout(() => dot.remove(), takes + after) // and not at the animation's end, which never comes in a hidden tab
    }
  }

  function update(source) {
    const levels = source.levels ?? [], metrics = source.metrics
    if (drawn.length !== levels.length || !hand.firstChild) outline(levels.length)
    const fullest = Math.max(0, ...levels.flatMap(level => level.buckets))
    const top = niceTop(Math.max(fullest, 10))
    levels.forEach((level, i) => {
      const n = level.buckets.length, gap = 0.12 / n, high = thickness(levels.length)
      let fill = "", present = ""
      ahead(level).forEach((count, k) => {
        if (count === 0) return
        const piece = segment(drawn[i].inner, drawn[i].inner + high * fullness(count, top), k / n + gap, (k + 1) / n - gap)
        if (k === 0) present = piece
        else fill += piece
      })
      setAttribute(drawn[i].fill, "d", fill)
      setAttribute(drawn[i].present, "d", present)
      setText(drawn[i].label, seconds(level.span_seconds * n))
    })
    setText(total, short(metrics.timers ?? 0))
    setText(unit, metrics.timers === 1 ? "timer" : "timers")
    setText(scale, `The present is at the top, the future clockwise; a bucket drawn full holds ${number(top)} timers, on a logarithmic scale.` +
      (levels.length > 1 ? " Timers fall to the ring within as their time comes nearer." : ""))
    keepRows(levelsTable.body, levels.map((level, i) => [String(i), seconds(level.span_seconds),
      seconds(level.span_seconds * level.buckets.length), number(level.pending)]))
    setAttribute(picture, "aria-label", `Timing wheel: ${plural(metrics.timers ?? 0, "timer", "timers")}, next due ${nextDue(levels, metrics).replace("≤", "within")}, ` +
      `${number(metrics.ready ?? 0)} ready. ` + levels.map((level, i) =>
      `Level ${i}, ${seconds(level.span_seconds * level.buckets.length)} round: ${plural(level.pending, "timer", "timers")}`).join(". "))
    if (cascaded !== undefined) fall((metrics.cascaded_total ?? 0) - cascaded)
    cascaded = metrics.cascaded_total ?? 0
    pending = levels.map(level => level.pending)
  }
  return { root, update }
}

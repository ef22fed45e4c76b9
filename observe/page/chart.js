// The running chart of rates: one line for each way in which things ended, over the last
// five minutes that the page has seen.

const windowSeconds = 300
const spans = [60, 120, windowSeconds] // of the axis, while the page has not seen more

// niceTop is the end of an axis: the next of 1, 2, 5 times a power of ten.
function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)))
  return [1, 2, 5, 10].map(n => n * power).find(top => top >= value)
}

// A silence is an interval of more than 5 s that is far longer than those beside it: the
// page was hidden, or the stream broken. What a server takes long to make comes at long
// intervals always, up to minutes.
function isSilence(points, i) {
  const interval = k => k > 0 && k < points.length ? points[k].t - points[k - 1].t : 0
  return interval(i) > 5 && interval(i) > 3 * Math.max(interval(i - 1), interval(i + 1))
}

// rates are the differences of a counter between one point and the next. Where the counter
// fell, the process was another one; in a silence nothing is known. Both are gaps.
function rates(points, counter) {
  const list = []
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]]
    const [from, to, took] = [counter(a), counter(b), b.t - a.t]
    const known = from !== undefined && to !== undefined && to >= from && took > 0 && !isSilence(points, i)
    list.push([b.t, known ? (to - from) / took : null])
  }
  return list
}

// recentRate is that over the last ten seconds, so that a reader can read it.
function recentRate(points, counter) {
  const last = points[points.length - 1]
  const first = points.find(p => p.t >= last?.t - 10)
  if (!last || first === last || !(counter(last) >= counter(first))) return null
  return (counter(last) - counter(first)) / (last.t - first.t)
}

function rateChart(what) {

  const grid = svg("g", { class: "grid" })
  const lines = svg("g", { class: "lines" })
  const picture = svg("svg", { class: "chart", role: "img" }, grid, lines)
  const ended = table(what + ", by outcome", "Outcome", "Now", "In the chart", "In all")
  const root = html("section", { class: "ended" }, html("h3", {}, what + " a second"), picture, ended.box)
  const paths = new Map()

  function update(points, names) {
    const width = Math.max(root.clientWidth, 240), height = 150
    const left = 44, right = 8, top = 8, bottom = 20
    setAttribute(picture, "viewBox", `0 0 ${width} ${height}`)
    setAttribute(picture, "height", String(height))
    const end = points.length ? points[points.length - 1].t : 0
    const all = names.map(name => [name, rates(points, p => p.ended[name])])
    const most = niceTop(Math.max(1, ...all.flatMap(([, list]) => list.map(([, rate]) => rate ?? 0))))
    const span = spans.find(s => end - (points[0]?.t ?? end) <= s) ?? windowSeconds
    const x = t => left + (width - left - right) * (1 - (end - t) / span)
    const y = rate => top + (height - top - bottom) * (1 - rate / most)

    grid.replaceChildren()
    for (const part of [0, 0.5, 1]) {
      const at = y(most * part)
      grid.append(svg("line", { x1: left, x2: width - right, y1: at, y2: at }),
        svg("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, short(most * part)))
    }
    const step = span / (span === 300 ? 5 : 4) * (width < 420 && span < 300 ? 2 : 1)
    for (let ago = 0; ago <= span; ago += step) {
      if (width < 420 && span === 300 && ago === 240) continue
      grid.append(svg("text", { x: x(end - ago), y: height - 5, "text-anchor": ago === span ? "start" : ago === 0 ? "end" : "middle" },
        ago === 0 ? "now" : "−" + seconds(ago)))
    }

    const rows = []
    all.forEach(([name, list], i) => {
      let d = "", pen = "M"
      for (const [t, rate] of list) {
        if (rate !== null) d += `${pen}${x(t).toFixed(1)} ${y(rate).toFixed(1)}`
        pen = rate === null ? "M" : "L"
      }
      if (!paths.has(name)) paths.set(name, lines.appendChild(svg("path", { class: `line tone-${toneOf(name, i)} dash-${i % 5}` })))
      setAttribute(paths.get(name), "d", d)
      const now = recentRate(points, p => p.ended[name])
      const first = points[0]?.ended[name], last = points[points.length - 1]?.ended[name]
      rows.push([{ text: words(name), tone: toneOf(name, i) + " swatch dash-" + i % 5 }, perSecond(now),
        last >= first ? number(last - first) : "–", last === undefined ? "–" : number(last)])
    })
    keepRows(ended.body, rows)
    setAttribute(picture, "aria-label", `${what} a second, the last 5 minutes. Now: ` +
      (rows.map(row => `${row[0].text} ${row[1]}`).join(", ") || "none"))

  }
  return { root, update }
}

// Histograms of durations, in classes whose bounds are the powers of two of a second.

// classesOf maps the class's power of two to the number in it.
function classesOf(durations) {
  const classes = new Map()
  durations?.bounds_seconds?.forEach((bound, i) => {
    if (durations.counts[i]) classes.set(Math.round(Math.log2(bound)), durations.counts[i])
  })
  return classes
}

const lastClass = 10 // what took longer than 512 s

function since(durations, before) {
  const classes = classesOf(durations), old = classesOf(before)
  for (const [power, n] of old) classes.set(power, (classes.get(power) ?? 0) - n)
  const counts = [...classes].map(([power, n]) => [Math.min(power, lastClass), n]).filter(([, n]) => n > 0).sort((a, b) => a[0] - b[0])
  const count = (durations?.count ?? 0) - (before?.count ?? 0)
  return { counts, count, sum: (durations?.sum_seconds ?? 0) - (before?.sum_seconds ?? 0) }
}

function bound(power) {
  return power >= lastClass ? "> 512 s" : "≤ " + seconds(2 ** power)
}

// quantile is an upper bound: that of the class, at most twice the true value.
function quantile(h, q) {
  let seen = 0
  for (const [power, n] of h.counts) {
    seen += n
    if (seen >= q * h.count) return bound(power)
  }
  return "–"
}

// histogram shows a figure that is one histogram, or one for each of a label's values.
function histogram(figure) {
  const name = words(figure.replace(/_seconds$/, ""))
  const heading = name === "waited" ? "Time waited" : name === "late" ? "Lateness" : name[0].toUpperCase() + name.slice(1)
  const choice = html("button", { type: "button" })
  choice.addEventListener("click", toggleSpan)
  const bars = svg("g")
  const picture = svg("svg", { class: "chart", role: "img" }, bars)
  const list = table(heading, "Which", "Number", "Mean", "p50", "p99")
  const root = html("section", { class: "histogram" }, html("div", { class: "head" }, html("h3", {}, heading), choice), picture, list.box)

  function update(value, before, span) {
    setText(choice, span)
    setAttribute(choice, "aria-label", `${heading} ${span}; change to ${sinceStart() ? "the last minutes" : "all since the start"}`)
    const grouped = !isHistogram(value)
    const series = (grouped ? inOrder(Object.keys(value)) : [""]).map((key, i) => ({
      key, tone: grouped ? toneOf(key, i) : "calm",
      ...since(grouped ? value[key] : value, grouped ? before?.[key] : before),
    }))
    const powers = series.flatMap(s => s.counts.map(([power]) => power))
    const low = Math.min(...powers), high = Math.max(...powers)
    const width = Math.max(root.clientWidth, 240), height = 130, top = 14, bottom = 20
    setAttribute(picture, "viewBox", `0 0 ${width} ${height}`)
    setAttribute(picture, "height", String(height))
    bars.replaceChildren()
    if (powers.length === 0) {
      bars.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "none " + span))
    } else {
      const total = power => series.reduce((sum, s) => sum + (s.counts.find(([p]) => p === power)?.[1] ?? 0), 0)
      const n = Math.max(high - low + 1, 6), each = width / n
      const most = Math.max(...powers.map(total))
      let labelled = -Infinity // where the last label is
      for (let power = low; power < low + n; power++) {
        const x = (power - low) * each
        let y = height - bottom
        bars.append(svg("line", { class: "base", x1: x + 1, x2: x + each - 1, y1: y, y2: y }))
        for (const s of series) {
          const count = s.counts.find(([p]) => p === power)?.[1]
          if (!count) continue
          const tall = Math.max((height - top - bottom) * count / most, 2)
          y -= tall
          bars.append(svg("rect", { class: "bar tone-" + s.tone, x: x + 1, y, width: Math.max(each - 2, 1), height: tall },
            svg("title", {}, `${bound(power)}${s.key && ", " + words(s.key)}: ${number(count)}`)))
        }
        if (power <= high && each > 36) bars.append(svg("text", { x: x + each / 2, y: y - 3, "text-anchor": "middle", class: "small" }, total(power) ? short(total(power)) : ""))
        const label = Math.min(Math.max(x + each / 2, 28), width - 28)
        if (label - labelled >= 64 && power <= lastClass) {
          labelled = label
          bars.append(svg("text", { x: label, y: height - 5, "text-anchor": "middle", class: "small" }, bound(power)))
        }
      }
    }
    keepRows(list.body, series.map(s => [{ text: words(s.key) || "all", tone: s.tone + " swatch" }, number(s.count),
      s.count > 0 ? seconds(s.sum / s.count) : "–", quantile(s, 0.5), quantile(s, 0.99)]))
    setAttribute(picture, "aria-label", `${heading} ${span}: ` + series.map(s =>
      `${words(s.key) || "all"} ${number(s.count)}` + (s.count > 0 ? `, p50 ${quantile(s, 0.5)}, p99 ${quantile(s, 0.99)}` : "")).join("; "))
  }
  return { root, update }
}

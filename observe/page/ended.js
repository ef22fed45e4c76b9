// The running chart of rates: a line for each outcome.

import { isSilence, lineChart } from "./shared/chart.js"
import { number, perSecond } from "./shared/format.js"
import { toneOf, words } from "./names.js"

// rates returns the rates of a counter from point to point. The chart has a gap where the
// counter fell, because the process restarted, and in a silence, because nothing is known.
export function rates(points, counter) {
  const list = []
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]]
    const [from, to, took] = [counter(a), counter(b), b.t - a.t]
    const known = from !== undefined && to !== undefined && to >= from && took > 0 && !isSilence(points, i)
    list.push([b.t, known ? (to - from) / took : null])
  }
  return list
}

// recentRate is the rate over the last ten seconds, slow enough to be readable.
export function recentRate(points, counter) {
  const last = points[points.length - 1]
  const first = points.find(p => p.t >= last?.t - 10)
  if (!last || first === last || !(counter(last) >= counter(first))) return null
  return (counter(last) - counter(first)) / (last.t - first.t)
}

export function endedChart() {
  const chart = lineChart("Ended a second", "Ended, by outcome", ["Outcome", "Now", "In the chart", "In all"])
  chart.root.classList.add("ended")

  function update(points, names) {
    const end = points.at(-1)?.t ?? 0
    chart.update(points[0]?.t ?? end, end, names.map((name, i) => {
      const first = points[0]?.ended[name], last = points.at(-1)?.ended[name]
      return {
        name, text: words(name), tone: toneOf(name, i), points: rates(points, p => p.ended[name]),
        cells: [perSecond(recentRate(points, p => p.ended[name])), last >= first ? number(last - first) : "–", number(last)],
      }
    }))
  }
  return { root: chart.root, update }
}

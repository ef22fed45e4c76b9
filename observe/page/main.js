// The stream of snapshots, the page's record of them, and the update of the page.

import { keepWindow } from "./shared/chart.js"
import { $, fill, h, setAttribute, setText } from "./shared/dom.js"
import { visible } from "./shared/format.js"
import { openStream, setState, showNotice } from "./shared/stream.js"
import { idOf, partsOf, selectedID, sourceList } from "./list.js"
import { words } from "./names.js"
import { isGroup, makePane, sum } from "./pane.js"

const records = new Map() // by source id: points of the counters, marks of all metrics
const lists = new Map()   // by source id: the newest lists, for the source of the stream
export let newest = null        // the newest snapshot
let frozen = null         // while the page is paused: the state to show, as of the pause
let pane = null
let sinceStart = false    // histograms since the start, not of the last minutes

function toggleSpan() {
  sinceStart = !sinceStart
  show()
}

const main = $("main")

// recordSnapshot adds a snapshot to the records: its counters, as a point, and all its metrics each ten
// seconds, as a mark. Both are kept for five minutes.
function recordSnapshot(snapshot) {
  const t = Date.parse(snapshot.time) / 1000
  const present = new Set()
  for (const source of snapshot.sources) {
    const id = idOf(source)
    present.add(id)
    if (!records.has(id)) records.set(id, { points: [], marks: [] })
    const record = records.get(id)
    const last = record.points[record.points.length - 1]
    if (last && t <= last.t) {
      if (last.t - t < 1) continue // the same snapshot again
      record.points = [] // the server's clock was set
      record.marks = []
    }
    const counters = {}
    for (const [name, value] of Object.entries(source.metrics)) {
      if (typeof value === "number" && name.endsWith("_total")) counters[name] = value
    }
    const point = { t, counters, ended: isGroup(source.metrics.ended_total) ? source.metrics.ended_total : {}, refused: sum(source.metrics.refused_total) }
    if (last && (sum(point.ended) < sum(last.ended) || point.refused < last.refused)) record.marks = [] // another process
    record.points.push(point)
    keepWindow(record.points)
    const mark = record.marks[record.marks.length - 1]
    if (!mark || t - mark.t >= 10) record.marks.push({ t, metrics: source.metrics })
    keepWindow(record.marks)
  }
  for (const id of records.keys()) if (!present.has(id)) records.delete(id)
}

// wheelOf returns the wheel to draw for a source: the source itself, or the wheel that it uses.
function wheelOf(source, sources) {
  if (source.kind === "wheel") return source
  return sources.find(other => other.kind === "wheel" && other.name === source.wheel) ?? null
}

// freeze copies the current state. Later snapshots are kept, but do not change the copy.
function freeze() {
  const copies = [...records].map(([id, r]) => [id, { points: [...r.points], marks: [...r.marks] }])
  return { newest, records: new Map(copies), lists: new Map(lists) }
}

function show() {
  const shown = frozen ?? { newest, records, lists }
  if (shown.newest === null) return
  const sources = shown.newest.sources
  sourceList.update(sources, shown.records)
  const time = new Date(shown.newest.time)
  setText($("time"), time.toLocaleTimeString([], { hour12: false }))
  if (sources.length === 0) {
    pane = null
    fill(main, h("p", { class: "empty" }, "Nothing is observed: no source has been added to the registry."))
  } else {
    if (selectedID() === "") {
      const first = sources.find(s => s.lists) ?? sources[0]
      history.replaceState(null, "", "#" + idOf(first))
      sourceList.select()
    }
    const id = selectedID(), source = sources.find(s => idOf(s) === id)
    if (source) {
      if (pane?.id !== id) {
        pane = makePane(id, source, search, toggleSpan)
        fill(main, pane.root)
      }
      pane.update(source, shown.records.get(id), wheelOf(source, sources), sinceStart)
      if (shown.lists.has(id)) pane.lists(shown.lists.get(id))
    } else if (pane?.id === id) {
      pane.showRemoved("This source was removed. These are its last metrics.")
    } else {
      pane = null
      const parts = partsOf(id)
      fill(main, h("p", { class: "empty" }, parts ? `No source of the kind ${words(parts.kind)} has the name ${visible(parts.name)}: it was removed, or never added.` : "The address names no source. Select one from the list."))
    }
    setText(document.querySelector("title"), (source ? visible(source.name) + " · " : "") + "limbo")
    const want = newest.sources.some(s => s.lists && idOf(s) === id) ? id : ""
    if (want !== streamOf) {
      streamOf = want
      lists.clear()
      connect()
    }
  }
}

async function search(source, key) {
  try {
    const response = await fetch("search.json?" + new URLSearchParams({ kind: source.kind, name: source.name, key }))
    if (response.ok) return await response.json()
    return { error: await describeError(response) }
  } catch {
    return { error: "The server cannot be reached." }
  }
}

// describeError describes an error response.
async function describeError(response) {
  const message = (await response.text()).trim().slice(0, 300)
  const wait = response.headers.get("Retry-After")
  const meaning = { 400: "The server rejected the request", 404: "The source does not exist", 503: "The server is busy" }[response.status] ?? "The server failed"
  return `${meaning}: ${message} (${response.status}).` + (wait ? ` Try again in ${wait} s.` : "")
}

let streamOf = "" // id of the source whose lists the stream sends, or empty

const connect = openStream({
  address() {
    const parts = streamOf === "" ? null : partsOf(streamOf)
    return "events" + (parts ? "?" + new URLSearchParams(parts) : "")
  },
  events: {
    snapshot(snapshot) {
      setState(frozen ? "paused" : "live")
      showNotice("")
      newest = snapshot
      recordSnapshot(newest)
      if (!frozen) show()
    },
    lists(list) {
      const id = idOf(list)
      lists.set(id, list)
      if (frozen?.lists.has(id)) return
      frozen?.lists.set(id, list) // the source was selected after the pause
      if (pane?.id === id) pane.lists(list)
    },
  },
  async refused(address) {
    setState("closed")
    const aborter = new AbortController()
    let wait = 2
    try {
      const response = await fetch(address, { signal: aborter.signal })
      if (!response.ok) {
        wait = Math.min(Number(response.headers.get("Retry-After")) || 2, 60)
        if (response.status === 404) streamOf = ""
        showNotice(await describeError(response))
      }
    } catch {
      setState("reconnecting")
    }
    aborter.abort()
    return wait
  },
  keepHidden: 60_000, // so that charts have no gap after a visit to another tab
})

addEventListener("hashchange", () => {
  sourceList.select()
  show()
})

let resized = 0
addEventListener("resize", () => {
  cancelAnimationFrame(resized)
  resized = requestAnimationFrame(show)
})

$("skip").addEventListener("click", () => main.focus())

$("pause").addEventListener("click", event => {
  frozen = frozen ? null : freeze()
  setAttribute(event.target, "aria-pressed", String(frozen !== null))
  setText(event.target, frozen ? "Resume" : "Pause")
  if (["live", "paused"].includes($("state").dataset.state)) setState(frozen ? "paused" : "live")
  show()
})

const themes = ["auto", "dark", "light"]

function setTheme(theme) {
  setAttribute(document.documentElement, "data-theme", theme)
  const button = $("theme")
  setText(button.querySelector("span"), theme)
  setAttribute(button, "aria-label", "Theme: " + theme)
}

$("theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]
  setTheme(next)
  try { localStorage.setItem("limbo-theme", next) } catch { /* the choice lasts as long as the page */ }
})

try { setTheme(themes.find(t => t === localStorage.getItem("limbo-theme")) ?? "auto") } catch { setTheme("auto") }

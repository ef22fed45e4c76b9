// The lists of timers.

import { get, session } from "./api.js"
import { fill, h } from "./shared/dom.js"
import { number, plural, visible, visibleLines } from "./shared/format.js"
import { keyText, table, tableRow, timeCell, timersText } from "./parts.js"
import { changeAll, changeTimers, offered } from "./dialogs.js"
import { begun, listen } from "./live.js"

const states = [["waiting", "Waiting"], ["running", "Running"], ["dead", "Dead"]]
const timeHeads = { waiting: "Due", running: "Lease ends", dead: "Died" }
const timeOf = { waiting: t => t.due, running: t => t.lease_end, dead: t => t.died }
const maxSelected = 500

// The selection stays across the pages of a list, until the user opens another list.
let kept = { list: "", selected: new Map() } // selected: the timers by key

// The fields of a filter, as in the address.
const filterNames = ["prefix", "topic", "error", "schedule"]

export function filterOf(query) {
  const filter = { state: query.get("state") ?? "waiting" }
  for (const name of filterNames) if (query.get(name)) filter[name] = query.get(name)
  return filter
}

export const address = filter => "#/timers?" + new URLSearchParams(filter)

// describe names the timers that a filter selects.
export function describe(filter, scheduleText) {
  const parts = []
  if (filter.prefix) parts.push(`with a key that begins with “${visible(filter.prefix)}”`)
  if (filter.topic) parts.push(`of the topic “${visible(filter.topic)}”`)
  if (filter.error) parts.push(`whose last error contains “${visible(filter.error)}”`)
  if (filter.schedule) parts.push(scheduleText ? `of the schedule “${visible(scheduleText)}”` : "of one schedule")
  const what = { waiting: "Waiting timers", running: "Running timers", dead: "Dead letters" }[filter.state]
  return parts.length ? what + " " + parts.join(", ") : "All " + what[0].toLowerCase() + what.slice(1)
}

export function timersView(query) {
  const filter = filterOf(query), after = query.get("after") ?? ""
  if (kept.list !== address(filter)) kept = { list: address(filter), selected: new Map() }
  const selected = kept.selected
  let left = new AbortController() // aborted when the list is reloaded or the view is left
  let total = null           // number of matching timers; null while it is counted
  let page = []              // the shown timers

  const tabs = new Map(states.map(([state, label]) => {
    const n = h("span", { class: "n" })
    const link = h("a", { href: address({ ...filter, state }), "aria-current": state === filter.state && "page" }, label, " ", n)
    return [state, { link, n }]
  }))
  const off = listen(live => {
    for (const [state, tab] of tabs) if (live.overview) tab.n.textContent = number(live.overview[state])
  })

  const input = (name, label) => h("label", { class: "field" }, h("span", {}, label),
    h("input", { name, type: "search", value: filter[name] ?? "", autocomplete: "off", spellcheck: "false" }))
  const form = h("form", {
    class: "search", role: "search",
    submit: event => {
      event.preventDefault()
      const next = { state: filter.state }
      if (filter.schedule && !form.elements.prefix.value) next.schedule = filter.schedule
      for (const { name, value } of form.querySelectorAll("input")) if (value) next[name] = value
      if (address(next) === location.hash) load()
      else location.hash = address(next)
    },
  }, input("prefix", "Key begins with"), input("topic", "Topic is"), input("error", "Last error contains"),
    h("span", { class: "buttons" }, h("button", { class: "primary" }, "Search"),
      Object.keys(filter).length > 1 && h("a", { class: "button", href: address({ state: filter.state }) }, "Clear")))

  const count = h("span", { role: "status" }), chosen = h("span", { class: "chosen" }), buttons = h("span", { class: "buttons" })
  const bar = h("div", { class: "bar" }, h("span", {}, count, chosen), buttons)
  const content = h("div", { class: "list" })
  const pager = h("p", { class: "pager" })
  const all = h("input", { type: "checkbox", "aria-label": "Select all timers of this page", change: () => {
    for (const t of page) choose(t, all.checked)
    for (const box of content.querySelectorAll("td input")) box.checked = selected.has(box.value)
    showBar()
  } })

  const columns = [
    ...(session.readOnly ? [] : [{ label: "Select", head: all, class: "select" }]), { label: "Key", class: "main" }, { label: "Topic", class: "topic" },
    { label: timeHeads[filter.state], class: "time" }, ...(filter.state === "running" ? [{ label: "Worker", class: "topic" }] : []),
    { label: filter.state === "running" ? "Attempt" : "Attempts", class: "number" }, { label: "Last error", class: "error-text" },
  ]

  function choose(t, on) {
    if (on && selected.size < maxSelected) selected.set(t.key, t)
    else if (!on) selected.delete(t.key)
  }

  function showBar() {
    count.textContent = total === null ? "Counting…" : total.error ?? `${timersText(total)} ${total.count === 1 && !total.at_least ? "matches" : "match"}.`
    chosen.textContent = selected.size === 0 ? "" : ` ${number(selected.size)} selected` + (selected.size === maxSelected ? ", the most at once." : ".")
    all.checked = page.length > 0 && page.every(t => selected.has(t.key))
    all.indeterminate = !all.checked && page.some(t => selected.has(t.key))
    const make = (name, action, label, act) => h("button", {
      type: "button", class: action.danger && "danger-text", "data-action": name, click: act,
    }, label)
    const few = selected.size
      ? offered(filter.state).map(([name, a]) => make(name, a, a.label, async () => {
        if (await changeTimers(name, [...selected.values()])) {
          selected.clear()
          load()
        }
      }))
      : []
    const many = !selected.size && total?.count > 0
      ? offered(filter.state).map(([name, a]) => make("all-" + name, a, a.all + "…", async () => {
        const job = await changeAll(name, filter, describe(filter, page[0]?.schedule_text) + ".")
        if (!job) return
        begun(job)
        location.hash = "#/bulk"
      }))
      : []
    const clear = selected.size > 0 && h("button", { type: "button", click: () => {
      selected.clear()
      for (const box of content.querySelectorAll("td input")) box.checked = false
      showBar()
    } }, "Clear selection")
    fill(buttons, few, many, clear, h("button", { type: "button", click: load }, "Refresh"))
  }

  function row(t) {
    const box = h("input", { type: "checkbox", value: t.key, checked: selected.has(t.key), "aria-label": "Select " + visible(t.text), change: () => {
      choose(t, box.checked)
      box.checked = selected.has(t.key)
      showBar()
    } })
    return tableRow(columns, [
      ...(session.readOnly ? [] : [box]), h("a", { href: "#/timer?key=" + t.key, title: t.text.length > 120 && visible(t.text) }, keyText(t.text)),
      t.topic && h("a", { class: "plain", href: address({ ...filter, topic: t.topic }), title: "Only this topic" }, keyText(t.topic, "clamp")),
      timeCell(timeOf[filter.state](t)), ...(filter.state === "running" ? [t.worker ? keyText(t.worker, "clamp") : "unknown"] : []),
      number(t.attempts),
      t.error && h("span", { class: "clamp" }, visibleLines(t.error)),
    ])
  }

  async function load() {
    content.setAttribute("aria-busy", "true")
    left.abort()
    const { signal } = left = new AbortController()
    total = null
    showBar()
    get("api/count", filter, signal).then(t => { total = t }, e => { total = { count: 0, error: e.message } }).then(showBar)
    try {
      const list = await get("api/timers", { ...filter, ...(after && { after }) }, signal)
      page = list.items
      fill(content, page.length === 0
        ? h("p", { class: "empty" }, list.partial ? "No timer matches so far." : after ? "No more timers." : Object.keys(filter).length > 1 ? "No timer matches." : `No timer is ${filter.state}.`)
        : table(describe(filter), columns, page.map(row)))
      fill(pager, [
        after && h("a", { class: "button", href: address(filter) }, "First page"),
        list.next && h("a", { class: "button", href: address({ ...filter, after: list.next }) }, "Next page"),
        list.partial && h("span", {}, ` The search took long, and has found ${plural(page.length, "timer", "timers")} so far: the next page goes on.`),
      ])
    } catch (e) {
      page = []
      fill(content, h("p", { class: "empty error" }, e.message, " ", h("button", { type: "button", click: load }, "Try again")))
      fill(pager)
    }
    content.removeAttribute("aria-busy")
    showBar()
  }

  load()
  return {
    title: "Timers",
    off() {
      off()
      left.abort()
    },
    root: h("div", { class: "view timers" }, h("h2", {}, "Timers"),
      h("nav", { class: "tabs", "aria-label": "States" }, [...tabs.values()].map(tab => tab.link)),
      form, bar, content, pager),
  }
}

// How elements are made, and how texts, numbers and times are written. All data becomes text
// nodes and attributes, so no text can become markup.

// h makes an element. A property that is a function is a listener; one that is false or
// undefined is left out.
export function h(tag, properties, ...children) {
  const node = document.createElement(tag)
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (typeof value === "function") node.addEventListener(name, value)
    else if (value !== undefined && value !== false && value !== null) node.setAttribute(name, value === true ? "" : value)
  }
  node.append(...kept(children))
  return node
}

const kept = children => children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false)

// fill replaces what is in an element. A child that is null, undefined or false is left out. The
// focus moves from a control that is replaced to its successor, or else to the view.
export function fill(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null
  const alike = () => [...node.querySelectorAll(focused.tagName)].filter(e =>
    e.textContent === focused.textContent && e.name === focused.name && e.dataset.action === focused.dataset.action)
  const at = focused ? alike().indexOf(focused) : 0
  node.replaceChildren(...kept(children))
  if (focused && !focused.isConnected) (alike()[at] ?? alike()[0] ?? $("main")).focus({ preventScroll: true })
}

export const $ = id => document.getElementById(id)

// setText leaves an unchanged text alone, so that a selection in it stays.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

// visible writes controls, and marks that turn the direction of the text, as escapes.
export function visible(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, c => "\\u{" + c.codePointAt(0).toString(16) + "}")
}

// visibleLines is visible, except that it keeps line breaks and tabs.
export function visibleLines(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, c => c === "\n" || c === "\t" ? c : visible(c))
}

// keyText shows a key, or another text of the store, apart from the text around it.
export function keyText(text, className = "key") {
  return h("bdi", { class: className }, visible(text))
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 })

export const number = n => grouped.format(n)

export function plural(n, one, many) {
  return number(n) + " " + (n === 1 ? one : many)
}

export function timersText(total) {
  return (total.at_least ? "at least " : "") + plural(total.count, "timer", "timers")
}

export function bytes(n) {
  return n >= 1024 ? precise.format(n / 1024) + " KiB" : plural(n, "byte", "bytes")
}

// perSecond writes a rate.
export function perSecond(rate) {
  return (rate > 0 && rate < 0.05 ? "< 0.1" : rate < 10 ? precise.format(Math.round(rate * 10) / 10) : number(rate)) + "/s"
}

// change writes a net change per second with its sign.
export function change(rate) {
  if (Math.abs(rate) < 0.05) return "±0 per second"
  const size = Math.abs(rate) < 10 ? precise.format(Math.round(Math.abs(rate) * 10) / 10) : number(Math.abs(rate))
  return (rate < 0 ? "−" : "+") + size + " per second"
}

const units = [[2 * 86400, 86400, "days"], [2 * 3600, 3600, "hours"], [120, 60, "minutes"], [0, 1, "seconds"]]

export function duration(seconds) {
  for (const [from, size, name] of units) {
    if (seconds >= from) {
      const n = Math.floor(seconds / size)
      return number(n) + " " + (n === 1 ? name.slice(0, -1) : name)
    }
  }
  return "0 seconds"
}

// length writes milliseconds in the largest unit of which they are a multiple.
export function length(ms) {
  for (const [, size, name] of units) {
    if (ms % (size * 1000) === 0) {
      const n = ms / (size * 1000)
      return number(n) + " " + (n === 1 ? name.slice(0, -1) : name)
    }
  }
  return plural(ms, "millisecond", "milliseconds")
}

// period is length for what recurs: "minute", as in every minute.
export const period = ms => length(ms).replace(/^1 /, "")

// The engine's clock, as far as the last reply told it.
let skew = 0
export const clock = {
  set(now) { skew = Date.parse(now) - Date.now() },
  now() { return Date.now() + skew },
}

export function relative(iso) {
  const seconds = (Date.parse(iso) - clock.now()) / 1000
  if (Math.abs(seconds) < 1) return "now"
  return seconds > 0 ? "in " + duration(seconds) : duration(-seconds) + " ago"
}

const pad = n => String(n).padStart(2, "0")
const day = d => `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`
const clockTime = d => `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`

export function localTime(iso) {
  const d = new Date(iso)
  return day(d) + " " + clockTime(d)
}

export const utcTime = iso => new Date(iso).toISOString().slice(0, 19).replace("T", " ") + " UTC"

// inUTC tells whether the viewer's zone is UTC at a time, which is then written once.
export const inUTC = iso => new Date(iso).getTimezoneOffset() === 0

// bothTimes writes a time in the viewer's zone with UTC next to it: only the clock, if the day
// is the same.
export function bothTimes(iso) {
  if (inUTC(iso)) return utcTime(iso)
  const local = localTime(iso), utc = utcTime(iso)
  return `${local} (${utc.startsWith(local.slice(0, 10)) ? utc.slice(11) : utc})`
}

export function timeCell(iso) {
  return h("time", { datetime: iso }, h("span", { class: "relative" }, relative(iso)), h("span", { class: "absolute" }, bothTimes(iso)))
}

// localOf writes a time in the viewer's zone next to zoneTime, unless both are the same.
export function localOf(iso) {
  return localTime(iso) === iso.slice(0, 19).replace("T", " ") ? "" : localTime(iso) + " local"
}

// zoneTime writes a time with an offset, such as 2026-03-29T02:30:00+01:00, as its own zone's
// clock shows it.
export function zoneTime(iso) {
  const offset = iso.endsWith("Z") ? "UTC" : "UTC" + iso.slice(-6)
  return iso.slice(0, 19).replace("T", " ") + " " + offset
}

export function encodeKey(text) {
  return encodeBase64(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")
}

export function encodeBase64(text) {
  return btoa(Array.from(new TextEncoder().encode(text), b => String.fromCharCode(b)).join(""))
}

export function decodeBase64(text) {
  return Uint8Array.from(atob(text), c => c.charCodeAt(0))
}

// table makes a table whose roles stay when the style shows its rows as blocks on a phone.
// Columns are {label, class}; the body's rows come from tableRow.
export function table(caption, columns, rows) {
  return h("table", { role: "table" }, h("caption", {}, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
      columns.map(c => h("th", { role: "columnheader", scope: "col", class: c.class }, c.head ?? c.label)))),
    h("tbody", { role: "rowgroup" }, rows))
}

export function tableRow(columns, cells, properties) {
  return h("tr", { role: "row", ...properties },
    cells.map((cell, i) => h("td", { role: "cell", class: columns[i].class, "data-label": columns[i].label }, cell)))
}

// field makes a labelled control of a form.
export function field(label, control, note) {
  return h("label", { class: "field" }, h("span", {}, label), control, note && h("small", {}, note))
}

export function select(name, options, value) {
  return h("select", { name }, options.map(([v, text]) => h("option", { value: v, selected: v === value }, text)))
}

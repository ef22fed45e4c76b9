// Formats of times, and the parts of the views.

import { h } from "./shared/dom.js"
import { duration, length, plural, visible } from "./shared/format.js"

// keyText isolates a key, or another text of the store, from the surrounding text.
export function keyText(text, className = "key") {
  return h("bdi", { class: className }, visible(text))
}

export function timersText(total) {
  return (total.at_least ? "at least " : "") + plural(total.count, "timer", "timers")
}

// period is length for recurrences: "minute", as in every minute.
export const period = ms => length(ms).replace(/^1 /, "")

// The engine's clock, as of the last reply.
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

// inUTC reports whether the viewer's zone is UTC at a time, which is then written only once.
export const inUTC = iso => new Date(iso).getTimezoneOffset() === 0

// bothTimes writes a time in the viewer's zone, followed by UTC: only the time of day, if the date
// is the same.
export function bothTimes(iso) {
  if (inUTC(iso)) return utcTime(iso)
  const local = localTime(iso), utc = utcTime(iso)
  return `${local} (${utc.startsWith(local.slice(0, 10)) ? utc.slice(11) : utc})`
}

export function timeCell(iso) {
  return h("time", { datetime: iso }, h("span", { class: "relative" }, relative(iso)), h("span", { class: "absolute" }, bothTimes(iso)))
}

// localOf writes a time in the viewer's zone, to follow zoneTime, unless both are the same.
export function localOf(iso) {
  return localTime(iso) === iso.slice(0, 19).replace("T", " ") ? "" : localTime(iso) + " local"
}

// zoneTime writes a time with an offset, such as 2026-03-29T02:30:00+01:00, in its own offset.
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

// table makes a table that keeps its ARIA roles when a phone's style shows its rows as blocks.
// Columns are {label, class}; the body's rows come from tableRow.
export function table(caption, columns, rows) {
  return h("table", { role: "table", class: "cards" }, h("caption", {}, caption),
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

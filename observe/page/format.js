// How numbers and texts are written, and how elements are made: of text nodes and
// attributes only, so that no text can become markup.

const svgNS = "http://www.w3.org/2000/svg"

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value)
  }
  node.append(...children.filter(child => child !== null && child !== undefined))
  return node
}

function html(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children)
}

function svg(tag, attributes, ...children) {
  return build(document.createElementNS(svgNS, tag), attributes, children)
}

// What has not changed is not touched: a selection in it stays.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value)
}

// keepRows makes the rows of a table's body those of texts, an array for each row. A cell
// is a text, or a {text, title, tone, key}.
function keepRows(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1)
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow()
    while (row.cells.length > cells.length) row.deleteCell(-1)
    cells.forEach((cell, j) => {
      const { text, title = "", tone = "", key = false } = typeof cell === "string" ? { text: cell } : cell
      const td = row.cells[j] ?? row.appendChild(html(j === 0 ? "th" : "td", j === 0 ? { scope: "row" } : {}))
      if (!td.firstChild) td.append(html("bdi"))
      setText(td.firstChild, text)
      setAttribute(td, "title", title)
      setAttribute(td, "class", [tone && "tone-" + tone, key && "key"].filter(Boolean).join(" "))
    })
  })
}

// A table in a box that scrolls sideways by itself, for the keyboard too.
function table(caption, ...heads) {
  const body = html("tbody")
  const box = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    html("table", {}, html("caption", {}, caption),
      html("thead", {}, html("tr", {}, ...heads.map(head => html("th", { scope: "col" }, head)))), body))
  return { box, body }
}

// visible shows what is not a visible character as an escape: controls, and marks that
// turn the direction of the text.
function visible(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, c => "\\u{" + c.codePointAt(0).toString(16) + "}")
}

function words(name) {
  return visible(name).replaceAll("_", " ")
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 })

// A figure that is missing is a dash.
const missing = n => typeof n !== "number" || Number.isNaN(n)

function number(n) {
  if (missing(n)) return "–"
  return Math.abs(n) >= 1000 || Number.isInteger(n) ? grouped.format(n) : precise.format(n)
}

function short(n) {
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (n >= size) return precise.format(n / (unit === " k" ? 1e3 : size)) + unit
  }
  return number(n)
}

function plural(n, one, many) {
  return number(n) + " " + (n === 1 ? one : many)
}

function perSecond(rate) {
  return rate === null ? "–" : (rate > 0 && rate < 0.1 ? "< 0.1" : rate < 10 ? String(Math.round(rate * 10) / 10) : number(Math.round(rate))) + "/s"
}

const timeUnits = [[172800, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [1e-6, 1e-6, "µs"]]

function seconds(s) {
  if (missing(s)) return "–"
  if (s < 0) return "−" + seconds(-s)
  for (const [from, unit, name] of timeUnits) {
    if (s >= from) return precise.format(s / unit) + " " + name
  }
  return s === 0 ? "0 s" : precise.format(s * 1e9) + " ns"
}

function bytes(n) {
  if (missing(n)) return "–"
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= size) return precise.format(n / size) + " " + unit
  }
  return number(n) + " B"
}

// How a figure is written, by its name.
function figureText(name, value) {
  if (name.endsWith("_seconds")) return seconds(value)
  if (name.endsWith("_bytes")) return bytes(value)
  return number(value)
}

// The colour of an outcome. Its name stands beside it wherever it is used.
const tones = {
  completed: "good", ready: "good", ended: "good",
  expired: "slow", failed: "bad", refused: "bad", invalid: "bad", limited: "bad",
  cancelled: "calm", stopped: "calm", hung_up: "calm",
  closed: "odd", discarded: "odd", handed_back: "odd",
}

// inOrder sorts outcomes as they stand above, and time waited before lateness; what is not
// known stays where it is, after those.
const order = [...Object.keys(tones), "waited_seconds", "late_seconds"]

function inOrder(names) {
  const rank = name => order.includes(name) ? order.indexOf(name) : order.length
  return [...names].sort((a, b) => rank(a) - rank(b))
}

function toneOf(name, i) {
  return Object.hasOwn(tones, name) ? tones[name] : ["good", "slow", "calm", "odd", "bad"][i % 5]
}

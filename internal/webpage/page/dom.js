// Creation and update of elements. All data becomes text nodes and attributes, so no text can
// become markup.

const kept = children => children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false)

function build(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (typeof value === "function") node.addEventListener(name, value)
    else if (value !== undefined && value !== false && value !== null) node.setAttribute(name, value === true ? "" : value)
  }
  node.append(...kept(children))
  return node
}

// h makes an element. A property that is a function is a listener. Properties and children that
// are false, null or undefined are omitted.
export const h = (tag, properties, ...children) => build(document.createElement(tag), properties, children)

export const svg = (tag, properties, ...children) => build(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children)

export const $ = id => document.getElementById(id)

// fill replaces the contents of an element. The focus moves from a replaced control to its
// successor, or else to the view.
export function fill(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null
  const alike = () => [...node.querySelectorAll(focused.tagName)].filter(e =>
    e.textContent === focused.textContent && e.name === focused.name && e.dataset.action === focused.dataset.action)
  const at = focused ? alike().indexOf(focused) : 0
  node.replaceChildren(...kept(children))
  if (focused && !focused.isConnected) (alike()[at] ?? alike()[0] ?? $("main")).focus({ preventScroll: true })
}

// setText leaves an unchanged text alone, so that a selection in it stays.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value)
}

// keepRows updates the rows of a table's body from an array of cells for each row. A cell is a
// text, or a {text, title, tone, key}.
export function keepRows(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1)
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow()
    while (row.cells.length > cells.length) row.deleteCell(-1)
    cells.forEach((cell, j) => {
      const { text, title = "", tone = "", key = false } = typeof cell === "string" ? { text: cell } : cell
      const td = row.cells[j] ?? row.appendChild(h(j === 0 ? "th" : "td", j === 0 ? { scope: "row" } : {}))
      if (!td.firstChild) td.append(h("bdi"))
      setText(td.firstChild, text)
      setAttribute(td, "title", title)
      setAttribute(td, "class", [tone && "tone-" + tone, key && "key"].filter(Boolean).join(" "))
    })
  })
}

// scrollTable makes a table in a box that scrolls sideways on its own, also with the keyboard.
export function scrollTable(caption, ...heads) {
  const body = h("tbody")
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "plain" }, h("caption", {}, caption), h("thead", {}, h("tr", {}, heads.map(head => h("th", { scope: "col" }, head)))), body))
  return { box, body }
}

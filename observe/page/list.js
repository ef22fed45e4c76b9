// The list of the sources, and its selection: the source that the URL's fragment names, as
// #kind/name.

import { $, h, setAttribute, setText } from "./shared/dom.js"
import { visible } from "./shared/format.js"
import { words } from "./names.js"
import { mainNumber, problemText } from "./pane.js"

export const idOf = source => encodeURIComponent(source.kind) + "/" + encodeURIComponent(source.name)

// selectedID returns the id in idOf's encoding. The fragment may be encoded differently, because
// a person may have typed it.
export function selectedID() {
  const fragment = location.hash.slice(1), parts = partsOf(fragment)
  return parts ? idOf(parts) : fragment
}

// partsOf parses a fragment; null if it is invalid.
export function partsOf(id) {
  const slash = id.indexOf("/")
  if (slash < 0) return null
  try {
    return { kind: decodeURIComponent(id.slice(0, slash)), name: decodeURIComponent(id.slice(slash + 1)) }
  } catch {
    return null
  }
}

const kindOrder = ["purgatory", "calls", "polls", "scheduler", "queue"]

function rankOf(kind) {
  const i = kindOrder.indexOf(kind)
  return kind === "wheel" ? 99 : i < 0 ? 50 : i
}

export const sourceList = (() => {
  const root = $("sources"), filter = $("filter")
  const groups = new Map(), items = new Map()

  function group(kind) {
    if (!groups.has(kind)) {
      const list = h("ul")
      const made = { kind, list, root: h("section", {}, h("h2", {}, words(kind)), list) }
      const after = [...groups.values()].find(g => rankOf(g.kind) > rankOf(kind))
      root.insertBefore(made.root, after?.root ?? null)
      groups.set(kind, made)
      const order = [...groups.values()].sort((a, b) => rankOf(a.kind) - rankOf(b.kind))
      groups.clear()
      for (const g of order) groups.set(g.kind, g)
    }
    return groups.get(kind)
  }

  function item(source) {
    const id = idOf(source)
    if (!items.has(id)) {
      const name = h("bdi", { class: "name" }, visible(source.name))
      const warn = h("span", { class: "warn" }), value = h("span", { class: "value" })
      const link = h("a", { href: "#" + id }, name, warn, value)
      items.set(id, { root: h("li", {}, link), link, warn, value, text: source.name.toLowerCase(), kind: source.kind })
    }
    return items.get(id)
  }

  function update(sources, records) {
    const present = new Set()
    for (const source of sources) {
      const id = idOf(source), it = item(source)
      present.add(id)
      const list = group(source.kind).list
      if (it.root.parentNode !== list) list.append(it.root)
      setText(it.value, mainNumber(source))
      setText(it.warn, problemText(source, records.get(id).points))
    }
    for (const [id, it] of items) {
      if (present.has(id)) continue
      it.root.remove()
      items.delete(id)
    }
    narrow()
    select()
  }

  function select() {
    for (const [id, it] of items) {
      if (id === selectedID()) {
        if (!it.link.hasAttribute("aria-current")) reveal(it.link)
        setAttribute(it.link, "aria-current", "true")
      } else it.link.removeAttribute("aria-current")
    }
  }

  // reveal scrolls the list until the link is visible. It does not use scrollIntoView, which in
  // some browsers also moves the start of Tab navigation to the link.
  function reveal(link) {
    const list = root.parentNode, seen = list.getBoundingClientRect(), at = link.getBoundingClientRect(), margin = 24
    if (at.height === 0) return // filtered out
    if (at.top < seen.top + margin) list.scrollTop -= seen.top + margin - at.top
    else if (at.bottom > seen.bottom - margin) list.scrollTop += at.bottom - seen.bottom + margin
  }

  function narrow() {
    const text = filter.value.toLowerCase()
    filter.hidden = items.size <= 8 && text === ""
    for (const it of items.values()) it.root.hidden = !it.text.includes(text)
    for (const g of groups.values()) g.root.hidden = ![...g.list.children].some(li => !li.hidden)
  }
  filter.addEventListener("input", narrow)
  return { update, select }
})()

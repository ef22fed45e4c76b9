// One timer, with all fields that the store has.

import { get, session } from "./api.js"
import { curlOf } from "./curl.js"
import { fill, h } from "./shared/dom.js"
import { bytes, number, plural, visible, visibleLines } from "./shared/format.js"
import { bothTimes, decodeBase64, keyText, relative } from "./parts.js"
import { changeTimers, offered, say } from "./dialogs.js"

const decoder = new TextDecoder("utf-8", { fatal: true })

function asText(raw) {
  try { return decoder.decode(raw) } catch { return null }
}

// asJSON indents JSON, and returns null for other text. Numbers that JavaScript would round stay
// as written.
function asJSON(text) {
  if (text === null || !/^\s*[[{]/.test(text)) return null
  try {
    const value = JSON.parse(text, (_, v, context) =>
      typeof v === "number" && context?.source && String(v) !== context.source && JSON.rawJSON ? JSON.rawJSON(context.source) : v)
    return JSON.stringify(value, null, 2)
  } catch {
    return null
  }
}

function asHex(raw) {
  const lines = []
  for (let at = 0; at < raw.length; at += 16) {
    const part = [...raw.slice(at, at + 16)]
    const hex = part.map(b => b.toString(16).padStart(2, "0")).join(" ").padEnd(47)
    lines.push(at.toString(16).padStart(6, "0") + "  " + hex + "  " + part.map(b => b > 31 && b < 127 ? String.fromCharCode(b) : ".").join(""))
  }
  return lines.join("\n")
}

// bodyView shows a body as JSON, text or hexadecimal digits: the first of these that is possible.
export function bodyView(body) {
  const raw = body.base64 === undefined ? null : decodeBase64(body.base64)
  const text = raw ? asText(raw) : body.decoded ?? ""
  const forms = [["JSON", asJSON(text)], ["Text", text], ["Hex", raw && asHex(raw)]].filter(([, shown]) => shown !== null && shown !== undefined)
  const pre = h("pre", { tabindex: "0", role: "region", "aria-label": "Body" })
  const show = i => { pre.textContent = visibleLines(forms[i][1]) }
  if (body.bytes === 0) return h("section", {}, h("h3", {}, "Body"), h("p", { class: "dim" }, "The body is empty."))
  show(0)
  return h("section", {}, h("h3", {}, "Body, " + bytes(body.bytes)),
    body.hidden && h("p", { class: "dim" }, "The values of secret headers are hidden."),
    h("fieldset", { class: "choice" }, h("legend", {}, "Show as"),
      forms.map(([name], i) => h("label", {}, h("input", { type: "radio", name: "body", checked: i === 0, change: () => show(i) }), name))),
    pre)
}

export const fact = (name, value) => value === null || value === undefined || value === "" || value === false ? null : [h("dt", {}, name), h("dd", {}, value)]

export const factTime = iso => iso && `${bothTimes(iso)}, ${relative(iso)}`

// curlView shows commands for a shell, each with a button that copies it.
function curlView(timer) {
  const commands = curlOf(timer)
  return commands.length > 0 && h("details", { class: "panel commands" }, h("summary", {}, "Copy as curl"),
    commands.map(({ label, text }) => {
      const shown = h("pre", { tabindex: "0", role: "region", "aria-label": label + " with curl" }, text)
      return h("div", {}, shown, h("button", {
        type: "button", "data-curl": label, click: async () => {
          try {
            await navigator.clipboard.writeText(text)
            say(`The command is copied: ${label}.`)
          } catch { // no TLS, or no permission
            getSelection().selectAllChildren(shown)
            say("The browser does not let the page copy: the command is selected.")
          }
        },
      }, "Copy: " + label))
    }),
    session.token && h("p", { class: "note" }, "The shell variable TOKEN must hold the token."))
}

// attemptsView shows the number of attempts and the last error; the store keeps no more of them.
function attemptsView(t) {
  const counts = {
    waiting: t.attempts === 0 ? "has not run yet" : `${plural(t.attempts, "attempt has", "attempts have")} failed`,
    running: `attempt ${number(t.attempts)} runs` + (t.cancelled ? "; it was cancelled, so nothing follows" : ""),
    dead: t.attempts === 0 ? "none" : `${plural(t.attempts, "attempt", "attempts")}, then a dead letter`,
  }
  return h("section", {}, h("h3", {}, "Attempts"), h("dl", {},
    fact("Attempts", counts[t.state]),
    t.state === "running" && [fact("Worker", t.worker ? keyText(t.worker) : "not known: it has sent no heartbeat for an hour"), fact("Lease ends", factTime(t.lease_end))],
    fact("Died", factTime(t.died)), fact("Successor due", factTime(t.successor_due)), fact("Last error", !t.error && t.attempts > 0 && t.state !== "running" && "none")),
  t.error && [h("h3", {}, "Last error"), h("pre", { tabindex: "0", role: "region", "aria-label": "Last error" }, visibleLines(t.error))])
}

export function timerView(query) {
  const key = query.get("key") ?? ""
  const root = h("div", { class: "view timer" }, h("p", {}, "Loading…"))

  async function load() {
    let t
    try {
      t = await get("api/timer", { key })
    } catch (e) {
      fill(root, h("p", {}, h("a", { href: "#/timers" }, "All timers")), h("h2", {}, "Timer"), h("p", { class: "empty error" }, e.message, " ",
        h("button", { type: "button", click: load }, "Try again")))
      return
    }
    fill(root,
      h("p", {}, h("a", { href: "#/timers?state=" + t.state }, { waiting: "Waiting timers", running: "Running timers", dead: "Dead letters" }[t.state])),
      h("h2", { "data-key": t.key }, keyText(t.text)),
      h("p", { class: "buttons" }, offered(t.state).map(([name, a]) => h("button", {
        type: "button", class: a.danger && "danger-text", "data-action": name,
        click: async () => { if (await changeTimers(name, [t])) load() },
      }, a.label)), h("button", { type: "button", click: load }, "Refresh")),
      h("div", { class: "columns" },
        h("section", {}, h("h3", {}, "Timer"), h("dl", {},
          fact("State", h("span", { class: "badge " + t.state }, t.state)),
          fact("Topic", t.topic && h("a", { href: "#/timers?" + new URLSearchParams({ state: t.state, topic: t.topic }) }, keyText(t.topic, ""))),
          fact(t.state === "waiting" ? "Due" : "Was due", factTime(t.due)),
          fact("Schedule", t.schedule && h("a", { href: "#/schedule?key=" + t.schedule }, keyText(t.schedule_text, ""))),
          fact("Planned", factTime(t.planned)),
          fact("Fence", t.fence),
          fact("ID", h("code", {}, visible(t.id))))),
        attemptsView(t)),
      bodyView(t.body), curlView(t))
  }

  load()
  return { title: "Timer", root, off() {} }
}

// Dialogs, and the actions on timers.

import { get, post, session } from "./api.js"
import { $, fill, h, setText } from "./shared/dom.js"
import { number, plural } from "./shared/format.js"
import { field, keyText, timersText } from "./parts.js"

export function say(text) {
  setText($("message"), text)
}

// open shows a dialog with a form, and calls submit with the form. The dialog closes when submit
// returns, and shows its error if it fails. The promise's value is the result of submit, or
// undefined if the user closed the dialog.
export function open(title, content, label, submit, { danger = false } = {}) {
  return new Promise(resolve => {
    const error = h("p", { class: "error", role: "alert" })
    const button = h("button", { class: danger ? "danger" : "primary" }, label)
    const form = h("form", {
      submit: async event => {
        event.preventDefault()
        button.disabled = true
        setText(error, "")
        try {
          finish(await submit(form, button))
        } catch (e) {
          setText(error, e.message)
        } finally {
          button.disabled = false
        }
      },
    }, h("h2", { id: "dialog-title" }, title), content, error,
      h("p", { class: "buttons" }, h("button", { type: "button", click: () => finish() }, "Close"), button))
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", close: () => finish() }, form)
    const finish = value => {
      resolve(value)
      dialog.close() // which also returns the focus
      dialog.remove()
    }
    document.body.append(dialog)
    dialog.showModal()
  })
}

// The actions, and the states of the timers for which the page offers them.
export const actions = {
  run: { states: ["waiting"], path: "reset", label: "Run now", all: "Run all now", done: "due now" },
  move: { states: ["waiting"], path: "reset", label: "Move…", all: "Move all", done: "moved" },
  cancel: { states: ["waiting", "running"], path: "cancel", label: "Cancel…", all: "Cancel all", done: "cancelled", danger: true },
  requeue: { states: ["dead"], path: "requeue", label: "Requeue", all: "Requeue all", done: "requeued" },
  purge: { states: ["dead"], path: "purge", label: "Purge…", all: "Purge all", done: "purged", danger: true },
}

const verbs = { run: "Run", move: "Move", cancel: "Cancel", requeue: "Requeue", purge: "Purge" }

const notes = {
  run: "The due time becomes now. The attempts are kept.",
  move: "All get the same new due time. The attempts are kept.",
  cancel: "A timer that waits is removed. One that runs is not retried, and its handler's context ends.",
  requeue: "A dead letter becomes due at once, with attempts from 0.",
  purge: "A dead letter is removed for ever.",
}

export const offered = state => session.readOnly ? [] : Object.entries(actions).filter(([, a]) => a.states.includes(state))

const confirmAbove = 100

// countField makes the user type a count above confirmAbove; it is null for a smaller count.
function countField(total) {
  if (total.count <= confirmAbove) return null
  return field(`Type ${number(total.count)} to confirm`, h("input", {
    name: "count", inputmode: "numeric", autocomplete: "off", required: true, "aria-describedby": "dialog-count",
  }))
}

function checkCount(form, total) {
  const input = form.elements.count
  if (input && input.value.replace(/[\s,.'’]/g, "") !== String(total.count)) {
    input.focus()
    throw new Error(`The number is ${number(total.count)}.`)
  }
}

// moveFields asks for a new due time.
function moveFields() {
  const soon = new Date(Date.now() + 3600_000)
  const local = new Date(soon - soon.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
  return [field("New due time, in your time zone", h("input", { type: "datetime-local", name: "at", value: local, required: true, step: "1" }),
    Intl.DateTimeFormat().resolvedOptions().timeZone)]
}

const movedTo = (name, form) => name === "move" ? { at: new Date(form.elements.at.value).toISOString() } : {}

// changeTimers asks for confirmation, and then carries out an action on the selected timers,
// {key, text}. It returns whether it did.
export async function changeTimers(name, timers) {
  const action = actions[name], total = { count: timers.length }
  const shown = timers.slice(0, 5)
  const content = [h("p", { id: "dialog-count" }, timersText(total) + (timers.length === 1 ? ":" : " selected:")),
    h("ul", { class: "keys" }, shown.map(t => h("li", {}, keyText(t.text)))),
    timers.length > shown.length && h("p", {}, `and ${number(timers.length - shown.length)} more`),
    h("p", {}, notes[name]), name === "move" && moveFields(), countField(total)]
  const reply = await open(`${verbs[name]} ${plural(timers.length, "timer", "timers")}`, content, verbs[name] + (timers.length === 1 ? " timer" : " timers"), async form => {
    checkCount(form, total)
    return post("api/timers/" + action.path, { keys: timers.map(t => t.key), ...movedTo(name, form) })
  }, action)
  if (!reply) return false
  say(`${number(reply.changed)} of ${timersText({ count: reply.of })} ${action.done}.` + (reply.error ? ` The store says: ${reply.error}` : ""))
  const good = { cancel: ["cancelled", "running"], reset: ["moved"], requeue: ["requeued"] }[action.path] ?? []
  const missed = (reply.results ?? []).filter(r => !good.includes(r.result))
  if (missed.length > 0) {
    await open(`${plural(missed.length, "timer was", "timers were")} not changed`,
      h("ul", { class: "keys" }, missed.slice(0, 100).map(r => h("li", {}, keyText(r.text), ": " + r.result + (r.error ? ", " + r.error : "")))),
      "OK", async () => true)
  }
  return true
}

// changeAll asks for confirmation, and then starts an action on all timers that match a filter.
// If the count has become wrong, the server refuses it, and the user confirms the new one.
export async function changeAll(name, filter, describe) {
  const action = actions[name]
  let total = null
  const count = h("p", { id: "dialog-count", class: "count" }, "Counting…"), confirm = h("div")
  const show = t => {
    total = t
    setText(count, `${timersText(t)} ${t.count === 1 && !t.at_least ? "matches" : "match"}.`)
    fill(confirm, countField(t))
  }
  const left = new AbortController() // aborted when the dialog is closed
  const job = open(`${verbs[name]} all timers that match`, [h("p", {}, describe), count, h("p", {}, notes[name]),
    name === "move" && moveFields(), confirm,
    h("p", { class: "dim" }, "The server goes on when this page is closed.")], verbs[name] + " timers", async form => {
    if (!total) throw new Error("The timers are still being counted.")
    checkCount(form, total)
    try {
      return await post("api/bulk", { action: action.path, filter, confirm: total.count, at_least: total.at_least ?? false, ...movedTo(name, form) })
    } catch (e) {
      if (e.status === 409 && e.reply.count !== undefined) show(e.reply)
      throw e
    }
  }, action)
  get("api/count", filter, left.signal).then(show, e => setText(count, e.message))
  try { return await job } finally { left.abort() }
}

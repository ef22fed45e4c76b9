// Schedules: the list, the view of one schedule, and the form.

import { get, post, session } from "./api.js"
import { fill, h, setText } from "./shared/dom.js"
import { length, number, plural, visible, visibleLines } from "./shared/format.js"
import {
  bothTimes, decodeBase64, encodeBase64, encodeKey, field, keyText, localOf, period, relative, select, table, tableRow, zoneTime,
} from "./parts.js"
import { open, say } from "./dialogs.js"
import { bodyView, fact, factTime } from "./timer.js"

const days = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
const two = n => n.padStart(2, "0")

// words writes a common cron expression in words, and any other one as it is.
export function words(cron) {
  const named = { "@hourly": "every hour", "@daily": "every day at 00:00", "@midnight": "every day at 00:00", "@weekly": "every Sunday at 00:00", "@monthly": "on day 1 of every month at 00:00", "@yearly": "on January 1 at 00:00", "@annually": "on January 1 at 00:00" }
  if (Object.hasOwn(named, cron)) return named[cron]
  const parts = cron.trim().split(/\s+/)
  if (parts.length !== 5) return cron
  const [minute, hour, date, month, weekday] = parts, plain = /^\d{1,2}$/, step = /^\*\/(\d{1,2})$/
  if (month !== "*") return cron
  if (date === "*" && weekday === "*" && hour === "*") {
    if (minute === "*") return "every minute"
    if (step.test(minute) && 60 % Number(step.exec(minute)[1]) === 0) return `every ${step.exec(minute)[1]} minutes`
    if (plain.test(minute)) return `every hour at minute ${minute}`
  }
  if (!plain.test(minute) || !plain.test(hour)) return cron
  const at = ` at ${two(hour)}:${two(minute)}`
  if (date === "*" && weekday === "*") return "every day" + at
  if (date === "*" && weekday === "1-5") return "Monday to Friday" + at
  if (date === "*" && /^[0-7]$/.test(weekday)) return "every " + days[weekday] + at
  if (weekday === "*" && plain.test(date)) return `on day ${date} of every month` + at
  return cron
}

function spec(s) {
  if (s.every_ms) return "every " + period(s.every_ms) + (s.offset_ms ? ", offset " + length(s.offset_ms) : "")
  return words(s.cron)
}

const details = s => s.every_ms ? "" : (words(s.cron) === s.cron ? "" : s.cron + ", ") + s.zone

// strip shows the last occurrences, the latest last, each by a letter and a colour.
const letters = { pending: "…", waiting: "W", running: "R", done: "✓", dead: "✕", cancelled: "C", lost: "?" }

function strip(s) {
  if (s.last.length === 0) return h("span", { class: "dim" }, "none yet")
  return h("ol", { class: "strip", "aria-label": "Last occurrences, the latest last" }, [...s.last].reverse().map(o => {
    const text = `${o.state}, planned ${bothTimes(o.planned)}` + (o.requested ? `, by ${o.requested}` : "") + (o.error ? `: ${visible(o.error)}` : "")
    return h("li", { class: o.state, title: text }, h("span", { "aria-hidden": "true" }, letters[o.state] ?? "?"), h("span", { class: "hidden" }, text))
  }))
}

function nextTime(s) {
  if (s.next.length === 0) return h("span", { class: "dim" }, "none: it has ended")
  return h("time", { datetime: s.next[0] }, h("span", { class: "relative" }, s.paused ? "paused" : relative(s.next[0])),
    h("span", { class: "absolute" }, zoneTime(s.next[0])), localOf(s.next[0]) && h("span", { class: "absolute" }, localOf(s.next[0])))
}

function badges(s) {
  return [
    s.paused && h("span", { class: "badge paused", title: "since " + bothTimes(s.paused) }, "paused"),
    s.overdue && h("span", { class: "badge dead" }, "overdue"),
    s.problem && h("span", { class: "badge dead" }, "problem"),
  ]
}

async function act(action, key, more) {
  return post("api/schedules/" + action, { key, ...more })
}

// buttons are the actions on a schedule. After an action, changed is called with whether the
// schedule was deleted.
function buttons(s, changed) {
  if (session.readOnly) return []
  const run = async (action, more, text) => {
    try {
      const reply = await act(action, s.key, more)
      say(text(reply))
      changed(action === "delete")
    } catch (e) {
      say(e.message)
    }
  }
  const button = (name, label, click, danger) => h("button", { type: "button", "data-action": name, class: danger && "danger-text", click }, label)
  const title = text => h("span", {}, text + " ", keyText(s.text))
  const ask = (name, label, content, body, text, options) => button(name, label + "…", async () => {
    const reply = await open(title(label), content(), label, form => act(name, s.key, body(form)), options)
    if (!reply) return
    say(text(reply))
    changed(name === "delete")
  }, options?.danger)
  const at = ms => {
    const d = new Date(ms)
    return new Date(d - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
  }
  return [
    s.paused
      ? button("resume", "Resume", () => run("resume", {}, () => "The schedule is resumed."))
      : ask("pause", "Pause", () => [h("p", {}, "It creates no occurrences until it is resumed. Those that exist run."),
        field("Note: why it is paused", h("input", { name: "note", maxlength: "256", autocomplete: "off" }))],
      form => ({ note: form.elements.note.value }), () => "The schedule is paused."),
    ask("trigger", "Trigger", () => h("p", {}, "It creates an occurrence that is due now, whatever its plan."), () => ({}), () => "An occurrence is due now."),
    ask("backfill", "Backfill", () => [h("p", {}, "It creates an occurrence, due now, for each planned time between two times that have passed, at most 1,000."),
      field("From, in your time zone", h("input", { type: "datetime-local", name: "from", required: true, step: "1", value: at(Date.now() - 86400_000) })),
      field("To, in your time zone", h("input", { type: "datetime-local", name: "to", required: true, step: "1", value: at(Date.now() - 60_000) }))],
    form => ({ from: new Date(form.elements.from.value).toISOString(), to: new Date(form.elements.to.value).toISOString() }),
    reply => `${plural(reply.count ?? 0, "occurrence is", "occurrences are")} due now.`),
    ask("delete", "Delete", () => [h("p", {}, "The schedule is removed with its history."),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "cancel" }), "Cancel its occurrences that wait, too")],
    form => ({ cancel: form.elements.cancel.checked }),
    reply => "The schedule is deleted." + (reply.count ? ` ${plural(reply.count, "occurrence was", "occurrences were")} cancelled.` : ""), { danger: true }),
  ]
}

export function schedulesView(query) {
  const after = query.get("after") ?? "", content = h("div", { class: "list" }), pager = h("p", { class: "pager" })
  const columns = [
    { label: "Schedule", class: "main" }, { label: "Plan", class: "plan" }, { label: "Next", class: "time" },
    { label: "Last occurrences", class: "outcomes" }, { label: "Actions", class: "actions" },
  ].filter(c => c.class !== "actions" || !session.readOnly)

  async function load() {
    content.setAttribute("aria-busy", "true")
    try {
      const list = await get("api/schedules", { limit: 50, ...(after && { after }) })
      fill(content, list.items.length === 0 ? h("p", { class: "empty" }, "There is no schedule.") : table("Schedules", columns, list.items.map(s => tableRow(columns, [
        h("div", {}, h("a", { href: "#/schedule?key=" + s.key }, keyText(s.text)), " ", badges(s),
          s.pause_note && h("small", {}, visible(s.pause_note)), s.problem && h("small", { class: "error" }, visible(s.problem))),
        h("div", {}, spec(s), h("small", {}, details(s))), nextTime(s), strip(s),
        ...(session.readOnly ? [] : [h("span", { class: "buttons" }, buttons(s, load))]),
      ]))))
      fill(pager, [
        after && h("a", { class: "button", href: "#/schedules" }, "First page"),
        list.next && h("a", { class: "button", href: "#/schedules?after=" + list.next }, "Next page"),
      ])
    } catch (e) {
      fill(content, h("p", { class: "empty error" }, e.message, " ", h("button", { type: "button", click: load }, "Try again")))
    }
    content.removeAttribute("aria-busy")
  }
  load()
  return {
    title: "Schedules", off() {},
    root: h("div", { class: "view schedules" }, h("div", { class: "head" }, h("h2", {}, "Schedules"),
      h("span", { class: "buttons" }, !session.readOnly && h("a", { class: "button", href: "#/edit" }, "New schedule"),
        h("button", { type: "button", click: load }, "Refresh"))), content, pager),
  }
}

export function scheduleView(query) {
  const key = query.get("key") ?? "", root = h("div", { class: "view schedule" }, h("p", {}, "Loading…"))
  const back = h("p", {}, h("a", { href: "#/schedules" }, "All schedules"))

  async function load(deleted) {
    if (deleted === true) {
      location.hash = "#/schedules"
      return
    }
    let s
    try {
      s = await get("api/schedule", { key })
    } catch (e) {
      fill(root, back, h("h2", {}, "Schedule"), h("p", { class: "empty error" }, e.message, " ", h("button", { type: "button", click: load }, "Try again")))
      return
    }
    const columns = [{ label: "Planned", class: "time" }, { label: "State", class: "state" }, { label: "By" }, { label: "Attempts", class: "number" }, { label: "Ended", class: "time" }, { label: "Error", class: "error-text" }]
    const c = s.counts
    fill(root, back, h("h2", {}, keyText(s.text), " ", badges(s)),
      h("p", { class: "buttons" }, !session.readOnly && h("a", { class: "button", href: "#/edit?key=" + s.key }, "Edit"), buttons(s, load),
        h("a", { class: "button", href: "#/timers?" + new URLSearchParams({ state: "waiting", schedule: s.key }) }, "Its timers"),
        h("button", { type: "button", click: load }, "Refresh")),
      s.problem && h("p", { class: "empty error" }, "No worker can create occurrences: " + visible(s.problem)),
      s.warning && h("p", { class: "empty" }, visible(s.warning)),
      h("div", { class: "columns" },
        h("section", {}, h("h3", {}, "Plan"), h("dl", {},
          fact("Plan", spec(s)), fact("Cron", s.cron), fact("Zone", s.zone),
          fact("Paused", s.paused && factTime(s.paused)), fact("Note", s.pause_note && visible(s.pause_note)),
          fact("Overdue since", factTime(s.overdue)), fact("Waits for an end", factTime(s.waiting)),
          fact("Start", factTime(s.start)), fact("End", factTime(s.end)), fact("Limit", s.limit && number(s.limit)),
          fact("Jitter", s.jitter_ms && length(s.jitter_ms)), fact("Overlap", s.overlap.replace("_", " ")), fact("Missed", s.missed),
          fact("Catch up", length(s.catch_up_ms)),
          fact("Pause on dead", s.pause_on_dead && "yes"), fact("Topic", s.topic && keyText(s.topic, "")), fact("Created", factTime(s.created)))),
        h("section", {}, h("h3", {}, "Next"), nextList(s.next)),
        h("section", {}, h("h3", {}, "Counts"), h("dl", {},
          fact("Created", number(c.created)), fact("Triggered", number(c.triggered)), fact("Backfilled", number(c.backfilled)),
          fact("Done", number(c.done)), fact("Dead", number(c.dead)), fact("Cancelled", number(c.cancelled)),
          fact("Skipped: overlap", number(c.skipped_overlap)), fact("Skipped: missed", number(c.skipped_missed)), fact("Skipped: updated", number(c.skipped_updated))))),
      h("section", {}, h("h3", {}, "Last occurrences"), s.last.length === 0 ? h("p", { class: "dim" }, "None yet.") : h("div", { class: "list" },
        table("Last occurrences", columns, s.last.map(o => tableRow(columns, [
          bothTimes(o.planned), ["waiting", "running", "dead"].includes(o.state) ? h("a", { href: "#/timer?key=" + o.key }, o.state) : o.state,
          o.requested ?? "plan", o.attempts ? number(o.attempts) : "", o.ended ? bothTimes(o.ended) : "", o.error && h("span", { class: "clamp" }, visibleLines(o.error)),
        ]))))),
      bodyView(s.body))
  }
  load()
  return { title: "Schedule", root, off() {} }
}

function nextList(times) {
  if (times.length === 0) return h("p", { class: "dim" }, "No run is planned.")
  return h("ol", { class: "next" }, times.map(t => h("li", {}, zoneTime(t), h("small", {}, (localOf(t) && localOf(t) + ", ") + relative(t)))))
}

const lengths = [["1000", "seconds"], ["60000", "minutes"], ["3600000", "hours"], ["86400000", "days"]]

// lengthFields is a duration of a number and a unit.
function lengthFields(name, label, ms, note) {
  const unit = [...lengths].reverse().find(([size]) => ms && ms % Number(size) === 0)?.[0] ?? "1000"
  return h("fieldset", { class: "length" }, h("legend", {}, label),
    h("input", { name, type: "number", min: "0", step: "any", value: ms ? String(ms / Number(unit)) : "", "aria-label": label }),
    h("select", { name: name + "_unit", "aria-label": label + ", unit" }, lengths.map(([size, text]) => h("option", { value: size, selected: size === unit }, text))),
    note && h("small", {}, note))
}

const lengthOf = (form, name) => Math.round(Number(form.elements[name].value || 0) * Number(form.elements[name + "_unit"].value))

// localInput writes a time for a datetime-local field.
function localInput(iso) {
  if (!iso) return ""
  const d = new Date(iso)
  return new Date(d - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
}

// editView is the form that creates or edits a schedule.
export function editView(query) {
  const key = query.get("key") ?? ""
  const root = h("div", { class: "view edit" }, h("p", {}, "Loading…"))
  const title = key ? "Edit schedule" : "New schedule"
  const show = s => fill(root, h("p", {}, h("a", { href: key ? "#/schedule?key=" + key : "#/schedules" }, key ? "Back to the schedule" : "All schedules")), h("h2", {}, title), editForm(key, s))
  if (session.readOnly) fill(root, h("p", { class: "empty" }, "The console is read-only."))
  else if (!key) show({ overlap: "skip", missed: "latest", zone: Intl.DateTimeFormat().resolvedOptions().timeZone })
  else get("api/schedule", { key }).then(show, e => fill(root, h("h2", {}, title), h("p", { class: "empty error" }, e.message)))
  return { title, root, off() {} }
}

// A UTF-8 body can be edited. Any other body, and one that the server decoded, is kept.
function editable(body) {
  if (body === undefined) return ""
  if (body.base64 === undefined) return body.bytes === 0 ? "" : null
  try { return new TextDecoder("utf-8", { fatal: true }).decode(decodeBase64(body.base64)) } catch { return null }
}

function editForm(key, s) {
  const text = editable(s.body)
  const every = Boolean(s.every_ms)
  const zones = h("datalist", { id: "zones" }, ["UTC", ...Intl.supportedValuesOf("timeZone")].map(z => h("option", { value: z })))
  const cronFields = h("div", { class: "group" },
    field("Cron expression", h("input", { name: "cron", value: s.cron ?? "", placeholder: "30 2 * * *", autocomplete: "off", spellcheck: "false", maxlength: "256" }),
      "Minute, hour, day of the month, month, day of the week; or @hourly, @daily and the like"),
    field("Time zone", h("input", { name: "zone", value: s.zone ?? "UTC", list: "zones", autocomplete: "off", spellcheck: "false" }), "A name such as Europe/Berlin"), zones)
  const everyFields = h("div", { class: "group" }, lengthFields("every", "Period", s.every_ms), lengthFields("offset", "Offset", s.offset_ms, "After the multiples of the period since 1970, UTC"))
  const kind = h("fieldset", { class: "choice" }, h("legend", {}, "Plan"),
    [["cron", "Cron expression"], ["every", "Period"]].map(([value, label]) => h("label", {}, h("input", { type: "radio", name: "kind", value, checked: (value === "every") === every }), label)))
  const preview = h("div", { class: "preview", role: "status" }), error = h("p", { class: "error", role: "alert" })
  const button = h("button", { class: "primary" }, key ? "Save" : "Create")

  const put = () => {
    const f = form.elements, byCron = f.kind.value === "cron"
    return {
      key: key || encodeKey(f.key.value),
      ...(byCron ? { cron: f.cron.value.trim(), zone: f.zone.value.trim() } : { every_ms: lengthOf(form, "every"), offset_ms: lengthOf(form, "offset") }),
      ...(f.start.value && { start: new Date(f.start.value).toISOString() }), ...(f.end.value && { end: new Date(f.end.value).toISOString() }),
      limit: Number(f.limit.value || 0), jitter_ms: lengthOf(form, "jitter"), catch_up_ms: lengthOf(form, "catch_up"),
      overlap: f.overlap.value, missed: f.missed.value, pause_on_dead: f.pause_on_dead.checked, topic: f.topic.value,
      ...(text === null ? { keep: true } : { body_base64: encodeBase64(f.body.value) }),
    }
  }

  const form = h("form", {
    class: "edit-form",
    input: () => changed(),
    submit: async event => {
      event.preventDefault()
      button.disabled = true
      setText(error, "")
      try {
        const request = put()
        const reply = await post("api/schedules/put", key ? request : { ...request, if_absent: true })
        location.hash = "#/schedule?key=" + request.key
        setTimeout(() => say(`The schedule is ${reply.result}.`))
      } catch (e) {
        setText(error, e.message)
      }
      button.disabled = false
    },
  },
  !key && field("Key", h("input", { name: "key", required: true, maxlength: "480", autocomplete: "off", spellcheck: "false" })),
  key && h("p", {}, keyText(s.text)),
  kind, cronFields, everyFields,
  field("Topic", h("input", { name: "topic", value: s.topic ?? "", maxlength: "128", autocomplete: "off", spellcheck: "false" })),
  text === null ? h("p", { class: "dim" }, "The body is kept: it is not text that can be edited here.")
    : field("Body", h("textarea", { name: "body", rows: "4", spellcheck: "false" }, text)),
  h("details", {}, h("summary", {}, "Bounds, overlap and missed runs"), h("div", { class: "group" },
    field("Overlap", select("overlap", [["skip", "skip: not created while the one before runs"], ["buffer_one", "buffer one: created when the one before ends"], ["cancel", "cancel the one before"], ["allow", "allow: side by side"]], s.overlap)),
    field("Missed runs", select("missed", [["latest", "run the latest"], ["none", "skip all"], ["all", "run all"]], s.missed)),
    lengthFields("catch_up", "Catch up missed runs of the last", s.catch_up_ms, "Empty: 1 hour"),
    lengthFields("jitter", "Jitter", s.jitter_ms, "Delays each run by a part of it"),
    field("Start, in your time zone", h("input", { type: "datetime-local", name: "start", step: "1", value: localInput(s.start) })),
    field("End, in your time zone", h("input", { type: "datetime-local", name: "end", step: "1", value: localInput(s.end) })),
    field("Limit of runs", h("input", { name: "limit", type: "number", min: "0", value: s.limit ?? "" }), "Empty: no limit"),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "pause_on_dead", checked: Boolean(s.pause_on_dead) }), "Pause when an occurrence becomes a dead letter"))),
  error, h("p", { class: "buttons" }, button))

  let timer = 0, turn = 0
  function changed() {
    const byCron = form.elements.kind.value === "cron"
    cronFields.hidden = !byCron
    everyFields.hidden = byCron
    clearTimeout(timer)
    timer = setTimeout(show, 200)
  }

  async function show() {
    const mine = ++turn, request = put()
    if (!request.cron && !request.every_ms) {
      fill(preview, h("p", { class: "dim" }, "The next ten runs appear here."))
      return
    }
    try {
      const reply = await post("api/schedules/preview", request)
      if (mine !== turn) return
      fill(preview, [request.cron && words(request.cron) !== request.cron && h("p", {}, words(request.cron) + ", " + (request.zone || "UTC")),
        reply.warning && h("p", { class: "warning" }, visible(reply.warning)), nextList(reply.next)])
    } catch (e) {
      if (mine === turn) fill(preview, h("p", { class: "error" }, e.message))
    }
  }

  changed()
  return h("div", { class: "columns" }, form, h("section", {}, h("h3", {}, "Next ten runs"), preview))
}

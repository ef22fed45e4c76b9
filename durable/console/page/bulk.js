// The bulk actions: the running ones and the last ones that ended.

import { get, post, session } from "./api.js"
import { fill, h, setText } from "./shared/dom.js"
import { number, plural, seconds } from "./shared/format.js"
import { bothTimes, keyText, timersText } from "./parts.js"
import { describe } from "./timers.js"
import { bulkActions, learn, listen } from "./live.js"

const names = { cancel: "Cancel", reset: "Move", requeue: "Requeue", purge: "Purge" }
const done = { cancel: "cancelled", reset: "moved", requeue: "requeued", purge: "purged" }

export const isOver = job => job.ended !== undefined

const second = () => new Promise(resolve => setTimeout(resolve, 1000))

// ask repeats a request about an action until a load balancer sends it to the process that runs it.
async function ask(request) {
  for (let tries = 1; ; tries++) {
    try { return await request() } catch (e) {
      if (!e.reply?.elsewhere || tries === 20) throw e
    }
  }
}

function card(first) {
  const status = h("span", { class: "badge" }), counts = h("p"), times = h("p", { class: "dim" }), error = h("p", { class: "error" })
  const progress = h("progress", { "aria-label": "Progress", max: "1" })
  const missed = h("ul", { class: "keys" }), summary = h("summary")
  const details = h("details", { hidden: true, toggle: () => showMissed() }, summary, missed)
  let job = first
  const stop = h("button", {
    type: "button", class: "danger-text", click: async () => {
      stop.disabled = true
      try { await ask(() => post(`api/bulk/${first.id}/stop`)) } catch (e) {
        stop.disabled = false
        setText(error, e.message)
      }
    },
  }, "Stop")
  const root = h("section", { class: "job" },
    h("div", { class: "head" }, h("h3", {}, `${names[first.action]}: ${describe(first.filter)}`), status),
    first.at && h("p", {}, "New due time: " + bothTimes(first.at)), progress, counts, error, details, times, stop)

  // showMissed fetches the missed keys, which events leave out, while they are unfolded.
  async function showMissed() {
    if (!details.open) return
    try {
      const { missed_keys: keys = [] } = await ask(() => get("api/bulk/" + first.id))
      if (missed.children.length !== keys.length) fill(missed, keys.map(k => h("li", {}, keyText(k))))
      setText(summary, summaryOf(job) + (job.missed > keys.length ? `; the first ${number(keys.length)}:` : ":"))
    } catch (e) {
      fill(missed, h("li", { class: "error" }, e.message))
    }
  }

  const summaryOf = job => plural(job.missed, "timer", "timers") + " changed before the action came to them"

  function update(newest) {
    const more = newest.missed !== job.missed
    job = newest
    setText(status, job.status)
    status.className = "badge " + job.status
    // The count is from before the action; timers come and go during it.
    const part = job.count > 0 ? (job.changed + job.missed) / job.count : 0
    progress.value = job.status === "done" ? 1 : Math.max(Math.min(part, 0.99), job.shards ? job.shards_done / job.shards : 0)
    progress.hidden = isOver(job)
    setText(counts, `${number(job.changed)} of ${timersText(job)} ${done[job.action]}` +
      (job.shards ? `, ${number(job.shards_done)} of ${plural(job.shards, "shard", "shards")} finished.` : "."))
    setText(times, `Begun ${bothTimes(job.begun)} by ${job.process}` + (isOver(job) ? `, ended ${bothTimes(job.ended)}` : "") +
      (job.silent > 10 ? `. Nothing was heard of ${job.process} for ${seconds(Math.round(job.silent))}.` : ""))
    setText(error, job.retrying ? `The store has not answered since ${bothTimes(job.retrying)}, ${plural(job.failures, "try", "tries")}: ${job.error}` : job.error ?? "")
    details.hidden = job.missed === 0
    if (!details.open) setText(summary, summaryOf(job))
    else if (more) showMissed()
    stop.hidden = isOver(job) || session.readOnly
    stop.disabled = job.status === "stopping"
  }
  return { root, update }
}

export function bulkView() {
  const cards = new Map(), list = h("div", { class: "jobs" }, h("p", { class: "empty" }, "Loading…"))
  const left = new AbortController()
  function show() {
    const jobs = bulkActions()
    if (jobs.length === 0) {
      cards.clear()
      fill(list, h("p", { class: "empty" }, "No bulk action has run since the server was started. The lists of timers offer them."))
      return
    }
    if (cards.size === 0) fill(list)
    jobs.forEach((job, i) => {
      if (!cards.has(job.id)) cards.set(job.id, card(job))
      const it = cards.get(job.id)
      it.update(job)
      if (list.children[i] !== it.root) list.insertBefore(it.root, list.children[i] ?? null)
    })
    for (const [id, it] of cards) {
      if (jobs.some(job => job.id === id)) continue
      it.root.remove()
      cards.delete(id)
    }
  }
  const off = listen(show)

  // poll asks the processes that the stream does not come from: each request may reach another one.
  async function poll() {
    for (; !left.signal.aborted; await second()) {
      if (document.hidden) continue
      try {
        learn(await get("api/bulk", undefined, left.signal))
        show()
      } catch { } // the stream reports a lost connection
    }
  }
  poll()
  return { title: "Bulk actions", off: () => { off(); left.abort() }, root: h("div", { class: "view bulk" }, h("h2", {}, "Bulk actions"), list) }
}

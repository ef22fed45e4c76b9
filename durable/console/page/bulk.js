// The bulk actions: the running ones and the last ones that ended.

import { get, post, session } from "./api.js"
import { fill, h, setText } from "./shared/dom.js"
import { number, plural } from "./shared/format.js"
import { bothTimes, keyText, timersText } from "./parts.js"
import { describe } from "./timers.js"
import { listen } from "./live.js"

const names = { cancel: "Cancel", reset: "Move", requeue: "Requeue", purge: "Purge" }
const done = { cancel: "cancelled", reset: "moved", requeue: "requeued", purge: "purged" }

export const isOver = job => job.ended !== undefined

function card(first) {
  const status = h("span", { class: "badge" }), counts = h("p"), times = h("p", { class: "dim" }), error = h("p", { class: "error" })
  const progress = h("progress", { "aria-label": "Progress", max: "1" })
  const missed = h("ul", { class: "keys" }), summary = h("summary")
  const details = h("details", { hidden: true, toggle: () => showMissed() }, summary, missed)
  let job = first
  const stop = h("button", {
    type: "button", class: "danger-text", click: async () => {
      stop.disabled = true
      try { await post(`api/bulk/${first.id}/stop`) } catch (e) {
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
      const { missed_keys: keys = [] } = await get("api/bulk/" + first.id)
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
    setText(times, `Begun ${bothTimes(job.begun)}` + (isOver(job) ? `, ended ${bothTimes(job.ended)}` : ""))
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
  const off = listen(live => {
    if (live.bulk.length === 0) {
      fill(list, h("p", { class: "empty" }, "No bulk action has run since the server was started. The lists of timers offer them."))
      return
    }
    if (cards.size === 0) fill(list)
    live.bulk.forEach((job, i) => {
      if (!cards.has(job.id)) cards.set(job.id, card(job))
      const it = cards.get(job.id)
      it.update(job)
      if (list.children[i] !== it.root) list.insertBefore(it.root, list.children[i] ?? null)
    })
    for (const [id, it] of cards) {
      if (live.bulk.some(job => job.id === id)) continue
      it.root.remove()
      cards.delete(id)
    }
  })
  return { title: "Bulk actions", off, root: h("div", { class: "view bulk" }, h("h2", {}, "Bulk actions"), list) }
}

// The stream of live values. A hidden tab has none.

import { get, login, logins } from "./api.js"
import { bothTimes, clock } from "./parts.js"
import { openStream, setState, showNotice } from "./shared/stream.js"

const listeners = new Set()
export let newest = null

// listen calls f with the newest event at once, and with each new one until the returned function
// is called.
export function listen(f) {
  listeners.add(f)
  if (newest) f(newest)
  return () => listeners.delete(f)
}

// Behind a load balancer, the stream comes from one of several processes, and each has its own bulk
// actions. lists has what each process said last.
const lists = new Map()
const forgetAfter = 60_000 // milliseconds without a word from a process

export function learn({ process, bulk }) {
  lists.set(process, { bulk, at: performance.now() })
}

// begun adds an action that this page has started.
export const begun = job => learn({ process: job.process, bulk: [job, ...lists.get(job.process)?.bulk ?? []] })

// bulkActions returns the actions of all processes, the latest first, each with the seconds since
// its process was heard.
export function bulkActions() {
  const now = performance.now()
  for (const [process, { at }] of lists) if (now - at > forgetAfter) lists.delete(process)
  return [...lists.values()].flatMap(({ bulk, at }) => bulk.map(job => ({ ...job, silent: (now - at) / 1000 })))
    .sort((a, b) => new Date(b.begun) - new Date(a.begun))
}

export const connect = () => openStream({
  address: () => "api/live",
  events: {
    live(event) {
      newest = event
      learn(newest)
      if (newest.overview) clock.set(newest.overview.now)
      if (newest.error) {
        setState("failing", "store fails")
        showNotice(`The store has not answered since ${bothTimes(newest.since)}: ${newest.error}`)
      } else {
        setState("live")
        showNotice("")
      }
      for (const f of listeners) f(newest)
    },
  },
  async refused() {
    const since = logins
    try {
      const state = await get("api/session")
      if (!state.login) return 2
      await login(since)
      return 0
    } catch {
      setState("reconnecting", "connection lost")
      return 2
    }
  },
})

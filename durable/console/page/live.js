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

export const connect = () => openStream({
  address: () => "api/live",
  events: {
    live(event) {
      newest = event
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

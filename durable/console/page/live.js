// The stream of live values. A hidden tab has none.

import { get, login } from "./api.js"
import { $, bothTimes, clock, duration, setText } from "./dom.js"

const listeners = new Set()
let stream = null
let retry = 0
let shownAt = 0
export let newest = null

// listen calls f with each event until the returned function is called; at once with the newest.
export function listen(f) {
  listeners.add(f)
  if (newest) f(newest)
  return () => listeners.delete(f)
}

function setState(state, text) {
  $("state").dataset.state = state
  setText($("state"), text ?? state)
}

function notice(text) {
  $("notice").hidden = text === ""
  setText($("notice"), text)
}

export function connect() {
  clearTimeout(retry)
  stream?.close()
  if (document.hidden) return
  const s = stream = new EventSource("api/live")
  s.addEventListener("live", event => {
    shownAt = performance.now()
    newest = JSON.parse(event.data)
    if (newest.overview) clock.set(newest.overview.now)
    if (newest.error) {
      setState("failing", "store fails")
      notice(`The store has not answered since ${bothTimes(newest.since)}: ${newest.error}`)
    } else {
      setState("live")
      notice("")
    }
    for (const f of listeners) f(newest)
  })
  s.onerror = () => {
    if (s !== stream) return
    setState("reconnecting")
    if (s.readyState === EventSource.CLOSED) refused(s)
  }
}

// refused finds out why the stream was not opened, which the browser does not tell.
async function refused(s) {
  let wait = 2
  try {
    const state = await get("api/session")
    if (state.login) {
      await login()
      wait = 0
    }
  } catch {
    setState("reconnecting", "connection lost")
  }
  if (s === stream) retry = setTimeout(connect, wait * 1000)
}

setInterval(() => {
  const silent = (performance.now() - shownAt) / 1000
  if (stream && $("state").dataset.state === "live" && silent > 5) setState("reconnecting", "silent for " + duration(silent))
}, 1000)

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(retry)
    stream?.close()
    stream = null
    setState("paused", "paused while hidden")
  } else connect()
})

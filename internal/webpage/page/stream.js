// The event stream of a page, and its state in #state and #notice.

import { $, setAttribute, setText } from "./dom.js"
import { seconds } from "./format.js"

export function setState(state, text) {
  setAttribute($("state"), "data-state", state)
  setText($("state"), text ?? state)
}

export function showNotice(text) {
  $("notice").hidden = text === ""
  setText($("notice"), text)
}

// openStream opens a stream of events and passes each to its function in events. The browser
// reconnects after the stream breaks. When the server refuses it, refused finds out why, and
// returns the seconds until the next try. A hidden tab keeps its stream for keepHidden
// milliseconds. The returned function reopens the stream, at the address that address then
// returns.
export function openStream({ address, events, refused, keepHidden = 0 }) {
  let stream = null, retry = 0, hiding = 0, heardAt = 0

  function connect() {
    clearTimeout(retry)
    stream?.close()
    const at = address(), s = stream = new EventSource(at)
    for (const [name, receive] of Object.entries(events)) {
      s.addEventListener(name, event => {
        heardAt = performance.now()
        receive(JSON.parse(event.data))
      })
    }
    s.onerror = async () => {
      if (s !== stream) return
      if (s.readyState !== EventSource.CLOSED) {
        setState("reconnecting")
        return
      }
      const wait = await refused(at)
      if (s === stream) retry = setTimeout(connect, wait * 1000)
    }
  }

  setInterval(() => {
    const silent = (performance.now() - heardAt) / 1000
    if (stream && ["live", "silent"].includes($("state").dataset.state) && silent > 5) setState("silent", "silent for " + seconds(Math.round(silent)))
  }, 1000)

  function hide() {
    hiding = setTimeout(() => {
      clearTimeout(retry)
      stream?.close()
      stream = null
      setState("paused", "paused while hidden")
    }, keepHidden)
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding)
    if (document.hidden) hide()
    else if (stream === null) connect()
  })
  if (document.hidden) hide()
  if (!document.hidden || keepHidden > 0) connect()
  return connect
}

// The stream of a page's events, and what the page says of it: #state and #notice.

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

// openStream opens a stream of events, each of which it gives to its function in events. The
// browser opens it again when it breaks. When it is refused, refused finds out why, and returns
// after how many seconds to try again. A hidden tab keeps its stream for keepHidden milliseconds.
// The returned function opens the stream anew, at what address returns then.
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

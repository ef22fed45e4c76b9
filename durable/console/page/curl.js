// Commands for curl that do the page's actions through timerd's API. They never contain the token,
// but use the shell's $TOKEN.

import { session } from "./api.js"
import { decodeBase64 } from "./parts.js"

// quote writes a text as one word of a POSIX shell.
export const quote = text => "'" + text.replaceAll("'", "'\\''") + "'"

// escapeBytes writes a key as one segment of a path. Servers and curl resolve the segments . and ..
export function escapeBytes(raw) {
  const escaped = Array.from(raw, b => {
    const c = String.fromCharCode(b)
    return /[A-Za-z0-9_~.-]/.test(c) ? c : "%" + b.toString(16).toUpperCase().padStart(2, "0")
  }).join("")
  return /^\.{1,2}$/.test(escaped) ? escaped.replaceAll(".", "%2E") : escaped
}

const commands = [
  { label: "Get", states: ["waiting", "running", "dead"], path: "timers" },
  { label: "Run now", states: ["waiting"], path: "timers", method: "PATCH", body: '{"after": "0s"}' },
  { label: "Cancel", states: ["waiting", "running"], path: "timers", method: "DELETE" },
  { label: "Requeue", states: ["dead"], path: "dead", method: "POST" },
  { label: "Purge", states: ["dead"], path: "dead", method: "DELETE" },
]

// curlOf returns the commands for a timer, as {label, text}, or none if the page knows no API.
export function curlOf(timer) {
  if (!session.api) return []
  const key = escapeBytes(decodeBase64(timer.key.replaceAll("-", "+").replaceAll("_", "/")))
  const base = new URL(session.api, location.href.replace(/[?#].*/, ""))
  base.search = base.hash = ""
  const root = base.href.replace(/\/*$/, "/")
  return commands.filter(c => c.states.includes(timer.state)).map(({ label, path, method, body }) => ({
    label,
    text: ["curl", method && "-X " + method, session.token && '-H "Authorization: Bearer $TOKEN"', body && "-d " + quote(body), quote(root + path + "/" + key)]
      .filter(Boolean).join(" "),
  }))
}

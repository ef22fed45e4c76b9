// Requests to the server. When the session has expired, a dialog above all others asks for the
// token and the request is sent again, so no form is lost.

import { $, h, setText } from "./shared/dom.js"

export class ApiError extends Error {
  constructor(status, reply) {
    super(reply.error ?? "the server has answered with status " + status)
    this.status = status
    this.reply = reply
  }
}

export const session = { readOnly: false, token: false, api: "" }

export async function begin() {
  const state = await send("api/session")
  Object.assign(session, { readOnly: state.read_only, token: state.token, api: state.api ?? "" })
  $("read-only").hidden = !state.read_only
  if (state.login) await login()
  $("logout").hidden = !state.token
}

// get sends a GET request. signal, an AbortSignal, cancels it when its view is closed.
export const get = (path, query, signal) => request(path + (query ? "?" + new URLSearchParams(query) : ""), undefined, signal)
export const post = (path, body) => request(path, body ?? {})

async function request(path, body, signal) {
  for (;;) {
    const since = logins
    try {
      return await send(path, body, signal)
    } catch (error) {
      if (error.status !== 401) throw error
      await login(since)
    }
  }
}

async function send(path, body, signal) {
  let response
  try {
    response = await fetch(path, body === undefined ? { signal } : {
      method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", "X-Limbo-Console": "1" },
    })
  } catch {
    if (signal?.aborted) return new Promise(() => {}) // the view is closed
    throw new ApiError(0, { error: "The server cannot be reached." })
  }
  let reply = {}
  try { reply = await response.json() } catch { // a proxy's reply, reported by its status
    if (signal?.aborted) return new Promise(() => {})
  }
  if (!response.ok) throw new ApiError(response.status, reply)
  return reply
}

let pending = null
export let logins = 0 // since the page was loaded

// login asks for the token, once for all waiting requests. It does not ask if there was a login
// since the caller read logins, because then the refusal was late.
export async function login(since = logins) {
  if (logins !== since) return
  pending ??= ask().finally(() => { pending = null })
  await pending
}

function ask() {
  return new Promise(resolve => {
    let loggedIn = false
    const input = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, autofocus: true })
    const error = h("p", { class: "error", role: "alert" })
    const button = h("button", { class: "primary" }, "Log in")
    const form = h("form", {
      submit: async event => {
        event.preventDefault()
        button.disabled = true
        try {
          await send("api/login", { token: input.value })
          loggedIn = true
          logins++
          dialog.close()
          dialog.remove()
          $("logout").hidden = false
          resolve()
        } catch (e) {
          setText(error, e.status === 429 ? `${e.message} (${e.reply.retry_after} s)` : e.message)
          input.select()
        } finally {
          button.disabled = false
        }
      },
    }, h("h2", { id: "login-title" }, "Log in"), h("p", {}, "The console asks for its token once every 12 hours."),
      h("label", { class: "field" }, h("span", {}, "Token"), input), error, h("p", { class: "buttons" }, button))
    // Escape closes a dialog even if its cancel event is prevented, so the dialog opens again.
    const dialog = h("dialog", { class: "login", "aria-labelledby": "login-title", close: () => { if (!loggedIn) dialog.showModal() } }, form)
    document.body.append(dialog)
    dialog.showModal()
  })
}

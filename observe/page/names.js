// The names of metrics and outcomes, and the format of values.

import { bytes, number, seconds, visible } from "./shared/format.js"

export const words = name => visible(name).replaceAll("_", " ")

// metricText formats a metric's value, by its name.
export function metricText(name, value) {
  if (name.endsWith("_seconds")) return seconds(value)
  if (name.endsWith("_bytes")) return bytes(value)
  return number(value)
}

// tones are the colours of outcomes. The outcome's name always appears next to its colour.
const tones = {
  completed: "good", ready: "good", ended: "good",
  expired: "slow", failed: "bad", refused: "bad", invalid: "bad", limited: "bad",
  cancelled: "calm", stopped: "calm", hung_up: "calm",
  closed: "odd", discarded: "odd", returned: "odd",
}

// inOrder sorts outcomes in the order above, and time waited before lateness; unknown names
// follow in their own order.
const order = [...Object.keys(tones), "waited_seconds", "late_seconds"]

export function inOrder(names) {
  const rank = name => order.includes(name) ? order.indexOf(name) : order.length
  return [...names].sort((a, b) => rank(a) - rank(b))
}

export function toneOf(name, i) {
  return Object.hasOwn(tones, name) ? tones[name] : ["good", "slow", "calm", "odd", "bad"][i % 5]
}

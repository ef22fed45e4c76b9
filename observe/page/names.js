// The names of figures and outcomes, and how figures are written.

import { bytes, number, seconds, visible } from "./shared/format.js"

export const words = name => visible(name).replaceAll("_", " ")

// How a figure is written, by its name.
export function figureText(name, value) {
  if (name.endsWith("_seconds")) return seconds(value)
  if (name.endsWith("_bytes")) return bytes(value)
  return number(value)
}

// The colour of an outcome. Its name stands beside it wherever it is used.
const tones = {
  completed: "good", ready: "good", ended: "good",
  expired: "slow", failed: "bad", refused: "bad", invalid: "bad", limited: "bad",
  cancelled: "calm", stopped: "calm", hung_up: "calm",
  closed: "odd", discarded: "odd", handed_back: "odd",
}

// inOrder sorts outcomes as they stand above, and time waited before lateness; what is not
// known stays where it is, after those.
const order = [...Object.keys(tones), "waited_seconds", "late_seconds"]

export function inOrder(names) {
  const rank = name => order.includes(name) ? order.indexOf(name) : order.length
  return [...names].sort((a, b) => rank(a) - rank(b))
}

export function toneOf(name, i) {
  return Object.hasOwn(tones, name) ? tones[name] : ["good", "slow", "calm", "odd", "bad"][i % 5]
}

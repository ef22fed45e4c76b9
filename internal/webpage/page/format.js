// The formats of texts, numbers and durations.

// visible writes control characters, and marks that change the text's direction, as escapes.
export function visible(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, c => "\\u{" + c.codePointAt(0).toString(16) + "}")
}

// visibleLines is visible, except that it keeps line breaks and tabs.
export function visibleLines(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, c => c === "\n" || c === "\t" ? c : visible(c))
}

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 })
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 })

// A missing value is shown as a dash.
const missing = n => typeof n !== "number" || Number.isNaN(n)

export function number(n) {
  if (missing(n)) return "–"
  return Math.abs(n) >= 1000 || Number.isInteger(n) ? grouped.format(n) : precise.format(n)
}

// short formats a number for an axis.
export function short(n) {
  for (const [size, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
    if (n >= size) return precise.format(n / (unit === " k" ? 1e3 : size)) + unit
  }
  return number(n)
}

export function plural(n, one, many) {
  return number(n) + " " + (n === 1 ? one : many)
}

export function perSecond(rate) {
  return missing(rate) ? "–" : (rate > 0 && rate < 0.1 ? "< 0.1" : rate < 10 ? String(Math.round(rate * 10) / 10) : number(Math.round(rate))) + "/s"
}

const timeUnits = [[172800, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"], [1, 1, "s"], [1e-3, 1e-3, "ms"], [1e-6, 1e-6, "µs"]]

// seconds formats a duration with the symbol of its unit.
export function seconds(s) {
  if (missing(s)) return "–"
  if (s < 0) return "−" + seconds(-s)
  for (const [from, unit, name] of timeUnits) {
    if (s >= from) return precise.format(s / unit) + " " + name
  }
  return s === 0 ? "0 s" : precise.format(s * 1e9) + " ns"
}

const words = [[2 * 86400, 86400, "day", "days"], [2 * 3600, 3600, "hour", "hours"], [120, 60, "minute", "minutes"], [0, 1, "second", "seconds"]]

// duration formats a duration in words, rounded down.
export function duration(seconds) {
  const [, size, one, many] = words.find(([from]) => seconds >= from) ?? words.at(-1)
  return plural(Math.max(Math.floor(seconds / size), 0), one, many)
}

// length formats milliseconds in words, in the largest unit that divides them.
export function length(ms) {
  const unit = words.find(([, size]) => ms % (size * 1000) === 0)
  return unit ? plural(ms / (unit[1] * 1000), unit[2], unit[3]) : plural(ms, "millisecond", "milliseconds")
}

export function bytes(n) {
  if (missing(n)) return "–"
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= size) return precise.format(n / size) + " " + unit
  }
  return plural(n, "byte", "bytes")
}

import { numbers } from './codecs.js'

const SECONDS = { microsecond: 1e-6, us: 1e-6, millisecond: 1e-3, ms: 1e-3, second: 1, sec: 1, s: 1, minute: 60, min: 60, hour: 3600, hr: 3600, h: 3600, day: 86400, d: 86400 }
const STANDARD = new Set(['standard', 'gregorian', 'proleptic_gregorian'])
const MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]

/** A coordinate of `arrays.json`: its values as numbers, scaled. */
export function coordinate(row) {
  const bytes = Uint8Array.from(atob(row.values), (c) => c.charCodeAt(0))
  const { scale, offset, unsigned } = unpacking(row)
  const values = numbers(bytes, row.dtype, unsigned)
  return scale === 1 && offset === 0 ? values : Float64Array.from(values, (v) => v * scale + offset)
}

/** A function from a time coordinate's value to text; null for units that are no time or have no fixed length. */
export function dates(attrs) {
  const found = /^(\w+?)s? since (\d+)-(\d+)-(\d+)(?:[T ]+(\d+):(\d+)(?::(\d+(?:\.\d+)?))?)?\s*(?:([+-]\d{1,2})(?::?(\d\d))?)?/.exec(attrs.units ?? '')
  const unit = found && (SECONDS[found[1].toLowerCase()] ?? SECONDS[`${found[1].toLowerCase()}s`])
  if (!unit) return null
  const [year, month, day, hour, minute, second, zone, part] = found.slice(2).map((x) => Number(x ?? 0))
  const calendar = String(attrs.calendar ?? 'standard').toLowerCase()
  const clock = (hour - zone) * 3600 + (minute - Math.sign(zone) * part) * 60 + second
  if (STANDARD.has(calendar)) {
    // the standard calendar is Julian before 1582-10-15
    if (year < 1583 && calendar !== 'proleptic_gregorian') return null
    const from = new Date(0).setUTCFullYear(year, month - 1, day)
    return (value) => iso(new Date(Math.round(from + 1000 * (clock + value * unit))))
  }
  const length = { '360_day': 360, noleap: 365, '365_day': 365, all_leap: 366, '366_day': 366 }[calendar]
  if (!length) return null
  const months = length === 360 ? Array(12).fill(30) : MONTHS.map((n, i) => n + (length === 366 && i === 1 ? 1 : 0))
  const before = (m) => months.slice(0, m).reduce((a, b) => a + b, 0)
  const origin = year * length + before(month - 1) + day - 1
  return (value) => {
    const seconds = Math.round(clock + value * unit)
    const days = origin + Math.floor(seconds / 86400)
    const y = Math.floor(days / length)
    let rest = days - y * length
    let m = 0
    while (rest >= months[m]) rest -= months[m++]
    return stamp(y, m + 1, rest + 1, ((seconds % 86400) + 86400) % 86400)
  }
}

function iso(date) {
  return stamp(date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate(), date.getUTCHours() * 3600 + date.getUTCMinutes() * 60 + date.getUTCSeconds())
}

function stamp(year, month, day, seconds) {
  const two = (n) => String(n).padStart(2, '0')
  return {
    date: `${String(year).padStart(4, '0')}-${two(month)}-${two(day)}`,
    time: `${two(Math.floor(seconds / 3600))}:${two(Math.floor((seconds % 3600) / 60))}`,
  }
}

/** What of an array's attributes turns a stored number into a value, or into NaN. */
export function unpacking(row) {
  const attrs = row.attrs
  const number = (x) => (Array.isArray(x) ? number(x[0]) : x === undefined || x === null ? undefined : Number(x))
  const missing = [row.fill, attrs._FillValue, attrs.missing_value].map(number).filter((x) => x !== undefined && !Number.isNaN(x))
  const unsigned = String(attrs._Unsigned).toLowerCase() === 'true'
  const wrap = (x) => (unsigned && x < 0 ? x + 2 ** (8 * Number(row.dtype.slice(2))) : x)
  const scale = finite(number(attrs.scale_factor)) ?? 1
  const offset = finite(number(attrs.add_offset)) ?? 0
  return {
    scale,
    offset,
    missing: new Set(missing.map(wrap)),
    fill: row.fill === null || row.fill === undefined ? NaN : Number(row.fill),
    unsigned,
    valid: validRange(row, scale, offset, wrap),
  }
}

/** A number that scales; what is text, or NaN, scales nothing. */
function finite(x) {
  return Number.isFinite(x) ? x : undefined
}

/** Lowest and highest valid stored number (CF 2.5.1): given as stored where the attribute has the array's type, else as values. */
function validRange(row, scale, offset, wrap) {
  const { valid_range: range, valid_min: low, valid_max: high } = row.attrs
  const given = Array.isArray(range) && range.length === 2 ? [[range[0], 'valid_range'], [range[1], 'valid_range']] : [[low, 'valid_min'], [high, 'valid_max']]
  const bounds = given.map(([x, name], i) => {
    if (x === undefined || x === null || Array.isArray(x) || Number.isNaN(Number(x))) return i ? Infinity : -Infinity
    const stored = (row.attr_dtypes?.[name] ?? row.dtype).slice(1) === row.dtype.slice(1)
    return stored ? wrap(Number(x)) : (Number(x) - offset) / scale
  })
  return bounds[0] <= bounds[1] ? bounds : [-Infinity, Infinity]
}

/** What axis a coordinate is: x, y, or neither. */
export function axisOf(attrs) {
  const units = String(attrs?.units ?? '').toLowerCase()
  if (/^degrees?_?n(orth)?$/.test(units)) return 'lat'
  if (/^degrees?_?e(ast)?$/.test(units)) return 'lon'
  return null
}

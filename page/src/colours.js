/** Stops of each palette, dark to light or cold to warm, as sRGB. */
const STOPS = {
  ocean: ['#08131f', '#0d3558', '#14648c', '#2f97a8', '#83c5a5', '#e3e9a8', '#fff8dc'],
  warmth: ['#0b1c4a', '#26539b', '#3f93c0', '#9ccbb5', '#f3e6a2', '#ee9a4d', '#b8322f', '#5b0f26'],
  ice: ['#04141d', '#0b3a57', '#22709a', '#6aabcf', '#b9dcec', '#f7fcff'],
  change: ['#0a2f61', '#2d74b3', '#8fbcdc', '#f4f2ee', '#eaa785', '#c2503f', '#6a0f23'],
}
export const PALETTES = Object.keys(STOPS)

/** 256 colours of a palette as RGB bytes, interpolated evenly in linear light. */
export function lookup(name) {
  const stops = STOPS[name].map((hex) => [1, 3, 5].map((i) => (parseInt(hex.slice(i, i + 2), 16) / 255) ** 2.2))
  const out = new Uint8Array(768)
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1)
    const k = Math.min(Math.floor(at), stops.length - 2)
    for (let c = 0; c < 3; c++) {
      const linear = stops[k][c] + (stops[k + 1][c] - stops[k][c]) * (at - k)
      out[3 * i + c] = Math.round(255 * linear ** (1 / 2.2))
    }
  }
  return out
}

/** The palette that suits an array by its name and attributes. */
export function suits(name, attrs) {
  const words = `${name} ${attrs.long_name ?? ''} ${attrs.standard_name ?? ''}`.toLowerCase()
  if (/anom|difference|tendency|velocity|trend/.test(words)) return 'change'
  if (/\bice\b|sea_ice|concentration|snow/.test(words)) return 'ice'
  if (/temp|sst|thermal/.test(words)) return 'warmth'
  return 'ocean'
}

/** Low and high of a colour bar: the middle 96 % of the values, on round numbers; even around 0 for `change`. */
export function limits(values, palette) {
  const step = Math.max(1, Math.floor(values.length / 40000))
  const sample = []
  for (let i = 0; i < values.length; i += step) if (Number.isFinite(values[i])) sample.push(values[i])
  if (!sample.length) return [0, 1]
  sample.sort((a, b) => a - b)
  let low = sample[Math.floor(0.02 * (sample.length - 1))]
  let high = sample[Math.ceil(0.98 * (sample.length - 1))]
  if (palette === 'change') [low, high] = [-Math.max(Math.abs(low), Math.abs(high)), Math.max(Math.abs(low), Math.abs(high))]
  if (!(high > low)) return [low - (Math.abs(low) || 1) / 2, low + (Math.abs(low) || 1) / 2]
  const unit = 10 ** Math.floor(Math.log10(high - low)) / 10
  return [Math.floor(low / unit) * unit, Math.ceil(high / unit) * unit].map((x) => Number(x.toPrecision(12)))
}

import { decode, numbers } from './codecs.js'
import { fetchRange, webAddress } from './bytes.js'

const AT_ONCE = 6
const CHUNKS = 64
const CELLS = 6.6e6

/** The block of chunks of the last two axes that is drawn: all of them, or as many around a centre as are bearable. */
export function windowOf(row, centre) {
  const shape = row.shape.slice(-2)
  const chunks = row.chunks.slice(-2)
  const grid = shape.map((n, i) => Math.ceil(n / chunks[i]))
  const size = [...grid]
  while (size[0] * size[1] > 1 && (size[0] * size[1] > CHUNKS || size[0] * chunks[0] * size[1] * chunks[1] > CELLS)) {
    size[size[0] * chunks[0] > size[1] * chunks[1] && size[0] > 1 ? 0 : size[1] > 1 ? 1 : 0] -= 1
  }
  const first = size.map((n, i) => Math.max(0, Math.min(grid[i] - n, Math.round((centre?.[i] ?? grid[i] / 2) - n / 2))))
  const start = first.map((k, i) => k * chunks[i])
  return { grid, first, size, start, count: start.map((s, i) => Math.min(size[i] * chunks[i], shape[i] - s)), whole: size.every((n, i) => n === grid[i]) }
}

/**
 * Stored values of one plane: `index` has a position on each axis but the last two.
 * What the table calls absent, or does not list, is the fill value; what cannot be read is an error.
 */
export async function readPlane(row, table, index, view, packing, signal) {
  const chunk = row.chunks
  const rank = row.shape.length
  const lead = index.map((n, i) => Math.floor(n / chunk[i]))
  const inside = index.map((n, i) => n % chunk[i])
  const [ny, nx] = view.count
  const [cy, cx] = chunk.slice(-2)
  const itemsize = Number(row.dtype.slice(2))
  const length = chunk.reduce((a, b) => a * b, 1) * itemsize
  const skip = inside.reduce((at, n, i) => at * chunk[i] + n, 0) * cy * cx
  const values = new Float64Array(ny * nx).fill(packing.fill)
  const keys = lead.length ? [lead[0]] : Array.from({ length: view.size[0] }, (_, i) => view.first[0] + i)
  const rows = []
  for (const key of keys) rows.push(...(await table.rows(key)))
  const wanted = rows.filter((r) => {
    const key = [...Array(rank).keys()].map((i) => Number(r[`dim_${i}`]))
    const ky = key[rank - 2] - view.first[0]
    const kx = key[rank - 1] - view.first[1]
    return Number(r.present) === 1 && lead.every((n, i) => key[i] === n) && ky >= 0 && kx >= 0 && ky < view.size[0] && kx < view.size[1]
  })
  let bytes = 0
  const paths = new Set()
  const one = async (r) => {
    const stored = r.path === null || r.path === undefined
      ? r.data
      : await fetchRange(webAddress(r.path), Number(r.offset), Number(r.size), signal)
    bytes += stored.length
    if (r.path) paths.add(r.path)
    const raw = numbers(await decode(row.codec, stored, length), row.dtype, packing.unsigned)
    const y0 = Number(r[`dim_${rank - 2}`]) * cy - view.start[0]
    const x0 = Number(r[`dim_${rank - 1}`]) * cx - view.start[1]
    for (let y = 0; y < cy && y0 + y < ny; y++) {
      const from = skip + y * cx
      const width = Math.min(cx, nx - x0)
      values.set(raw.subarray(from, from + width), (y0 + y) * nx + x0)
    }
  }
  const queue = [...wanted]
  const worker = async () => {
    while (queue.length) await one(queue.shift())
  }
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, queue.length) }, worker))
  return { values, bytes, chunks: wanted.length, paths: [...paths], range: wanted.length === 1 && wanted[0].path ? [Number(wanted[0].offset), Number(wanted[0].size)] : null }
}

/** Physical values: scaled, NaN where missing or outside the valid range. */
export function unpack(stored, { scale, offset, missing, valid }) {
  const [low, high] = valid
  const out = new Float64Array(stored.length)
  for (let i = 0; i < stored.length; i++) {
    const x = stored[i]
    out[i] = missing.has(x) || x < low || x > high ? NaN : x * scale + offset
  }
  return out
}

// Node and browsers on the Parquet form, over HTTP: hyparquet finds the rows, the page's own codecs decode the bytes.
import { parquetReadObjects } from 'hyparquet'
import { decompress as unzstd } from 'fzstd'
import { fetchJson, fetchRange } from './page/bytes.js'
import { decode, dtype } from './page/codecs.js'

const compressors = { ZSTD: (input, length) => unzstd(input, new Uint8Array(length)) }
const TYPES = { f4: Float32Array, f8: Float64Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, i8: BigInt64Array }

/** Values in C order, as the fixture spells them, from the bytes of a chunk. */
function spelled(bytes, text) {
  const { kind, size, little } = dtype(text)
  const copy = new Uint8Array(bytes)
  if (!little) for (let i = 0; i < copy.length; i += size) copy.subarray(i, i + size).reverse()
  return Array.from(new TYPES[`${kind}${size}`](copy.buffer), (v) => (size === 8 && kind !== 'f' ? String(v) : Number.isNaN(v) ? 'NaN' : v))
}

async function rows(url) {
  const { headers } = await fetch(url, { method: 'HEAD' })
  const byteLength = Number(headers.get('Content-Length'))
  const file = { byteLength, slice: async (start, end = byteLength) => (await fetchRange(url, start, end - start)).buffer }
  return parquetReadObjects({ file, compressors, utf8: false })
}

async function read(folder, name) {
  const array = (await fetchJson(`${folder}/arrays.json`)).arrays[name]
  const { shape, chunks, fill } = array
  const count = (axes) => axes.reduce((a, b) => a * b, 1)
  const size = Number(array.dtype.slice(2))
  const empty = fill === 'NaN' ? 'NaN' : array.dtype.endsWith('i8') ? String(fill ?? 0) : Number(fill ?? 0)
  const out = Array(count(shape)).fill(empty)
  for (const file of array.files) {
    for (const row of await rows(`${folder}/${file}`)) {
      if (!row.present) continue
      const stored = row.data ?? (await fetchRange(row.path, Number(row.offset), Number(row.size)))
      const values = spelled(await decode(array.codec, stored, count(chunks) * size), array.dtype)
      const first = shape.map((_, i) => Number(row[`dim_${i}`]) * chunks[i])
      values.forEach((value, n) => {
        let rest = n
        const at = chunks.map((_, i) => {
          const width = count(chunks.slice(i + 1))
          const k = Math.floor(rest / width)
          rest -= k * width
          return first[i] + k
        })
        if (at.every((k, i) => k < shape[i])) out[at.reduce((sum, k, i) => sum * shape[i] + k, 0)] = value
      })
    }
  }
  return out
}

async function compared(base, { dataset, array, values }) {
  try {
    const got = await read(`${base}/forms/web/${dataset}/parquet`, array)
    const wrong = values.findIndex((value, i) => value !== got[i])
    if (got.length !== values.length) return `differs: ${got.length} values, not ${values.length}`
    return wrong < 0 ? 'ok' : `differs: element ${wrong} is ${got[wrong]}, not ${values[wrong]}`
  } catch (error) {
    return `not read: ${error.message}`
  }
}

/** The report of a fixture that lies below an address. */
export async function report(base, reader) {
  const { cases } = await fetchJson(`${base}/expected.json`)
  const found = {}
  for (const [name, expected] of Object.entries(cases)) found[name] = await compared(base, expected)
  return { reader, form: 'parquet', cases: found }
}

if (typeof process === 'undefined') {
  globalThis.report = report
} else {
  report(process.argv[2], `Node ${process.versions.node}`).then((found) => console.log(JSON.stringify(found)))
}

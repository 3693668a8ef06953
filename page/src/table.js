import { parquetMetadataAsync, parquetReadObjects } from 'hyparquet'
import { decompress as unzstd } from 'fzstd'
import { fetchRange } from './bytes.js'
import { Said } from './said.js'

const FOOTER = 1 << 16
const compressors = { ZSTD: (input, length) => unzstd(input, new Uint8Array(length)) }

/** Refuses a table of a format that this page was not made for. */
export function ofFormat(found, known, what) {
  if (found !== known) throw new Said(`${what} is of ${found === undefined ? 'a format that it does not name' : `the format ${found}`}, and this page reads ${known}; the lines below may still read it.`)
}

/** What a file says of its table; nothing where it says nothing. */
function told(metadata) {
  const meta = metadata.key_value_metadata?.find(({ key }) => key === 'meta')?.value
  try {
    return JSON.parse(meta) ?? {}
  } catch {
    return {}
  }
}

/** What a reader of Parquet gives, and a sentence in place of its error. */
async function parsed(part, read) {
  try {
    return await read()
  } catch (error) {
    if (error instanceof Said || error.name === 'AbortError') throw error
    throw new Said(`${part.url} is no whole Parquet file (${error.message ?? error}): it was cut or has changed since it was published.`)
  }
}

/** The Parquet files that hold the rows of one array, read by range; what was read is kept. */
export class Table {
  /** `parts`: `file` below `folder`, `size` in bytes, `first` key of dim_0, in order. */
  constructor(folder, parts, rank, format) {
    // names of files are percent-encoded names of arrays, and stand in an address encoded once more
    this.parts = parts.map((part) => ({ ...part, url: new URL(part.file.split('/').map(encodeURIComponent).join('/'), folder).href }))
    Object.assign(this, { rank, format })
    this.kept = new Map()
  }

  /** The rows whose dim_0 is `key`. */
  async rows(key) {
    const found = []
    for (const [i, part] of this.parts.entries()) {
      const next = this.parts[i + 1]
      if (part.first > key || (next && next.first <= key && next.first !== part.first)) continue
      for (const group of await this.groups(part)) {
        if (group.low <= key && key <= group.high) found.push(...(await this.group(part, group)).get(key) ?? [])
      }
    }
    return found
  }

  /** The row groups of a file by their statistics. */
  async groups(part) {
    part.file = { byteLength: part.size, slice: async (start, end = part.size) => (await fetchRange(part.url, start, end - start)).buffer }
    part.metadata ??= await parsed(part, () => parquetMetadataAsync(part.file, { initialFetchSize: FOOTER }))
    ofFormat(told(part.metadata).format_version, this.format, part.url)
    let start = 0
    return part.metadata.row_groups.map((group) => {
      const stats = group.columns[0].meta_data.statistics ?? {}
      const from = start
      start += Number(group.num_rows)
      return { start: from, stop: start, low: Number(stats.min_value ?? -Infinity), high: Number(stats.max_value ?? Infinity) }
    })
  }

  /** The rows of a row group by dim_0. */
  async group(part, { start, stop }) {
    const name = `${part.url} ${start}`
    if (!this.kept.has(name)) {
      const columns = [...Array(this.rank).keys()].map((i) => `dim_${i}`).concat('present', 'path', 'offset', 'size', 'data')
      const rows = await parsed(part, () => parquetReadObjects({
        file: part.file, metadata: part.metadata, compressors, columns, rowStart: start, rowEnd: stop, utf8: false,
      }))
      const byKey = new Map()
      for (const row of rows) {
        const key = Number(row.dim_0)
        byKey.has(key) ? byKey.get(key).push(row) : byKey.set(key, [row])
      }
      if (this.kept.size > 3) this.kept.delete(this.kept.keys().next().value)
      this.kept.set(name, byKey)
    }
    return this.kept.get(name)
  }
}

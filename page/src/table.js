import { parquetMetadataAsync, parquetReadObjects } from 'hyparquet'
import { decompress as unzstd } from 'fzstd'
import { fetchRange } from './bytes.js'

const FOOTER = 1 << 16
const compressors = { ZSTD: (input, length) => unzstd(input, new Uint8Array(length)) }

/** The Parquet files that hold the rows of one array, read by range; what was read is kept. */
export class Table {
  /** `parts`: `file` below `folder`, `size` in bytes, `first` key of dim_0, in order. */
  constructor(folder, parts, rank) {
    // names of files are percent-encoded names of arrays, and stand in an address encoded once more
    this.parts = parts.map((part) => ({ ...part, url: new URL(part.file.split('/').map(encodeURIComponent).join('/'), folder).href }))
    this.rank = rank
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
    part.metadata ??= await parquetMetadataAsync(part.file, { initialFetchSize: FOOTER })
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
      const rows = await parquetReadObjects({
        file: part.file, metadata: part.metadata, compressors, columns, rowStart: start, rowEnd: stop, utf8: false,
      })
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

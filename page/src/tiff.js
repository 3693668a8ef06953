/** The decoders of TIFF's own compressions and of its predictor for floats. */

const CLEAR = 256
const END = 257

/** LZW as TIFF has it: codes most significant bit first, of 9 to 12 bits, one entry early (TIFF 6.0, section 13). */
export function unlzw(bytes, length) {
  if (bytes[0] === 0 && bytes[1] & 1) throw new Error('codes in the order of before TIFF 5')
  const out = new Uint8Array(length)
  // each string of the table is what stands in the output at a place
  const from = new Uint32Array(4096)
  const size = new Uint32Array(4096)
  let [at, held, bits, width, next, last, count] = [0, 0, 0, 9, END + 1, 0, 0]
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xffffff
    bits += 8
    if (bits < width) continue
    bits -= width
    const code = (held >> bits) & ((1 << width) - 1)
    if (code === END) break
    if (code === CLEAR) {
      ;[width, next, count] = [9, END + 1, 0]
      continue
    }
    if (count && next < 4096) {
      from[next] = last
      size[next++] = count + 1
    }
    if (code >= next) throw new Error(`code ${code} before it has a meaning`)
    const start = at
    if (code < CLEAR) out[at++] = code
    else for (let i = 0; i < size[code]; i++) out[at++] = out[from[code] + i]
    ;[last, count] = [start, at - start]
    if (at > length) throw new Error('more bytes than a chunk has')
    if (next + 1 >= 1 << width && width < 12) width++
  }
  return out.subarray(0, at)
}

/** PackBits: literal runs and repeated bytes (TIFF 6.0, section 9). */
export function unpackbits(bytes, length) {
  const out = new Uint8Array(length)
  let at = 0
  for (let i = 0; i < bytes.length && at < length; ) {
    const head = (bytes[i++] << 24) >> 24
    if (head === -128) continue
    const count = 1 + Math.abs(head)
    if (head < 0) out.fill(bytes[i++], at, at + count)
    else {
      out.set(bytes.subarray(i, i + Math.min(count, length - at)), at)
      i += count
    }
    at += count
  }
  return out.subarray(0, Math.min(at, length))
}

/** Predictor 3: of a row the bytes of all samples, the most significant of each first, as differences (TIFF technical note 3). */
export function unfloat(bytes, { shape, axis }, size, little) {
  const at = ((axis ?? -1) + shape.length) % shape.length
  const stride = shape.slice(at + 1).reduce((a, b) => a * b, 1)
  const line = shape[at] * stride
  const out = new Uint8Array(bytes.length)
  for (let start = 0; start < bytes.length; start += line * size) {
    const sums = bytes.slice(start, start + line * size)
    for (let i = stride; i < sums.length; i++) sums[i] += sums[i - stride]
    for (let k = 0; k < size; k++) {
      for (let i = 0; i < line; i++) out[start + i * size + (little ? size - 1 - k : k)] = sums[k * line + i]
    }
  }
  return out
}

import { gunzipSync, unzlibSync } from 'fflate'
import { decompress as unzstd } from 'fzstd'
import { Said } from './said.js'
import { unfloat, unlzw, unpackbits } from './tiff.js'

const UNDO = {
  zlib: inflate,
  gzip: (bytes) => gunzipSync(bytes),
  zstd: (bytes) => unzstd(bytes),
  shuffle: (bytes, config) => unshuffle(bytes, config.elementsize ?? 4),
  fletcher32: unfletcher,
  imagecodecs_delta: undelta,
  imagecodecs_floatpred: (bytes, config) => {
    const { size, little } = dtype(config.dtype)
    return unfloat(bytes, config, size, little)
  },
  imagecodecs_lzw: (bytes, _, length) => unlzw(bytes, length),
  imagecodecs_packbits: (bytes, _, length) => unpackbits(bytes, length),
}

/** Filters and compressor of a codec as one list, in encoding order. */
export function pipeline(codec) {
  return [...(codec.filters ?? []), ...(codec.compressor ? [codec.compressor] : [])]
}

/** The ids of a codec that have no decoder here. */
export function unknown(codec) {
  return pipeline(codec)
    .map((config) => config.id)
    .filter((id) => !Object.hasOwn(UNDO, id))
}

/** The bytes of a whole chunk, `length` of them, from its stored bytes. */
export async function decode(codec, stored, length) {
  const lost = unknown(codec)
  if (lost.length) throw new Said(`This page has no decoder for ${lost.join(', ')}; the lines below read these chunks.`)
  let bytes = stored
  for (const config of pipeline(codec).reverse()) {
    try {
      bytes = await UNDO[config.id](bytes, config, length)
    } catch (error) {
      if (error instanceof Said) throw error
      throw new Said(`${stored.length} bytes are no ${config.id} stream (${error.message ?? error}): the file has changed since it was indexed.`)
    }
  }
  if (bytes.length !== length) {
    throw new Said(`A chunk decodes to ${bytes.length} bytes and not to ${length}: the file has changed since it was indexed.`)
  }
  return bytes
}

async function inflate(bytes) {
  if (typeof DecompressionStream === 'undefined') return unzlibSync(bytes)
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}

/** HDF5's byte shuffle; a tail of less than one element stays where it is. */
function unshuffle(bytes, size) {
  const count = Math.floor(bytes.length / size)
  const out = new Uint8Array(bytes.length)
  for (let plane = 0; plane < size; plane++) {
    const start = plane * count
    for (let i = 0, at = plane; i < count; i++, at += size) out[at] = bytes[start + i]
  }
  out.set(bytes.subarray(count * size), count * size)
  return out
}

/** The bytes before the checksum, if it is that of HDF5's Fletcher-32. */
function unfletcher(bytes) {
  const data = bytes.subarray(0, bytes.length - 4)
  const told = new DataView(bytes.buffer, bytes.byteOffset + data.length, 4).getUint32(0, true)
  let low = 0
  let high = 0
  for (let i = 0; i < data.length; i += 2) {
    low = (low + ((data[i] << 8) | (data[i + 1] ?? 0))) % 65535
    high = (high + low) % 65535
  }
  if (((high << 16) | low) >>> 0 !== told) throw new Said('A chunk does not have its Fletcher-32 checksum: the file has changed since it was indexed.')
  return data
}

/** TIFF's horizontal predictor: each sample is the difference from the one before it along an axis. */
function undelta(bytes, config) {
  const { kind, size, little } = dtype(config.dtype)
  if (kind === 'f') throw new Said('This page has no decoder for imagecodecs_delta of floats.')
  const shape = config.shape
  const axis = ((config.axis ?? -1) + shape.length) % shape.length
  const stride = shape.slice(axis + 1).reduce((a, b) => a * b, 1)
  const line = shape[axis] * stride
  const out = swapped(bytes, size, little)
  const samples = new { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array }[size](out.buffer)
  for (let i = 0; i < samples.length; i++) if (i % line >= stride) samples[i] += samples[i - stride]
  return swapped(out, size, little)
}

/** A numpy dtype such as `<i2`: kind, bytes, byte order. */
export function dtype(text) {
  const found = /^([<>|=])([iufb])(\d+)$/.exec(text)
  if (!found) throw new Said(`Values of type ${text} cannot be drawn as a map.`)
  return { kind: found[2] === 'b' ? 'u' : found[2], size: Number(found[3]), little: found[1] !== '>' }
}

/** A copy in this machine's byte order, aligned, from bytes of a given order (or back). */
function swapped(bytes, size, little) {
  const out = new Uint8Array(bytes)
  const native = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1
  if (size === 1 || little === native) return out
  for (let i = 0; i < out.length; i += size) out.subarray(i, i + size).reverse()
  return out
}

/** Stored values as numbers; 64-bit integers as the nearest double. */
export function numbers(bytes, text, unsigned = false) {
  const { kind, size, little } = dtype(text)
  const buffer = swapped(bytes, size, little).buffer
  const types = {
    f2: Uint16Array, f4: Float32Array, f8: Float64Array, i1: Int8Array, i2: Int16Array, i4: Int32Array,
    i8: BigInt64Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array,
  }
  const type = types[`${unsigned && kind === 'i' ? 'u' : kind}${size}`]
  if (!type) throw new Said(`Values of type ${text} cannot be drawn as a map.`)
  const values = new type(buffer)
  if (size === 8 && kind !== 'f') return Float64Array.from(values, Number)
  return kind === 'f' && size === 2 ? Float32Array.from(values, half) : values
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 31
  const fraction = bits & 1023
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024))
}

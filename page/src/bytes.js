import { Said } from './said.js'

/** The address under which a browser fetches a published path; refused where it can have none. */
export function webAddress(path) {
  const bare = path.startsWith('/vsicurl/') ? path.slice(9) : path
  if (/^https?:\/\//.test(bare)) return bare.replace(/#/g, '%23').replace(/ /g, '%20')
  const bucket = bare.startsWith('s3://') ? bare.slice(5) : bare.startsWith('/vsis3/') ? bare.slice(7) : null
  if (bucket !== null) {
    const [host, ...key] = bucket.split('/')
    return `https://${host}.s3.amazonaws.com/${key.map(encodeURIComponent).join('/')}`
  }
  throw new Said(
    `The files of this publication lie at paths of a file system (${path}), which a browser cannot read. ` +
      'A publication for a remap target with web addresses shows them here; the lines below read them where they are.'
  )
}

/** Exactly the bytes [offset, offset + size) of what lies at an address. */
export async function fetchRange(url, offset, size, signal) {
  if (size === 0) return new Uint8Array()
  const answer = await ask(url, { headers: { Range: `bytes=${offset}-${offset + size - 1}` }, signal })
  const host = new URL(url).host
  if (answer.status === 200) {
    answer.body?.cancel()
    throw new Said(`${host} does not answer byte ranges: it sends whole files, so single chunks cannot be read from it here.`)
  }
  if (answer.status === 416) {
    throw new Said(`${host} has fewer bytes at ${url} than were indexed: the file was cut or has changed since.`)
  }
  if (answer.status !== 206) {
    throw new Said(`${host} answers ${answer.status} for ${url}: the file is gone, or it is not for everybody.`)
  }
  const bytes = new Uint8Array(await answer.arrayBuffer())
  if (bytes.length !== size) {
    throw new Said(`${host} sent ${bytes.length} of ${size} bytes of ${url}: the file has changed since it was indexed.`)
  }
  return bytes
}

/** A whole small file as JSON. */
export async function fetchJson(url) {
  const answer = await ask(url, {})
  if (!answer.ok) throw new Said(`${new URL(url).host} answers ${answer.status} for ${url}.`)
  try {
    return await answer.json()
  } catch {
    throw new Said(`${url} is no whole JSON file: it was cut or has changed since it was published.`)
  }
}

/** fetch, and a sentence instead of its wordless error where another origin's server permits nothing. */
async function ask(url, init) {
  try {
    return await fetch(url, init)
  } catch (error) {
    if (error.name === 'AbortError') throw error
    const address = new URL(url)
    if (address.protocol === 'file:') {
      throw new Said('This page was opened as a file, and a browser lets no file read its neighbours. Open it from a web server to see the map.')
    }
    throw new Said(
      (await reachable(url))
        ? `${address.host} does not permit pages of other sites to read its files (it sends no CORS header), so the map cannot be drawn here. The lines below read the same bytes.`
        : `${address.host} cannot be reached from here, so the map cannot be drawn.`
    )
  }
}

/** Whether a server answers at all, told apart without being allowed to read the answer. */
async function reachable(url) {
  try {
    await fetch(url, { mode: 'no-cors', method: 'HEAD' })
    return true
  } catch {
    return false
  }
}

import { fetchJson } from './bytes.js'
import { axisOf, coordinate, dates, unpacking } from './cf.js'
import { dtype, unknown } from './codecs.js'
import { limits, lookup, PALETTES, suits } from './colours.js'
import { Said } from './said.js'
import { readPlane, unpack, windowOf } from './slice.js'
import { ofFormat, Table } from './table.js'

const $ = (id) => document.getElementById(id)
const KEEP = 24

/** The live map: reads the table, draws a step, tells the value at a place. */
export async function startMap(settings) {
  const folder = new URL(settings.folder, document.baseURI)
  if (settings.show === null) throw new Said('No array of this dataset has a table of references, so there is nothing to draw.')
  const { arrays, meta } = await fetchJson(new URL('arrays.json', folder).href)
  ofFormat(meta?.format_version, settings.format, 'The table')
  const names = Object.keys(settings.arrays).filter((name) => arrays[name]?.kind === 'data' && arrays[name].shape.length >= 2)
  if (!names.length) throw new Said('No variable of this dataset has two axes to draw.')
  const map = new LiveMap(folder, settings, arrays, names)
  await map.choose(names.includes(settings.show) ? settings.show : names[0])
  return map
}

class LiveMap {
  constructor(folder, settings, arrays, names) {
    Object.assign(this, { folder, settings, arrays })
    for (const name of names) $('variable').append(new Option(label(name, arrays[name].attrs), name))
    for (const name of PALETTES) $('palette').append(new Option(name, name))
    $('controls').hidden = false
    $('variable').addEventListener('change', () => this.choose($('variable').value))
    $('palette').addEventListener('change', () => this.paint())
    $('fit').addEventListener('click', () => this.fit())
    $('step').addEventListener('input', () => this.later())
    $('level').addEventListener('input', () => this.later())
    $('back').addEventListener('click', () => this.move(-1))
    $('forth').addEventListener('click', () => this.move(1))
    $('canvas').addEventListener('pointermove', (event) => this.point(event))
    $('canvas').addEventListener('pointerdown', (event) => this.point(event))
    $('canvas').addEventListener('keydown', (event) => this.key(event))
    for (const button of $('pan').querySelectorAll('button')) {
      button.addEventListener('click', () => this.pan(Number(button.dataset.dx), Number(button.dataset.dy)))
    }
  }

  /** Show another array, its newest step. */
  async choose(name) {
    const row = this.arrays[name]
    const lead = row.dims.slice(0, -2)
    Object.assign(this, { name, row, packing: null, plane: null, centre: null, kept: new Map(), range: null })
    $('variable').value = name
    $('palette').value = suits(name, row.attrs)
    const group = name.includes('/') ? name.slice(0, name.lastIndexOf('/') + 1) : ''
    const find = (dim) => this.arrays[group + dim] ?? this.arrays[dim]
    const told = (dim) => {
      const found = find(dim)
      return found?.values !== undefined && found.shape.length === 1 ? { values: coordinate(found), attrs: found.attrs } : null
    }
    this.axes = row.dims.map(told)
    this.table = new Table(this.folder, this.settings.arrays[name], row.shape.length, this.settings.format)
    slider('slider', 'step', lead.length ? row.shape[0] : 1, lead.length ? row.shape[0] - 1 : 0)
    this.second = lead.length > 1 ? lead.findIndex((_, i) => i > 0 && row.shape[i] > 1) : -1
    slider('levels', 'level', this.second > 0 ? row.shape[this.second] : 1, 0)
    if (this.second > 0) $('levelname').textContent = lead[this.second]
    this.tell()
    try {
      dtype(row.dtype)
      const lost = unknown(row.codec)
      if (lost.length) throw new Said(`This page has no decoder for ${lost.join(', ')}, in which ${name} is stored; the lines below read it.`)
      this.packing = unpacking(row)
    } catch (error) {
      return this.fail(error)
    }
    await this.draw()
  }

  get index() {
    const lead = this.row.dims.slice(0, -2).map(() => 0)
    if (lead.length) lead[0] = Number($('step').value)
    if (this.second > 0) lead[this.second] = Number($('level').value)
    return lead
  }

  move(by) {
    $('step').value = String(Number($('step').value) + by)
    this.later()
  }

  /** Draw soon: the slider passes many steps that nobody wants to see. */
  later() {
    this.tell()
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.draw(), 120)
  }

  /** What the sliders stand at. */
  tell() {
    const index = this.index
    if (index.length) $('when').textContent = said(this.axes[0], index[0])
    if (this.second > 0) $('levelwhen').textContent = said(this.axes[this.second], index[this.second])
  }

  async draw() {
    if (!this.packing) return
    this.abort?.abort()
    const { signal } = (this.abort = new AbortController())
    const view = windowOf(this.row, this.centre)
    const index = this.index
    const id = JSON.stringify([index, view.first])
    if (!this.kept.has(id)) say('Reading …', true)
    try {
      if (!this.kept.has(id)) {
        const plane = await readPlane(this.row, this.table, index, view, this.packing, signal)
        if (this.kept.size >= KEEP) this.kept.delete(this.kept.keys().next().value)
        this.kept.set(id, { ...plane, view, index, physical: unpack(plane.values, this.packing) })
      }
      if (signal.aborted) return
      this.plane = this.kept.get(id)
      this.range ??= limits(this.plane.physical, $('palette').value)
      this.paint()
      say(this.plane.physical.some(Number.isFinite) ? '' : 'Every value of this step is missing.')
      $('canvas').dataset.drawn = id
    } catch (error) {
      if (!signal.aborted) this.fail(error)
    }
  }

  fail(error) {
    this.plane = null
    $('bar').hidden = true
    $('pan').hidden = true
    $('cross').hidden = true
    $('value').textContent = ''
    $('provenance').textContent = ''
    const canvas = $('canvas')
    canvas.getContext('2d').clearRect(0, 0, canvas.width, canvas.height)
    canvas.removeAttribute('data-drawn')
    say(sentence(error))
  }

  fit() {
    if (!this.plane) return
    this.range = limits(this.plane.physical, $('palette').value)
    this.paint()
  }

  /** Rows are drawn north up where the axis says which way that is, else as they lie. */
  get flipped() {
    const y = this.axes.at(-2)
    return y !== null && y.values.length > 1 && y.values[y.values.length - 1] > y.values[0]
  }

  /** One pixel a cell; a missing value is transparent. */
  paint() {
    if (!this.plane) return
    const { physical, view } = this.plane
    const [ny, nx] = view.count
    const colours = lookup($('palette').value)
    const [low, high] = this.range
    const canvas = $('canvas')
    Object.assign(canvas, { width: nx, height: ny })
    canvas.style.imageRendering = nx < 900 ? 'pixelated' : 'auto'
    const context = canvas.getContext('2d', { willReadFrequently: true })
    const image = context.createImageData(nx, ny)
    for (let y = 0; y < ny; y++) {
      const to = (this.flipped ? ny - 1 - y : y) * nx
      for (let x = 0; x < nx; x++) {
        const value = physical[y * nx + x]
        if (Number.isNaN(value)) continue
        const i = 3 * Math.max(0, Math.min(255, Math.round((255 * (value - low)) / (high - low))))
        image.data.set([colours[i], colours[i + 1], colours[i + 2], 255], 4 * (to + x))
      }
    }
    context.putImageData(image, 0, 0)
    this.bar(colours)
    this.ticks()
    this.about()
    if (this.cell) this.at(...this.cell)
  }

  bar(colours) {
    const context = $('ramp').getContext('2d')
    const image = context.createImageData(256, 1)
    for (let i = 0; i < 256; i++) image.data.set([...colours.subarray(3 * i, 3 * i + 3), 255], 4 * i)
    context.putImageData(image, 0, 0)
    const [low, high] = this.range
    $('barticks').replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map((f) => span(short(low + f * (high - low)))))
    $('units').textContent = label(this.name, this.row.attrs) + (this.row.attrs.units ? ` (${this.row.attrs.units})` : '')
    $('bar').hidden = false
    $('pan').hidden = this.plane.view.whole
  }

  /** Round values along both axes where there are some, else a few of what the coordinates are. */
  ticks() {
    const { view } = this.plane
    for (const [i, id, way] of [[0, 'yticks', 'top'], [1, 'xticks', 'left']]) {
      const axis = this.axes.at(i - 2)
      const n = view.count[i]
      const marks = rounds(axis, view.start[i], n) ?? (n > 3 ? [0.05, 0.5, 0.95] : [0.5]).map((f) => Math.min(n - 1, Math.floor(f * n))).map((k) => [k, axis?.values[view.start[i] + k] ?? view.start[i] + k])
      $(id).replaceChildren(
        ...marks.map(([k, value]) => {
          const mark = span(inWords(axis, value))
          const shown = i === 0 && this.flipped ? n - 1 - k : k
          mark.style[way] = `${(100 * (shown + 0.5)) / n}%`
          return mark
        })
      )
    }
  }

  about() {
    const { bytes, chunks, paths, range, view } = this.plane
    const where = paths.length === 1 ? paths[0] : `${paths.length} files`
    const which = range ? `bytes ${range[0].toLocaleString('en')} to ${(range[0] + range[1]).toLocaleString('en')}` : `${bytes.toLocaleString('en')} bytes in ${chunks} chunks`
    const part = view.whole ? '' : ` Shown are ${view.size[0]} × ${view.size[1]} of ${view.grid[0]} × ${view.grid[1]} chunks.`
    $('provenance').textContent = (chunks ? `Drawn from ${which} of ${where}.` : 'No source holds this step.') + part
  }

  pan(dx, dy) {
    if (!this.plane) return
    const { view } = this.plane
    const up = this.flipped ? dy : -dy
    const middle = view.first.map((n, i) => n + view.size[i] / 2)
    this.centre = [middle[0] + up * Math.max(1, view.size[0] / 2), middle[1] + dx * Math.max(1, view.size[1] / 2)]
    this.draw()
  }

  point(event) {
    if (!this.plane) return
    const box = $('canvas').getBoundingClientRect()
    const [ny, nx] = this.plane.view.count
    const x = Math.floor(((event.clientX - box.left) / box.width) * nx)
    const y = Math.floor(((event.clientY - box.top) / box.height) * ny)
    if (x >= 0 && y >= 0 && x < nx && y < ny) this.at(y, x)
  }

  key(event) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key]
    if (!by || !this.plane) return
    event.preventDefault()
    const [ny, nx] = this.plane.view.count
    const far = event.shiftKey ? 10 : 1
    const [y, x] = this.cell ?? [Math.floor(ny / 2), Math.floor(nx / 2)]
    this.at(Math.max(0, Math.min(ny - 1, y + far * by[0])), Math.max(0, Math.min(nx - 1, x + far * by[1])))
  }

  /** Tell the value at a row and column of the picture. */
  at(y, x) {
    const { values, physical, view } = this.plane
    const [ny, nx] = view.count
    this.cell = [Math.min(y, ny - 1), Math.min(x, nx - 1)]
    const [py, px] = this.cell
    const row = this.flipped ? ny - 1 - py : py
    const at = row * nx + px
    const where = `${place(this.axes.at(-2), view.start[0] + row, this.row.dims.at(-2))} ${place(this.axes.at(-1), view.start[1] + px, this.row.dims.at(-1))}`
    const value = physical[at]
    const packed = this.packing.scale !== 1 || this.packing.offset !== 0 ? ` (stored ${values[at]})` : ''
    const invalid = Number.isNaN(value) && !Number.isNaN(values[at]) && !this.packing.missing.has(values[at])
    const none = invalid ? `no value (stored ${values[at]}, outside the valid range)` : 'no value'
    const told = Number.isNaN(value) ? none : `${Number(value.toPrecision(6))} ${this.row.attrs.units ?? ''}${packed}`
    $('value').textContent = `${where}: ${told}`
    Object.assign($('value').dataset, { y: row + view.start[0], x: px + view.start[1], stored: String(values[at]), value: String(value) })
    $('cross').hidden = false
    $('cross').style.left = `${(100 * (px + 0.5)) / nx}%`
    $('cross').style.top = `${(100 * (py + 0.5)) / ny}%`
  }
}

/** A sentence for whatever went wrong; what nobody foresaw says so. */
export function sentence(error) {
  return error instanceof Said ? error.message : `The map cannot be drawn: ${error?.message ?? error}`
}

export function say(text, wait = false) {
  $('says').textContent = text
  $('says').classList.toggle('wait', wait)
}

function slider(box, id, count, value) {
  $(box).hidden = count < 2
  Object.assign($(id), { min: '0', max: String(count - 1), value: String(value) })
}

function label(name, attrs) {
  const words = attrs.long_name ?? attrs.standard_name
  return words && words !== name ? `${words} (${name})` : name
}

function said(axis, k) {
  if (!axis) return String(k)
  const date = dates(axis.attrs)?.(axis.values[k])
  if (!date) return `${short(axis.values[k])} ${axis.attrs.units ?? ''}`.trim()
  const neighbour = dates(axis.attrs)(axis.values[k ? k - 1 : Math.min(1, axis.values.length - 1)])
  return axis.values.length < 2 || neighbour.date !== date.date ? date.date : `${date.date} ${date.time}`
}

/** Up to six [position, value] pairs at round values of an evenly spaced axis; null for any other. */
function rounds(axis, start, n) {
  if (!axis || n < 4) return null
  const [first, last] = [axis.values[start], axis.values[start + n - 1]]
  const step = (last - first) / (n - 1)
  const even = [0.25, 0.5, 0.75].every((f) => {
    const k = Math.floor(f * (n - 1))
    return Math.abs(axis.values[start + k] - (first + k * step)) < 0.01 * Math.abs(step)
  })
  if (!step || !even) return null
  const span = Math.abs(last - first)
  const degrees = axisOf(axis.attrs) ? [1, 2, 5, 10, 15, 30, 60, 90] : []
  const tens = [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7].flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e))
  const unit = [...degrees, ...tens].sort((a, b) => a - b).find((u) => span / u <= 6)
  if (!unit) return null
  const found = []
  for (let v = Math.ceil(Math.min(first, last) / unit) * unit; v <= Math.max(first, last); v += unit) found.push([(v - first) / step, Number(v.toPrecision(10))])
  return found.length > 1 ? found : null
}

/** A value of an axis in words. */
function inWords(axis, value) {
  const kind = axisOf(axis?.attrs)
  const text = short(Math.abs(value))
  if (kind === 'lat') return `${text}°${value < 0 ? 'S' : value > 0 ? 'N' : ''}`
  if (kind === 'lon') return value > 180 ? `${short(360 - value)}°${value < 360 ? 'W' : ''}` : `${text}°${value < 0 ? 'W' : value % 180 ? 'E' : ''}`
  return short(value)
}

function place(axis, k, dim) {
  if (!axis) return `${dim} ${k}`
  return axisOf(axis.attrs) ? inWords(axis, axis.values[k]) : `${dim} ${short(axis.values[k])}`
}

function short(x) {
  return String(Number(x.toPrecision(5)))
}

function span(text) {
  const made = document.createElement('span')
  made.textContent = text
  return made
}

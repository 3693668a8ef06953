// The bundle and the licences of what is in it, into scripts/byterefs/assets.
import { readFileSync, writeFileSync } from 'node:fs'
import { build } from 'esbuild'

const assets = new URL('../scripts/byterefs/assets/', import.meta.url)
const made = await build({
  entryPoints: ['src/main.js'],
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  legalComments: 'none',
  metafile: true,
  write: false,
})
writeFileSync(new URL('page.js', assets), made.outputFiles[0].text)

const packages = [...new Set(Object.keys(made.metafile.inputs).flatMap((path) => /node_modules\/([^/]+)/.exec(path)?.[1] ?? []))]
const licences = packages.sort().map((name) => {
  const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`))
  return `${name} ${version}\n\n${readFileSync(`node_modules/${name}/LICENSE`, 'utf8').trim()}\n`
})
writeFileSync(new URL('page.js.LICENCES.txt', assets), `page.js holds these packages:\n\n${licences.join('\n\n')}`)

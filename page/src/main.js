import { say, sentence, startMap } from './map.js'

/** Tabs as the ARIA pattern has them: arrows, Home and End move and select. */
function startTabs(list) {
  const tabs = [...list.querySelectorAll('[role=tab]')]
  const select = (chosen, focus) => {
    for (const tab of tabs) {
      const on = tab === chosen
      tab.setAttribute('aria-selected', String(on))
      tab.tabIndex = on ? 0 : -1
      document.getElementById(tab.getAttribute('aria-controls')).hidden = !on
    }
    if (focus) chosen.focus()
  }
  for (const [i, tab] of tabs.entries()) {
    tab.addEventListener('click', () => select(tab))
    tab.addEventListener('keydown', (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key]
      if (to === undefined) return
      event.preventDefault()
      select(tabs[(to + tabs.length) % tabs.length], true)
    })
  }
  select(tabs[0])
}

async function copy(button) {
  const text = button.closest('.code').querySelector('code').textContent
  const before = button.textContent
  try {
    await navigator.clipboard.writeText(text)
    button.textContent = 'Copied'
  } catch {
    getSelection().selectAllChildren(button.closest('.code').querySelector('code'))
    button.textContent = 'Selected: press Ctrl+C'
  }
  setTimeout(() => (button.textContent = before), 1600)
}

/** How long ago, by the reader's own clock: the file holds the date only. */
function ago(element) {
  const days = Math.floor((Date.now() - new Date(element.dateTime)) / 864e5)
  if (days >= 0) element.append(` (${days === 0 ? 'today' : days === 1 ? 'yesterday' : `${days.toLocaleString('en')} days ago`})`)
}

const tablist = document.querySelector('[role=tablist]')
if (tablist) startTabs(tablist)
for (const button of document.querySelectorAll('.copy')) button.addEventListener('click', () => copy(button))
for (const element of document.querySelectorAll('time[data-ago]')) ago(element)
const settings = document.getElementById('settings')
if (settings) startMap(JSON.parse(settings.textContent)).catch((error) => say(sentence(error)))

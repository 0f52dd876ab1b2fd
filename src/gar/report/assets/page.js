// The page: head, tabs and panels. A panel is drawn when it is first shown, and again at another zoom.

const PANELS = [
  ['summary', 'Summary', summaryPanel],
  ['curves', 'Curves', curvesPanel],
  ['problems', 'Problems', problemsPanel],
  ['rollouts', 'Rollouts', rolloutsPanel],
  ['runs', 'Runs', runsPanel],
  ['settings', 'Settings', settingsPanel],
  ['definitions', 'Definitions', definitionsPanel],
];
const ZOOMED = ['summary', 'curves'];

const root = document.documentElement;
const darkness = window.matchMedia('(prefers-color-scheme: dark)');

function setDark(dark) {
  root.classList.toggle('dark', dark);
  lightSwitch.textContent = dark ? 'Light' : 'Dark';
  lightSwitch.setAttribute('aria-label', dark ? 'Light colors' : 'Dark colors');
}

const lightSwitch = h('button', { class: 'plain', id: 'light', click: () => setDark(!root.classList.contains('dark')) });
darkness.addEventListener('change', (event) => setDark(event.matches));
setDark(darkness.matches);

const tabs = PANELS.map(([name, label, draw], i) => ({
  name, draw, drawn: null,
  panel: h('section', { id: `panel-${name}`, role: 'tabpanel', 'aria-labelledby': `tab-${name}`, hidden: true }),
  button: h('button', {
    id: `tab-${name}`, role: 'tab', 'aria-controls': `panel-${name}`, tabindex: -1,
    click: () => goTo(name, lastParams.get(name)),
    keydown: (event) => {
      const moves = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      const next = tabs[(moves[event.key] + tabs.length) % tabs.length];
      goTo(next.name, lastParams.get(next.name));
      next.button.focus();
    },
  }, label),
}));

// Draws what the address says and is not drawn yet.
function showPlace() {
  const place = readAddress();
  const open = tabs.find((tab) => tab.name === place.tab) ?? tabs[0];
  hideTip();
  lastParams.set(open.name, place.params);
  for (const tab of tabs) {
    tab.button.setAttribute('aria-selected', String(tab === open));
    tab.button.tabIndex = tab === open ? 0 : -1;
    tab.panel.hidden = tab !== open;
  }
  drawTab(open, place.params);
  if (open.name === 'rollouts') showRollouts(place.params);
}

function drawTab(tab, params) {
  const zoom = ZOOMED.includes(tab.name) ? [params.from, params.to].join() : '';
  if (tab.drawn === zoom) return;
  tab.panel.replaceChildren(...tab.draw(params));
  tab.drawn = zoom;
}

window.addEventListener('beforeprint', () => tabs.forEach((tab) => drawTab(tab, lastParams.get(tab.name) ?? {})));

document.body.append(
  h('header', {},
    h('div', {},
      h('h1', {}, report.title), h('p', {}, report.subtitle)),
    lightSwitch),
  h('main', {},
    h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Parts of the report' }, tabs.map((tab) => tab.button)),
    tabs.map((tab) => tab.panel)),
  h('footer', {}, 'Written by gar report. This file is self-contained: it loads nothing and sends nothing.'),
  large, tip,
);
showPlace();

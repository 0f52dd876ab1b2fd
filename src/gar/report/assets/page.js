// The page: head, tabs and panels.

const PANELS = [
  ['summary', 'Summary', summaryPanel],
  ['curves', 'Curves', curvesPanel],
  ['rollouts', 'Rollouts', rolloutsPanel],
  ['figures', 'Figures', picturesPanel],
  ['settings', 'Settings', settingsPanel],
  ['definitions', 'Definitions', definitionsPanel],
];

const root = document.documentElement;
const darkness = window.matchMedia('(prefers-color-scheme: dark)');

function setDark(dark) {
  root.classList.toggle('dark', dark);
  lightSwitch.textContent = dark ? 'Light' : 'Dark';
  lightSwitch.setAttribute('aria-label', dark ? 'Light colours' : 'Dark colours');
}

const lightSwitch = h('button', { class: 'plain', id: 'light', click: () => setDark(!root.classList.contains('dark')) });
darkness.addEventListener('change', (event) => setDark(event.matches));
setDark(darkness.matches);

const panels = PANELS.map(([name, , draw]) => h('section', { id: `panel-${name}`, role: 'tabpanel', 'aria-labelledby': `tab-${name}`, hidden: true }, draw()));
const tabs = PANELS.map(([name, label], i) => h('button', {
  id: `tab-${name}`, role: 'tab', 'aria-controls': `panel-${name}`, tabindex: -1,
  click: () => openPanel(i),
  keydown: (event) => {
    const moves = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: PANELS.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = (moves[event.key] + PANELS.length) % PANELS.length;
    openPanel(next);
    tabs[next].focus();
  },
}, label));

function openPanel(at) {
  hideTip();
  tabs.forEach((tab, i) => {
    tab.setAttribute('aria-selected', String(i === at));
    tab.tabIndex = i === at ? 0 : -1;
    panels[i].hidden = i !== at;
  });
  history.replaceState(null, '', `#${PANELS[at][0]}`);
}

document.body.append(
  h('header', {}, h('div', {}, h('h1', {}, report.title), h('p', {}, report.subtitle)), lightSwitch),
  h('main', {}, h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Parts of the report' }, tabs), panels),
  h('footer', {}, 'Written by gar report. This file is whole: it loads nothing and sends nothing.'),
  tip,
);
openPanel(Math.max(0, PANELS.findIndex(([name]) => `#${name}` === location.hash)));

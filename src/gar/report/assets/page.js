// The page: head, tabs and panels. A panel is drawn when it is first shown, and again when its part of the report changes.

const PANELS = [
  ['summary', 'Summary', summaryPanel, ['headline', 'sentences', 'notes', 'tiles', 'tables', 'charts']],
  ['curves', 'Curves', curvesPanel, ['charts']],
  ['rollouts', 'Rollouts', rolloutsPanel, ['rollouts']],
  ['runs', 'Runs', runsPanel, ['all_runs']],
  ['figures', 'Figures', picturesPanel, ['pictures']],
  ['settings', 'Settings', settingsPanel, ['runs', 'settings']],
  ['definitions', 'Definitions', definitionsPanel, ['definitions']],
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

const head = h('div', {}, h('h1', {}, 'Loading ...'));
const main = h('main');
let tabs = []; // { name, button, panel, draw, parts, drawn }

function makeTabs() {
  const shown = PANELS.filter(([, , , [part]]) => part in report);
  if (tabs.map((tab) => tab.name).join() === shown.map(([name]) => name).join()) return;
  tabs = shown.map(([name, label, draw, parts], i) => ({
    name, draw, parts, drawn: null,
    panel: h('section', { id: `panel-${name}`, role: 'tabpanel', 'aria-labelledby': `tab-${name}`, hidden: true }),
    button: h('button', {
      id: `tab-${name}`, role: 'tab', 'aria-controls': `panel-${name}`, tabindex: -1,
      click: () => goTo(name, lastParams.get(name)),
      keydown: (event) => {
        const moves = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: shown.length - 1 };
        if (!(event.key in moves)) return;
        event.preventDefault();
        const next = tabs[(moves[event.key] + shown.length) % shown.length];
        goTo(next.name, lastParams.get(next.name));
        next.button.focus();
      },
    }, label),
  }));
  main.replaceChildren(
    h('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Parts of the report' }, tabs.map((tab) => tab.button)),
    ...tabs.map((tab) => tab.panel));
}

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
  const now = [zoom, ...tab.parts.map((part) => report[part])];
  if (tab.drawn && tab.drawn.every((value, i) => value === now[i])) return;
  const focused = tab.panel.contains(document.activeElement) ? document.activeElement.dataset.filter : undefined;
  tab.panel.replaceChildren(...tab.draw(params));
  tab.drawn = now;
  if (focused) tab.panel.querySelector(`[data-filter="${focused}"]`)?.focus();
}

window.addEventListener('beforeprint', () => tabs.forEach((tab) => drawTab(tab, lastParams.get(tab.name) ?? {})));

// Takes a report, the first or a newer one. Parts that are the same as before keep their panels.
function takeReport(next) {
  const same = (name, value) => report && (value === report[name] || JSON.stringify(value) === JSON.stringify(report[name]));
  report = Object.fromEntries(Object.entries(next).map(([name, value]) => [name, same(name, value) ? report[name] : value]));
  document.title = report.title;
  head.replaceChildren(...[
    h('h1', {}, report.title), h('p', {}, report.subtitle),
    report.tags.length ? h('p', { class: 'tags' }, report.tags.map((tag) => h('span', {}, tag))) : null,
  ].filter(Boolean));
  makeTabs();
  showPlace();
}

document.body.append(
  h('header', {}, head, lightSwitch),
  main,
  h('footer', {}, 'Written by gar report. This file is self-contained: it loads nothing and sends nothing.'),
  large, tip,
);
takeReport(report);

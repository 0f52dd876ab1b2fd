// The summary, the figures, the settings and the definitions.

const VERDICT_CLASS = { better: 'better', worse: 'worse' };

function drawTable(table) {
  const head = table.columns.map((column) => h('th', { scope: 'col', class: `is-${column.kind}` }, column.term ? term(column.term, column.heading) : column.heading));
  const rows = table.rows.map((cells) => h('tr', {}, cells.map((cell, i) => {
    const { kind } = table.columns[i];
    return h('td', { class: `is-${kind}` }, kind === 'verdict' ? h('span', { class: VERDICT_CLASS[cell] }, cell) : cell);
  })));
  return h('section', { class: 'block' },
    h('h2', {}, table.title),
    h('p', {}, table.caption),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': table.title },
      h('table', { class: 'data' }, h('thead', {}, h('tr', {}, head)), h('tbody', {}, rows))));
}

function summaryPanel() {
  const tiles = report.tiles.map((tile) => h('div', { class: 'tile' },
    h('span', {}, term(tile.term, tile.label)), h('b', {}, tile.value), h('span', {}, tile.detail)));
  return [
    h('h2', { class: 'verdict' }, report.headline),
    h('div', { class: 'said' }, report.sentences.map((sentence) => h('p', {}, sentence))),
    tiles.length ? h('div', { class: 'tiles' }, tiles) : null,
    report.notes.length
      ? h('aside', { class: 'notes' }, h('h2', {}, 'What this report cannot show'), h('ul', {}, report.notes.map((note) => h('li', {}, note))))
      : null,
    ...report.tables.map(drawTable),
  ].filter(Boolean);
}

function picturesPanel() {
  if (!report.pictures.length) {
    return [h('p', { class: 'soft' }, 'There are no figures in the folders of these runs. gar train draws a learning curve at its end; gar analyze draws more.')];
  }
  return [h('div', { class: 'pictures' }, report.pictures.map((picture) => h('figure', {},
    h('img', { src: picture.source, alt: picture.title }), h('figcaption', {}, picture.caption))))];
}

function settingsPanel() {
  const runs = report.runs.map((run) => h('section', { class: 'run' },
    h('h2', {}, run.name === run.label ? run.name : `${run.name} · ${run.label}`),
    h('dl', {}, run.facts.map(([label, value, key]) => [h('dt', {}, key ? term(key, label) : label), h('dd', {}, value)])),
    run.config
      ? h('details', {}, h('summary', {}, 'All settings (config.yaml)'), h('pre', { tabindex: 0 }, run.config))
      : h('p', { class: 'soft small' }, 'The settings are not at hand.')));
  return [report.settings ? drawTable(report.settings) : null, ...runs].filter(Boolean);
}

function definitionsPanel() {
  return [h('dl', { class: 'words' }, Object.entries(report.definitions).map(([key, words]) => [h('dt', {}, key), h('dd', {}, words)]))];
}

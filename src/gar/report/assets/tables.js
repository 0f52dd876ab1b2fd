// The summary, the runs, the figures, the settings and the definitions.

const VERDICT_CLASS = { better: 'better', worse: 'worse', gained: 'better', lost: 'worse' };

// ------------------------------------------------------------------------------------------------------------ tables

// The last number of a cell, as of "0.31 → 0.42" or "< 0.001"; null where there is none.
function cellNumber(text) {
  const numbers = text.replaceAll('−', '-').replaceAll(',', '').match(/-?\d+(\.\d+)?(e[-+]?\d+)?/g);
  return numbers ? Number(numbers[numbers.length - 1]) : null;
}

// Names stand in the first column. Any other is of verdicts, or of numbers if each of its cells is one or two.
function kindOf(table, j) {
  if (table.columns[j] === 'verdict') return 'verdict';
  return j && table.rows.every((row) => /^(?=.)[<+−-]?[\d.,]*[%–]?( (→|to|of) [+−-]?[\d.,]*[%–]?| \([<>]?\d+%\)| by outcome, [\d.]+% with the bonus)?$/.test(row[j])) ? 'number' : 'text';
}

// Positions of the rows in order of a column; cells without a number come last either way.
function sortedRows(table, column, down) {
  const key = (row) => (kindOf(table, column) === 'number' ? cellNumber(row[column]) : row[column]);
  const compare = (a, b) => (typeof a === 'number' ? a - b : a.localeCompare(b, 'en', { numeric: true }));
  return table.rows.map((row, i) => [key(row), i])
    .sort(([a, i], [b, j]) => (a === null || b === null ? (a === null) - (b === null) : (down ? -1 : 1) * compare(a, b)) || i - j)
    .map(([, i]) => i);
}

// The samples shown of a problem of an evaluation set, those after training if there are some.
function samplesOf(setName, id) {
  if (!samplesOf.known) {
    const samples = report.groups.filter(({ moment }) => moment).sort((a, b) => (a.moment < b.moment ? 1 : -1));
    samplesOf.known = new Map(samples.map((group) => [`${group.set_name}\n${group.problem_id}`, group]));
  }
  return samplesOf.known.get(`${setName}\n${id}`);
}

function tableRow(table, i) {
  return h('tr', {}, table.rows[i].map((text, j) => {
    const [kind, heading] = [kindOf(table, j), table.columns[j]];
    const group = heading === 'problem' ? samplesOf(table.rows[i][table.columns.indexOf('set')], text) : null;
    const content = group ? h('a', { href: addressOf('rollouts', { group: keyOf(group), response: 1 }) }, text)
      : VERDICT_CLASS[text] ? h('span', { class: VERDICT_CLASS[text] }, text) : text;
    return h('td', { class: `is-${kind}`, 'data-heading': heading }, content);
  }));
}

// `order` is the column and direction to begin with; `chosen` hears of another choice.
function dataTable(title, table, { order = [null, false], rows = table.rows.map((_, i) => i), chosen = null } = {}) {
  const body = h('tbody');
  let [column, down] = order;
  const draw = () => {
    const shown = new Set(rows);
    const places = column === null ? rows : sortedRows(table, column, down).filter((i) => shown.has(i));
    body.replaceChildren(...places.map((i) => tableRow(table, i)));
    heads.forEach((head, j) => (j === column ? head.setAttribute('aria-sort', down ? 'descending' : 'ascending') : head.removeAttribute('aria-sort')));
  };
  const heads = table.columns.map((heading, j) => {
    const kind = kindOf(table, j);
    const sort = h('button', { class: 'sort', 'aria-label': `Sort by ${heading}`, click: () => {
      [column, down] = [j, j === column ? !down : kind === 'number'];
      draw();
      chosen?.(column, down);
    } });
    return h('th', { scope: 'col', class: `is-${kind}` }, term(heading), table.rows.length > 1 ? sort : null);
  });
  draw();
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title },
    h('table', { class: 'data' }, h('thead', {}, h('tr', {}, heads)), body));
}

function drawTable(title, table) {
  return h('section', { class: 'block' }, h('h2', {}, title), dataTable(title, table));
}

// ------------------------------------------------------------------------------------------------------------ panels

function summaryPanel(params) {
  const { columns, rows } = report.all_runs;
  const numbers = columns.flatMap((heading, j) => (rows.length === 1 && heading !== 'seed' && kindOf(report.all_runs, j) === 'number' ? [[heading, rows[0][j]]] : []));
  const tiles = numbers.filter(([, value]) => value !== '–').map(([heading, value]) => h('div', { class: 'tile' }, h('span', {}, term(heading)), h('b', {}, value)));
  const first = report.charts.slice(0, 2);
  return [
    h('h2', { class: 'verdict' }, report.headline),
    h('p', { class: 'said' }, report.scope),
    tiles.length ? h('div', { class: 'tiles' }, tiles) : null,
    ...report.bonus.map((words) => h('p', { class: 'said' }, h('b', {}, 'The bonus: '), words)),
    first.length ? h('section', { class: 'block' }, legend(), ...chartGroup(first, params)) : null,
    report.notes.length
      ? h('aside', { class: 'notes' }, h('h2', {}, 'What this report cannot show'), h('ul', {}, report.notes.map((note) => h('li', {}, note))))
      : null,
    ...Object.entries(report.tables).map(([title, table]) => drawTable(title, table)),
  ].filter(Boolean);
}

// A table that is sorted by a click on a heading, and searched in all cells. Texts that all rows share stand above it.
function searchedTable(name, table, params, placeholder) {
  const alike = table.columns.map((_, j) => j > 0 && kindOf(table, j) === 'text' && table.rows.every((row) => row[j] === table.rows[0][j]));
  const kept = (row) => row.filter((_, j) => !alike[j]);
  const shown = { columns: kept(table.columns), rows: table.rows.map(kept) };
  const place = h('div');
  const draw = (words) => {
    const found = table.rows.map((row, i) => i).filter((i) => table.rows[i].join('\n').toLowerCase().includes(words.toLowerCase()));
    const { sort, down } = readAddress().params;
    place.replaceChildren(
      h('p', { class: 'soft small', role: 'status' }, `${found.length.toLocaleString('en')} of ${table.rows.length.toLocaleString('en')} ${name}`),
      dataTable(name, shown, { rows: found, order: [sort === undefined ? null : Number(sort), down === '1'],
        chosen: (column, descending) => keep({ sort: column, down: descending ? 1 : 0 }) }));
  };
  draw(params.q ?? '');
  const common = table.columns.map((heading, j) => (alike[j] ? `${heading} ${table.rows[0][j]}` : '')).filter(Boolean).join(' · ');
  return [
    common ? h('p', { class: 'soft small common' }, `All: ${common}`) : null,
    h('div', { class: 'filters', role: 'search' },
      h('label', {}, 'Search', h('input', { type: 'search', 'data-filter': 'q', value: params.q ?? '', placeholder,
        input: (event) => { keep({ q: event.target.value }); draw(event.target.value); } }))),
    place,
  ].filter(Boolean);
}

function runsPanel(params) {
  return searchedTable('runs', report.all_runs, params, 'name, method, model');
}

function problemsPanel(params) {
  const sentences = report.problem_notes.map((note) => h('p', {}, note));
  if (!report.problems.rows.length) return [h('p', { class: 'soft' }, 'No evaluation counted right samples by problem.')];
  return [...sentences, ...searchedTable('problems', report.problems, params, 'problem or outcome')];
}

function settingsPanel() {
  const runs = report.runs.map((run) => h('section', { class: 'run' },
    h('h2', {}, run.name === run.label ? run.name : `${run.name} · ${run.label}`),
    h('dl', {}, Object.entries(run.facts).map(([label, value]) => [h('dt', {}, term(label)), h('dd', {}, value)])),
    run.config
      ? h('details', {}, h('summary', {}, 'All settings (config.yaml)'), h('pre', { tabindex: 0 }, run.config))
      : h('p', { class: 'soft small' }, 'The settings are not available.')));
  return [report.differing.rows.length ? drawTable('Settings that differ', report.differing) : null, ...runs].filter(Boolean);
}

function definitionsPanel() {
  return [h('dl', { class: 'words' }, Object.entries(report.definitions).map(([key, words]) => [h('dt', {}, key), h('dd', {}, words)]))];
}

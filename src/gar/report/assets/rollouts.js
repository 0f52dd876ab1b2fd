// The rollout browser: filters, a list, and one response beside the expert solution.

const PAGE_SIZE = 100;
const responses = report.rollouts.groups.flatMap((group) => group.responses.map((response) => ({ group, response })));
const view = { run: '', step: '', verdict: '', low: '', high: '', query: '', order: 'recorded', shown: PAGE_SIZE, found: [], at: 0, mode: null };

const ORDERS = {
  recorded: ['as recorded', null],
  high: ['alignment, highest first', (item) => -(item.response.numbers.alignment ?? -Infinity)],
  low: ['alignment, lowest first', (item) => item.response.numbers.alignment ?? Infinity],
  long: ['longest first', (item) => -(item.response.numbers.num_tokens ?? plainText(item.response.text).length)],
};
const FACTS = [['alignment', 'alignment'], ['bonus', 'bonus'], ['penalty', 'penalty'], ['reward', 'reward'], ['advantage', 'advantage'],
  ['num_tokens', 'tokens'], ['num_scored_tokens', 'scored tokens'], ['signal_norm', 'signal norm']];

function searchable(item) {
  item.words ??= [item.group.problem_id, plainText(item.group.prompt), plainText(item.response.text), item.response.answer ?? ''].join('\n').toLowerCase();
  return item.words;
}

function matches(item) {
  const { group, response } = item;
  const { alignment } = response.numbers;
  if (view.run !== '' && group.run !== Number(view.run)) return false;
  if (view.step !== '' && group.step !== Number(view.step)) return false;
  if (view.verdict !== '' && response.verdict !== view.verdict) return false;
  if (view.low !== '' && !(alignment !== null && alignment >= Number(view.low))) return false;
  if (view.high !== '' && !(alignment !== null && alignment <= Number(view.high))) return false;
  return view.query === '' || searchable(item).includes(view.query.toLowerCase());
}

function find() {
  view.found = responses.filter(matches);
  const [, key] = ORDERS[view.order];
  if (key) view.found = view.found.map((item) => [key(item), item]).sort((a, b) => a[0] - b[0] || 0).map((pair) => pair[1]);
  view.shown = PAGE_SIZE;
  view.at = 0;
  drawList();
  drawDetail();
}

// ----------------------------------------------------------------------------------------------------------- filters

function choice(name, label, options) {
  return h('label', {}, label, h('select', { 'data-filter': name, change: (event) => { view[name] = event.target.value; find(); } },
    options.map(([value, words]) => h('option', { value }, words))));
}

function field(name, label, attributes) {
  return h('label', {}, label, h('input', { ...attributes, 'data-filter': name, input: (event) => { view[name] = event.target.value; find(); } }));
}

function filters() {
  const steps = [...new Set(responses.map((item) => item.group.step))].sort((a, b) => a - b);
  const verdicts = [...new Set(responses.map((item) => item.response.verdict))].sort();
  return h('div', { class: 'filters', role: 'search' },
    report.runs.length > 1 ? choice('run', 'Run', [['', 'all'], ...report.runs.map((run, i) => [i, run.name])]) : null,
    choice('step', 'Step', [['', 'all'], ...steps.map((step) => [step, step])]),
    choice('verdict', term('verdict of a response', 'Verdict'), [['', 'all'], ...verdicts.map((verdict) => [verdict, verdict])]),
    field('low', term('alignment', 'Alignment from'), { type: 'number', step: 0.05, min: -1, max: 1 }),
    field('high', 'to', { type: 'number', step: 0.05, min: -1, max: 1 }),
    field('query', 'Text', { type: 'search', placeholder: 'prompt, response, answer' }),
    choice('order', 'Order', Object.entries(ORDERS).map(([key, [words]]) => [key, words])));
}

// -------------------------------------------------------------------------------------------------------------- list

const list = h('div', { class: 'list', role: 'listbox', tabindex: 0, 'aria-label': 'Rollouts', keydown: moveInList });
const count = h('p', { class: 'soft small', role: 'status' });
const detail = h('div', { class: 'detail' });

function listItem(item, i) {
  const { group, response } = item;
  const { alignment } = response.numbers;
  return h('div', { class: 'item', role: 'option', id: `item-${i}`, 'aria-selected': String(i === view.at), click: () => select(i) },
    h('b', {}, h('bdi', {}, group.problem_id)),
    h('span', { class: 'number' }, alignment === null ? '' : numberText(Number(alignment.toFixed(3)))),
    h('span', {}, `${report.runs.length > 1 ? `${report.runs[group.run].name}, ` : ''}step ${group.step}, response ${response.index + 1}`),
    h('span', { class: response.verdict === 'right' ? 'better' : '' }, response.verdict));
}

function drawList() {
  const some = view.found.slice(0, view.shown);
  const rest = view.found.length - some.length;
  list.replaceChildren(...some.map(listItem));
  if (rest) list.append(h('button', { class: 'plain more', click: () => { view.shown += PAGE_SIZE; drawList(); } }, `${rest.toLocaleString('en')} more`));
  count.textContent = `${view.found.length.toLocaleString('en')} of ${responses.length.toLocaleString('en')} shown rollouts`;
  if (some.length) list.setAttribute('aria-activedescendant', `item-${view.at}`);
  else list.removeAttribute('aria-activedescendant');
}

function select(i) {
  const last = view.found.length - 1;
  const next = Math.max(0, Math.min(last, i));
  document.getElementById(`item-${view.at}`)?.setAttribute('aria-selected', 'false');
  view.at = next;
  if (next >= view.shown) { view.shown = next + PAGE_SIZE; drawList(); }
  const item = document.getElementById(`item-${next}`);
  item.setAttribute('aria-selected', 'true');
  list.setAttribute('aria-activedescendant', item.id);
  if (item.offsetTop < list.scrollTop) list.scrollTop = item.offsetTop;
  else if (item.offsetTop + item.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = item.offsetTop + item.offsetHeight - list.clientHeight;
  drawDetail();
}

function moveInList(event) {
  if (event.target !== list || !view.found.length) return;
  const moves = { ArrowDown: view.at + 1, ArrowUp: view.at - 1, PageDown: view.at + 10, PageUp: view.at - 10, Home: 0, End: view.found.length - 1 };
  if (!(event.key in moves)) return;
  event.preventDefault();
  select(moves[event.key]);
}

// ------------------------------------------------------------------------------------------------------------ detail

function modes(item) {
  const { group, response } = item;
  const formulas = [group.prompt, group.expert, response.text].some((text) => text && text.parts.some((part) => typeof part !== 'string'));
  return [response.shares ? ['shares', 'Token shares'] : null, formulas ? ['formulas', 'Formulas drawn'] : null, ['written', 'As written']].filter(Boolean);
}

// A formula on lines of its own needs no line breaks around it.
function drawnParts(parts) {
  const alone = (i) => typeof parts[i] === 'number' && report.rollouts.formulas[parts[i]].display;
  return parts.map((part, i) => {
    if (typeof part !== 'string') return formula(part);
    const words = alone(i - 1) ? part.replace(/^ *\n/, '') : part;
    return alone(i + 1) ? words.replace(/\n *$/, '') : words;
  });
}

function textBox(text, mode) {
  const cut = text.num_cut ? h('span', { class: 'out' }, `\n[${text.num_cut.toLocaleString('en')} more characters are not in this file]`) : null;
  const parts = mode === 'formulas' ? drawnParts(text.parts) : [plainText(text)];
  return h('div', { class: mode === 'formulas' ? 'text rendered' : 'text', dir: 'auto', tabindex: 0 }, parts, cut);
}

function sharesBox(shares) {
  const most = Math.max(1e-9, ...shares.shares.map((share) => Math.abs(share ?? 0)));
  const tokens = shares.tokens.map((token, i) => {
    const share = shares.shares[i];
    if (share === null) return h('span', { class: 'out' }, token);
    const style = { '--tint': share < 0 ? 'var(--bad)' : 'var(--accent)', '--much': String(Math.round((Math.abs(share) / most) * 65)) };
    return h('span', { class: 'token', style, title: `${numberText(share)} of ${numberText(shares.alignment)}` }, token);
  });
  const largest = shares.tokens.map((token, i) => [token, shares.shares[i] ?? 0]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5);
  return [
    h('div', { class: 'text', dir: 'auto', tabindex: 0 }, tokens),
    h('p', { class: 'scale' }, term('token share', 'Token shares'), ` sum to ${numberText(shares.alignment)}.`,
      h('i', { style: { background: 'var(--accent)' } }), 'towards the expert', h('i', { style: { background: 'var(--bad)' } }), 'away from it. Grey: not scored. Largest: ',
      largest.map(([token, share], i) => [i ? ', ' : '', h('bdi', {}, `“${token.trim()}”`), ` ${numberText(share)}`]), '.'),
  ];
}

function mates(item) {
  if (item.group.responses.length < 2) return null;
  return h('div', { class: 'mates' }, 'The group: ', item.group.responses.map((mate) => h('button', {
    'aria-pressed': String(mate === item.response), title: `response ${mate.index + 1}: ${mate.verdict}`,
    click: () => { showItem({ group: item.group, response: mate }); detail.querySelector('[aria-pressed="true"]').focus(); },
  }, `${mate.index + 1} ${mate.verdict === 'right' ? '✓' : '·'}${mate.numbers.alignment === null ? '' : ` ${mate.numbers.alignment.toFixed(2)}`}`)));
}

function facts(item) {
  const { group, response } = item;
  const number = (key) => (key === 'alignment' && response.numbers[key] === null ? 'not scored' : numberText(response.numbers[key]));
  const pair = (name, value) => h('div', {}, h('dt', {}, name), h('dd', {}, h('bdi', {}, value)));
  return h('dl', { class: 'facts' },
    pair(term('verdict of a response', 'verdict'), response.verdict + (response.truncated ? ', cut off at the length limit' : '')),
    pair('answer', response.answer ?? 'none found'), pair('gold', group.gold || '–'),
    FACTS.map(([key, label]) => pair(term(key, label), number(key))));
}

function showItem(item) {
  const { group, response } = item;
  const possible = modes(item);
  const mode = possible.some(([key]) => key === view.mode) ? view.mode : possible[0][0];
  const other = mode === 'shares' ? 'written' : mode;
  const change = possible.length > 1 ? h('div', { class: 'switch', role: 'group', 'aria-label': 'How texts are shown' }, possible.map(([key, words]) =>
    h('button', { 'aria-pressed': String(key === mode), 'data-mode': key, click: () => { view.mode = key; showItem(item); detail.querySelector(`[data-mode="${key}"]`).focus(); } }, words))) : null;
  detail.replaceChildren(...[
    h('h2', {}, h('bdi', {}, group.problem_id), `, step ${group.step}, response ${response.index + 1}`),
    facts(item), mates(item), change,
    h('div', { class: 'texts' },
      h('section', { class: 'wide' }, h('h3', {}, 'Prompt'), textBox(group.prompt, other)),
      h('section', {}, h('h3', {}, 'Response'), mode === 'shares' ? sharesBox(response.shares) : textBox(response.text, other)),
      h('section', {}, h('h3', {}, 'Expert solution'), group.expert ? textBox(group.expert, other) : h('p', { class: 'soft small' }, 'Not at hand: see the note above.'))),
  ].filter(Boolean));
}

function drawDetail() {
  if (view.found.length) showItem(view.found[view.at]);
  else detail.replaceChildren(h('p', { class: 'soft' }, responses.length ? 'No rollout matches these filters.' : 'There is nothing to show.'));
}

function rolloutsPanel() {
  const notes = report.rollouts.notes.map((note) => h('p', { class: 'soft small' }, note));
  if (!responses.length) return notes;
  const panel = [...notes, filters(), count, h('div', { class: 'browser' }, list, detail)];
  find();
  return panel;
}

// The browser of rollouts and evaluation samples: filters, a list, and one response beside others and the expert solution.
// Filters and choice are in the address.

const PAGE_SIZE = 100;
const NO_FILTERS = { run: '', from: '', step: '', verdict: '', low: '', high: '', query: '', order: 'signal', group: '', response: '' };
const view = { ...NO_FILTERS, shown: PAGE_SIZE, found: [], at: -1, mode: null };
let responses = []; // { group, response } of every response that is shown

function keyOf(group) {
  return group.moment ? `${group.run}:${group.set_name}:${group.moment}:${group.index}` : `${group.run}:${group.step}:${group.index}`;
}

function originOf(group) {
  return group.moment ? `${group.set_name}, ${group.moment}` : 'training';
}

function placeOf(group) {
  return group.moment ? `${group.set_name}, ${group.moment} training` : `step ${group.step}`;
}

// How far apart the alignments of a group's right responses are: what GAR rewards apart from being right.
function signalOf(group) {
  if (group.signal === undefined) {
    const right = group.responses.filter(({ verdict, numbers }) => verdict === 'right' && numbers.alignment !== null);
    const values = right.map(({ numbers }) => numbers.alignment);
    group.signal = values.length > 1 ? Math.max(...values) - Math.min(...values) : 0;
  }
  return group.signal;
}

const ORDERS = {
  signal: ['groups, clearest signal first', (item) => -signalOf(item.group)],
  recorded: ['groups, as recorded', null],
  high: ['alignment, highest first', (item) => -(item.response.numbers.alignment ?? -Infinity)],
  low: ['alignment, lowest first', (item) => item.response.numbers.alignment ?? Infinity],
  long: ['longest first', (item) => -(item.response.numbers.num_tokens ?? item.response.text.length)],
};
const FACTS = [['alignment', 'alignment'], ['bonus', 'bonus'], ['advantage', 'advantage'], ['num_tokens', 'tokens'], ['num_scored_tokens', 'scored tokens'], ['signal_norm', 'signal norm']];

function searchable(item) {
  item.words ??= [item.group.problem_id, item.group.prompt, item.response.text, item.response.answer ?? ''].join('\n').toLowerCase();
  return item.words;
}

function matches(item) {
  const { group, response } = item;
  const { alignment } = response.numbers;
  if (view.run !== '' && group.run !== Number(view.run)) return false;
  if (view.from !== '' && originOf(group) !== view.from) return false;
  if (view.step !== '' && group.step !== Number(view.step)) return false;
  if (view.verdict !== '' && response.verdict !== view.verdict) return false;
  if (view.low !== '' && !(alignment !== null && alignment >= Number(view.low))) return false;
  if (view.high !== '' && !(alignment !== null && alignment <= Number(view.high))) return false;
  return view.query === '' || searchable(item).includes(view.query.toLowerCase());
}

function find() {
  view.found = responses.filter(matches);
  const [, key] = ORDERS[view.order] ?? ORDERS.signal;
  if (key) view.found = view.found.map((item) => [key(item), item]).sort((a, b) => a[0] - b[0] || 0).map((pair) => pair[1]);
  const place = view.found.findIndex(isChosen);
  const right = view.found.findIndex((item) => item.group === view.found[0].group && item.response.verdict === 'right');
  view.at = place >= 0 || view.group ? place : Math.max(0, right);
  view.shown = Math.max(PAGE_SIZE, place + 1);
  drawList();
  drawDetail();
  revealItem();
}

function revealItem() {
  const item = document.getElementById(`item-${view.at}`);
  if (!item) return;
  if (item.offsetTop < list.scrollTop) list.scrollTop = item.offsetTop;
  else if (item.offsetTop + item.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = item.offsetTop + item.offsetHeight - list.clientHeight;
}

function isChosen({ group, response }) {
  return keyOf(group) === view.group && String(response.index + 1) === view.response;
}

// Takes filters and choice from the address. A step that is not here is replaced by the nearest one.
function showRollouts(params) {
  const chosen = { ...NO_FILTERS, ...params };
  if (!responses.length || Object.keys(NO_FILTERS).every((name) => view[name] === chosen[name] && view.drawn)) return;
  Object.assign(view, chosen, { drawn: true });
  const steps = [...new Set(responses.map((item) => item.group.step))].filter((step) => step !== null);
  if (view.step !== '' && steps.length && !steps.includes(Number(view.step))) {
    view.step = String(nearest(steps, Number(view.step)));
    stepNote.textContent = `Step ${chosen.step} is not among the steps drawn for this file: shown is step ${view.step}.`;
  } else stepNote.textContent = '';
  for (const control of document.querySelectorAll('#panel-rollouts [data-filter]')) {
    if (control !== document.activeElement || control.tagName === 'SELECT') control.value = view[control.dataset.filter];
  }
  find();
}

// A choice by hand: the rollout that was chosen before need not match it.
function filterBy(name, value) {
  Object.assign(view, { [name]: value, group: '', response: '' });
  keep({ [name]: name === 'order' && value === NO_FILTERS.order ? '' : value, group: '', response: '' });
  stepNote.textContent = '';
  find();
}

// ----------------------------------------------------------------------------------------------------------- filters

function choice(name, label, options) {
  return h('label', {}, label, h('select', { 'data-filter': name, change: (event) => filterBy(name, event.target.value) },
    options.map(([value, words]) => h('option', { value }, words))));
}

function field(name, label, attributes) {
  return h('label', {}, label, h('input', { ...attributes, 'data-filter': name, input: (event) => filterBy(name, event.target.value) }));
}

function filters() {
  const known = (values) => [...new Set(values)].filter((value) => value !== null);
  const steps = known(responses.map((item) => item.group.step)).sort((a, b) => a - b);
  const verdicts = known(responses.map((item) => item.response.verdict)).sort();
  const origins = known(responses.map((item) => originOf(item.group)));
  const all = ['', 'all'];
  return h('div', { class: 'filters', role: 'search' },
    report.runs.length > 1 ? choice('run', 'Run', [all, ...report.runs.map((run, i) => [i, run.name])]) : null,
    origins.length > 1 ? choice('from', 'From', [all, ...origins.map((origin) => [origin, origin === 'training' ? origin : `${origin} training`])]) : null,
    choice('step', 'Step', [all, ...steps.map((step) => [step, step])]),
    choice('verdict', term('Verdict', 'verdict of a response'), [all, ...verdicts.map((verdict) => [verdict, verdict])]),
    field('low', term('Alignment from', 'alignment'), { type: 'number', step: 0.05, min: -1, max: 1 }),
    field('high', 'to', { type: 'number', step: 0.05, min: -1, max: 1 }),
    field('query', 'Text', { type: 'search', placeholder: 'prompt or response' }),
    choice('order', 'Order', Object.entries(ORDERS).map(([key, [words]]) => [key, words])));
}

// -------------------------------------------------------------------------------------------------------------- list

const list = h('div', { class: 'list', role: 'listbox', tabindex: 0, 'aria-label': 'Rollouts', keydown: moveInList });
const count = h('p', { class: 'soft small', role: 'status', id: 'count' });
const detail = h('div', { class: 'detail' });
const stepNote = h('p', { class: 'small', role: 'status', id: 'step-note' });

// The verdict, with the answer that was found where it is not right.
function verdictOf({ verdict, answer }) {
  return verdict === 'right' || answer === null ? verdict : `${verdict}: ${answer.slice(0, 40)}`;
}

function listItem(item, i) {
  const { group, response } = item;
  const { alignment } = response.numbers;
  return h('div', { class: 'item', role: 'option', id: `item-${i}`, 'aria-selected': String(i === view.at), click: () => select(i) },
    h('span', { class: response.verdict === 'right' ? 'better' : '' }, `${response.index + 1} `, h('bdi', {}, verdictOf(response))),
    h('span', { class: 'number' }, alignment === null ? '' : numberText(Number(alignment.toFixed(3)))),
    h('span', { class: 'snippet' }, h('bdi', {}, response.text.slice(0, 200))));
}

// Above the responses of a group: its problem, where it is from, and how it went.
function groupHeading({ group }) {
  const right = group.responses.filter((response) => response.verdict === 'right').length;
  const place = `${report.runs.length > 1 ? `${report.runs[group.run].name}, ` : ''}${placeOf(group)}`;
  return h('div', { class: 'group', role: 'presentation' },
    h('b', {}, h('bdi', {}, group.problem_id)), h('span', {}, `${place}: ${right} of ${group.responses.length} right`));
}

function drawList() {
  const some = view.found.slice(0, view.shown);
  const rest = view.found.length - some.length;
  list.replaceChildren(...some.flatMap((item, i) => (item.group === some[i - 1]?.group ? [listItem(item, i)] : [groupHeading(item), listItem(item, i)])));
  if (rest) list.append(h('button', { class: 'plain more', click: () => { view.shown += PAGE_SIZE; drawList(); } }, `${rest.toLocaleString('en')} more`));
  count.textContent = `${view.found.length.toLocaleString('en')} of ${responses.length.toLocaleString('en')} responses`;
  if (some.length) list.setAttribute('aria-activedescendant', `item-${view.at}`);
  else list.removeAttribute('aria-activedescendant');
}

function select(i) {
  const last = view.found.length - 1;
  const next = Math.max(0, Math.min(last, i));
  document.getElementById(`item-${view.at}`)?.setAttribute('aria-selected', 'false');
  view.at = next;
  if (next >= view.shown) { view.shown = next + PAGE_SIZE; drawList(); }
  const { group, response } = view.found[next];
  Object.assign(view, { group: keyOf(group), response: String(response.index + 1) });
  keep({ group: view.group, response: view.response });
  const item = document.getElementById(`item-${next}`);
  item.setAttribute('aria-selected', 'true');
  list.setAttribute('aria-activedescendant', item.id);
  revealItem();
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

function modes({ group, response }) {
  return [response.shares ? ['shares', 'Token shares'] : null, group.expert ? ['differing', 'Words that differ'] : null, ['written', 'As written']].filter(Boolean);
}

// A text, or pieces of one: [words, whether the other text has them in this order].
function textBox(text) {
  const pieces = typeof text === 'string' ? text : text.map(([words, shared]) => (shared ? words : h('mark', {}, words)));
  return h('div', { class: 'text', dir: 'auto', tabindex: 0 }, pieces);
}

const MOST_COMPARED = 4e6; // pairs of words

// Two texts as pieces, by their longest common sequence of words. As they are where that would take seconds.
function differingWords(left, right) {
  const [a, b] = [left, right].map((text) => text.match(/\s*\S+/g) ?? []);
  if (a.length * b.length > MOST_COMPARED) return [left, right];
  const [plainA, plainB] = [a, b].map((words) => words.map((word) => word.trim()));
  const width = b.length + 1;
  const common = new Uint16Array((a.length + 1) * width); // of the words from i and from j
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = plainA[i] === plainB[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const pieces = [[], []];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && plainA[i] === plainB[j]) {
      pieces[0].push([a[i++], true]);
      pieces[1].push([b[j++], true]);
    } else if (j === b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) pieces[0].push([a[i++], false]);
    else pieces[1].push([b[j++], false]);
  }
  return pieces;
}

function sharesBox(shares) {
  const most = Math.max(1e-9, ...shares.shares.map((share) => Math.abs(share ?? 0)));
  const all = shares.shares.reduce((sum, share) => sum + Math.abs(share ?? 0), 0);
  const tokens = shares.tokens.map((token, i) => {
    const share = shares.shares[i];
    if (share === null) return h('span', { class: 'out' }, token);
    const style = { '--tint': share < 0 ? 'var(--bad)' : 'var(--accent)', '--much': String(Math.round((Math.abs(share) / most) * 65)) };
    return h('span', { class: 'token', style, title: `${numberText(share)} of ${numberText(shares.alignment)}` }, token);
  });
  const largest = shares.tokens.map((token, i) => [token, shares.shares[i] ?? 0]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 5);
  return [
    h('div', { class: 'text', dir: 'auto', tabindex: 0 }, tokens),
    h('p', { class: 'scale' }, term('Token shares', 'token share'), ` sum to ${numberText(shares.alignment)}.`,
      h('i', { style: { background: 'var(--accent)' } }), 'toward the expert', h('i', { style: { background: 'var(--bad)' } }), 'away from it. Gray: not scored. Largest: ',
      largest.map(([token, share], i) => [i ? ', ' : '', h('bdi', {}, `“${token.trim()}”`), ` ${numberText(share)}`]), '. ',
      2 * Math.abs(largest[0][1]) > all ? h('b', {}, 'One token carries most of it.') : null),
  ];
}

// The other responses to the same problem: of its group, of the other moment of an evaluation, and of other steps.
function mates(item) {
  const same = [...new Set(responses.map(({ group }) => group))].filter((group) =>
    group.run === item.group.run && group.set_name === item.group.set_name && group.problem_id === item.group.problem_id);
  const rows = same.filter((group) => group.moment || group === item.group).map((group) => mateRow(group, item));
  const elsewhere = same.filter((group) => !group.moment && group !== item.group);
  const links = elsewhere.map((group) => h('button', { click: () => choose(group, group.responses[0]) }, placeOf(group)));
  return [...rows, links.length ? h('div', { class: 'mates' }, 'This problem at ', links) : null].filter(Boolean);
}

function mateRow(group, item) {
  const label = group.moment ? `${group.moment === 'before' ? 'Before' : 'After'} training: ` : 'The group: ';
  return h('div', { class: 'mates' }, label, group.responses.map((mate) => h('button', {
    'aria-pressed': String(mate === item.response), title: `response ${mate.index + 1}: ${mate.verdict}`,
    click: () => { choose(group, mate); detail.querySelector('[aria-pressed="true"]').focus(); },
  }, `${mate.index + 1} ${mate.verdict === 'right' ? '✓' : '·'}${mate.numbers.alignment === null ? '' : ` ${mate.numbers.alignment.toFixed(2).replace('-', '−')}`}`)));
}

// Shows a response that need not be in the list.
function choose(group, response) {
  Object.assign(view, { group: keyOf(group), response: String(response.index + 1) });
  keep({ group: view.group, response: view.response });
  const place = view.found.findIndex(isChosen);
  if (place >= 0) select(place);
  else showItem({ group, response });
}

// The same sample of an evaluation at its other moment; null where there is none.
function counterpart({ group, response }) {
  if (!group.moment) return null;
  const other = responses.find((each) => each.group.moment && each.group.moment !== group.moment && each.group.run === group.run
    && each.group.set_name === group.set_name && each.group.problem_id === group.problem_id && each.response.index === response.index);
  return other ?? null;
}

function facts(item) {
  const { group, response } = item;
  const number = (key) => (key === 'alignment' && response.numbers[key] === null ? 'not scored' : numberText(response.numbers[key]));
  const pair = (name, value) => h('div', {}, h('dt', {}, name), h('dd', {}, h('bdi', {}, value)));
  return h('dl', { class: 'facts' },
    pair(term('verdict', 'verdict of a response'), response.verdict + (response.truncated ? ', cut off at the length limit' : '')),
    pair('answer', response.answer ?? 'none found'), pair('gold', group.gold || '–'),
    FACTS.filter(([key]) => !group.moment || response.numbers[key] !== null).map(([key, label]) => pair(term(label), number(key))));
}

function responseSection(item, title, mode) {
  const { shares, text } = item.response;
  const plain = mode === 'differing' ? differingWords(text, item.group.expert)[0] : text;
  return h('section', {}, h('h3', {}, title), mode === 'shares' && shares ? sharesBox(shares) : textBox(plain));
}

function showItem(item) {
  const { group, response } = item;
  const possible = modes(item);
  const mode = possible.some(([key]) => key === view.mode) ? view.mode : possible[0][0];
  const change = possible.length > 1 ? h('div', { class: 'switch', role: 'group', 'aria-label': 'How texts are shown' }, possible.map(([key, words]) =>
    h('button', { 'aria-pressed': String(key === mode), 'data-mode': key, click: () => { view.mode = key; showItem(item); detail.querySelector(`[data-mode="${key}"]`).focus(); } }, words))) : null;
  const facing = counterpart(item);
  const [before, after] = facing && group.moment === 'after' ? [facing, item] : [item, facing];
  const titled = (each) => responseSection(each, `Response ${each.group.moment} training: ${each.response.verdict}`, mode);
  const expert = h('section', { class: facing ? 'wide' : '' }, h('h3', {}, 'Expert solution'),
    group.expert ? textBox(mode === 'differing' ? differingWords(response.text, group.expert)[1] : group.expert) : h('p', { class: 'soft small' }, 'Not available: see the notes above.'));
  detail.replaceChildren(...[
    h('h2', {}, h('bdi', {}, group.problem_id), `, ${placeOf(group)}, response ${response.index + 1} `,
      h('a', { class: 'link', href: addressOf('rollouts', { group: keyOf(group), response: response.index + 1 }) }, 'link')),
    response.reward ? h('p', { class: 'reason' }, term('reward'), ` ${response.reward}`) : null,
    facts(item), ...mates(item), change,
    h('div', { class: 'texts' },
      h('section', { class: 'wide' }, h('h3', {}, 'Prompt'), textBox(group.prompt)),
      facing ? [titled(before), titled(after)] : responseSection(item, 'Response', mode),
      expert),
  ].filter(Boolean));
}

function drawDetail() {
  if (view.at >= 0 && view.found.length) return showItem(view.found[view.at]);
  const chosen = responses.find(isChosen); // opened by its link, whatever the filters
  if (chosen) return showItem(chosen);
  const words = view.group ? 'The rollout of this link is not among those drawn for this page.'
    : responses.length ? 'No rollout matches these filters.' : 'There is nothing to show.';
  return detail.replaceChildren(h('p', { class: 'soft' }, words));
}

function rolloutsPanel() {
  responses = report.groups.flatMap((group) => group.responses.map((response) => ({ group, response })));
  view.drawn = false;
  const notes = report.rollout_notes.map((note) => h('p', { class: 'soft small' }, note));
  notes.unshift(...report.bonus.map((words) => h('p', { class: 'small' }, h('b', {}, 'The bonus: '), words)));
  return responses.length ? [...notes, filters(), stepNote, count, h('div', { class: 'browser' }, list, detail)] : notes;
}

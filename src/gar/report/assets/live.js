// The page of gar report --serve: it requests the parts of the report, and checks every two seconds for changes.

const PERIOD = 2000;
const state = h('p', { class: 'state' });
const tagOf = new Map(); // by address
const wanted = new URLSearchParams(location.search).getAll('run');
let wholeStep = ''; // the step whose rollouts are requested whole
let busy = false;
let lastChange = '';

// The part, or null where it is the same as before.
async function ask(part) {
  const query = new URLSearchParams(wanted.map((run) => ['run', run]));
  if (part === 'rollouts' && wholeStep !== '') query.append('step', wholeStep);
  const url = `${part}.json?${query}`;
  const answer = await fetch(url, { headers: tagOf.has(part) && tagOf.get(part)[0] === url ? { 'If-None-Match': tagOf.get(part)[1] } : {} });
  if (answer.status === 304) return null;
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  lastChange = new Date().toLocaleTimeString();
  tagOf.set(part, [url, answer.headers.get('ETag')]);
  return content;
}

function liveHead() {
  return [wanted.length ? h('p', {}, h('a', { href: '?all' }, 'All runs')) : null, state].filter(Boolean);
}

async function askReport() {
  const next = await ask(wanted.length ? 'report' : 'runs');
  if (next === null) return;
  if (wanted.length) takeReport({ ...next, rollouts: report?.rollouts ?? null, pictures: report?.pictures ?? null });
  else takeReport({ title: 'Runs', subtitle: '', tags: [], ...next });
}

// The parts that the open panel needs beside the report.
async function askFor(panel) {
  const part = { rollouts: 'rollouts', figures: 'pictures' }[panel];
  if (!part || busy) return;
  busy = true;
  let content = null;
  await saying(async () => { content = await ask(part); });
  busy = false;
  if (content !== null) takeReport({ ...report, [part]: content });
}

async function saying(work) {
  try {
    await work();
    state.textContent = `Live. Last change at ${lastChange}.`;
    state.classList.remove('worse');
  } catch (error) {
    state.textContent = error instanceof TypeError ? 'The server does not answer. Was gar report --serve stopped? The page shows the last state.' : error.message;
    state.classList.add('worse');
    if (report === null) head.replaceChildren(h('h1', {}, 'gar report'), state);
  }
}

async function follow() {
  await saying(askReport);
  const open = tabs.find((tab) => !tab.panel.hidden);
  if (open) await askFor(open.name);
  setTimeout(follow, document.hidden ? 5 * PERIOD : PERIOD);
}

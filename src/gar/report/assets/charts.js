// Line charts with bands. Charts that stand together share a cursor, moved by pointing or with the arrow keys, and a
// zoom, set by dragging or with + and -. A click, or Enter, opens the rollouts of a step.

const WIDTH = 400;
const HEIGHT = 210;
const EDGE = { left: 46, right: 12, top: 12, bottom: 26 };

function niceTicks(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Number(tick.toPrecision(12)));
  return ticks;
}

function numberText(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0'; // also for minus zero
  const size = Math.abs(value);
  const text = Number.isInteger(value) ? value.toLocaleString('en') : size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(2) : value.toPrecision(3).replace(/\.?0+(?=$|e)/, '');
  return text.replace('-', '−');
}

function chartFrame(chart) {
  const steps = chart.series.flatMap((line) => line.steps);
  const values = chart.series.flatMap((line) => [...line.values, ...line.bands.flat(2)]).filter((value) => value !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (chart.from_zero) [low, high] = [Math.min(0, low), Math.max(0, high)];
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  low -= chart.from_zero && low === 0 ? 0 : room;
  high += room;
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  return {
    first, last, low, high,
    x: (step) => EDGE.left + (last === first ? 0.5 : (step - first) / (last - first)) * (WIDTH - EDGE.left - EDGE.right),
    y: (value) => HEIGHT - EDGE.bottom - ((value - low) / (high - low)) * (HEIGHT - EDGE.top - EDGE.bottom),
  };
}

function grid(frame) {
  const across = niceTicks(frame.low, frame.high, 4).map((tick) => [
    svg('line', { class: 'grid', x1: EDGE.left, x2: WIDTH - EDGE.right, y1: frame.y(tick), y2: frame.y(tick) }),
    svg('text', { x: EDGE.left - 7, y: frame.y(tick) + 4, 'text-anchor': 'end' }, numberText(tick)),
  ]);
  const along = niceTicks(frame.first, frame.last, 5).filter(Number.isInteger).map((tick) =>
    svg('text', { x: frame.x(tick), y: HEIGHT - 8, 'text-anchor': 'middle' }, numberText(tick)));
  return [...across, ...along];
}

function path(points) {
  let pen = 'M';
  return points.map(([x, y]) => {
    if (y === null) { pen = 'M'; return ''; }
    const part = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = 'L';
    return part;
  }).join('');
}

function lineShapes(line, frame) {
  const point = (values) => line.steps.map((step, i) => [frame.x(step), values[i] === null ? null : frame.y(values[i])]);
  const shapes = line.bands.map(([low, high]) => {
    const known = line.steps.map((_, i) => i).filter((i) => low[i] !== null);
    const edge = [...known.map((i) => [i, high[i]]), ...known.reverse().map((i) => [i, low[i]])];
    return svg('path', { class: 'band', d: `${path(edge.map(([i, value]) => [frame.x(line.steps[i]), frame.y(value)]))}Z` });
  });
  shapes.push(svg('path', { class: line.dashed ? 'line dashed' : 'line', d: path(point(line.values)) }));
  if (line.steps.length === 1) shapes.push(svg('circle', { cx: frame.x(line.steps[0]), cy: frame.y(line.values[0]), r: 3, class: 'dot' }));
  return svg('g', { style: { '--own': line.color } }, shapes);
}

function readOff(chart, step) {
  return chart.series.map((line) => {
    const i = line.steps.indexOf(step);
    if (i < 0) return null;
    const [low, high] = line.bands[0] ?? [[], []];
    const band = typeof low[i] === 'number' ? ` (${numberText(low[i])} to ${numberText(high[i])})` : '';
    const name = chart.series.length > 1 ? `${line.label}${line.dashed ? ', outcome only' : ''} ` : '';
    return `${name}${numberText(line.values[i])}${band}`;
  }).filter(Boolean).join(' · ');
}

// The part of a chart between two steps.
function zoomed(chart, from, to) {
  const series = chart.series.map((line) => {
    const inside = (_, i) => line.steps[i] >= from && line.steps[i] <= to;
    const bands = line.bands.map((edges) => edges.map((edge) => edge.filter(inside)));
    return { ...line, steps: line.steps.filter(inside), values: line.values.filter(inside), bands };
  }).filter((line) => line.steps.length);
  return series.length ? { ...chart, series } : null;
}

function nearest(steps, wanted) {
  return steps.reduce((best, step) => (Math.abs(step - wanted) < Math.abs(best - wanted) ? step : best), steps[0]);
}

let cursorStep = null; // where the reader left the cursor, also for charts that are drawn again

// `group` holds the cursors of the charts that stand together: functions of a step. `dialog` is where a large chart is.
function drawChart(chart, group, dialog) {
  const frame = chartFrame(chart);
  const steps = [...new Set(chart.series.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const hidden = { y1: EDGE.top, y2: HEIGHT - EDGE.bottom, visibility: 'hidden' };
  const cursor = svg('line', { class: 'cursor', ...hidden });
  const selection = svg('rect', { class: 'selection', y: EDGE.top, height: HEIGHT - EDGE.top - EDGE.bottom, visibility: 'hidden' });
  const read = h('div', { class: 'read' }, `to step ${steps[steps.length - 1].toLocaleString('en')}`);
  let at = steps[steps.length - 1];
  let start = null; // the step where a drag began

  group.push((wanted) => {
    at = nearest(steps, wanted);
    for (const end of ['x1', 'x2']) cursor.setAttribute(end, frame.x(at));
    cursor.setAttribute('visibility', 'visible');
    read.replaceChildren(`step ${at.toLocaleString('en')}: ${readOff(chart, at)} `, h('a', { href: addressOf('rollouts', { step: at }), click: () => dialog?.close() }, 'rollouts'));
  });
  const go = (step) => { cursorStep = step; group.forEach((move) => move(step)); };
  const stepAt = (event) => {
    const box = picture.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    return nearest(steps, frame.first + ((x - EDGE.left) / (WIDTH - EDGE.left - EDGE.right)) * (frame.last - frame.first));
  };
  const select = (step) => {
    const [left, right] = [frame.x(start), frame.x(step)].sort((a, b) => a - b);
    fill(selection, { x: left, width: right - left, visibility: 'visible' }, []);
  };
  const openRollouts = () => { dialog?.close(); goTo('rollouts', { step: at }); };
  const zoomBy = (factor) => {
    const half = ((frame.last - frame.first) * factor) / 2;
    zoomTo(Math.floor(at - half), Math.ceil(at + half));
  };
  const keys = {
    ArrowLeft: () => go(steps[Math.max(0, steps.indexOf(at) - 1)]), ArrowRight: () => go(steps[Math.min(steps.length - 1, steps.indexOf(at) + 1)]),
    Home: () => go(steps[0]), End: () => go(steps[steps.length - 1]), Enter: openRollouts,
    '+': () => zoomBy(0.5), '-': () => zoomBy(2), 0: () => zoomTo('', ''),
  };
  const picture = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', tabindex: 0,
    'aria-label': `${chart.title}, ${chart.unit}, over the training steps. Arrow keys read values, plus and minus zoom, Enter opens the rollouts of a step.`,
    focus: () => { read.setAttribute('aria-live', 'polite'); if (cursor.getAttribute('visibility') === 'hidden') go(at); },
    blur: () => read.removeAttribute('aria-live'),
    keydown: (event) => {
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    },
    pointerdown: (event) => { if (event.button === 0) start = stepAt(event); },
    pointermove: (event) => {
      go(stepAt(event));
      if (start !== null && event.buttons) select(at);
    },
    pointerup: (event) => {
      const [from, to] = [start, stepAt(event)].sort((a, b) => a - b);
      start = null;
      selection.setAttribute('visibility', 'hidden');
      if (from !== null && from !== to) zoomTo(from, to);
      else if (from !== null && event.pointerType !== 'touch') openRollouts(); // a tap reads the value: the link opens
    },
    pointercancel: () => { start = null; selection.setAttribute('visibility', 'hidden'); },
  }, grid(frame), chart.series.map((line) => lineShapes(line, frame)), selection, cursor);
  const enlarge = dialog ? null : h('button', { class: 'plain', 'aria-label': `${chart.title}, large`, click: () => openChart(chart) }, '⤢');
  return h('div', { class: 'chart' }, h('div', { class: 'head' }, h('h3', {}, term(chart.title)), enlarge), h('p', {}, chart.unit), picture, read);
}

function openChart(chart) {
  openLarge(legend(), drawChart(chart, [], large));
}

function zoomTo(from, to) {
  large.close();
  keep({ from, to });
  showPlace();
}

function legend() {
  const lines = new Map(report.charts.filter(({ title }) => title !== 'Alignment spread').flatMap((chart) => chart.series).filter((line) => !line.dashed).map((line) => [line.label, line.color]));
  if (lines.size < 2) return '';
  return h('div', { class: 'legend' }, [...lines].map(([label, color]) => h('span', {}, h('i', { style: { '--own': color } }), label)));
}

// Charts under one cursor, at the zoom of the address.
function chartGroup(charts, { from, to }) {
  const group = [];
  const whole = from === undefined && to === undefined;
  const shown = whole ? charts : charts.map((chart) => zoomed(chart, Number(from ?? -Infinity), Number(to ?? Infinity))).filter(Boolean);
  const drawn = shown.map((chart) => drawChart(chart, group, null));
  if (cursorStep !== null) group.forEach((move) => move(cursorStep));
  return [
    whole ? null : h('p', { class: 'zoom' }, `Steps ${from ?? 'first'} to ${to ?? 'last'}. `, h('button', { class: 'plain', click: () => zoomTo('', '') }, 'All steps')),
    h('div', { class: 'charts' }, drawn),
  ].filter(Boolean);
}

const CHART_NOTE = 'For one run, a line is the centered mean over a tenth of the logged steps, and its band has the smallest and largest '
  + 'of these values. For several seeds, a line is their mean, up to the last step that all have reached, and its band has the lowest and '
  + 'highest seed. Evaluations are not averaged. Drag over a chart to zoom. Click a step to open its rollouts.';

function curvesPanel(params) {
  if (!report.charts.length) return [h('p', { class: 'soft' }, 'No metrics were logged, so there are no curves.')];
  return [legend(), ...chartGroup(report.charts, params),
    h('p', { class: 'soft small said' }, CHART_NOTE)];
}

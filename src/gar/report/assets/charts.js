// Line charts with bands. Values are read off by pointing, or with the arrow keys.

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
  const text = Number.isInteger(value) ? value.toLocaleString('en') : size >= 100 ? value.toFixed(0) : size >= 1 ? value.toFixed(2) : value.toPrecision(3).replace(/\.?0+$/, '');
  return text.replace('-', '−');
}

function chartFrame(chart) {
  const steps = chart.series.flatMap((line) => line.steps);
  const values = chart.series.flatMap((line) => [...line.values, ...line.low, ...line.high]).filter((value) => value !== null);
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
  const shapes = [];
  if (line.low.length) {
    const known = line.steps.map((_, i) => i).filter((i) => line.low[i] !== null);
    const edge = [...known.map((i) => [i, line.high[i]]), ...known.reverse().map((i) => [i, line.low[i]])];
    shapes.push(svg('path', { class: 'band', d: `${path(edge.map(([i, value]) => [frame.x(line.steps[i]), frame.y(value)]))}Z` }));
  }
  shapes.push(svg('path', { class: line.dashed ? 'line dashed' : 'line', d: path(point(line.values)) }));
  if (line.steps.length === 1) shapes.push(svg('circle', { cx: frame.x(line.steps[0]), cy: frame.y(line.values[0]), r: 3, class: 'dot' }));
  return svg('g', { style: { '--own': line.colour } }, shapes);
}

function readOff(chart, step) {
  return chart.series.map((line) => {
    const i = line.steps.indexOf(step);
    if (i < 0) return null;
    const band = line.low.length && line.low[i] !== null ? ` (${numberText(line.low[i])} to ${numberText(line.high[i])})` : '';
    const name = chart.series.length > 1 ? `${line.label}${line.dashed ? ', outcome alone' : ''} ` : '';
    return `${name}${numberText(line.values[i])}${band}`;
  }).filter(Boolean).join(' · ');
}

function drawChart(chart) {
  const frame = chartFrame(chart);
  const steps = [...new Set(chart.series.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const cursor = svg('line', { class: 'cursor', y1: EDGE.top, y2: HEIGHT - EDGE.bottom, visibility: 'hidden' });
  const read = h('div', { class: 'read', 'aria-live': 'polite' }, `to step ${steps[steps.length - 1]}`);
  let at = steps.length - 1;
  const go = (position) => {
    at = Math.max(0, Math.min(steps.length - 1, position));
    const x = frame.x(steps[at]);
    cursor.setAttribute('x1', x);
    cursor.setAttribute('x2', x);
    cursor.setAttribute('visibility', 'visible');
    read.textContent = `step ${steps[at]}: ${readOff(chart, steps[at])}`;
  };
  const moves = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 0, End: () => steps.length - 1 };
  const picture = svg('svg', {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', tabindex: 0,
    'aria-label': `${chart.title}, ${chart.unit}, over the training steps. Arrow keys read values.`,
    focus: () => go(at),
    keydown: (event) => {
      if (!moves[event.key]) return;
      event.preventDefault();
      go(moves[event.key]());
    },
    pointermove: (event) => {
      const box = picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * WIDTH;
      const far = steps.map((step) => Math.abs(frame.x(step) - x));
      go(far.indexOf(Math.min(...far)));
    },
  }, grid(frame), chart.series.map((line) => lineShapes(line, frame)), cursor);
  return h('div', { class: 'chart' }, h('h3', {}, term(chart.term, chart.title)), h('p', {}, chart.unit), picture, read);
}

function curvesPanel() {
  if (!report.charts.length) return [h('p', { class: 'soft' }, 'No metrics were logged, so there are no curves.')];
  const lines = new Map(report.charts.flatMap((chart) => chart.series).filter((line) => !line.dashed).map((line) => [line.label, line.colour]));
  const legend = lines.size > 1
    ? h('div', { class: 'legend' }, [...lines].map(([label, colour]) => h('span', {}, h('i', { style: { '--own': colour } }), label)))
    : null;
  return [legend, h('div', { class: 'charts' }, report.charts.map(drawChart)), h('p', { class: 'soft small said' }, report.chart_note)].filter(Boolean);
}

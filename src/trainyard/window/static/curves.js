/** Curves of what the programs of a job have reported: a chart for each name, drawn by uPlot once it is seen. */

import { element, reconcile, setAttribute, setText } from './dom.js';
import { clockTime, count, short } from './format.js';
import { choice, panel } from './job_parts.js';
import { colours, themes } from './theme.js';

/**
 * @typedef {{name: string, replica: string, source: string, step: number[], time: number[], value: number[]}} Curve
 * @typedef {{name: string, replicas: number, step: number[], time: number[], min: number[], median: number[],
 *   max: number[]}} Spread
 * @typedef {{x: 'step'|'time', smoothing: number}} Options
 */

const INTERVAL = 2000, HEIGHT = 180, POINTS = 1000;
/** @type {Record<string, string>} */
const SOURCES = { file: 'from $TRAINYARD_METRICS', output: 'JSON in the output', pattern: 'guessed from the output' };
const number = (/** @type {number|null|undefined} */ value) => short(value) || '-';

/** @type {Promise<any>|undefined} */
let loading;

/** uPlot is a script and no module: it is loaded when the first curve is seen. */
function loadPlot() {
  const address = (/** @type {string} */ name) => new URL(`./vendor/${name}`, import.meta.url).href;
  return loading ??= new Promise((resolve, reject) => {
    const page = /** @type {any} */ (window), script = document.createElement('script'), url = address('uPlot.iife.min.js');
    script.onload = () => resolve(page.uPlot);
    script.onerror = () => reject(new Error('uPlot was not loaded'));
    script.src = page.trustedTypes?.createPolicy('vendor', { createScriptURL: () => url }).createScriptURL('') ?? url;
    document.head.append(element('link', { rel: 'stylesheet', href: address('uPlot.min.css') }), script);
  });
}

/** An exponential moving average, in which the first values weigh no more than others. @returns {number[]} */
export function smooth(/** @type {number[]} */ values, /** @type {number} */ weight) {
  let sum = 0, total = 0;
  return values.map((value) => {
    sum = sum * weight + value * (1 - weight);
    total = total * weight + 1 - weight;
    return sum / total;
  });
}

/** The chart of one name. */
function createChart(/** @type {string} */ name, /** @type {Options} */ options) {
  const caption = element('p'), readout = element('p', { 'aria-live': 'polite' });
  const stage = element('div', { class: 'curve-stage', tabindex: '0', role: 'img' });
  const root = element('section', { class: 'curve', 'aria-label': name }, element('h3', {}, name), caption, stage, readout);
  /** @type {any} */
  let plot = null;
  /** @type {{curve: Curve, spread?: Spread}|null} */
  let shown = null;
  let colour = colours(), mountedX = '', seen = false, mounting = false;

  const observer = new IntersectionObserver((entries) => { seen = entries[entries.length - 1].isIntersecting; draw(); });
  observer.observe(stage);
  const resizer = new ResizeObserver(() => plot?.setSize({ width: stage.clientWidth, height: HEIGHT }));
  resizer.observe(stage);
  const aborter = new AbortController();
  for (const theme of themes) theme.addEventListener('change', () => { colour = colours(); plot?.redraw(false); }, { signal: aborter.signal });
  stage.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !plot) return;
    event.preventDefault();
    event.stopPropagation();
    const last = plot.data[0].length - 1, index = Math.min(last, Math.max(0, (plot.cursor.idx ?? last) + step));
    plot.setCursor({ left: plot.valToPos(plot.data[0][index], 'x'), top: 0 });
  });

  function read() {
    const index = plot.cursor.idx;
    if (!shown || index === null || index === undefined) return setText(readout, '');
    const [x, low, middle, high, value, smoothed] = plot.data.map((/** @type {any[]} */ column) => column?.[index]);
    setText(readout, [options.x === 'step' ? `step ${number(x)}` : clockTime(x), value !== undefined && `${name} ${number(value)}`,
      options.smoothing && value !== undefined && `smoothed ${number(smoothed)}`,
      low !== undefined && shown.spread && `replicas ${number(low)} / ${number(middle)} / ${number(high)}`].filter(Boolean).join(' · '));
  }

  function mount(/** @type {any} */ Plot) {
    plot?.destroy();
    mountedX = options.x;
    const axis = { stroke: () => colour.muted, grid: { stroke: () => colour.line, width: 1 }, ticks: { stroke: () => colour.line, width: 1 }, font: '12px system-ui' };
    const line = (/** @type {() => string} */ stroke, width = 1, /** @type {any} */ more = {}) => ({ stroke, width, spanGaps: true, points: { show: false }, ...more });
    plot = new Plot({
      width: stage.clientWidth, height: HEIGHT, legend: { show: false }, scales: { x: { time: options.x === 'time' } },
      axes: [axis, { ...axis, size: 60, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(number) }],
      cursor: { drag: { x: false, y: false } }, hooks: { setCursor: [read] },
      series: [{}, line(() => 'transparent'), line(() => colour.wait, 1, { dash: [5, 4] }), line(() => 'transparent'),
        line(() => options.smoothing ? `${colour.accent}66` : colour.accent, 1.5), line(() => colour.accent, 2)],
      bands: [{ series: [3, 1], fill: () => `${colour.idle}38` }],
    }, [[]], stage);
    for (const part of stage.querySelectorAll('canvas, .u-over')) part.setAttribute('aria-hidden', 'true');
  }

  function draw() {
    if (!shown || !seen || !stage.clientWidth) return;
    if (!plot || mountedX !== options.x) {
      if (mounting) return;
      mounting = true;
      loadPlot().then((Plot) => { mounting = false; mount(Plot); draw(); }, (error) => setText(readout, error.message));
      return;
    }
    const { curve, spread } = shown;
    const own = [curve[options.x], curve.value, options.smoothing ? smooth(curve.value, options.smoothing) : curve.value.map(() => null)];
    const others = spread ? [spread[options.x], spread.min, spread.median, spread.max] : [own[0], ...Array(3).fill(own[0].map(() => null))];
    plot.setData(/** @type {any} */ (window).uPlot.join([others, own]));
  }

  return {
    root, draw,
    show(/** @type {Curve} */ curve, /** @type {Spread|undefined} */ spread) {
      shown = { curve, spread };
      const { value, step } = curve, last = value.length - 1;
      const summary = `last ${number(value[last])} at step ${number(step[last])}, lowest ${number(Math.min(...value))}, highest ${number(Math.max(...value))}`;
      const band = spread ? ` · band: lowest, median, highest of ${count(spread.replicas)} replicas` : '';
      const source = `${curve.replica} ${SOURCES[curve.source] ?? `event files in ${curve.source}`}`.trim();
      setText(caption, `${summary} · ${source}${band}`);
      setAttribute(stage, 'aria-label', `${name}, ${source}: ${summary}`);
      draw();
    },
    destroy() { observer.disconnect(); resizer.disconnect(); aborter.abort(); plot?.destroy(); },
  };
}

/** @param {import('./app.js').Context} context */
export function createCurvesPanel({ session, live }) {
  /** @type {Options} */
  const options = { x: 'step', smoothing: 0 };
  /** @type {Map<string, ReturnType<typeof createChart>>} */
  const charts = new Map();
  const each = (/** @type {'draw'|'destroy'} */ action) => { for (const chart of charts.values()) chart[action](); };
  const list = element('div', { class: 'curves' }), message = element('p', { class: 'muted' }, 'Looking for values ...');
  const axis = choice('Horizontal axis', (name) => { options.x = /** @type {any} */ (name); showAxis(); each('draw'); });
  const showAxis = () => axis.show([['step', 'step'], ['time', 'time']], options.x);
  const smoothing = element('input', { type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, oninput: () => { options.smoothing = Number(smoothing.value); each('draw'); } });
  const corrupt = element('p', { class: 'muted', hidden: true });
  const root = panel('metrics', 'Metrics', [axis.root, element('label', {}, 'smoothing', smoothing)], [message, corrupt, list]);
  let uid = '', ended = false, replica = '', read = '', seen = false, busy = false;
  const observer = new IntersectionObserver((entries) => { seen = entries[entries.length - 1].isIntersecting; void poll(); });
  observer.observe(root);
  const timer = setInterval(() => void poll(), INTERVAL);
  showAxis();

  /** Reads the curves: again and again while the panel is seen and the job lives, and once after its end. */
  async function poll() {
    const version = `${uid} ${ended} ${replica}`;
    if (!uid || !seen || busy || document.hidden || live.status !== 'live' || (ended && read === version)) return;
    busy = true;
    try {
      const path = `jobs/${uid}/series?points=${POINTS}${replica && `&replicas=${encodeURIComponent(replica)}`}`;
      const answer = await (await session.request(path)).json();
      if (version === `${uid} ${ended} ${replica}`) show(answer);
      read = version;
    } catch (error) {
      setText(message, `They cannot be read: ${/** @type {Error} */ (error).message}`);
    }
    busy = false;
  }

  function show(/** @type {{series: Curve[], spread: Spread[], corrupt?: string[]}} */ answer) {
    corrupt.hidden = !answer.corrupt?.length;
    setText(corrupt, `Not all values are here: ${answer.corrupt?.join(', ')} cannot be read to the end, it is damaged.`);
    const names = new Set(answer.series.map((curve) => curve.name));
    for (const [name, chart] of charts) if (!names.has(name)) { chart.destroy(); charts.delete(name); }
    reconcile(list, answer.series, (curve) => curve.name, (curve) => {
      const chart = createChart(curve.name, options);
      charts.set(curve.name, chart);
      return chart.root;
    }, (_, curve) => charts.get(curve.name)?.show(curve, answer.spread.find((spread) => spread.name === curve.name)));
    message.hidden = names.size > 0;
    setText(message, `${replica ? 'Its program has' : 'The programs have'} reported no values on this machine. A line of output such as {"step": 10, "loss": 0.4} or step=10 loss=0.4 makes a curve.`);
  }

  return {
    root,
    /** `nextReplica`: the one whose curves are shown; "" for the leading one. */
    show(/** @type {string} */ nextUid, /** @type {boolean} */ hasEnded, nextReplica = '') {
      const isNews = uid !== nextUid || ended !== hasEnded || replica !== nextReplica;
      [uid, ended, replica] = [nextUid, hasEnded, nextReplica];
      if (isNews) void poll();
    },
    destroy() { clearInterval(timer); observer.disconnect(); each('destroy'); },
  };
}

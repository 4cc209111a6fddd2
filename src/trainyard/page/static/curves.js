/** Curves of what the programs of a job have reported: a chart for each name, drawn by uPlot once it is seen. */

import { element, reconcile, setAttribute, setText } from './dom.js';
import { count } from './format.js';
import { choice, panel } from './job_parts.js';
import { createPlot, number, smooth, smoothingSlider } from './plot.js';

/**
 * `notFinite`: what is null in `value`, as text, by index.
 * @typedef {{name: string, replica: string, source: string, step: number[], time: number[], value: (number|null)[],
 *   notFinite?: Record<number, string>, notFiniteSince?: number|null}} Curve
 * @typedef {{name: string, replicas: number, step: number[], time: number[], min: number[], median: number[],
 *   max: number[]}} Spread
 * @typedef {{x: 'step'|'time', smoothing: number}} Options
 */

const INTERVAL = 2000, HEIGHT = 180, POINTS = 1000;
/** @type {Record<string, string>} */
const SOURCES = { file: 'from $TRAINYARD_METRICS', output: 'JSON in the output', pattern: 'guessed from the output', node: 'measured by its node' };
/** What a chart without curves says. */
export const NO_VALUES = 'The programs have reported no values on this machine. A line of output such as {"step": 10, "loss": 0.4} or step=10 loss=0.4 makes a curve.';

/** The value of a point: 0.4123, nan. */
export const valueText = (/** @type {Curve} */ curve, /** @type {number} */ index) =>
  curve.value[index] === null ? curve.notFinite?.[index] ?? '-' : number(curve.value[index]);

/** The x of values that are not finite. */
export const marksOf = (/** @type {Curve} */ { notFinite = {} }, /** @type {number[]} */ xs) => xs.filter((_, index) => index in notFinite);

/** The chart of one name. */
function createChart(/** @type {string} */ name, /** @type {Options} */ options) {
  const caption = element('p'), readout = element('p', { 'aria-live': 'polite' });
  const stage = element('div', { class: 'curve-stage', tabindex: '0', role: 'img' });
  const root = element('section', { class: 'curve', 'aria-label': name }, element('h3', {}, name), caption, stage, readout);
  /** @type {{curve: Curve, spread?: Spread}|null} */
  let shown = null;
  /** What the node measures has no steps. */
  const axisOf = () => (shown?.curve.source === 'node' ? 'time' : options.x);
  const plot = createPlot(stage, readout, {
    height: HEIGHT,
    x: () => axisOf(),
    lines: () => [{ stroke: () => 'transparent' }, { stroke: (colour) => colour.wait, dash: [5, 4] }, { stroke: () => 'transparent' },
      { stroke: (colour) => options.smoothing ? `${colour.accent}66` : colour.accent, width: 1.5 }, { stroke: (colour) => colour.accent, width: 2 }],
    bands: [{ series: [3, 1], fill: (colour) => `${colour.idle}38` }],
    tables() {
      if (!shown) return null;
      const { curve, spread } = shown;
      const x = axisOf(), own = [curve[x], curve.value, options.smoothing ? smooth(curve.value, options.smoothing) : curve.value.map(() => null)];
      return [spread ? [spread[x], spread.min, spread.median, spread.max] : [own[0], ...Array(3).fill(own[0].map(() => null))], own];
    },
    marks: () => shown ? marksOf(shown.curve, shown.curve[axisOf()]) : [],
    text: (x, [low, middle, high, value, smoothed]) => [
      value !== undefined && shown && `${name} ${valueText(shown.curve, shown.curve[axisOf()].indexOf(x))}`,
      options.smoothing && value !== undefined && `smoothed ${number(smoothed)}`,
      low !== undefined && shown?.spread && `replicas ${number(low)} / ${number(middle)} / ${number(high)}`],
  });

  return {
    root,
    draw: plot.draw,
    destroy: plot.destroy,
    show(/** @type {Curve} */ curve, /** @type {Spread|undefined} */ spread) {
      shown = { curve, spread };
      const { step, notFiniteSince: since = null } = curve, last = step.length - 1;
      const finite = /** @type {number[]} */ (curve.value.filter((value) => value !== null));
      const at = curve.source === 'node' ? '' : ` at step ${number(step[last])}`;
      const summary = [`last ${valueText(curve, last)}${at}`,
        since !== null && `not finite since step ${number(since)}`,
        finite.length && `lowest ${number(Math.min(...finite))}, highest ${number(Math.max(...finite))}`].filter(Boolean).join(', ');
      const band = spread ? ` · band: lowest, median, highest of ${count(spread.replicas)} replicas` : '';
      const source = `${curve.replica} ${SOURCES[curve.source] ?? `event files in ${curve.source}`}`.trim();
      setText(caption, `${summary} · ${source}${band}`);
      setAttribute(stage, 'aria-label', `${name}, ${source}: ${summary}`);
      plot.draw();
    },
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
  const smoothing = smoothingSlider((weight) => { options.smoothing = weight; each('draw'); });
  const corrupt = element('p', { class: 'muted', hidden: true });
  const root = panel('metrics', 'Metrics', [axis.root, smoothing], [message, corrupt, list]);
  let uid = '', ended = false, replica = '', read = '', seen = false, busy = false;
  const observer = new IntersectionObserver((entries) => { seen = entries[entries.length - 1].isIntersecting; void poll(); });
  observer.observe(root);
  const timer = setInterval(() => void poll(), INTERVAL);
  showAxis();
  axis.root.hidden = smoothing.hidden = true;

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
    axis.root.hidden = smoothing.hidden = !names.size;
    setText(message, replica ? NO_VALUES.replace('The programs have', 'Its program has') : NO_VALUES);
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

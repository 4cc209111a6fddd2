/** Charts by uPlot: drawn once they are seen, in the colours of the theme, and read by the arrow keys. */

import { element, setText } from './dom.js';
import { clockTime, duration, short } from './format.js';
import { colours, themes } from './theme.js';

/**
 * What a chart draws. `x`: what its axis is; `lines`: uPlot's series after the first, with a stroke that depends on the
 * colours of the theme; `bands`: as uPlot's; `tables`: columns with their own x, null before there are any; `text`: what
 * is at an x, of all columns at that index; `marks`: x of vertical lines; `version`: lines are made anew for another.
 * @typedef {'step'|'time'|'relative'} Axis
 * @typedef {{height: number, x: () => Axis, version?: () => string, tables: () => any[][]|null,
 *   lines: () => {stroke: (colour: Record<string, string>) => string, width?: number, dash?: number[]}[],
 *   bands?: {series: number[], fill: (colour: Record<string, string>) => string}[], marks?: () => number[],
 *   text: (x: number, values: any[]) => (string|false|0|undefined)[]}} Drawing
 */

export const number = (/** @type {number|string|null|undefined} */ value) => short(value) || '-';

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

/** An exponential moving average, in which the first values weigh no more than others; null is left out.
 * @returns {(number|null)[]} */
export function smooth(/** @type {(number|null)[]} */ values, /** @type {number} */ weight) {
  let sum = 0, total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    total = total * weight + 1 - weight;
    return sum / total;
  });
}

/** The slider that smooths: `onChange` gets its weight, 0 for none. */
export function smoothingSlider(/** @type {(weight: number) => void} */ onChange) {
  const slider = element('input', { type: 'range', min: 0, max: 0.99, step: 0.01, value: 0, oninput: () => onChange(Number(slider.value)) });
  return element('label', {}, 'smoothing', slider);
}

/** A chart in `stage`, an element with the focus for its keys. What is at the cursor is written into `readout`. */
export function createPlot(/** @type {HTMLElement} */ stage, /** @type {HTMLElement} */ readout, /** @type {Drawing} */ drawing) {
  /** @type {any} */
  let plot = null;
  let colour = colours(), mounted = '', seen = false, mounting = false;
  const { height } = drawing;

  const observer = new IntersectionObserver((entries) => { seen = entries[entries.length - 1].isIntersecting; draw(); });
  observer.observe(stage);
  const resizer = new ResizeObserver(() => plot?.setSize({ width: stage.clientWidth, height }));
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

  const shownX = (/** @type {number} */ x) => ({ step: `step ${number(x)}`, time: clockTime(x), relative: duration(x) })[drawing.x()];

  function read() {
    const index = plot.cursor.idx;
    if (index === null || index === undefined) return setText(readout, '');
    const [x, ...values] = plot.data.map((/** @type {any[]} */ column) => column?.[index]);
    setText(readout, [shownX(x), ...drawing.text(x, values)].filter(Boolean).join(' · '));
  }

  function drawMarks(/** @type {any} */ { ctx, bbox, valToPos }) {
    ctx.save();
    ctx.fillStyle = colour.bad;
    for (const x of drawing.marks?.() ?? []) ctx.fillRect(valToPos(x, 'x', true), bbox.top, 2, bbox.height);
    ctx.restore();
  }

  function mount(/** @type {any} */ Plot) {
    plot?.destroy();
    mounted = version();
    const axis = { stroke: () => colour.muted, grid: { stroke: () => colour.line, width: 1 }, ticks: { stroke: () => colour.line, width: 1 }, font: '12px system-ui' };
    const texts = (/** @type {(value: number, ticks: number[]) => string} */ text) => (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((tick) => text(tick, ticks));
    const seconds = (/** @type {number} */ tick, /** @type {number[]} */ ticks) => ticks[1] - ticks[0] < 1 ? `${number(tick)} s` : duration(tick);
    plot = new Plot({
      width: stage.clientWidth, height, legend: { show: false }, scales: { x: { time: drawing.x() === 'time' } },
      axes: [{ ...axis, size: 34, ...(drawing.x() === 'relative' && { values: texts(seconds) }) }, { ...axis, size: 60, values: texts(number) }],
      cursor: { drag: { x: false, y: false } }, hooks: { setCursor: [read], draw: [drawMarks] },
      series: [{}, ...drawing.lines().map((line) => ({ width: 1, spanGaps: true, points: { show: false }, ...line, stroke: () => line.stroke(colour) }))],
      bands: drawing.bands?.map((band) => ({ ...band, fill: () => band.fill(colour) })),
    }, [[]], stage);
    for (const part of stage.querySelectorAll('canvas, .u-over')) part.setAttribute('aria-hidden', 'true');
  }

  const version = () => `${drawing.x()} ${drawing.version?.() ?? ''}`;

  function draw() {
    const tables = seen && stage.clientWidth ? drawing.tables() : null;
    if (!tables) return;
    if (!plot || mounted !== version()) {
      if (mounting) return;
      mounting = true;
      loadPlot().then((Plot) => { mounting = false; mount(Plot); draw(); }, (error) => setText(readout, error.message));
      return;
    }
    plot.setData(/** @type {any} */ (window).uPlot.join(tables));
  }

  return { draw, destroy() { observer.disconnect(); resizer.disconnect(); aborter.abort(); plot?.destroy(); } };
}

/** Two to eight runs beside each other: their curves, what differs between their jobs, and how they ended. */

import { MOST, chosen } from './chosen.js';
import { NO_VALUES, marksOf, valueText } from './curves.js';
import { element, reconcile, setAttribute, setState, setText, stateLabel } from './dom.js';
import { bytes, dateTime, duration, plural, toneOf } from './format.js';
import { choice, panel } from './job_parts.js';
import { createPlot, number, smooth, smoothingSlider } from './plot.js';
import { compareAddress, jobAddress, list } from './router.js';
import { RequestFailed } from './session.js';

/**
 * @typedef {import('./curves.js').Curve} Curve
 * @typedef {{uid: string, namespace: string, kind: string, name: string, state: string, restarts: number,
 *   created: number|null, started: number|null, ended: number|null, peakMemory: number|null,
 *   metrics: Record<string, number|string|null>}} Run
 * @typedef {{runs: Run[], differences: {field: string, roles: string[], values: (string|null)[]}[],
 *   unknown: string[]}} Comparison
 */

const INTERVAL = 2000, HEIGHT = 320, POINTS = 1000;
const SETTLED = 5; // seconds after the end of a run at which its last values have been recorded
/** @type {[string, string][]} */
const AXES = [['step', 'step'], ['time', 'wall time'], ['relative', 'relative time']];
/** The lines of the runs, which differ without their colours, too. */
const DASHES = [[], [9, 4], [2, 3], [12, 4, 2, 4], [5, 5], [16, 4], [10, 3, 2, 3, 2, 3], [1, 6]];

const startOf = (/** @type {Run} */ run) => run.started ?? run.created;
const nameOf = (/** @type {Run} */ run) => (run.namespace === 'default' ? run.name : `${run.namespace}/${run.name}`);

const namesOf = (/** @type {Run[]} */ runs) => [...new Set(runs.flatMap((run) => Object.keys(run.metrics)))].sort();

/** A piece of a run's line. It is hidden from screen readers, which get the names. */
function lineSample(/** @type {number} */ index) {
  const make = (/** @type {string} */ tag, /** @type {Record<string, any>} */ attributes) => {
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };
  const sample = make('svg', { viewBox: '0 0 40 8', width: 40, height: 8, class: 'line-sample', 'aria-hidden': 'true' });
  /** @type {SVGElement} */ (sample).style.stroke = `var(--run-${index})`;
  sample.append(make('line', { x1: 0, x2: 40, y1: 4, y2: 4, 'stroke-width': 2.5, 'stroke-dasharray': DASHES[index].join(' ') }));
  return sample;
}

/** A table with a column for each run. `show` takes rows of a title and the text of each run. */
function runsTable(/** @type {string} */ title) {
  const head = element('tr'), body = element('tbody');
  const root = element('div', { class: 'scroll', role: 'group', tabindex: '0', 'aria-label': `${title}, by run` },
    element('table', {}, element('thead', {}, head), body));
  return {
    root,
    show(/** @type {Run[]} */ runs, /** @type {[string, string[]][]} */ rows) {
      const heads = runs.map((run, index) => ({ key: `${index} ${run.uid}`, index, text: nameOf(run) }));
      reconcile(head, [{ key: '', index: -1, text: '' }, ...heads], ({ key }) => key,
        ({ index }) => index < 0 ? element('td') : element('th', { scope: 'col' }, lineSample(index), element('span')),
        (cell, { text }) => cell.lastChild && setText(cell.lastChild, text));
      reconcile(body, rows, ([name]) => name, ([name]) => element('tr', {}, element('th', { scope: 'row' }, name)), (line, [, texts]) => {
        while (line.children.length > texts.length + 1) line.lastChild.remove();
        while (line.children.length <= texts.length) line.append(element('td'));
        texts.forEach((text, index) => setText(line.children[index + 1], text));
      });
    },
  };
}

/** The index of an x, or of the last one before it; -1 before the first and after the last one. */
function indexAt(/** @type {number[]} */ xs, /** @type {number} */ x) {
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low < xs.length || xs[low - 1] === x ? low - 1 : -1;
}

/** @param {import('./app.js').Context} context @param {import('./router.js').Route} route */
export function createCompareView({ session, live, navigate }, route) {
  /** @type {string[]} */
  let uids = [];
  /** @type {Comparison|null} */
  let answer = null;
  /** @type {Map<string, Curve>} of `metric`, by uid; none is empty */
  let curves = new Map();
  /** @type {Set<string>} the uids of the runs whose curve will not change any more */
  let whole = new Set();
  /** @type {import('./plot.js').Axis} */
  let x = 'step';
  let metric = '', smoothing = 0, busy = false, refused = false;

  const message = element('p', { role: 'status' }), links = element('p');
  const empty = element('div', { class: 'empty' }, message, links);
  const legend = element('ul', { class: 'runs', 'aria-label': 'Runs' });
  const axis = choice('Horizontal axis', (name) => change({ x: name }));
  const metrics = element('select', { 'aria-label': 'Metric', onchange: () => change({ metric: metrics.value }) });
  const slider = smoothingSlider((weight) => { smoothing = weight; plot.draw(); });
  const caption = element('p'), readout = element('p', { 'aria-live': 'polite' });
  const stage = element('div', { class: 'curve-stage', tabindex: '0', role: 'img' });
  const chart = element('div', { class: 'curve overlay' }, stage, readout, caption);
  const noValues = element('p', { class: 'muted' }, NO_VALUES);
  const differs = runsTable('Differs'), final = runsTable('Final');
  const same = element('p', { class: 'muted' }, 'Nothing differs of kind, replicas, image, command, args, env and resources.');
  const content = element('div', { class: 'compared', hidden: true }, legend, element('div', { class: 'panels' },
    panel('metrics', 'Metrics', [metrics, axis.root, slider], [noValues, chart]),
    panel('differs', 'Differs', [], [same, differs.root]),
    panel('final', 'Final', [], [final.root])));
  const root = element('section', { class: 'view' },
    element('nav', { class: 'crumbs', 'aria-label': 'Where' }, element('a', { href: list.address }, 'Jobs'), ' › '),
    element('h1', { tabindex: '-1' }, 'Compare'), empty, content);

  /** The runs with a curve of the metric: their position, their x and their values. */
  const drawn = () => (answer?.runs ?? []).flatMap((run, index) => {
    const curve = curves.get(run.uid);
    if (!curve) return [];
    const start = startOf(run) ?? curve.time[0];
    return [{ run, index, curve, xs: x === 'relative' ? curve.time.map((time) => time - start) : curve[x] }];
  });
  const smoothed = (/** @type {number[]} */ values) => (smoothing ? smooth(values, smoothing) : values.map(() => null));
  const plot = createPlot(stage, readout, {
    height: HEIGHT,
    x: () => x,
    version: () => drawn().map(({ index }) => index).join(),
    lines: () => drawn().flatMap(({ index }) => [
      { stroke: (colour) => smoothing ? `${colour[`run-${index}`]}55` : colour[`run-${index}`], width: 2, dash: DASHES[index] },
      { stroke: (colour) => colour[`run-${index}`], width: 2.5, dash: DASHES[index] }]),
    tables: () => curves.size ? drawn().map(({ xs, curve }) => [xs, curve.value, smoothed(curve.value)]) : null,
    marks: () => drawn().flatMap(({ xs, curve }) => marksOf(curve, xs)),
    text: (at) => drawn().map(({ run, xs, curve }) => {
      const index = indexAt(xs, at);
      if (index < 0) return `${nameOf(run)} -`;
      return `${nameOf(run)} ${valueText(curve, index)}${smoothing && `, smoothed ${number(smooth(curve.value, smoothing)[index])}` || ''}`;
    }),
  });

  /** Changes what the address says. */
  function change(/** @type {Record<string, string>} */ changed) {
    const query = { x, metric, ...changed };
    history.replaceState(null, '', compareAddress(uids, query));
    show(uids, query);
  }

  function show(/** @type {string[]} */ nextUids, /** @type {Record<string, string>} */ query) {
    if (uids.join() !== nextUids.join()) [uids, answer, curves, whole, refused] = [nextUids, null, new Map(), new Set(), false];
    x = /** @type {any} */ (AXES.some(([name]) => name === query.x) ? query.x : 'step');
    if (query.metric !== metric) [curves, whole] = [new Map(), new Set()];
    metric = query.metric;
    chosen.replace(uids, { x, metric });
    draw();
    void poll();
  }

  const readAddress = (/** @type {URLSearchParams} */ query) => {
    const named = [...new Set((query.get('jobs') ?? '').split(',').filter(Boolean))];
    show(named.length ? named : chosen.uids, { x: query.get('x') ?? 'step', metric: query.get('metric') ?? '' });
  };

  /** Shows instead of the runs, or above them, what cannot be compared, and where to go. */
  function say(/** @type {string} */ text, /** @type {string[][]} */ further = []) {
    setText(message, text);
    reconcile(links, [...further, [list.address, 'All jobs']], ([, title]) => title, () => element('a'), (link, [address, title]) => {
      setAttribute(link, 'href', address);
      setText(link, title);
    });
    empty.hidden = !text;
  }

  function draw() {
    content.hidden = !answer?.runs.length;
    if (!answer) return refused || say('Looking for the runs ...');
    const { runs, differences, unknown } = answer;
    say(unknown.length ? `There is no job ${unknown.join(', ')}, neither in the cluster nor in the history of this machine. Choose others in the list${runs.length > 1 ? ', or go on without' : ''}.` : '',
      runs.length > 1 ? [[compareAddress(runs.map((run) => run.uid), { x, metric }), 'Go on without']] : []);
    drawLegend(runs);
    const names = namesOf(runs);
    drawChart(names, runs);
    same.hidden = differences.length > 0 || runs.length < 2;
    differs.root.hidden = !differences.length;
    differs.show(runs, differences.map(({ field, roles, values }) => [
      [roles.join(', '), field].filter(Boolean).join(' '), values.map((value) => value ?? '-')]));
    drawFinal(runs, names);
  }

  function drawFinal(/** @type {Run[]} */ runs, /** @type {string[]} */ names) {
    final.show(runs, [
      ['state', runs.map((run) => run.state)],
      ['duration', runs.map((run) => { const start = startOf(run); return start ? duration((run.ended ?? live.now()) - start) : '-'; })],
      ...names.map((name) => /** @type {[string, string[]]} */ ([`last ${name}`, runs.map((run) => number(run.metrics[name]))])),
      ['peak memory', runs.map((run) => (run.peakMemory ? bytes(run.peakMemory) : '-'))],
      ['restarts', runs.map((run) => number(run.restarts))],
    ]);
  }

  function drawLegend(/** @type {Run[]} */ runs) {
    reconcile(legend, runs.map((run, index) => ({ run, index })), ({ run, index }) => `${index} ${run.uid}`,
      ({ run, index }) => element('li', {}, lineSample(index), element('a'), stateLabel(),
        element('button', { type: 'button', class: 'quiet', 'aria-label': `Take out ${nameOf(run)}`, onclick: () => takeOut(run.uid) }, 'Take out')),
      (item, { run }) => {
        const [, link, state] = item.children;
        setAttribute(link, 'href', jobAddress(run));
        setText(link, `${nameOf(run)} (${dateTime(startOf(run)) || 'not started'})`);
        setState(state, run.state, toneOf(run.state));
      });
  }

  function takeOut(/** @type {string} */ uid) {
    navigate(compareAddress(uids.filter((known) => known !== uid), { x, metric }));
    root.querySelector('h1').focus();
  }

  function drawChart(/** @type {string[]} */ names, /** @type {Run[]} */ runs) {
    noValues.hidden = names.length > 0;
    chart.hidden = metrics.hidden = axis.root.hidden = slider.hidden = !names.length;
    if (!names.length) return;
    if (!names.includes(metric)) {
      metric = names.find((name) => name === 'loss') ?? names.find((name) => /loss/i.test(name)) ?? names[0];
      [curves, whole] = [new Map(), new Set()];
    }
    reconcile(metrics, names, String, (name) => element('option', { value: name }, name));
    metrics.value = metric;
    axis.show(AXES, x);
    const lacking = runs.filter((run) => !(metric in run.metrics)).map(nameOf);
    setText(caption, lacking.length ? `No ${metric} was reported by ${lacking.join(', ')}.` : '');
    setAttribute(stage, 'aria-label', [`${metric} of ${plural(runs.length - lacking.length, 'run')}`,
      ...drawn().map(({ run, curve }) => `${nameOf(run)}: last ${valueText(curve, curve.value.length - 1)} at step ${number(curve.step.at(-1))}`)].join('; '));
    plot.draw();
  }

  /** Whether nothing more will be reported of a run. */
  const isSettled = (/** @type {Run} */ run) => run.ended !== null && live.now() - run.ended > SETTLED;

  /** Reads the runs, and their curves of the metric: again and again while one of them lives, and once after its end. */
  async function poll() {
    if (busy || refused || document.hidden || live.status !== 'live') return;
    busy = true;
    const askedUids = uids;
    let askedMetric = metric;
    const isAsked = () => askedUids === uids && askedMetric === metric;
    try {
      if (!answer || !answer.runs.every(isSettled)) {
        const next = await (await session.request(`compare?jobs=${uids.map(encodeURIComponent).join(',')}`)).json();
        if (askedUids === uids) {
          answer = next;
          if (location.hash === '#/compare') history.replaceState(null, '', chosen.address);
          draw();
          askedMetric = metric; // the first answer tells which there are
        }
      }
      const runs = isAsked() ? (answer?.runs ?? []).filter((run) => metric in run.metrics && !whole.has(run.uid)) : [];
      await Promise.all(runs.map(async (run) => {
        const query = new URLSearchParams({ points: String(POINTS) });
        if (!metric.includes(',')) query.set('names', metric); // else all are read: a comma separates names
        const { series } = await (await session.request(`jobs/${run.uid}/series?${query}`)).json();
        if (!isAsked()) return;
        const curve = series.find((/** @type {Curve} */ each) => each.name === metric);
        if (curve) curves.set(run.uid, curve);
        if (isSettled(run)) whole.add(run.uid);
      }));
      if (isAsked() && runs.length) draw();
    } catch (error) {
      if (askedUids === uids) {
        refused = error instanceof RequestFailed && error.status === 400;
        const first = uids.length > MOST ? [[compareAddress(uids.slice(0, MOST), {}), `Compare the first ${MOST}`]] : [];
        say(`They cannot be compared: ${/** @type {Error} */ (error).message}.`, first);
      }
    }
    busy = false;
    if (!isAsked()) void poll();
  }

  const timer = setInterval(() => void poll(), INTERVAL), listeners = new AbortController();
  live.addEventListener('tick', () => { if (answer) drawFinal(answer.runs, namesOf(answer.runs)); }, { signal: listeners.signal });
  live.addEventListener('status', () => void poll(), { signal: listeners.signal });
  readAddress(route.query);
  return {
    root,
    title: 'Compare',
    topics: () => [],
    setRoute: (/** @type {import('./router.js').Route} */ next) => readAddress(next.query),
    destroy() { clearInterval(timer); listeners.abort(); plot.destroy(); },
    keys: { Escape: () => navigate(list.address) },
  };
}

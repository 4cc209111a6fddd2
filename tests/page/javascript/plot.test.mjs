import assert from 'node:assert/strict';
import { test } from 'node:test';

import { media, press, resize, see, settled } from './page.mjs';
import { Plot, loadPlots } from './plots.mjs';
import { element } from '../../../src/trainyard/page/static/dom.js';
import { createPlot, number, smooth, smoothingSlider } from '../../../src/trainyard/page/static/plot.js';

process.env.TZ = 'UTC';

test('a number that is not known is a dash', () => {
  assert.deepEqual([0, 0.12345, 14201, null, undefined].map(number), ['0', '0.1235', '14,201', '-', '-']);
});

test('smoothing is a mean in which later values weigh more', () => {
  const near = (values, expected) => values.forEach((value, index) => assert.ok(Math.abs(value - expected[index]) < 1e-12, `${values}`));
  assert.deepEqual(smooth([], 0.9), []);
  near(smooth([3, 1, 2], 0), [3, 1, 2]);
  near(smooth([4, 4, 4, 4], 0.99), [4, 4, 4, 4]);
  near(smooth([0, 1], 0.5), [0, 2 / 3]);
  assert.deepEqual(smooth([null, 4, null, 4], 0.5), [null, 4, null, 4], 'values that are not finite');
  near(smooth([1, 2, 4], 0.5), [1, (0.5 + 2) / 1.5, (0.25 + 1 + 4) / 1.75]);
  assert.equal(smooth(Array(10_000).fill(1), 0.99).at(-1).toFixed(9), '1.000000000');
});

test('the slider gives a weight', () => {
  const weights = [], label = smoothingSlider((weight) => weights.push(weight)), slider = label.querySelector('input');
  for (const value of ['0.5', '0']) {
    slider.value = value;
    slider.dispatchEvent(new Event('input'));
  }
  assert.deepEqual(weights, [0.5, 0]);
});

let axis = 'step', version = '1', tables = null;
const stage = element('div'), readout = element('p');
const chart = createPlot(stage, readout, {
  height: 180,
  x: () => axis,
  version: () => version,
  tables: () => tables,
  lines: () => [{ stroke: (colour) => colour.accent }],
  bands: [{ series: [2, 1], fill: (colour) => colour.idle }],
  text: (x, values) => [`<b>${values}`, false, undefined, 0],
});
const plot = () => Plot.all.at(-1);

test('uPlot is loaded when the chart is seen, has a width and something to draw', async () => {
  const isAsked = () => document.head.querySelector('script') !== null;
  see(stage, false);
  resize(stage, 500);
  tables = [[[1, 2, 3], [10, 20, 30]]];
  chart.draw();
  assert.equal(isAsked(), false, 'not seen');
  tables = null;
  see(stage);
  assert.equal(isAsked(), false, 'nothing to draw');
  tables = [[[1, 2, 3], [10, 20, 30]]];
  stage.clientWidth = 0;
  chart.draw();
  assert.equal(isAsked(), false, 'no width');
  stage.clientWidth = 500;
  chart.draw();
  chart.draw();
  assert.equal(document.head.querySelectorAll('script').length, 1);
  await loadPlots();
  assert.equal(Plot.all.length, 1);
  assert.deepEqual(plot().data, [[1, 2, 3], [10, 20, 30]]);
  assert.deepEqual([plot().options.width, plot().options.height], [500, 180]);
});

test('keys move the cursor, and what is there is told as text', () => {
  const at = (key) => (press(stage, key), readout.textContent);
  assert.deepEqual(['ArrowLeft', 'ArrowLeft', 'ArrowLeft', 'ArrowLeft', 'ArrowRight', 'End', 'ArrowRight', 'Home'].map(at),
    ['step 2 · <b>20', 'step 1 · <b>10', 'step 1 · <b>10', 'step 1 · <b>10', 'step 2 · <b>20', 'step 3 · <b>30', 'step 3 · <b>30', 'step 1 · <b>10']);
  assert.deepEqual([press(stage, 'End').defaultPrevented, press(stage, 'j').defaultPrevented], [true, false]);
  plot().setCursor({ left: 99 });
  assert.equal(readout.textContent, '');
});

test('each axis has its text', async () => {
  for (const [name, text] of [['time', '00:00:02'], ['relative', '0:02'], ['step', 'step 2']]) {
    axis = name;
    chart.draw();
    await settled();
    plot().setCursor({ left: 2 });
    assert.equal(readout.textContent, `${text} · <b>20`);
  }
});

test('the marks of an axis of seconds', async () => {
  axis = 'relative';
  chart.draw();
  await settled();
  const [{ values }] = plot().options.axes;
  assert.deepEqual(values(null, [0, 60, 120]), ['0:00', '1:00', '2:00']);
  assert.deepEqual(values(null, [0, 0.25, 0.5]), ['0 s', '0.25 s', '0.5 s']);
});

test('the chart is made anew for another version, and only its data is set otherwise', async () => {
  const before = plot();
  tables = [[[5], [50]]];
  chart.draw();
  await settled();
  assert.deepEqual([plot() === before, before.data], [true, [[5], [50]]]);
  version = '2';
  chart.draw();
  await settled();
  assert.deepEqual([plot() === before, before.isDestroyed, plot().data], [false, true, [[5], [50]]]);
});

test('the colours follow the theme, and the width that of the page', () => {
  const { series, bands } = plot().options;
  assert.deepEqual([series[1].stroke(), bands[0].fill()], ['--accent of HTML', '--idle of HTML']);
  [...media.values()][0].dispatchEvent(new Event('change'));
  assert.equal(plot().redrawn, true);
  resize(stage, 700);
  assert.deepEqual(plot().size, { width: 700, height: 180 });
});

test('after its end it hears of nothing', () => {
  chart.destroy();
  assert.equal(plot().isDestroyed, true);
  plot().redrawn = false;
  [...media.values()][0].dispatchEvent(new Event('change'));
  resize(stage, 800);
  assert.deepEqual([plot().redrawn, plot().size.width], [false, 700]);
});

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { clock, resize, see, settled, texts } from './page.mjs';
import { Plot, loadPlots } from './plots.mjs';
import { createCurvesPanel } from '../../../src/trainyard/page/static/curves.js';

clock.install();

let answer, requests, failure, live, panel, message;
const curve = (name, fields = {}) => ({ name, replica: 'master-0', source: 'file', step: [1, 2], time: [100, 200], value: [4, 2], ...fields });

beforeEach(async () => {
  clock.timers.clear();
  [answer, requests, failure] = [{ series: [curve('loss')], spread: [] }, [], null];
  live = Object.assign(new EventTarget(), { status: 'live' });
  const session = {
    async request(path) {
      requests.push(path);
      if (failure) throw failure;
      return new Response(JSON.stringify(answer));
    },
  };
  panel = createCurvesPanel({ session, live });
  message = panel.root.querySelector('p.muted');
  document.body.replaceChildren(panel.root);
});
/** The panel is seen, of a job that lives. */
async function show(hasEnded = false, replica = '') {
  panel.show('u1', hasEnded, replica);
  see(panel.root);
  await settled();
}
const captions = () => texts(panel.root, '.curve p').filter(Boolean);

test('nothing is read before the panel is seen, and all the time while it is', async () => {
  panel.show('u1', false);
  await clock.pass(10_000);
  assert.deepEqual(requests, []);
  see(panel.root);
  await clock.pass(4000);
  assert.deepEqual(requests, Array(3).fill('jobs/u1/series?points=1000'));
  see(panel.root, false);
  await clock.pass(10_000);
  live.status = 'stale';
  see(panel.root);
  await clock.pass(10_000);
  [live.status, document.hidden] = ['live', true];
  await clock.pass(10_000);
  document.hidden = false;
  assert.equal(requests.length, 3);
  panel.destroy();
  await clock.pass(10_000);
  assert.equal(requests.length, 3);
});

test('after its end a job is read once more, and once more for another replica', async () => {
  await show(true);
  await clock.pass(10_000);
  assert.equal(requests.length, 1);
  panel.show('u1', true, 'worker-1/x');
  await clock.pass(10_000);
  assert.deepEqual(requests.slice(1), ['jobs/u1/series?points=1000&replicas=worker-1%2Fx']);
});

test('a curve has its values in a sentence', async () => {
  answer.series = [curve('<b>loss</b>', { value: [4, 0.123456, 3e38], step: [1, 2, 1500], time: [1, 2, 3] }), curve('acc', { replica: '', source: 'events/a' })];
  answer.spread = [{ name: 'acc', replicas: 1000, step: [1], time: [1], min: [1], median: [2], max: [3] }];
  await show();
  assert.deepEqual(texts(panel.root, 'h3'), ['<b>loss</b>', 'acc']);
  assert.deepEqual(captions(), [
    'last 3e+38 at step 1,500, lowest 0.1235, highest 3e+38 · master-0 from $TRAINYARD_METRICS',
    'last 2 at step 2, lowest 2, highest 4 · event files in events/a · band: lowest, median, highest of 1,000 replicas',
  ]);
  assert.equal(message.hidden, true);
});

test('values that are not finite are said and marked, and the others drawn', async () => {
  const fields = { step: [1, 2, 3, 4], time: [1, 2, 3, 4] };
  answer.series = [
    curve('loss', { ...fields, value: [4, 2, null, null], notFinite: { 2: 'inf', 3: 'nan' }, notFiniteSince: 3 }),
    curve('scale', { ...fields, value: [4, 2, 8, 3], notFinite: { 1: 'not finite' }, notFiniteSince: null }),
    curve('lost', { ...fields, value: [null, null, null, null], notFinite: { 0: 'nan', 1: 'nan', 2: 'nan', 3: 'nan' }, notFiniteSince: 1 }),
  ];
  await show();
  assert.deepEqual(captions().map((text) => text.split(' · ')[0]), [
    'last nan at step 4, not finite since step 3, lowest 2, highest 4',
    'last 3 at step 4, lowest 2, highest 8',
    'last nan at step 4, not finite since step 1',
  ]);
  const stage = panel.root.querySelector('.curve-stage');
  resize(stage, 400);
  see(stage);
  await loadPlots();
  const plot = Plot.all.at(-1);
  assert.deepEqual(plot.data[4], [4, 2, null, null]);
  assert.deepEqual(plot.drawn(), [[3, 10, 2, 100], [4, 10, 2, 100]]);
  plot.setCursor({ left: 3 });
  assert.equal(panel.root.querySelectorAll('.curve p')[1].textContent, 'step 3 · loss inf');
});

test('a chart goes with its curve', async () => {
  answer.series = [curve('loss'), curve('acc')];
  await show();
  const [, acc] = panel.root.querySelectorAll('.curve');
  answer.series = [curve('acc')];
  await clock.pass(2000);
  assert.deepEqual([texts(panel.root, 'h3'), panel.root.querySelectorAll('.curve')[0]], [['acc'], acc]);
});

test('without values it says what makes them, and of a replica that its program does not', async () => {
  answer = { series: [], spread: [] };
  await show();
  assert.match(message.textContent, /^The programs have reported no values/);
  panel.show('u1', false, 'worker-0');
  await settled();
  assert.match(message.textContent, /^Its program has reported no values/);
});

test('a failure is told, and the next attempt comes', async () => {
  failure = new Error('<no> answer');
  await show();
  assert.equal(message.textContent, 'They cannot be read: <no> answer');
  failure = null;
  await clock.pass(2000);
  assert.equal(message.hidden, true);
});

test('files that are damaged are named', async () => {
  await show();
  const corrupt = panel.root.querySelectorAll('p.muted')[1];
  assert.equal(corrupt.hidden, true);
  answer.corrupt = ['<a>', 'b'];
  await clock.pass(2000);
  assert.deepEqual([corrupt.hidden, corrupt.textContent],
    [false, 'Not all values are here: <a>, b cannot be read to the end, it is damaged.']);
});

test('an answer about another replica than the chosen one is not shown', async () => {
  panel.show('u1', false, 'worker-0');
  answer.series = [curve('of worker-0')];
  see(panel.root); // the request is on its way
  panel.show('u1', false, 'worker-1');
  await settled();
  assert.deepEqual(texts(panel.root, 'h3'), []);
});

test('what is drawn: the spread, the values, and their mean when smoothed', async () => {
  answer.series = [curve('loss', { step: [1, 3], value: [4, 2] })];
  answer.spread = [{ name: 'loss', replicas: 2, step: [1], time: [1], min: [2], median: [3], max: [4] }];
  await show();
  const stage = panel.root.querySelector('.curve-stage'), readout = panel.root.querySelectorAll('.curve p')[1];
  resize(stage, 400);
  see(stage);
  await loadPlots();
  const plot = Plot.all.at(-1);
  assert.deepEqual(plot.data, [[1, 3], [2, undefined], [3, undefined], [4, undefined], [4, 2], [null, null]]);
  plot.setCursor({ left: 1 });
  assert.equal(readout.textContent, 'step 1 · loss 4 · replicas 2 / 3 / 4');
  const slider = panel.root.querySelector('input');
  slider.value = '0.5';
  slider.dispatchEvent(new Event('input'));
  plot.setCursor({ left: 3 });
  assert.equal(readout.textContent, 'step 3 · loss 2 · smoothed 2.667');
  panel.root.querySelectorAll('button')[1].click(); // time
  await settled();
  assert.deepEqual(Plot.all.at(-1).data[0], [1, 100, 200]);
});

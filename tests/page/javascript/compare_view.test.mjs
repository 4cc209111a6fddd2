import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { clock, resize, see, settled, texts } from './page.mjs';
import { Plot, loadPlots } from './plots.mjs';
import { createContext } from './views.mjs';
import { chosen } from '../../../src/trainyard/page/static/chosen.js';
import { createCompareView } from '../../../src/trainyard/page/static/compare_view.js';
import { parseRoute } from '../../../src/trainyard/page/static/router.js';
import { RequestFailed } from '../../../src/trainyard/page/static/session.js';

process.env.TZ = 'UTC';
clock.install();

let context, view, runs, comparison, curves;
const run = (uid, fields) => ({
  uid, namespace: 'default', kind: 'TFJob', name: `job-${uid}`, state: 'Running', restarts: 0, created: 1000, started: 1100,
  ended: null, peakMemory: null, metrics: { loss: 1 }, ...fields,
});
const curve = (name, step, value) => ({ name, replica: '', source: 'file', step, time: step.map((at) => 1100 + at), value });

beforeEach(() => {
  clock.timers.clear();
  chosen.replace([], {});
  location.hash = '#/compare?jobs=a,b';
  [runs, curves] = [[run('a'), run('b')], { a: [curve('loss', [0, 10, 20], [4, 2, 1])], b: [curve('loss', [5, 15], [8, 6])] }];
  comparison = () => ({ runs, differences: [], unknown: [] });
  context = createContext((path) => (path.startsWith('compare') ? comparison(path) : { series: curves[path.split('/')[1]] }));
});
async function open(hash = '#/compare?jobs=a,b') {
  view = createCompareView(context, parseRoute(hash));
  document.body.replaceChildren(view.root);
  await settled();
}
const shown = () => view.root.querySelector('.compared').hidden === false;
const rows = (name) => view.root.querySelector(`.panel.${name} tbody`).children.map((line) => line.children.map((cell) => cell.textContent));
const node = (selector) => view.root.querySelector(selector);

test('the runs of the address are compared, and chosen', async () => {
  await open('#/compare?jobs=a,b,,a&x=time&metric=loss');
  assert.deepEqual(context.requests, ['compare?jobs=a,b', 'jobs/a/series?points=1000&names=loss', 'jobs/b/series?points=1000&names=loss']);
  assert.deepEqual([shown(), chosen.uids, chosen.query], [true, ['a', 'b'], { x: 'time', metric: 'loss' }]);
  assert.deepEqual(texts(view.root, 'li a'), ['job-a (1970-01-01 00:18:20)', 'job-b (1970-01-01 00:18:20)']);
});

test('an address without runs is that of the chosen ones', async () => {
  chosen.replace(['b', 'a'], {});
  location.hash = '#/compare';
  await open('#/compare');
  assert.equal(context.requests[0], 'compare?jobs=b,a');
  assert.match(location.hash, /^#\/compare\?jobs=b,a/);
});

test('what differs, and how the runs ended', async () => {
  runs = [run('a', { namespace: 'team', metrics: { loss: 0.123456, acc: 3e38 }, peakMemory: 1024 ** 3 }), run('b', { ended: 1160, state: '<b>Failed', restarts: 2, started: null })];
  comparison = () => ({ runs, unknown: [], differences: [
    { field: 'image', roles: ['master', 'worker'], values: ['<i>a', null] }, { field: 'kind', roles: [], values: ['TFJob', 'MPIJob'] },
  ] });
  await open();
  assert.deepEqual(rows('differs'), [['master, worker image', '<i>a', '-'], ['kind', 'TFJob', 'MPIJob']]);
  assert.deepEqual(rows('final'), [
    ['state', 'Running', '<b>Failed'], ['duration', '15:00', '2:40'], ['last acc', '3e+38', '-'], ['last loss', '0.1235', '1'],
    ['peak memory', '1.0 GiB', '-'], ['restarts', '0', '2'],
  ]);
  assert.deepEqual(texts(view.root, '.panel.final th').slice(0, 2), ['team/job-a', 'job-b']);
});

test('the loss is shown first, else what is named after it, else the first', async () => {
  const first = async (...names) => {
    runs = [run('a', { metrics: Object.fromEntries(names.map((name) => [name, 1])) })];
    await open('#/compare?jobs=a');
    return node('select').value;
  };
  assert.deepEqual([await first('acc', 'eval_loss', 'loss'), await first('acc', 'Eval_Loss'), await first('acc', 'z')], ['loss', 'Eval_Loss', 'acc']);
});

test('a metric whose name has a comma is looked for among all', async () => {
  runs = [run('a', { metrics: { 'a,b': 1 } })];
  curves = { a: [curve('a', [1], [5]), curve('a,b', [1], [7])] };
  await open('#/compare?jobs=a');
  assert.equal(context.requests[1], 'jobs/a/series?points=1000');
  assert.match(node('.curve-stage').getAttribute('aria-label'), /: last 7 at step 1$/);
});

test('at an x each run has its value, or the last one before it, and none before the first and after the last', async () => {
  await open();
  const stage = node('.curve-stage');
  resize(stage, 500);
  see(stage);
  await loadPlots();
  const plot = Plot.all.at(-1), at = (x) => (plot.setCursor({ left: x }), stage.nextElementSibling.textContent);
  assert.deepEqual(plot.data[0], [0, 5, 10, 15, 20]);
  assert.deepEqual([0, 5, 10, 15, 20].map(at), [
    'step 0 · job-a 4 · job-b -', 'step 5 · job-a 4 · job-b 8', 'step 10 · job-a 2 · job-b 8', 'step 15 · job-a 2 · job-b 6', 'step 20 · job-a 1 · job-b -',
  ]);
});

test('relative times begin with each run', async () => {
  runs[1].started = 1105;
  await open('#/compare?jobs=a,b&x=relative');
  see(node('.curve-stage'));
  resize(node('.curve-stage'), 500);
  see(node('.curve-stage'));
  await settled();
  assert.deepEqual(Plot.all.at(-1).data[0], [0, 10, 20]);
});

test('jobs that are not known are named, and the others are compared', async () => {
  comparison = () => ({ runs, differences: [], unknown: ['<x>'] });
  await open('#/compare?jobs=a,b,x');
  assert.match(node('.empty p').textContent, /^There is no job <x>, neither .* or go on without\.$/);
  assert.deepEqual([shown(), node('.empty a').getAttribute('href')], [true, '#/compare?jobs=a,b&x=step&metric=loss']);
});

test('too many runs are refused, and the first of them offered', async () => {
  comparison = () => { throw new RequestFailed(400, 'at most 8 jobs are compared'); };
  const uids = Array.from({ length: 10_000 }, (_, index) => `u${index}`);
  await open(`#/compare?jobs=${uids.join()}`);
  assert.deepEqual([node('.empty p').textContent, shown()], ['They cannot be compared: at most 8 jobs are compared.', false]);
  assert.equal(node('.empty a').getAttribute('href'), `#/compare?jobs=${uids.slice(0, 8).join()}`);
  const { length } = context.requests;
  await clock.pass(10_000);
  assert.equal(context.requests.length, length, 'a refusal is not repeated');
});

test('without a connection it goes on', async () => {
  const answer = comparison;
  comparison = () => { throw new TypeError('no connection'); };
  await open();
  assert.equal(node('.empty p').textContent, 'They cannot be compared: no connection.');
  comparison = answer;
  await clock.pass(2000);
  assert.deepEqual([shown(), node('.empty').hidden], [true, true]);
});

test('a run that has ended is read once more, and not again', async () => {
  runs = [run('a', { ended: 1994 }), run('b', { ended: 1994 })]; // the time is 2000
  await open();
  const { length } = context.requests;
  await clock.pass(10_000);
  assert.deepEqual([length, context.requests.length], [3, 3]);
  runs = [run('a', { ended: 1995 }), run('b', { ended: 1994 })];
  await open();
  await clock.pass(2000);
  assert.deepEqual(context.requests.slice(6), ['compare?jobs=a,b', 'jobs/a/series?points=1000&names=loss']);
});

test('a run is taken out', async () => {
  await open();
  node('li button').click();
  assert.deepEqual(context.addresses, ['#/compare?jobs=b&x=step&metric=loss']);
});

test('an answer about other runs than the shown ones is not shown', async () => {
  let finish;
  const late = { runs: [run('late')], differences: [], unknown: [] };
  comparison = () => new Promise((resolve) => { finish = () => resolve(late); });
  await open();
  comparison = () => ({ runs: [run('c')], differences: [], unknown: [] });
  curves.c = [];
  view.setRoute(parseRoute('#/compare?jobs=c'));
  finish();
  await settled();
  assert.deepEqual(texts(view.root, 'li a').map((text) => text.split(' ')[0]), ['job-c']);
});

test('a curve of another metric than the chosen one is not shown', async () => {
  let finish;
  runs = [run('a', { ended: 1500, metrics: { loss: 1, acc: 1 } })];
  curves.a = new Promise((resolve) => { finish = () => resolve([curve('loss', [1], [7])]); }).then((series) => {
    curves.a = [curve('acc', [1], [9])];
    return series;
  });
  const { request } = context.session;
  context.session.request = async (path) => path.startsWith('compare') ? request(path) : new Response(JSON.stringify({ series: await curves.a }));
  await open('#/compare?jobs=a');
  node('select').value = 'acc';
  node('select').dispatchEvent(new Event('change'));
  finish();
  await settled();
  await settled();
  assert.equal(node('.curve-stage').getAttribute('aria-label'), 'acc of 1 run; job-a: last 9 at step 1');
});

test('after its end it asks nothing more', async () => {
  await open();
  view.destroy();
  const { length } = context.requests;
  await clock.pass(10_000);
  context.live.dispatchEvent(new Event('status'));
  await settled();
  assert.equal(context.requests.length, length);
});

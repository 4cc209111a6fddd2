import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { clock, texts } from './page.mjs';
import { createContext, drawn, job, jobsFrame } from './views.mjs';
import { createRankView } from '../../../src/trainyard/page/static/rank_view.js';
import { PANELS, jobAddress, parseRoute } from '../../../src/trainyard/page/static/router.js';

process.env.TZ = 'UTC';
clock.install();
let context, view;

const ranks = {
  replica: ['master-0', 'worker-0', 'worker-1'], role: ['master', 'worker', 'worker'], index: ['0', '0', '1'],
  state: ['Running', 'Failed', 'Running'], restarts: [0, 2, 0], attempt: [1, 3, 1], pod: ['m', 'w', 'x'], node: ['n', '<n>', 'n'],
  started: [1100, 1100, null], ended: [null, 1200, null], exitCode: [null, 137, null], reason: ['', 'OOMKilled', ''],
  message: ['', 'killed: <b>memory</b>', ''], step: [100, 10, null], lag: [0, 90, 0],
};
const segment = (start, end, exitCode) => ({ phase: 'running', start, end, exitCode, reason: exitCode ? 'OOMKilled' : '' });
const lane = (replica, pod, attempt, ...segments) => ({ replica, role: 'worker', pod, attempt, segments });

beforeEach(async () => {
  context = createContext((path) => (path.includes('/logs') ? { files: [] } : { series: [], spread: [] }));
  context.store.apply(jobsFrame([job({})]));
  context.store.apply({ type: 'ranks', uid: '0123456789', columns: ranks });
  await open('worker-0');
});
async function open(replica) {
  view = createRankView(context, parseRoute(jobAddress(job({}), 'ranks', replica)));
  document.body.replaceChildren(view.root);
  await drawn();
}
const facts = () => Object.fromEntries(view.root.querySelectorAll('.rank-facts div').map(({ children }) => children.map((node) => node.textContent)));

test('the facts of a rank, those alone that are known', async () => {
  const lanes = [lane('worker-0', 'v', 2, segment(1000, 1060, 1)), lane('worker-0', 'w', 3, segment(1100, 1200, 137))];
  context.store.apply({ type: 'job', uid: '0123456789', job: {}, findings: [], timeline: lanes, forbidden: [], tensorboard: null });
  await drawn();
  assert.deepEqual(facts(), {
    attempt: '3 (2 pods)', 'ran for': '1:40', node: '<n>', pod: 'w', exit: '137 (OOMKilled)',
    restarts: '2, the last run: exit 137 (OOMKilled) at 00:20:00', progress: 'step 10', why: 'killed: <b>memory</b>',
  });
  await open('worker-1');
  assert.deepEqual(facts(), { attempt: '1', node: 'n', pod: 'x', restarts: '0' });
});

test('the log of the rank is followed, and another rank brings its own', async () => {
  assert.deepEqual(view.topics(), ['job:0123456789', 'logs:0123456789:worker-0']);
  view.setRoute(parseRoute(jobAddress(job({}), 'ranks', 'master-0')));
  await drawn();
  assert.deepEqual(view.topics(), ['job:0123456789', 'logs:0123456789:master-0']);
  assert.deepEqual([view.title, texts(view.root, 'h1')], ['master-0 · mnist', ['master-0']]);
});

test('a rank that the job does not have', async () => {
  await open('<worker-9>');
  assert.equal(view.root.querySelector('.rank').hidden, true);
  assert.ok(texts(view.root, '.empty').includes('The job has no rank <worker-9>.'));
});

test('only the events of its pods are shown', async () => {
  const event = (object) => ({ time: 1, count: 1, type: 'Normal', reason: 'Started', object, source: '', message: `of ${object}` });
  context.store.apply({ type: 'events', uid: '0123456789', events: ['Pod/w', 'Pod/ww', 'Pod/x', 'TFJob/mnist'].map(event) });
  await drawn();
  assert.deepEqual(texts(view.root, 'td.message'), ['of Pod/w']);
});

test('what to type for more', async () => {
  assert.deepEqual(texts(view.root, 'code'),
    ['trainyard logs mnist --role worker --index 0 -f', 'kubectl exec -it w -- sh', 'trainyard why mnist']);
  context.store.apply(jobsFrame([job({ live: false, ended: 1900 })]));
  await drawn();
  assert.deepEqual(texts(view.root, 'code'), ['trainyard logs mnist --role worker --index 0']);
});

test('the next unhealthy rank', () => {
  view.keys[']']();
  assert.deepEqual(context.addresses, ['#/jobs/default/TFJob/mnist@01234567/ranks/worker-0']);
});

test('the digits open the panels of the job in the order in which the job shows them', () => {
  for (const [index, [name]] of PANELS.entries()) {
    view.keys[index + 1]();
    assert.equal(context.addresses.at(-1), jobAddress(job({}), name), `${index + 1} is ${name || 'overview'}`);
  }
});

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { clock, texts } from './page.mjs';
import { createContext, drawn, job, jobsFrame } from './views.mjs';
import '../../../src/trainyard/page/static/actions.js'; // the view loads it when it is needed: then it is there at once
import { createJobView, hasEnded } from '../../../src/trainyard/page/static/job_view.js';
import { PANELS, jobAddress, parseRoute } from '../../../src/trainyard/page/static/router.js';

process.env.TZ = 'UTC';
clock.install();
const row = job({});
let context, view, files;

beforeEach(() => {
  files = [];
  context = createContext((path) => {
    if (path.endsWith('/logs')) return { files };
    return path.endsWith('/yaml') ? 'kind: <b>TFJob</b>' : { series: [], spread: [] };
  });
  context.store.hello = { mode: 'cluster', readOnly: false };
});
async function open(panel = '', rows = [row]) {
  if (rows) context.store.apply(jobsFrame(rows));
  view = createJobView(context, parseRoute(jobAddress(row, panel)));
  document.body.replaceChildren(view.root);
  await drawn();
}
async function tell(fields) {
  context.store.apply({ uid: row.uid, ...fields });
  await drawn();
}
const node = (selector) => view.root.querySelector(selector);
const ranks = (...states) => ({
  type: 'ranks', uid: row.uid,
  columns: { replica: states.map((_, index) => `worker-${index}`), role: states.map(() => 'worker'), index: states.map((_, index) => String(index)), state: states },
});
const details = (fields) => ({ type: 'job', job: {}, findings: [], timeline: [], forbidden: [], tensorboard: null, ...fields });

test('a job has ended when it says so, or lives no more', () => {
  assert.deepEqual([{}, { ended: 0 }, { ended: 9 }, { live: false }].map((fields) => hasEnded(job(fields))), [false, true, true, true]);
});

test('the line under the name', async () => {
  await open('', [job({ restarts: 1 })]);
  assert.equal(node('.facts').textContent.replace('TensorBoard ↗ ', ''), 'RunningTFJob1 of 2 running1 restart15:00');
  assert.equal(node('.time').getAttribute('title'), 'since 1970-01-01 00:18:20');
  context.store.apply(jobsFrame([job({ state: '<b>Failed', ended: 1200, live: false, started: null })]));
  await drawn();
  assert.equal(node('.facts').textContent.replace('TensorBoard ↗ ', ''), '<b>FailedTFJob2 replicas3:20of the history');
});

test('before the list of jobs has come it waits, and then says that there is no such job', async () => {
  await open('', null);
  assert.deepEqual([node('.empty').textContent, node('.job').hidden, view.topics()], ['Waiting for the list of jobs ...', true, []]);
  context.store.apply(jobsFrame([]));
  await drawn();
  assert.match(node('.empty').textContent, /^There is no TFJob default\/mnist, run 01234567 here\. All jobs$/);
});

test('a job that goes while it is shown stays, as it was last', async () => {
  await open();
  context.store.apply({ type: 'jobs', gone: [row.uid] });
  await drawn();
  assert.deepEqual([node('.job').hidden, view.topics()[0]], [false, `job:${row.uid}`]);
});

test('each panel is alone but for the overview, which has all but the YAML', async () => {
  const shown = () => view.root.querySelectorAll('.panels section.panel').filter((part) => !part.hidden).map((part) => part.className.split(' ')[1]);
  await open();
  assert.deepEqual(shown(), ['ranks', 'metrics', 'timeline', 'logs', 'events']);
  for (const [panel] of PANELS.slice(1)) {
    view.setRoute({ panel });
    await drawn();
    assert.deepEqual(shown(), [panel]);
    assert.equal(view.root.querySelectorAll('.tabs a').find((link) => link.hasAttribute('aria-current')).getAttribute('href'), jobAddress(row, panel));
  }
});

test('the YAML is read once, as text, and again on demand', async () => {
  await open('yaml');
  await tell(ranks('Running'));
  assert.equal(node('pre.yaml').textContent, 'kind: <b>TFJob</b>');
  const reads = () => context.requests.filter((path) => path.endsWith('/yaml')).length;
  assert.equal(reads(), 1);
  view.root.querySelectorAll('.panel.yaml button')[1].click();
  await drawn();
  assert.equal(reads(), 2);
});

test('of events six are in the overview, and a link to all', async () => {
  await open();
  const events = (number) => Array.from({ length: number }, (_, index) => ({ time: index, count: 1, type: 'Normal', reason: 'a', object: 'b', message: String(index) }));
  await tell({ type: 'events', events: events(6) });
  assert.deepEqual([texts(view.root, 'td.message').length, node('.more').hidden], [6, true]);
  await tell({ type: 'events', events: events(7) });
  assert.deepEqual([texts(view.root, 'td.message').length, node('.more').hidden, node('.more').textContent], [6, false, 'All 7']);
  view.setRoute({ panel: 'events' });
  await drawn();
  assert.equal(texts(view.root, 'td.message').length, 7);
});

test('what the person may not read is told', async () => {
  await open();
  await tell(details({ forbidden: ['list <events>', 'get pods'] }));
  assert.ok(texts(view.root, '.muted').includes('You may not list <events>, get pods: what depends on it is missing here.'));
});

test('a job is changed only in a session that may, and while it exists', async () => {
  await open();
  await tell({ type: 'actions', actions: { generation: 1, verbs: ['delete'], scale: null } });
  assert.deepEqual(texts(view.root, '.actions button'), ['Delete ...']);
  context.store.apply({ type: 'jobs', gone: [row.uid] });
  await drawn();
  assert.deepEqual(texts(view.root, '.actions button'), []);
  context.store.hello.readOnly = true;
  await open();
  assert.equal(node('.actions'), null);
});

test('the log of a job that lives is that of all ranks, after its end that of the first unhealthy one', async () => {
  await open();
  assert.deepEqual(view.topics(), [`job:${row.uid}`, `logs:${row.uid}:*`]);
  await open('', [job({ ended: 1500, state: 'Failed' })]);
  assert.equal(node('.log'), null, 'which one is not known yet');
  await tell(ranks('Succeeded', 'Failed', 'Failed'));
  assert.equal(node('.replica-choice').value, 'worker-1');
});

test('the ranks are listed, those first that need a look', async () => {
  await open('ranks');
  await tell(ranks('Running', ...Array(8).fill('<Failed>'), 'Pending'));
  assert.equal(node('.panel.ranks h2').textContent, 'Ranks 10');
  assert.deepEqual(texts(view.root, '.unhealthy a').slice(0, 2), ['worker-1 <Failed>', 'worker-2 <Failed>']);
  assert.equal(node('.unhealthy').textContent.endsWith('and 3 others: ] goes to the next'), true);
  assert.equal(view.root.querySelectorAll('.ranks tbody tr').length, 10);
  assert.deepEqual(texts(view.root, '.ranks th'), ['Replica', 'State'], 'columns without values are left out');
});

test('keys', async () => {
  await open();
  await tell(ranks('Running', 'Failed', 'Failed'));
  const at = (key) => (view.keys[key](), context.addresses.at(-1));
  PANELS.forEach(([panel], index) => assert.equal(at(index + 1), jobAddress(row, panel)));
  assert.deepEqual([']', '['].map(at), ['worker-1', 'worker-2'].map((rank) => jobAddress(row, 'ranks', rank)));
  assert.equal(at('Escape'), '#/');
  view.setRoute({ panel: 'logs' });
  assert.equal(at('Escape'), jobAddress(row));
});

test('a job of which nothing is known but its row', async () => {
  await open();
  context.store.apply({ type: 'gone', uid: row.uid });
  assert.match(node('.findings').textContent, /Nothing more is known about this job\./);
});

test('after its end it draws nothing', async () => {
  await open();
  view.destroy();
  context.store.apply(jobsFrame([job({ state: 'Failed' })]));
  await drawn();
  assert.equal(node('.facts .state').textContent, 'Running');
});

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { press, texts } from './page.mjs';
import { createContext, drawn, job, jobsFrame } from './views.mjs';
import { chosen } from '../../../src/trainyard/page/static/chosen.js';
import { createJobsView } from '../../../src/trainyard/page/static/jobs_view.js';
import { list, parseRoute } from '../../../src/trainyard/page/static/router.js';

let context, view;

beforeEach(() => {
  chosen.replace([], {});
  Object.assign(list, { address: '#/', selected: '', scroll: 0 });
  context = createContext();
});
async function open(rows, hash = '#/') {
  location.hash = hash;
  if (rows) context.store.apply(jobsFrame(rows));
  view = createJobsView(context, parseRoute(hash));
  document.body.replaceChildren(view.root);
  await drawn();
}
const named = (...names) => names.map((name, index) => job({ uid: `u-${name}`, name, created: 1000 + index }));
const names = () => texts(view.root, 'td.name');
const cells = (name) => texts(view.root, `td.${name}`);
const total = () => view.root.querySelector('.total').textContent;
const sort = async (name) => {
  view.root.querySelector(`th.${name} button`).click();
  await drawn();
};
async function filter(text) {
  const field = view.root.querySelector('input[type=search]');
  field.value = text;
  field.dispatchEvent(new Event('input'));
  await drawn();
}

test('a row of the list', async () => {
  const row = job({ namespace: '<ns>', name: '<b>mnist', state: '<i>Odd', running: 3, replicas: 4, restarts: 2, created: 1000, message: '<script>' });
  await open([row]);
  context.store.apply({ type: 'progress', columns: ['uid', 'step', 'loss', 'shape', 'why'], rows: [[row.uid, 14_201, 0.41234, '09', 'x']] });
  await drawn();
  assert.deepEqual(['name', 'kind', 'job-state', 'ready', 'step', 'loss', 'restarts', 'age', 'why'].map((name) => cells(name)[0]),
    ['<ns>/<b>mnist', 'TFJob', '<i>Odd', '3/4', '14,201', '0.4123', '2', '16m', '<script>']);
  assert.equal(view.root.querySelector('td.name a').getAttribute('href'), '#/jobs/%3Cns%3E/TFJob/%3Cb%3Emnist@01234567');
});

test('what is not known, and what lags in a job that runs', async () => {
  await open([job({ uid: 'a', name: 'ended', ended: 1500, created: null }), job({ uid: 'b', name: 'lags' })]);
  context.store.apply({ type: 'progress', columns: ['uid', 'step', 'loss', 'shape', 'why'], rows: [['b', null, null, '', 'worker-1 lags']] });
  await drawn();
  assert.deepEqual([names(), cells('ready'), cells('age'), cells('why')], [['lags', 'ended'], ['1/2', '-'], ['16m', '-'], ['worker-1 lags', '']]);
});

test('the newest job is the first, and each title orders in its direction', async () => {
  await open(named('b', 'c', 'a'));
  assert.deepEqual(names(), ['a', 'c', 'b']);
  await sort('name');
  assert.deepEqual(names(), ['a', 'b', 'c']);
  await sort('name');
  assert.deepEqual(names(), ['c', 'b', 'a']);
  await sort('age');
  assert.deepEqual(names(), ['a', 'c', 'b']);
});

test('numbers that are not known come last', async () => {
  await open(named('none', 'low', 'high'));
  const columns = ['uid', 'step', 'loss', 'shape', 'why'];
  context.store.apply({ type: 'progress', columns, rows: [['u-low', 0, 0, '', ''], ['u-high', 10, 1e300, '', '']] });
  await sort('step');
  assert.deepEqual(names(), ['high', 'low', 'none']);
  await sort('loss');
  assert.deepEqual(names(), ['low', 'high', 'none']);
});

test('the filter is in the address, and counts what it leaves', async () => {
  await open(named('bert', 'gpt'));
  assert.equal(total(), '2 of 2');
  await filter('name:BER');
  assert.deepEqual([names(), total(), location.hash], [['bert'], '1 of 2', '#/?q=name%3ABER']);
  await filter('nothing');
  assert.deepEqual([names(), total()], [[], '0 of 2']);
  assert.equal(view.root.querySelector('.empty p').textContent, 'No job matches the filter. There are 2 jobs.');
  view.root.querySelector('.empty button').click();
  await drawn();
  assert.deepEqual([names().length, location.hash], [2, '#/']);
});

test('the states are counted, and choose', async () => {
  await open([job({ uid: 'a', state: 'Failed' }), job({ uid: 'b', state: 'Failed' }), job({ uid: 'c', state: '<Odd>' })]);
  const buttons = () => texts(view.root, '.counts button');
  assert.deepEqual(buttons(), ['Running 0', 'Pending 0', 'Failed 2', 'Suspended 0', 'Succeeded 0', '<Odd> 1']);
  const failed = view.root.querySelectorAll('.counts button')[2];
  failed.click();
  await drawn();
  assert.deepEqual([location.hash, failed.getAttribute('aria-pressed'), names().length, buttons()[5]], ['#/?q=state%3Afailed', 'true', 2, '<Odd> 1']);
  failed.click();
  await drawn();
  assert.deepEqual([location.hash, failed.getAttribute('aria-pressed')], ['#/', 'false']);
});

test('the parts of the list', async () => {
  await open([...named('now'), job({ uid: 'old', name: 'old', live: false })]);
  assert.deepEqual([names(), texts(view.root, '.parts button')], [['now'], ['Now 1', 'History 1', 'All 2']]);
  const choose = async (index) => {
    view.root.querySelectorAll('.parts button')[index].click();
    await drawn();
  };
  await choose(1);
  assert.deepEqual([names(), location.hash], [['old'], '#/?show=history']);
  await choose(2);
  assert.deepEqual([names().length, location.hash], [2, '#/?show=all']);
  await choose(0);
  assert.deepEqual([names(), location.hash], [['now'], '#/']);
});

test('where there is only a history all of it is shown', async () => {
  context.store.apply({ type: 'hello', mode: 'history' });
  await open([job({ live: false })]);
  assert.deepEqual([names().length, view.root.querySelector('.parts').hidden], [1, true]);
});

test('without jobs it says what to do', async () => {
  await open(null);
  assert.equal(view.root.querySelector('.empty').textContent, 'Waiting for the list of jobs ...');
  context.store.apply(jobsFrame([]));
  await drawn();
  assert.equal(view.root.querySelector('.empty').textContent, 'No jobs. Start one, and it appears here:trainyard run JOB.yaml');
  await open(null, '#/?show=history');
  assert.equal(view.root.querySelector('.empty').textContent, 'No job has ended yet.');
});

test('keys', async () => {
  await open(named('a', 'b', 'c'));
  const { keys } = view;
  keys.j();
  keys.j();
  await drawn();
  keys.Enter();
  keys.l();
  assert.deepEqual(context.addresses, ['#/jobs/default/TFJob/b@u-b', '#/jobs/default/TFJob/b@u-b/logs']);
  keys[' ']();
  assert.deepEqual(chosen.uids, ['u-b']);
  keys.c();
  assert.equal(context.addresses.at(-1), '#/compare?jobs=u-b');
  await filter('name:a');
  assert.equal(keys[' '](), false, 'the selected row is not shown');
  keys.Escape();
  await drawn();
  assert.equal(names().length, 3);
  const field = view.root.querySelector('input[type=search]');
  assert.equal(press(field, 'ArrowDown').defaultPrevented, true);
  keys.Enter();
  assert.equal(context.addresses.at(-1), '#/jobs/default/TFJob/c@u-c');
});

test('the list is found again as it was left', async () => {
  await open(named('a', 'b'));
  view.keys.j();
  globalThis.scrollY = 123;
  view.destroy();
  globalThis.scrollY = 0;
  assert.deepEqual([list.selected, list.scroll], ['u-b', 123]);
  await open(null);
  assert.equal(scrollY, 123);
});

test('ten thousand jobs', async () => {
  await open(named(...Array.from({ length: 10_000 }, (_, index) => `job-${index}`)));
  assert.deepEqual([total(), names().length < 60, names()[0]], ['10,000 of 10,000', true, 'job-9999']);
});

test('the GPUs of the machine, and who uses them', async () => {
  await open([]);
  const lines = ['0 <b>H100', 'device 0: 20.0 GiB used by another program, pid 4711'];
  const show = async (shown) => {
    context.store.apply({ type: 'devices', lines: shown });
    await import('../../../src/trainyard/page/static/devices_panel.js');
    await drawn();
  };
  assert.equal(view.root.querySelector('.gpus'), null);
  await show(lines);
  const stage = view.root.querySelector('.gpus').parentNode;
  assert.deepEqual([stage.hidden, texts(stage, 'li')], [false, lines]);
  await show([]);
  assert.ok(stage.hidden);
});

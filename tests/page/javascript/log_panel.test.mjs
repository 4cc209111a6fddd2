import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { nextFrame, press, settled, texts } from './page.mjs';
import { createLogPanel } from '../../../src/trainyard/page/static/log_panel.js';
import { Store } from '../../../src/trainyard/page/static/store.js';

const BLOCK = 256 * 1024; // bytes of a range
let files, contents, requests, gate, failure, panel, store, live;

/** A server with the log files of `contents`. While `gate` is a promise, its answers about a file wait for it. */
async function request(path) {
  requests.push(path);
  if (failure) throw failure;
  if (path === 'jobs/u1/logs') return new Response(JSON.stringify({ files }));
  const [, name, query] = /^jobs\/u1\/logs\/([^?]*)\?(.*)$/.exec(path);
  await gate;
  const all = Buffer.from(contents[decodeURIComponent(name)]), parameters = new URLSearchParams(query);
  const offset = Number(parameters.get('offset')), start = offset < 0 ? Math.max(0, all.length + offset) : offset;
  const part = all.subarray(start, start + Number(parameters.get('limit')));
  const headers = { 'X-Log-Offset': String(start), 'X-Log-Next': String(start + part.length), 'X-Log-Size': String(all.length) };
  return new Response(part, { headers });
}

beforeEach(() => {
  [files, contents, requests, gate, failure] = [[], {}, [], null, null];
  [store, live] = [new Store(), new EventTarget()];
});

const file = (name, text, fields = {}) => {
  contents[name] = text;
  files.push({ file: name, replica: 'worker-0', attempt: 1, container: 'main', run: 0, size: Buffer.byteLength(text), ...fields });
};

/** A panel in the page, a thousand pixels high, of a job with three replicas. */
async function open(options = {}) {
  const context = { session: { request, download: async (path) => void requests.push(`download ${path}`) }, store, live };
  const replicas = ['master-0', 'worker-0', 'worker-1'];
  panel = createLogPanel(context, 'u1',
    { replica: '', isEnded: false, hasReplicaChoice: true, replicas: () => replicas, topicsChanged: () => {}, ...options });
  document.body.replaceChildren(panel.root);
  panel.root.querySelector('log-lines').clientHeight = 1000;
  await settled();
}
const node = (selector) => panel.root.querySelector(selector);
const shown = () => (nextFrame(), texts(panel.root, '.text'));
const message = () => node('.empty-log').textContent;

/** Chooses in a field, as a person does. */
async function change(selector, value, type = 'change') {
  node(selector).value = value;
  node(selector).dispatchEvent(new Event(type));
  await settled();
}
async function click(selector) {
  node(selector).click();
  await settled();
}
const log = (lines, fields = {}) => store.apply({ type: 'log', uid: 'u1', lines, leftOut: 0, ...fields });

test('lines are shown as they come, of the chosen replica alone', async () => {
  await open();
  assert.deepEqual([panel.topics(), message()], [['logs:u1:*'], 'No lines yet.']);
  log([['worker-0', '<b>a</b>'], ['worker-1', 'b']]);
  log([['worker-0', 'of another job']], { uid: 'u2' });
  assert.deepEqual([shown(), texts(panel.root, '.replica'), message()], [['<b>a</b>', 'b'], ['worker-0', 'worker-1'], '']);
  await change('.replica-choice', 'worker-1');
  assert.deepEqual([panel.topics(), shown()], [['logs:u1:worker-1'], []]);
  log([['worker-0', 'late'], ['worker-1', 'c']]);
  assert.deepEqual(shown(), ['c']);
});

test('what came too fast is counted', async () => {
  await open();
  log([['worker-0', 'a']], { leftOut: 12_345 });
  assert.match(shown()[0], /^12\.1 KiB not shown: too fast\./);
  assert.equal(shown()[1], 'a');
});

test('a new connection begins with the last lines again', async () => {
  await open();
  log([['worker-0', 'a']]);
  live.dispatchEvent(new Event('connected'));
  assert.deepEqual(shown(), []);
});

test('after its end a panel shows nothing more', async () => {
  await open();
  panel.destroy();
  log([['worker-0', 'a']]);
  assert.deepEqual(shown(), []);
});

test('the newest file of a job that has ended is shown to its end', async () => {
  file('0.log', 'of the first run\n');
  file('1.log', 'one\n<i>two</i>\nthree without an end', { run: 1 });
  await open({ isEnded: true, replica: 'worker-0' });
  assert.deepEqual(panel.topics(), []);
  assert.deepEqual(shown(), ['one', '<i>two</i>', 'three without an end']);
  assert.deepEqual(texts(node('select'), 'option'), ['attempt 1, run 0, 17 B', 'attempt 1, run 1, 35 B']);
});

test('what there is to say without lines', async () => {
  await open({ isEnded: true });
  assert.equal(message(), 'No log was kept.');
  file('0.log', '');
  await open({ isEnded: true });
  assert.equal(message(), 'The job has ended: choose a rank.');
  await open({ isEnded: true, replica: 'worker-0' });
  assert.equal(message(), 'This log is empty.');
  failure = new Error('<no> connection');
  await open();
  assert.equal(message(), 'The log cannot be read: <no> connection');
});

test('containers are named where a replica has several, and a size that is not known is left out', async () => {
  file('a', '', { size: null });
  file('b', '', { container: 'sidecar' });
  await open({ replica: 'worker-0' });
  assert.deepEqual(texts(node('select'), 'option'), ['as it comes', 'attempt 1, run 0 of main', 'attempt 1, run 0 of sidecar, 0 B']);
});

test('a file that grows is read on, and a line is shown when it is whole, also of several bytes a character', async () => {
  file('0.log', 'Zoë\n雪');
  await open({ replica: 'worker-0' });
  await change('select', '0.log');
  assert.deepEqual(shown(), ['Zoë']);
  const bytes = Buffer.from('Zoë\n雪🚂\nnext\n');
  for (const end of [9, 10, 11, 12, bytes.length]) {
    contents['0.log'] = bytes.subarray(0, end);
    live.dispatchEvent(new Event('tick'));
    await settled();
  }
  assert.deepEqual(shown(), ['Zoë', '雪🚂', 'next']);
});

test('a file is not read on while somebody reads it, and shows nothing of the stream', async () => {
  file('0.log', 'a\n');
  await open({ replica: 'worker-0' });
  await change('select', '0.log');
  const number = requests.length;
  await click('button'); // Follow
  live.dispatchEvent(new Event('tick'));
  await settled();
  assert.equal(requests.length, number);
  log([['worker-0', 'of the stream']]);
  assert.deepEqual(shown(), ['a']);
});

const long = (number) => `line ${String(number).padStart(6, '0')} ${'x'.repeat(87)}\n`; // 100 bytes
const lines = (begin, end) => Array.from({ length: end - begin }, (_, index) => long(begin + index)).join('');

test('of a long file the last block is shown, from its first whole line on, and earlier ones on demand', async () => {
  file('0.log', lines(0, 6000));
  await open({ isEnded: true, replica: 'worker-0' });
  const panelLines = node('log-lines');
  assert.equal(panelLines.length, Math.floor(BLOCK / 100));
  assert.equal(node('.earlier').hidden, false);
  assert.equal(node('.earlier').textContent, 'Earlier lines (330 KiB)');
  await click('.earlier');
  await click('.earlier');
  assert.deepEqual([panelLines.length, node('.earlier').hidden], [6000, true]);
  Object.assign(panelLines, { scrollTop: 0, clientHeight: 6000 * 20 });
  assert.deepEqual(shown(), lines(0, 6000).trimEnd().split('\n'));
});

test('another file is read from its beginning, whatever was being read', async () => {
  file('0.log', 'zero\n');
  file('1.log', 'one\n', { run: 1 });
  let finish;
  await open({ replica: 'worker-0' });
  gate = new Promise((resolve) => { finish = resolve; });
  await change('select', '0.log');
  await change('select', '1.log');
  finish();
  await settled();
  assert.deepEqual(shown(), ['one']);
});

test('the rank is chosen by its whole name, and some are suggested', async () => {
  file('0.log', 'a\n');
  await open();
  await change('.replica-choice', 'WORKER', 'input');
  assert.deepEqual(node('datalist').children.map((option) => option.value), ['worker-0', 'worker-1']);
  assert.deepEqual(panel.topics(), ['logs:u1:*']);
  await change('.replica-choice', 'worker-0', 'input');
  assert.deepEqual(panel.topics(), ['logs:u1:worker-0']);
  await change('.replica-choice', '', 'input');
  assert.deepEqual(panel.topics(), ['logs:u1:*']);
});

test('a download takes the shown file, or the newest one of the replica', async () => {
  file('a/0.log', 'a\n');
  file('a/1.log', 'b\n', { run: 1 });
  await open();
  const button = panel.root.querySelectorAll('button').at(-1);
  assert.equal(button.disabled, true);
  await change('.replica-choice', 'worker-0');
  assert.equal(button.disabled, false);
  button.click();
  await change('select', 'a/0.log');
  button.click();
  assert.deepEqual(requests.filter((path) => path.startsWith('download')),
    ['download jobs/u1/logs/a/1.log', 'download jobs/u1/logs/a/0.log']);
});

test('what was found is counted', async () => {
  await open();
  log([['worker-0', 'hit'], ['worker-0', 'miss'], ['worker-0', 'Hit']]);
  await change('input[type=search]', 'hit', 'input');
  assert.equal(node('.matches').textContent, '2 of 2');
  press(node('input[type=search]'), 'Enter');
  assert.equal(node('.matches').textContent, '1 of 2');
  press(node('input[type=search]'), 'Enter', { shiftKey: true });
  assert.equal(node('.matches').textContent, '2 of 2');
  await change('input[type=search]', 'nothing', 'input');
  assert.equal(node('.matches').textContent, 'none');
  await change('input[type=search]', '', 'input');
  assert.equal(node('.matches').textContent, '');
});

test('earlier lines are those of the file that is shown', async () => {
  file('0.log', lines(0, 3000));
  file('1.log', 'first\n', { run: 1 });
  let finish;
  await open({ replica: 'worker-0' });
  await change('select', '0.log');
  gate = new Promise((resolve) => { finish = resolve; });
  await click('.earlier');
  await change('select', '1.log');
  finish();
  await settled();
  assert.deepEqual([shown(), node('.earlier').hidden], [['first'], true]);
});

test('a line that is longer than a block is shown in parts', async () => {
  file('0.log', `before\n${'y'.repeat(2 * BLOCK)}\n`);
  await open({ isEnded: true, replica: 'worker-0' });
  assert.deepEqual([message(), node('.earlier').textContent], ['', 'Earlier lines (256 KiB)']);
  await click('.earlier');
  await click('.earlier');
  assert.equal(node('.earlier').hidden, true);
  node('log-lines').scrollTop = 0;
  assert.deepEqual(shown().map((text) => text.length), ['before'.length, 1, BLOCK, BLOCK - 1]);
});

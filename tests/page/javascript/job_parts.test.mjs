import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nextFrame, texts } from './page.mjs';
import { choice, commandLines, eventsTable, findingsBox, panel } from '../../../src/trainyard/page/static/job_parts.js';

process.env.TZ = 'UTC';
const finding = (fields) => ({ level: 'error', what: 'It failed', where: '', evidence: [], fix: '', ...fields });

test('findings are text, with code in backquotes', () => {
  const box = findingsBox();
  assert.equal(box.root.textContent, 'Looking at the job ...');
  box.show([finding({ what: '<b>OOM</b>', where: 'pod <p>', evidence: ['line <1>', 'line 2'], fix: 'Set `a: <1>`, and run `b`.' }), finding({ fix: '`a' })]);
  assert.deepEqual(texts(box.root, 'code'), ['a: <1>', 'b', 'a']);
  assert.deepEqual(texts(box.root, 'pre'), ['line <1>\nline 2']);
  assert.match(box.root.textContent, /error <b>OOM<\/b>seen in pod <p>line <1>\nline 2Do: Set a: <1>, and run b\./);
  assert.deepEqual(box.root.querySelectorAll('b').map(({ textContent }) => textContent), ['Do: ', 'Do: ']);
});

test('findings that are the same are not drawn again: somebody may be selecting their text', () => {
  const box = findingsBox();
  box.show([finding({})]);
  const [item] = box.root.querySelectorAll('li');
  box.show([finding({})]);
  assert.equal(box.root.querySelectorAll('li')[0], item);
  box.show([finding({ what: 'another' })]);
  assert.notEqual(box.root.querySelectorAll('li')[0], item);
});

const event = (time, message, fields) => ({ time, count: 1, type: 'Normal', reason: 'Started', object: 'Pod/a', source: '', message, ...fields });
/** The table of events in the page. */
function shownEvents(events, limit) {
  const table = eventsTable();
  document.body.replaceChildren(table.root);
  table.show(events, limit);
  nextFrame();
  return table.root;
}
const messages = (root) => texts(root, 'td.message');

test('the newest event is the first, and of those of one second the last', () => {
  const root = shownEvents([event(10, 'a'), event(20, 'b'), event(20, 'c'), event(null, 'never'), event(15, '<b>d')]);
  assert.deepEqual(messages(root), ['c', 'b', '<b>d', 'a', 'never']);
  assert.deepEqual(texts(root, 'td.time'), ['00:00:20', '00:00:20', '00:00:15', '00:00:10', '-']);
});

test('an event is told with its count, and a warning with its tone', () => {
  const root = shownEvents([event(1, 'a', { count: 3, type: 'Warning' }), event(1, 'a')]);
  assert.deepEqual(texts(root, 'td.reason'), ['Started', 'Started ×3']);
  assert.deepEqual(root.querySelectorAll('td .state').map((node) => node.getAttribute('data-tone')), ['none', 'wait']);
});

test('events may be limited, may be the same, and may be none', () => {
  assert.deepEqual(messages(shownEvents(Array.from({ length: 10_000 }, (_, index) => event(index, String(index))), 2)), ['9999', '9998']);
  assert.equal(messages(shownEvents([event(1, 'same'), event(1, 'same'), event(1, 'same')])).length, 3);
  const root = shownEvents([]);
  assert.deepEqual([root.querySelector('virtual-table').hidden, root.querySelector('.muted').hidden], [true, false]);
});

test('commands are text, each with a button', () => {
  const lines = commandLines();
  lines.show(['kubectl get <pod>', 'b']);
  assert.deepEqual([texts(lines.root, 'code'), texts(lines.root, 'button')], [['kubectl get <pod>', 'b'], ['Copy', 'Copy']]);
  lines.show(['b']);
  assert.deepEqual(texts(lines.root, 'code'), ['b']);
});

test('a choice says which is chosen', () => {
  const chosen = [], buttons = choice('Axis', (name) => chosen.push(name));
  buttons.show([['x', 'X'], ['y', 'Y']], 'y');
  const [x, y] = buttons.root.children;
  assert.deepEqual([x, y].map((node) => node.getAttribute('aria-pressed')), ['false', 'true']);
  x.click();
  assert.deepEqual(chosen, ['x']);
});

test('a panel has its title and its tools', () => {
  const root = panel('logs', '<Log>', ['tool'], []);
  assert.deepEqual([root.className, root.getAttribute('aria-label'), root.textContent], ['panel logs', '<Log>', '<Log>tool']);
});

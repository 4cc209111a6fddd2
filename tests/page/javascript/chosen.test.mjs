import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import './page.mjs';
import { element } from '../../../src/trainyard/page/static/dom.js';
import { MOST, choiceColumn, chosen } from '../../../src/trainyard/page/static/chosen.js';

let changes = 0;
chosen.addEventListener('change', () => changes++);
beforeEach(() => {
  chosen.replace([], {});
  changes = 0;
});
const many = Array.from({ length: 10_000 }, (_, index) => `u${index}`);

test('a job is chosen, and not any more', () => {
  chosen.toggle('a');
  chosen.toggle('b');
  assert.deepEqual([chosen.uids, chosen.text], [['a', 'b'], '2 of at most 8 chosen to compare']);
  chosen.toggle('a');
  assert.deepEqual([chosen.uids, chosen.address], [['b'], '#/compare?jobs=b']);
  chosen.toggle('b');
  assert.deepEqual([chosen.uids, chosen.text, chosen.address, changes], [[], '', '#/compare', 4]);
});

test('one more than the most is not chosen, and that is said', () => {
  many.slice(0, MOST).forEach((uid) => chosen.toggle(uid));
  assert.equal(chosen.text, '8 of at most 8 chosen to compare');
  chosen.toggle('further');
  assert.deepEqual([chosen.uids.length, chosen.uids.includes('further')], [MOST, false]);
  assert.match(chosen.text, /^At most 8 jobs/);
  chosen.toggle('u0');
  assert.equal(chosen.text, '7 of at most 8 chosen to compare');
});

test('an address replaces the choice, with its axis and its metric', () => {
  chosen.replace(many, { x: 'time', metric: '' });
  assert.deepEqual(chosen.uids, many.slice(0, MOST));
  assert.match(chosen.address, /^#\/compare\?jobs=u0,.*,u7&x=time$/);
});

test('the box of a row', () => {
  const cell = element('td', {}, choiceColumn.create()), line = element('tr', {}, cell), box = cell.querySelector('input');
  line.row = { uid: 'a', namespace: 'ns', name: '<b>' };
  choiceColumn.update(cell, line.row);
  assert.deepEqual([box.checked, box.getAttribute('aria-label')], [false, 'Compare ns/<b>']);
  box.dispatchEvent(new Event('change'));
  choiceColumn.update(cell, line.row);
  assert.deepEqual([chosen.uids, box.checked], [['a'], true]);
});

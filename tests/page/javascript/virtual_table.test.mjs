import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { nextFrame, texts } from './page.mjs';
import { element } from '../../../src/trainyard/page/static/dom.js';
import '../../../src/trainyard/page/static/virtual_table.js';

const HEIGHT = 30, TOP = 100; // of a row, and where the table begins in the page, in CSS pixels
let table, events;

const rows = (number, begin = 0) => Array.from({ length: number }, (_, index) => ({ key: `row-${begin + index}`, text: `<i>${begin + index}` }));

beforeEach(() => {
  globalThis.scrollY = 0;
  table = document.createElement('virtual-table');
  table.getBoundingClientRect = () => ({ top: TOP - scrollY });
  document.body.replaceChildren(table);
  const columns = [
    {
      name: 'key', title: 'Key', sort: (row) => row.key, create: () => element('a'),
      update: (cell, row) => { cell.firstChild.textContent = row.key; },
    },
    { name: 'text', title: '<b>Text', update: (cell, row) => { cell.textContent = row.text; } },
  ];
  table.define('Rows', columns, (row) => row.key);
  table.querySelector('thead tr').offsetHeight = 40;
  table.querySelector('tbody').insertBefore = function (node, position) {
    node.rect = { top: 0, height: HEIGHT }; // what the browser would measure
    return document.body.insertBefore.call(this, node, position);
  };
  events = [];
  for (const name of ['open', 'sort']) table.addEventListener(name, ({ detail }) => events.push([name, detail.key ?? detail]));
});

const lines = () => table.querySelectorAll('tbody tr');
const keys = () => (nextFrame(), nextFrame(), texts(table, 'tbody a'));
const names = (begin, end) => rows(end - begin, begin).map(({ key }) => key);

/** A person scrolls the page. */
function scroll(y) {
  globalThis.scrollY = y;
  dispatchEvent(new Event('scroll'));
}

test('cells are text, and screen readers get the place of a row', () => {
  table.setRows(rows(3));
  assert.deepEqual(keys(), names(0, 3));
  assert.deepEqual(texts(table, 'tbody td'), ['row-0', '<i>0', 'row-1', '<i>1', 'row-2', '<i>2']);
  assert.deepEqual(texts(table, 'th'), ['Key', '<b>Text']);
  assert.equal(table.querySelector('table').getAttribute('aria-rowcount'), '4');
  assert.deepEqual(lines().map((line) => line.getAttribute('aria-rowindex')), ['2', '3', '4']);
});

test('up to two hundred rows all have elements, of more those near the visible part', () => {
  table.setRows(rows(200));
  for (const y of [TOP + 150 * HEIGHT, 0]) {
    scroll(y);
    assert.equal(keys().length, 200);
  }
  table.setRows(rows(201));
  assert.deepEqual(keys(), names(0, 28), '600 pixels, and eight rows more');
});

test('of ten thousand rows those that are seen have elements, wherever the page is scrolled', () => {
  table.setRows(rows(10_000));
  keys();
  scroll(TOP + 5000 * HEIGHT); // row 5000 is right below the head, which stays at the top
  assert.deepEqual(keys(), names(4992, 5028));
  assert.deepEqual([table.style.paddingTop, table.style.paddingBottom], [`${4992 * HEIGHT}px`, `${(10_000 - 5028) * HEIGHT}px`]);
  scroll(1e9);
  assert.deepEqual(keys(), names(9980, 10_000));
  scroll(0);
  assert.deepEqual(keys(), names(0, 28));
});

test('no rows', () => {
  table.setRows(rows(3));
  keys();
  table.setRows([]);
  assert.deepEqual(keys(), []);
  table.move(1);
  assert.deepEqual([table.selected, table.selectedRow], ['', undefined]);
});

test('rows that are new above the visible ones do not move those', () => {
  table.setRows(rows(1000));
  keys();
  scroll(TOP + 100 * HEIGHT);
  table.setRows([...rows(5, 5000), ...rows(1000)]);
  assert.equal(scrollY, TOP + 105 * HEIGHT);
  table.setRows(rows(1000));
  assert.equal(scrollY, TOP + 100 * HEIGHT);
});

test('another order, the top of the page, and a visible row that is gone do not scroll', () => {
  table.setRows(rows(1000));
  keys();
  table.setRows([...rows(5, 5000), ...rows(1000)]);
  assert.equal(scrollY, 0);
  scroll(TOP); // the first row is the first that is seen
  table.setRows([...rows(5, 7000), ...rows(5, 5000), ...rows(1000)]);
  assert.equal(scrollY, TOP);
  scroll(TOP + 100 * HEIGHT);
  table.setRows(rows(1000).reverse(), false);
  assert.equal(scrollY, TOP + 100 * HEIGHT);
  table.setRows(rows(50));
  assert.equal(scrollY, TOP + 100 * HEIGHT);
});

test('the selection goes from row to row, and stays within them', () => {
  table.setRows(rows(3));
  keys();
  const moved = (distance) => (table.move(distance), table.selected);
  assert.deepEqual([1, 1, 1, 1, -1, -1, -1, -1].map(moved), ['row-0', 'row-1', 'row-2', 'row-2', 'row-1', 'row-0', 'row-0', 'row-0']);
  assert.equal(document.activeElement, lines()[0].querySelector('a'));
  assert.equal(lines()[0].getAttribute('aria-selected'), 'true');
  table.selected = '';
  assert.equal(moved(-1), 'row-2', 'backwards it begins at the end');
});

test('the selected row is scrolled into view', () => {
  table.setRows(rows(1000));
  keys();
  table.selected = 'row-500';
  table.move(1);
  assert.equal(scrollY, TOP + 40 + 502 * HEIGHT - 600 + 4, 'at the bottom');
  scroll(TOP + 900 * HEIGHT);
  table.move(1);
  assert.equal(scrollY, TOP + 502 * HEIGHT, 'right below the head');
  table.selected = '';
  table.move(1);
  assert.equal(table.selected, 'row-502', 'it begins with the first row that is seen');
});

test('a selected row is known while it is among the rows', () => {
  table.setRows(rows(3));
  table.selected = 'row-1';
  assert.equal(table.selectedRow.key, 'row-1');
  table.setRows(rows(1));
  assert.equal(table.selectedRow, undefined);
});

test('a click opens the row, but for a link, with Control, and while text is selected', () => {
  table.setRows(rows(3));
  keys();
  const [, text] = lines()[1].children;
  text.click();
  lines()[1].querySelector('a').click();
  text.dispatchEvent(Object.assign(new Event('click', { bubbles: true }), { ctrlKey: true }));
  globalThis.getSelection = () => 'selected';
  text.click();
  globalThis.getSelection = () => '';
  assert.deepEqual(events, [['open', 'row-1']]);
});

test('a title sorts where its column can, and says how', () => {
  const buttons = table.querySelectorAll('th button');
  assert.equal(buttons.length, 1);
  buttons[0].click();
  assert.deepEqual(events, [['sort', 'key']]);
  const order = () => table.querySelectorAll('th').map((head) => head.getAttribute('aria-sort'));
  table.showOrder('key', true);
  assert.deepEqual(order(), ['descending', null]);
  table.showOrder('text', false);
  assert.deepEqual(order(), [null, 'ascending']);
});

test('out of the page it does not listen', () => {
  table.setRows(rows(10_000));
  keys();
  table.remove();
  scroll(TOP + 5000 * HEIGHT);
  assert.deepEqual(keys(), names(0, 28));
});

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { nextFrame, texts } from './page.mjs';
import '../../../src/trainyard/page/static/log_lines.js';

const HEIGHT = 20; // of a line, in CSS pixels

/** Lines in a page, 100 pixels high, with the names of its events and their detail. */
function shownLines() {
  const lines = document.createElement('log-lines');
  let top = 0;
  Object.defineProperties(lines, {
    clientHeight: { value: 100 },
    scrollHeight: { get: () => Math.max(100, lines.length * HEIGHT) },
    scrollTop: { get: () => top, set: (value) => { top = Math.max(0, Math.min(value, lines.scrollHeight - 100)); } },
  });
  document.body.replaceChildren(lines);
  const events = [];
  for (const name of ['follow', 'find']) lines.addEventListener(name, ({ detail }) => events.push([name, detail]));
  return { lines, events };
}

const numbered = (begin, end, text = (number) => `line ${number}`) =>
  Array.from({ length: end - begin }, (_, index) => ({ replica: 'worker-0', text: text(begin + index) }));
const textsOf = (lines) => (nextFrame(), texts(lines, '.text'));
/** The marked words, and the text of the line that is shown as the current one. */
const current = (lines) => (nextFrame(), texts(lines, '.current .text'));

/** A person scrolls. */
function scrollTo(lines, top) {
  lines.scrollTop = top;
  lines.dispatchEvent(new Event('scroll'));
}

test('lines are text: markup is not parsed, codes of a terminal are taken out', () => {
  const { lines } = shownLines();
  lines.appendLines([
    { replica: '<b>worker-0</b>', text: '<img src=x onerror=alert(1)>\x1b[31m!\x1b[0m\x07' },
    { replica: '', text: '7 lines not shown', isNote: true },
  ]);
  assert.deepEqual(textsOf(lines), ['<img src=x onerror=alert(1)>!', '7 lines not shown']);
  assert.deepEqual(texts(lines, '.replica'), ['<b>worker-0</b>', '']);
  assert.equal(lines.querySelector('img') ?? lines.querySelector('b'), null);
  assert.equal(lines.querySelectorAll('.note').length, 1);
});

test('the names of replicas have one width, and are left out in the log of a replica', () => {
  const { lines } = shownLines();
  lines.appendLines([{ replica: 'a', text: 'x' }, { replica: 'worker-10', text: 'y' }]);
  nextFrame();
  assert.deepEqual(lines.querySelectorAll('.replica').map((node) => node.style.minWidth), ['9ch', '9ch']);
  lines.clear(false);
  lines.appendLines([{ replica: 'worker-10', text: 'x' }]);
  assert.deepEqual([textsOf(lines), texts(lines, '.replica')], [['x'], ['']]);
});

test('only lines near the visible part have elements', () => {
  const { lines } = shownLines();
  lines.appendLines(numbered(0, 10_000));
  assert.deepEqual(textsOf(lines), numbered(9985, 10_000).map(({ text }) => text), 'it follows, with ten lines above');
  const [inner] = lines.children;
  assert.deepEqual([inner.style.paddingTop, inner.style.paddingBottom], [`${9985 * HEIGHT}px`, '0px']);
  scrollTo(lines, 100 * HEIGHT);
  assert.deepEqual(textsOf(lines), numbered(90, 115).map(({ text }) => text));
  assert.deepEqual([inner.style.paddingTop, inner.style.paddingBottom], [`${90 * HEIGHT}px`, `${(10_000 - 115) * HEIGHT}px`]);
});

test('no lines', () => {
  const { lines } = shownLines();
  lines.appendLines([]);
  lines.prependLines([]);
  lines.find('x');
  lines.findNext(1);
  assert.deepEqual([textsOf(lines), lines.length], [[], 0]);
});

test('scrolling back ends the following, scrolling to the end begins it', () => {
  const { lines, events } = shownLines();
  lines.appendLines(numbered(0, 100));
  nextFrame();
  assert.equal(lines.scrollTop, 1900, 'the end');
  scrollTo(lines, 1899);
  assert.equal(lines.follows, true, 'a pixel is the rounding of the browser');
  scrollTo(lines, 1896);
  assert.equal(lines.follows, true, 'it is still at the end');
  scrollTo(lines, 1000);
  assert.equal(lines.follows, false);
  lines.appendLines(numbered(100, 110));
  nextFrame();
  assert.equal(lines.scrollTop, 1000);
  scrollTo(lines, 2096);
  assert.equal(lines.follows, true, 'four pixels from the end');
  assert.deepEqual(events, [['follow', false], ['follow', true]]);
});

test('of twenty thousand lines the oldest ones are dropped', () => {
  const { lines } = shownLines();
  lines.appendLines(numbered(0, 20_000));
  assert.equal(lines.length, 20_000);
  lines.appendLines(numbered(20_000, 20_001));
  assert.equal(lines.length, 18_000);
  assert.equal(textsOf(lines).at(-1), 'line 20000');
});

test('what is read stays where it is when the oldest lines are dropped, and when earlier ones come', () => {
  const { lines } = shownLines();
  lines.appendLines(numbered(0, 20_000));
  nextFrame();
  scrollTo(lines, 5000 * HEIGHT);
  nextFrame();
  lines.appendLines(numbered(20_000, 20_001));
  assert.equal(lines.scrollTop, (5000 - 2001) * HEIGHT);
  assert.equal(textsOf(lines)[10], 'line 5000');
  lines.prependLines(numbered(1901, 2001));
  assert.equal(lines.scrollTop, (5000 - 1901) * HEIGHT);
  lines.dispatchEvent(new Event('scroll')); // the browser sends it when scrollTop has changed
  assert.equal(textsOf(lines)[10], 'line 5000');
});

test('finding shows the last line with the text, whatever its case', () => {
  const { lines, events } = shownLines();
  lines.appendLines([...numbered(0, 50), { replica: 'a', text: 'An ERROR, and another Error' }, ...numbered(51, 100)]);
  lines.find('error');
  assert.deepEqual(current(lines), ['An ERROR, and another Error']);
  assert.deepEqual(texts(lines, 'mark'), ['ERROR', 'Error']);
  assert.deepEqual(events, [['follow', false], ['find', { position: 1, total: 1 }]]);
  assert.equal(lines.scrollTop, 50 * HEIGHT - 50);
  lines.find('');
  assert.deepEqual([current(lines), texts(lines, 'mark'), events.at(-1)], [[], [], ['find', { position: 0, total: 0 }]]);
});

test('a text to find is no pattern and no markup, and is not found in names and notes', () => {
  const { lines } = shownLines();
  lines.appendLines([
    { replica: 'x.*', text: '<mark>a.*b</mark>' }, { replica: '', text: 'a note with .*', isNote: true }, { replica: 'a', text: 'axb' },
  ]);
  lines.find('.*');
  assert.deepEqual(current(lines), ['<mark>a.*b</mark>']);
  assert.deepEqual(texts(lines, 'mark'), ['.*']);
  lines.find('<mark>');
  assert.deepEqual([current(lines), texts(lines, 'mark')], [['<mark>a.*b</mark>'], ['<mark>']]);
});

test('the lines with the text are gone through in both directions, around the end', () => {
  const { lines, events } = shownLines();
  lines.appendLines(numbered(0, 40, (number) => (number % 10 ? '-' : `hit ${number}`)));
  lines.find('hit');
  const next = (distance) => (lines.findNext(distance), current(lines)[0]);
  assert.deepEqual([-1, -1, -1, -1, 1, 1].map(next), ['hit 20', 'hit 10', 'hit 0', 'hit 30', 'hit 0', 'hit 10']);
  assert.deepEqual(events.at(-1), ['find', { position: 2, total: 4 }]);
});

test('what is marked is what was found, also where lower case is longer', () => {
  const { lines } = shownLines();
  lines.appendLines([{ replica: 'a', text: 'İİİ error İ Error' }]);
  lines.find('ERROR');
  assert.deepEqual([current(lines), texts(lines, 'mark')], [['İİİ error İ Error'], ['error', 'Error']]);
  lines.find('İ');
  assert.deepEqual([current(lines), texts(lines, 'mark')], [['İİİ error İ Error'], ['İ', 'İ', 'İ', 'İ']]);
});

test('lines that come later are found, too', () => {
  const { lines, events } = shownLines();
  lines.find('hit');
  lines.appendLines([{ replica: 'a', text: 'Hit' }, { replica: 'a', text: 'miss' }]);
  assert.deepEqual(events.at(-1), ['find', { position: 0, total: 1 }]);
  lines.findNext(-1);
  assert.deepEqual([current(lines), events.at(-1)], [['Hit'], ['find', { position: 1, total: 1 }]]);
});

test('going back through lines that came later begins with the last one', () => {
  const { lines, events } = shownLines();
  lines.find('hit');
  lines.appendLines(numbered(0, 3, (number) => `hit ${number}`));
  lines.findNext(-1);
  assert.deepEqual([current(lines), events.at(-1)], [['hit 2'], ['find', { position: 3, total: 3 }]]);
  lines.clear();
  lines.appendLines(numbered(0, 3, (number) => `hit ${number}`));
  lines.findNext(1);
  assert.deepEqual([current(lines), events.at(-1)], [['hit 0'], ['find', { position: 1, total: 3 }]]);
});

test('the line that was found stays the current one when earlier lines come, or are dropped', () => {
  const { lines, events } = shownLines();
  lines.appendLines(numbered(0, 20_000, (number) => (number % 1000 ? '-' : `hit ${number}`)));
  lines.find('hit');
  for (let times = 0; times < 9; times++) lines.findNext(-1);
  assert.deepEqual(events.at(-1), ['find', { position: 11, total: 20 }]);
  assert.deepEqual(current(lines), ['hit 10000']);
  lines.appendLines(numbered(20_000, 20_001)); // 0, 1000 and 2000 are dropped
  assert.deepEqual(events.at(-1), ['find', { position: 8, total: 17 }]);
  assert.deepEqual(current(lines), ['hit 10000']);
  lines.prependLines(numbered(1000, 2001, (number) => `hit ${number}`));
  assert.deepEqual(events.at(-1), ['find', { position: 1009, total: 1018 }]);
  lines.dispatchEvent(new Event('scroll'));
  assert.deepEqual(current(lines), ['hit 10000']);
  lines.findNext(-1);
  assert.deepEqual(current(lines), ['hit 9000']);
});

test('outside of the page nothing is drawn, and everything when it is there again', () => {
  const { lines } = shownLines();
  lines.remove();
  lines.appendLines(numbered(0, 3));
  assert.deepEqual(textsOf(lines), []);
  document.body.append(lines);
  lines.draw();
  assert.deepEqual(textsOf(lines), ['line 0', 'line 1', 'line 2']);
});

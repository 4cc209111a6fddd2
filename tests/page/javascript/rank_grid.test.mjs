import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { media, nextFrame, pointer, press, resize } from './page.mjs';
import { readRanks } from '../../../src/trainyard/page/static/ranks.js';
import '../../../src/trainyard/page/static/rank_grid.js';

let grid, opened;

beforeEach(() => {
  grid = document.createElement('rank-grid');
  document.body.replaceChildren(grid);
  resize(grid.stage, 100);
  opened = [];
  grid.addEventListener('open', ({ detail }) => opened.push(detail));
});

/** A list of ranks: their number by role. */
function ranksOf(numbers, state = () => 'Running') {
  const names = Object.entries(numbers).flatMap(([role, number]) => Array.from({ length: number }, (_, index) => [role, index]));
  return readRanks({
    replica: names.map(([role, index]) => `${role}-${index}`), role: names.map(([role]) => role),
    index: names.map(([, index]) => String(index)), state: names.map((_, position) => state(position)),
  });
}
/** What is drawn of these ranks: the calls of the canvas. */
function drawn(list, colouring = 'state') {
  grid.show(list, colouring);
  const { calls } = grid.canvas.getContext('2d');
  calls.length = 0;
  nextFrame();
  return calls;
}
const boxes = (calls, colour) => calls.filter(([name, style]) => name === 'fillRect' && style === colour).map(([, , ...box]) => box);
const readout = () => grid.querySelector('.readout').textContent;

test('each rank has a cell, below the name of its role', () => {
  const calls = drawn(ranksOf({ worker: 4, ps: 1 }));
  assert.deepEqual(boxes(calls, '--run of HTML'), [[0, 20, 23, 23], [26, 20, 23, 23], [52, 20, 23, 23], [0, 46, 23, 23], [0, 96, 23, 23]]);
  const labels = calls.filter(([name]) => name === 'fillText').map(([, , text]) => text);
  assert.deepEqual(labels, ['worker 4', '0', '1', '2', '3', 'ps ', '0']);
  assert.deepEqual([grid.canvas.width, grid.canvas.style.height], [200, '126px']);
});

test('many ranks have smaller cells, until all are within the height', () => {
  grid.maxHeight = 240;
  const size = (number) => boxes(drawn(ranksOf({ worker: number })), '--run of HTML')[0][2];
  assert.deepEqual([size(1), size(24), size(25), size(1000)], [23, 23, 19, 3.5]);
  assert.equal(boxes(drawn(ranksOf({ worker: 10_000 })), '--run of HTML').length, 10_000, 'the smallest, though they are higher');
  assert.equal(grid.heightFor(100), 20 + Math.ceil(10_000 / 33) * 3 + 4);
});

test('each state has a shape of its own', () => {
  const shape = (state) => drawn(ranksOf({ worker: 1 }, () => state)).map(([name]) => name)
    .filter((name) => !['fillText', 'setTransform', 'clearRect'].includes(name)).join();
  assert.deepEqual(['Running', 'Failed', 'Pending', 'Succeeded', 'Suspended'].map(shape), [
    'fillRect',
    'fillRect,beginPath,moveTo,lineTo,moveTo,lineTo,stroke',
    'fillRect,strokeRect,save,beginPath,rect,clip,restore',
    'beginPath,arc,fill',
    'strokeRect',
  ]);
});

test('a level fills its cell from below, and a strange colouring is that of states', () => {
  const list = readRanks({ replica: ['a-0', 'a-1'], role: ['a', 'a'], index: ['0', '1'], state: ['Running', 'Running'], cpu: [4, 1] });
  const calls = drawn(list, 'cpu');
  assert.deepEqual(boxes(calls, '--accent of HTML'), [[0, 20, 23, 23], [26, 37, 23, 6]]);
  assert.deepEqual(boxes(calls, '--sunken of HTML'), [[0, 20, 23, 0], [26, 20, 23, 17]]);
  assert.equal(boxes(drawn(list, 'nothing'), '--run of HTML').length, 2);
});

test('a rank that is pointed at is told, a click opens it', () => {
  drawn(ranksOf({ worker: 4, ps: 1 }));
  const point = (x, y) => (grid.canvas.dispatchEvent(pointer('pointermove', x, y)), readout());
  const hint = 'Point at a rank, or use the arrow keys; Enter opens it.';
  assert.equal(point(0, 20), 'worker-0 · Running');
  assert.equal(point(77, 45), 'worker-2 · Running');
  assert.equal(point(1, 46), 'worker-3 · Running');
  for (const [x, y] of [[27, 46], [79, 21], [1, 19], [1, 500]]) assert.equal(point(x, y), hint, `${x} ${y}`);
  assert.equal(point(1, 97), 'ps-0 · Running');
  grid.canvas.dispatchEvent(new Event('pointerleave'));
  assert.equal(readout(), hint);
  grid.canvas.dispatchEvent(pointer('click', 27, 21));
  grid.canvas.dispatchEvent(pointer('click', 79, 21));
  assert.deepEqual(opened, ['worker-1']);
});

test('keys go from rank to rank, and stay within them', () => {
  drawn(ranksOf({ worker: 4, ps: 1 }));
  const at = (key) => (press(grid.canvas, key), readout().split(' ')[0]);
  assert.deepEqual(['ArrowRight', 'ArrowRight', 'ArrowDown', 'ArrowUp', 'End', 'ArrowRight', 'Home', 'ArrowLeft', 'ArrowUp'].map(at),
    ['worker-0', 'worker-1', 'ps-0', 'worker-1', 'ps-0', 'ps-0', 'worker-0', 'worker-0', 'worker-0']);
  assert.equal(press(grid.canvas, 'Enter').defaultPrevented, true);
  assert.deepEqual(opened, ['worker-0']);
  assert.equal(press(grid.canvas, 'x').defaultPrevented, false, 'a key of the page');
  assert.ok(drawn(ranksOf({ worker: 1 })).some(([name, , ...box]) => name === 'strokeRect' && box.join() === '-1,19,25,25'));
});

test('without ranks keys and clicks do nothing', () => {
  drawn(readRanks(undefined));
  for (const key of ['ArrowRight', 'End', 'Enter']) press(grid.canvas, key);
  grid.canvas.dispatchEvent(pointer('click', 1, 30));
  assert.deepEqual([opened, readout()], [[], 'Point at a rank, or use the arrow keys; Enter opens it.']);
});

test('those who do not see it get a sentence', () => {
  drawn(ranksOf({ worker: 3 }, (index) => (index ? 'Running' : '<Failed>')));
  const summary = grid.querySelector('.hidden');
  assert.equal(summary.textContent, '3 ranks: 1 <Failed>, 2 Running.');
  assert.equal(grid.canvas.getAttribute('aria-describedby'), summary.id);
});

test('it is drawn again for another width and another theme while it is in the page', () => {
  const isDrawn = (action) => {
    const { calls } = grid.canvas.getContext('2d');
    calls.length = 0;
    action();
    nextFrame();
    return calls.length > 0;
  };
  const theme = () => [...media.values()][0].dispatchEvent(new Event('change'));
  drawn(ranksOf({ worker: 3 }));
  assert.equal(isDrawn(() => resize(grid.stage, 200.9)), true);
  assert.equal(grid.width, 200);
  assert.equal(isDrawn(() => resize(grid.stage, 200.1)), false);
  assert.equal(isDrawn(() => resize(grid.stage, 0)), false, 'it is hidden');
  assert.equal(isDrawn(theme), true);
  grid.remove();
  assert.equal(isDrawn(theme), false);
  document.body.append(grid);
  assert.equal(isDrawn(theme), true);
});

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { nextFrame, pointer, press, resize } from './page.mjs';
import '../../../src/trainyard/page/static/timeline.js';

process.env.TZ = 'UTC';
const WIDTH = 1000;
let timeline, opened;

const segment = (phase, start, end = null, exitCode = null) => ({ phase, start, end, exitCode, reason: '' });
const lane = (replica, ...segments) => ({ replica, role: replica.replace(/-\d+$/, ''), attempt: 1, segments });

beforeEach(() => {
  timeline = document.createElement('attempt-timeline');
  document.body.replaceChildren(timeline);
  resize(timeline.stage, WIDTH);
  opened = [];
  timeline.addEventListener('open', ({ detail }) => opened.push(detail));
});

/** What is drawn of these lanes at a time, in Unix seconds: the calls of the canvas. */
function drawn(lanes, now) {
  timeline.show(lanes, now);
  const { calls } = timeline.canvas.getContext('2d');
  calls.length = 0;
  nextFrame();
  return calls;
}
const labels = (calls) => calls.filter(([name]) => name === 'fillText').map(([, , text]) => text);
const boxes = (calls, colour) => calls.filter(([name, style]) => name === 'fillRect' && style === `--${colour} of HTML`).map(([, , ...box]) => box.map(Math.round));
const readout = () => timeline.querySelector('.readout').textContent;

test('the ticks of the axis are at round times', () => {
  const parts = (seconds) => Array.from({ length: 20 }, (_, index) => 36_000 + index * seconds / 20)
    .map((start) => segment('running', start, start + seconds / 20, 0));
  const ticks = (seconds) => labels(drawn([lane('a-0', ...parts(seconds))], 0)).slice(0, -1);
  assert.deepEqual(ticks(20).slice(0, 3), ['10:00:00', '10:00:02', '10:00:04']);
  assert.deepEqual(ticks(3600).slice(0, 3), ['10:00', '10:10', '10:20']);
  assert.deepEqual(ticks(86_400).slice(0, 3), ['12:00', '16:00', '20:00'], 'four hours');
});

test('the ticks of days are at midnight here', () => {
  process.env.TZ = 'America/St_Johns'; // two and a half hours behind UTC in summer
  const start = Date.UTC(2026, 6, 1, 12) / 1000;
  const lanes = [lane('a-0', ...Array.from({ length: 20 }, (_, day) => segment('running', start + day * 43_200, start + (day + 1) * 43_200, 0)))];
  assert.deepEqual(new Set(labels(drawn(lanes, 0)).slice(0, -1)), new Set(['00:00']));
  process.env.TZ = 'UTC';
});

test('an hour without any change is cut out', () => {
  const lanes = [lane('a-0', segment('running', 0, 100, 0), segment('running', 90_000, 90_100, 0))];
  const calls = drawn(lanes, 0);
  assert.ok(labels(calls).includes('⋯ 1d 0:57:20 quiet ⋯'), labels(calls).join());
  assert.match(timeline.querySelector('.hidden').textContent, /Nothing changes for 1d 0:57:20, from 00:02:10 to 00:59:30\.$/);
});

test('a segment is where it was, in the colour of its phase', () => {
  const lanes = [
    lane('a-0', segment('pending', 0, 100), segment('starting', 100, 200), segment('running', 200, 300, 0), segment('running', 300, 400, 1), segment('running', 400)),
  ];
  const calls = drawn(lanes, 500), left = 7 * 'a-0'.length + 12, scale = (WIDTH - left - 1) / 500;
  const at = (time) => Math.round(left + time * scale), width = Math.round(100 * scale);
  assert.deepEqual(boxes(calls, 'done'), [[at(200), 4, width, 14]]);
  assert.deepEqual(boxes(calls, 'run').map(([x, , size]) => [x, size]), [[at(300), width], [at(400), width]]);
  assert.ok(boxes(calls, 'bad').length > 0, 'the exit');
});

test('of many replicas a row for each role shows how many run', () => {
  const lanes = Array.from({ length: 100 }, (_, index) => lane(`worker-${index}`, segment('pending', 0, 50), segment('running', 50, index < 50 ? 100 : null)));
  const calls = drawn(lanes, 200), heights = boxes(calls, 'run').map(([, , , height]) => height);
  assert.equal(timeline.heightFor(), 46 + 24);
  assert.deepEqual([heights[0], Math.max(...heights), heights.at(-1)], [0, 34, 17], 'none, all, half of them');
});

test('the last minutes', () => {
  const lanes = [lane('a-0', segment('running', 0, 10_000, 1), segment('running', 10_000))];
  timeline.span = 600;
  const calls = drawn(lanes, 10_100);
  const widths = boxes(calls, 'run').map(([, , width]) => width);
  assert.deepEqual(widths.map((width) => Math.round(width / (WIDTH - 33 - 1) * 600)), [500, 100]);
});

test('what is pointed at is told, a click opens the replica', () => {
  drawn([lane('a-0', segment('running', 100, 200, 0)), lane('a-1', segment('running', 100))], 300);
  const point = (x, y) => (timeline.canvas.dispatchEvent(pointer('pointermove', x, y)), readout());
  assert.match(point(500, 5), /^a-0 · attempt 1 · runs since 00:01:40/);
  assert.match(point(WIDTH, 43), /^a-1 · attempt 1 · runs since 00:01:40 · 3:20$/);
  assert.match(point(WIDTH, 5), /^a-0 · 00:05:00 · no pod$/);
  timeline.canvas.dispatchEvent(new Event('click'));
  assert.match(point(500, 45), /^Point at a bar/);
  timeline.canvas.dispatchEvent(new Event('click'));
  assert.deepEqual(opened, ['a-0']);
});

test('keys go through rows and times, and stay within them', () => {
  drawn([lane('a-0', segment('running', 100, 700, 0)), lane('b-0', segment('running', 100, 400, 0))], 0);
  const at = (key) => (press(timeline.canvas, key), readout());
  assert.match(at('Home'), /^a-0 .* runs/);
  assert.match(at('ArrowDown'), /^b-0 .* runs/);
  assert.match(at('ArrowDown'), /^b-0 .* runs/);
  assert.equal(at('End'), 'b-0 · 00:11:40 · no pod');
  assert.equal(at('ArrowRight'), 'b-0 · 00:11:40 · no pod');
  assert.equal(at('ArrowLeft'), 'b-0 · 00:11:30 · no pod', 'a sixtieth of the width');
  assert.match(at('ArrowUp'), /^a-0 .* runs/);
  assert.equal(press(timeline.canvas, 'Enter').defaultPrevented, true);
  assert.deepEqual(opened, ['a-0']);
  assert.equal(press(timeline.canvas, 'x').defaultPrevented, false);
});

test('a row that is pointed at may go', () => {
  const lanes = [lane('a-0', segment('running', 0, 9)), lane('a-1', segment('running', 0, 9))];
  drawn(lanes, 9);
  timeline.canvas.dispatchEvent(pointer('pointermove', 500, 30));
  assert.match(readout(), /^a-1/);
  drawn(lanes.slice(0, 1), 9);
  assert.match(readout(), /^Point at a bar/);
});

test('no lanes, and ten thousand', () => {
  assert.deepEqual(labels(drawn([], 0)), []);
  assert.equal(press(timeline.canvas, 'ArrowDown').defaultPrevented, false);
  const lanes = Array.from({ length: 10_000 }, (_, index) => lane(`worker-${index}`, segment('running', index, index + 5, index % 2)));
  drawn(lanes, 0);
  assert.match(timeline.querySelector('.hidden').textContent, /^10,000 attempts of 10,000 replicas\. 5,000 failed runs: (worker-\d+ exit 1 at \S+ ?){8}and more\./);
});

test('how busy the GPUs of a replica are', () => {
  const lanes = [lane('worker-0', segment('starting', 0, 100), segment('running', 100))];
  timeline.show(lanes, 900, 40, new Map([['worker-0', { replica: 'worker-0', time: [50, 200, 500], value: [100, 50, 0] }]]));
  const { calls } = timeline.canvas.getContext('2d');
  calls.length = 0;
  nextFrame();
  const [, first, last] = [0, ...boxes(calls, 'run').map(([x, , width]) => [x, x + width])[0]];
  const busy = boxes(calls, 'accent');
  assert.equal(busy.length, 1, 'not before the run, and not where nothing is done');
  const [x, y, width, height] = busy[0];
  assert.ok(x > first && x + width < last && height === 5 && y + height === 32, JSON.stringify(busy));
});

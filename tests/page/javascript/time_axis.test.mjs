import assert from 'node:assert/strict';
import { test } from 'node:test';

import { TimeAxis, quietParts } from '../../../src/trainyard/page/static/time_axis.js';

/** Numbers from 0 to 1 that are the same in each run. */
function numbers(seed) {
  return () => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    return seed / 2 ** 31;
  };
}

test('a time without changes is cut out if it is long, and a large part of the whole', () => {
  assert.deepEqual(quietParts([], 0, 600), []);
  assert.deepEqual(quietParts([0, 600], 0, 600), [], 'ten minutes stay');
  assert.deepEqual(quietParts([0, 601], 0, 601), [[30, 571]]);
  const hour = [0, 100, 200, 300, 3600];
  assert.deepEqual(quietParts(hour, 0, 3600), [[330, 3570]]);
  const even = Array.from({ length: 6 }, (_, index) => index * 7200);
  assert.deepEqual(quietParts(even, 0, 36_000), [], 'a fifth of the whole stays');
});

test('times outside of what is shown do not count', () => {
  assert.deepEqual(quietParts([0, 50, 90_000], 1000, 10_000), [[1030, 9970]]);
  assert.deepEqual(quietParts([0, 5000, 90_000], 1000, 10_000), [[1030, 4970], [5030, 9970]]);
});

test('what stays beside a cut is a twentieth of what is left', () => {
  const times = Array.from({ length: 101 }, (_, index) => index * 100); // 10,000 s in which something happens
  assert.deepEqual(quietParts([...times, 110_000], 0, 110_000), [[10_500, 109_500]]);
});

test('an axis without cuts is a straight line', () => {
  const axis = new TimeAxis(100, 200, 50, 1000);
  assert.deepEqual([100, 150, 200].map((time) => axis.x(time)), [50, 550, 1050]);
  assert.deepEqual([-5, 100, 1e12, Infinity, -Infinity].map((time) => axis.x(time)), [50, 50, 1050, 1050, 50]);
  assert.deepEqual([0, 50, 300, 1050, 5000].map((x) => axis.time(x)), [100, 100, 125, 200, 200]);
  assert.equal(axis.isCut(150), false);
});

test('a cut has its width, whatever it is long', () => {
  const axis = new TimeAxis(0, 100_000, 0, 500, [[1000, 91_000]], 100);
  assert.equal(axis.shown, 10_000);
  assert.deepEqual([0, 1000, 46_000, 91_000, 100_000].map((time) => axis.x(time)), [0, 40, 90, 140, 500]);
  assert.deepEqual([0, 40, 90, 140, 500].map((x) => axis.time(x)), [0, 1000, 46_000, 91_000, 100_000]);
  assert.deepEqual([1000, 1001, 90_999, 91_000].map((time) => axis.isCut(time)), [false, true, true, false]);
});

test('nothing is cut out where the cuts would take more than half of the width', () => {
  assert.equal(new TimeAxis(0, 1000, 0, 100, [[100, 900]], 50).cuts.length, 1);
  assert.equal(new TimeAxis(0, 1000, 0, 100, [[100, 900]], 51).cuts.length, 0);
});

test('a place and its time belong together, in a thousand axes', () => {
  const random = numbers(1);
  for (let round = 0; round < 1000; round++) {
    const times = Array.from({ length: 1 + Math.floor(random() * 12) }, () => 1.7e9 + random() * 10 ** (1 + 6 * random())).sort((a, b) => a - b);
    const first = times[0], last = Math.max(first + 1, times.at(-1)), left = random() * 200, width = 200 + random() * 2000;
    const quiet = quietParts(times, first, last);
    for (const [start, end] of quiet) {
      assert.ok(start < end, 'a margin does not turn a part around');
      assert.ok(!times.some((time) => start < time && time < end), 'nothing happens in a quiet part');
    }
    const axis = new TimeAxis(first, last, left, width, quiet, random() * 100);
    let before = -Infinity;
    for (let step = 0; step <= 50; step++) {
      const time = first + (last - first) * step / 50, x = axis.x(time);
      assert.ok(x >= before - 1e-6, 'a later time is further to the right');
      assert.ok(x >= left - 1e-6 && x <= left + width + 1e-6, 'and within the axis');
      assert.ok(Math.abs(axis.time(x) - time) < 1e-3 + (last - first) * 1e-6, `${axis.time(x)} is ${time}`);
      before = x;
    }
    assert.ok(Math.abs(axis.x(last) - left - width) < 1e-6);
  }
});

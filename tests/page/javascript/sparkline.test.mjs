import assert from 'node:assert/strict';
import { test } from 'node:test';

import { media } from './page.mjs';
import { drawShape } from '../../../src/trainyard/page/static/sparkline.js';
import { colours } from '../../../src/trainyard/page/static/theme.js';

const points = (canvas) => canvas.context.calls.filter(([name]) => name === 'lineTo').map(([, , x, y]) => [x, y]);

test('a shape goes from the left to the right, and from the lowest to the highest', () => {
  const canvas = document.createElement('canvas');
  drawShape(canvas, '0hz');
  assert.deepEqual([canvas.width, canvas.height], [112, 36], 'two pixels of the screen for each');
  assert.deepEqual(points(canvas), [[1, 16], [28, 16 - 14 * 17 / 35], [55, 2]]);
});

test('a part that is not finite is a gap: a canvas draws no line to NaN', () => {
  const canvas = document.createElement('canvas');
  drawShape(canvas, '0!z!');
  assert.deepEqual(points(canvas), [[1, 16], [19, NaN], [37, 2], [55, NaN]]);
});

test('it is drawn again for another shape, another theme and another screen only', () => {
  const canvas = document.createElement('canvas'), { calls } = canvas.getContext('2d');
  const isDrawn = (shape) => {
    calls.length = 0;
    drawShape(canvas, shape);
    return calls.length > 0;
  };
  assert.deepEqual([isDrawn('09'), isDrawn('09'), isDrawn('90'), isDrawn('90')], [true, false, true, false]);
  for (const query of media.values()) {
    query.dispatchEvent(new Event('change'));
    assert.deepEqual([isDrawn('90'), isDrawn('90')], [true, false]);
  }
  globalThis.devicePixelRatio = 1;
  assert.equal(isDrawn('90'), true);
});

test('the colours of the theme are those of the style sheet', () => {
  const theme = colours();
  assert.equal(theme.run, '--run of HTML');
  assert.deepEqual(Object.keys(theme).filter((name) => name.startsWith('run-')), Array.from('01234567', (index) => `run-${index}`));
  assert.equal(media.size, 3);
});

/** The shape of a curve in a cell of a table. */

import { themes } from './theme.js';

const WIDTH = 56, HEIGHT = 18; // CSS pixels
let theme = 0; // changes with the theme
for (const query of themes) query.addEventListener('change', () => theme++);

/** Draws a shape, digits of base 36, "!" for a gap, in the colour of the canvas's text; nothing is drawn if it is there already. */
export function drawShape(/** @type {HTMLCanvasElement} */ canvas, /** @type {string} */ shape) {
  const drawn = `${shape} ${theme} ${devicePixelRatio}`;
  if (canvas.dataset.drawn === drawn) return;
  canvas.dataset.drawn = drawn;
  const ratio = devicePixelRatio || 1, context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  [canvas.width, canvas.height] = [WIDTH * ratio, HEIGHT * ratio];
  context.scale(ratio, ratio);
  context.strokeStyle = getComputedStyle(canvas).color;
  context.lineWidth = 1.5;
  [...shape].forEach((digit, index) => {
    context.lineTo(1 + (WIDTH - 2) * index / (shape.length - 1), HEIGHT - 2 - (HEIGHT - 4) * parseInt(digit, 36) / 35);
  });
  context.stroke();
}

/** What the drawings share: size, theme, and that each is drawn again when one of them changes. */

import { oncePerFrame } from './dom.js';

/** What the colours depend on. */
export const themes = [
  matchMedia('(prefers-color-scheme: dark)'),
  matchMedia('(prefers-contrast: more)'),
  matchMedia('(forced-colors: active)'),
];

const NAMES = ['run', 'done', 'bad', 'wait', 'idle', 'accent', 'text', 'muted', 'line', 'surface', 'sunken'];

/** The colours of the theme, by the names of the variables in style.css. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    [...NAMES, ...Array.from('01234567', (index) => `run-${index}`)].map((name) => [
      name,
      style.getPropertyValue(`--${name}`).trim(),
    ]),
  );
}

/** An element that draws on a canvas of its own width. Subclasses have `paint(context, width)` and set `height`. */
export class Drawing extends HTMLElement {
  canvas = document.createElement('canvas');
  /** CSS pixels */
  width = 0;
  /** ms that the last drawing took */
  paintTime = 0;
  #observed = new AbortController();
  #resize = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width && width !== this.width) {
      this.width = width;
      this.draw();
    }
  });

  draw = oncePerFrame(() => this.paintNow());

  connectedCallback() {
    this.#observed = new AbortController();
    this.#resize.observe(this.stage);
    for (const theme of themes) theme.addEventListener('change', this.draw, { signal: this.#observed.signal });
  }

  disconnectedCallback() {
    this.#resize.disconnect();
    this.#observed.abort();
  }

  /** The element whose width the canvas has. */
  get stage() {
    return /** @type {HTMLElement} */ (this.canvas.parentElement);
  }

  paintNow() {
    if (!this.isConnected || !this.width) return;
    const began = performance.now();
    const height = this.heightFor(this.width),
      ratio = devicePixelRatio || 1;
    const [pixelWidth, pixelHeight] = [Math.round(this.width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== pixelWidth || this.canvas.height !== pixelHeight) {
      this.canvas.width = pixelWidth;
      this.canvas.height = pixelHeight;
      this.canvas.style.width = `${this.width}px`;
      this.canvas.style.height = `${height}px`;
    }
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, height);
    this.paint(context, this.width);
    this.paintTime = performance.now() - began;
  }

  /** @param {number} width @returns {number} the height of the drawing in CSS pixels */
  heightFor(width) {
    return width;
  }

  /** @param {CanvasRenderingContext2D} context @param {number} width */
  paint(context, width) {
    context.fillRect(0, 0, width, 0);
  }
}

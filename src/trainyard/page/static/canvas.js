/** What the drawings share: size, theme, and that each is drawn again when one of them changes. */

import { element, oncePerFrame, setText } from './dom.js';
import { themes } from './theme.js';

/** An element that draws on a canvas of its own width. Subclasses have `paint(context, width)` and set `height`. */
export class Drawing extends HTMLElement {
  canvas = document.createElement('canvas');
  /** CSS pixels */
  width = 0;
  /** ms that the last drawing took */
  paintTime = 0;
  /** @type {HTMLElement[]} its children: a new element of a document has none */
  #parts = [];
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
    if (!this.firstChild) this.append(...this.#parts);
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

  /**
   * Makes the canvas a drawing that is pointed at and read by keys. Returns what shows a text for the place that is
   * pointed at, and what sets the description for those who do not see the drawing.
   * @param {string} label @param {string} description of the role
   * @param {{point: (event: MouseEvent|null) => void, open: (event: MouseEvent) => void,
   *   key: (event: KeyboardEvent) => void}} on
   */
  makeReadable(label, description, on) {
    const readout = element('p', { class: 'readout' });
    const summary = element('p', { class: 'hidden', id: `drawing-${Math.random().toString(36).slice(2)}` });
    this.#parts = [element('div', { class: 'stage' }, this.canvas), readout, summary];
    const attributes = {
      tabindex: '0', role: 'application', 'aria-roledescription': description, 'aria-label': label,
      'aria-describedby': summary.id,
    };
    for (const [name, value] of Object.entries(attributes)) this.canvas.setAttribute(name, value);
    this.canvas.addEventListener('pointermove', on.point);
    this.canvas.addEventListener('pointerleave', () => on.point(null));
    this.canvas.addEventListener('click', on.open);
    this.canvas.addEventListener('keydown', on.key);
    this.canvas.addEventListener('focus', () => readout.setAttribute('aria-live', 'polite'));
    this.canvas.addEventListener('blur', () => readout.removeAttribute('aria-live'));
    return {
      showReadout(/** @type {string} */ text, /** @type {boolean} */ isHint) {
        setText(readout, text);
        readout.classList.toggle('muted', isHint);
      },
      describe: (/** @type {string} */ text) => setText(summary, text),
    };
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

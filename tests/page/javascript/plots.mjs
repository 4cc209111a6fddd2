/** A stand-in of uPlot, which notes what it gets. Its script is "loaded" by `loadPlots`. */

import { settled } from './page.mjs';

export class Plot {
  /** All that were made, the newest last. */
  static all = [];
  /** The x values of all tables, rising, and the columns of each table at these. */
  static join(tables) {
    const xs = [...new Set(tables.flatMap(([x]) => x))].sort((a, b) => a - b);
    const columns = tables.flatMap(([x, ...own]) => own.map((column) => xs.map((at) => column[x.indexOf(at)])));
    return [xs, ...columns];
  }

  cursor = { idx: null };
  isDestroyed = false;
  constructor(options, data, stage) {
    Object.assign(this, { options, data, stage });
    Plot.all.push(this);
  }
  setData(data) {
    this.data = data;
  }
  valToPos(value) {
    return value;
  }
  /** Puts the cursor at an x, and calls what hears of it. */
  setCursor({ left }) {
    const index = this.data[0].indexOf(left);
    this.cursor.idx = index < 0 ? null : index;
    this.options.hooks.setCursor.forEach((hook) => hook());
  }
  /** The rectangles that the hooks draw, in a chart that is 100 pixels high. */
  drawn() {
    const rectangles = [];
    this.ctx = { save() {}, restore() {}, fillRect: (...at) => rectangles.push(at) };
    this.bbox = { top: 10, height: 100 };
    this.options.hooks.draw.forEach((hook) => hook(this));
    return rectangles;
  }
  setSize(size) {
    this.size = size;
  }
  redraw() {
    this.redrawn = true;
  }
  destroy() {
    this.isDestroyed = true;
  }
}

/** The script that a chart has asked for is there, or cannot be loaded. */
export async function loadPlots(isThere = true) {
  const script = document.head.querySelector('script');
  globalThis.uPlot = Plot;
  script?.[isThere ? 'onload' : 'onerror']();
  await settled();
}

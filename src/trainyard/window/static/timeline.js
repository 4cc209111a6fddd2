/** What each replica did when: a row for each, or, where there are many, a row for each role. */

import { Drawing, colours } from './canvas.js';
import { element, setText } from './dom.js';
import { clockTime } from './format.js';
import { hasExitCode, hasFailed, lanesText, replicaText, roleText, rowsOf } from './lanes.js';

/**
 * @typedef {import('./store.js').Lane} Lane
 * @typedef {import('./store.js').Segment} Segment
 * @typedef {import('./lanes.js').Row} Row
 * @typedef {CanvasRenderingContext2D} Canvas
 * @typedef {Record<string, string>} Theme
 */

const AXIS = 24; // height in CSS pixels
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** Events: `open` (detail: the replica). */
export class AttemptTimeline extends Drawing {
  /** @type {Row[]} */
  #rows = [];
  #now = 0;
  /** Seconds that are shown; 0 for all. */
  span = 0;
  #first = 0;
  #last = 1;
  #left = 0;
  /** @type {{row: number, time: number}|null} */
  #cursor = null;
  #readout = element('p', { class: 'readout' });
  #summary = element('p', { class: 'hidden', id: `timeline-${Math.random().toString(36).slice(2)}` });

  connectedCallback() {
    if (!this.canvas.parentElement) {
      this.append(element('div', { class: 'stage' }, this.canvas), this.#readout, this.#summary);
      const attributes = {
        tabindex: '0',
        role: 'application',
        'aria-roledescription': 'timeline',
        'aria-label': 'Timeline',
        'aria-describedby': this.#summary.id,
      };
      for (const [name, value] of Object.entries(attributes)) this.canvas.setAttribute(name, value);
      this.canvas.addEventListener('pointermove', (event) => this.#point(this.#placeOf(event)));
      this.canvas.addEventListener('pointerleave', () => this.#point(null));
      this.canvas.addEventListener('click', () => this.#open());
      this.canvas.addEventListener('keydown', (event) => this.#key(event));
      this.canvas.addEventListener('focus', () => this.#readout.setAttribute('aria-live', 'polite'));
      this.canvas.addEventListener('blur', () => this.#readout.removeAttribute('aria-live'));
    }
    super.connectedCallback();
  }

  /** @param {Lane[]} lanes @param {number} now Unix seconds until which what goes on is drawn */
  show(lanes, now) {
    if (lanes !== this.lanes) {
      this.lanes = lanes;
      this.#rows = rowsOf(lanes);
      setText(this.#summary, lanesText(lanes));
    }
    this.#now = now;
    this.#showReadout();
    this.draw();
  }

  /** @type {Lane[]|null} */
  lanes = null;

  heightFor() {
    return this.#rows.reduce((sum, row) => sum + row.height, 0) + AXIS;
  }

  #measure() {
    const segments = this.#rows.flatMap((row) => row.lanes.flatMap((lane) => lane.segments));
    let first = Infinity,
      last = 0;
    for (const segment of segments) {
      first = Math.min(first, segment.start);
      last = Math.max(last, segment.end ?? this.#now);
    }
    this.#last = Math.max(last, first + 1);
    this.#first = this.span ? Math.max(first, this.#last - this.span) : first;
  }

  #x(/** @type {number} */ time) {
    return (
      this.#left +
      ((Math.max(this.#first, Math.min(this.#last, time)) - this.#first) / (this.#last - this.#first)) *
        (this.width - this.#left - 1)
    );
  }

  /** @param {Canvas} context @param {number} width */
  paint(context, width) {
    if (!this.#rows.length) return;
    const theme = colours();
    this.#measure();
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const names = this.#rows.map((row) => context.measureText(row.name).width);
    this.#left = Math.min(Math.ceil(Math.max(...names)) + 12, width * 0.35);
    this.#paintAxis(context, theme);
    for (const row of this.#rows) {
      context.fillStyle = theme.muted;
      context.fillText(row.name, 0, row.y + row.height / 2, this.#left - 8);
      if (row.isRole) this.#paintRole(context, theme, row);
      else
        for (const lane of row.lanes)
          for (const segment of lane.segments) this.#paintSegment(context, theme, row, segment);
    }
    if (this.#cursor) {
      context.fillStyle = theme.text;
      const row = this.#rows[this.#cursor.row];
      context.fillRect(this.#x(this.#cursor.time), row.y, 1, row.height);
    }
  }

  /** @param {Canvas} context @param {Theme} theme */
  #paintAxis(context, theme) {
    const bottom = this.heightFor() - AXIS;
    const room = Math.max(2, Math.floor((this.width - this.#left) / 90));
    const step = STEPS.find((seconds) => (this.#last - this.#first) / seconds <= room) ?? 1_000_000;
    const offset = new Date(this.#first * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((this.#first - offset) / step) * step + offset; time <= this.#last; time += step) {
      const x = Math.round(this.#x(time));
      context.fillStyle = theme.line;
      context.fillRect(x, 0, 1, bottom + 4);
      const text = clockTime(time).slice(0, step < 60 ? 8 : 5);
      context.fillStyle = theme.muted;
      if (x + 20 < this.width)
        context.fillText(text, Math.max(this.#left, x - context.measureText(text).width / 2), bottom + 14);
    }
  }

  /** @param {Canvas} context @param {Theme} theme @param {Row} row @param {Segment} segment */
  #paintSegment(context, theme, row, segment) {
    const end = segment.end ?? this.#now;
    if (end < this.#first || segment.start > this.#last) return;
    const left = this.#x(segment.start),
      width = Math.max(1, this.#x(end) - left);
    const top = row.y + 4,
      height = row.height - 8;
    if (segment.phase === 'running') {
      context.fillStyle = segment.end === null || hasExitCode(segment) ? theme.run : theme.done;
      context.fillRect(left, top, width, height);
      if (hasExitCode(segment)) this.#paintExit(context, theme, left, left + width, top, height, segment);
    } else if (segment.phase === 'starting') {
      context.fillStyle = theme.wait;
      context.fillRect(left, top + height / 2, width, height / 2);
    } else {
      context.fillStyle = segment.phase === 'omitted' ? theme.idle : theme.wait;
      for (let x = left; x < left + width; x += segment.phase === 'omitted' ? 8 : 4)
        context.fillRect(x, top + height / 2 - 1, Math.min(2, left + width - x), 2);
    }
  }

  /**
   * @param {Canvas} context @param {Theme} theme @param {number} left @param {number} right
   * @param {number} top @param {number} height @param {Segment} segment
   */
  #paintExit(context, theme, left, right, top, height, segment) {
    const text = hasFailed(segment) ? `✕ ${segment.exitCode}` : String(segment.exitCode);
    const room = context.measureText(text).width + 8;
    const width = Math.min(right - left, right - left > room + 4 ? room : 3);
    context.fillStyle = hasFailed(segment) ? theme.bad : theme.idle;
    context.fillRect(right - width, top, width, height);
    context.fillStyle = theme.surface;
    if (width === room) context.fillText(text, right - width + 4, top + height / 2 + 0.5);
  }

  /** The part of a role's pods that run, and that do not, over time. */
  #paintRole(/** @type {Canvas} */ context, /** @type {Record<string, string>} */ theme, /** @type {Row} */ row) {
    const bins = Math.max(1, Math.floor((this.width - this.#left) / 2));
    const running = new Float64Array(bins + 1),
      present = new Float64Array(bins + 1);
    const bin = (/** @type {number} */ time) =>
      Math.floor(((this.#x(time) - this.#left) / (this.width - this.#left)) * bins);
    for (const lane of row.lanes) {
      for (const segment of lane.segments) {
        const end = segment.end ?? this.#now;
        if (end < this.#first) continue;
        const [from, to] = [bin(segment.start), bin(end) + (segment.end === null ? 1 : 0)];
        for (const sums of segment.phase === 'running' ? [running, present] : [present]) {
          sums[from] += 1;
          sums[Math.min(to, bins)] -= 1;
        }
      }
    }
    const height = row.height - 12,
      base = row.y + row.height - 4;
    const slots = new Set(row.lanes.map((lane) => lane.replica)).size;
    let runs = 0,
      exists = 0;
    for (let index = 0; index < bins; index++) {
      runs += running[index];
      exists += present[index];
      const [low, high] = [Math.min(1, runs / slots) * height, Math.min(1, exists / slots) * height];
      context.fillStyle = theme.wait;
      context.fillRect(this.#left + index * 2, base - high, 2, high - low);
      context.fillStyle = theme.run;
      context.fillRect(this.#left + index * 2, base - low, 2, low);
    }
    context.fillStyle = theme.bad;
    for (const lane of row.lanes) {
      for (const segment of lane.segments) {
        if (hasFailed(segment) && Number(segment.end) >= this.#first)
          context.fillRect(this.#x(Number(segment.end)) - 1, row.y + 1, 2, 6);
      }
    }
  }

  /** @returns {{row: number, time: number}|null} */
  #placeOf(/** @type {PointerEvent} */ event) {
    const row = this.#rows.findIndex(({ y, height }) => event.offsetY >= y && event.offsetY < y + height);
    if (row < 0) return null;
    const share = (event.offsetX - this.#left) / (this.width - this.#left - 1);
    return { row, time: this.#first + Math.max(0, Math.min(1, share)) * (this.#last - this.#first) };
  }

  #point(/** @type {{row: number, time: number}|null} */ cursor) {
    this.#cursor = cursor;
    this.#showReadout();
    this.draw();
  }

  #showReadout() {
    if (this.#cursor && !this.#rows[this.#cursor.row]) this.#cursor = null;
    const { row: index, time } = this.#cursor ?? { row: -1, time: 0 };
    const row = this.#rows[index];
    this.#readout.classList.toggle('muted', !row);
    setText(
      this.#readout,
      !row
        ? 'Point at a bar, or use the arrow keys.'
        : row.isRole
          ? roleText(row, time)
          : replicaText(row, time, this.#now),
    );
  }

  #open() {
    const row = this.#rows[this.#cursor?.row ?? -1];
    if (row && !row.isRole) this.dispatchEvent(new CustomEvent('open', { detail: row.name }));
  }

  #key(/** @type {KeyboardEvent} */ event) {
    if (!this.#rows.length) return;
    const { row, time } = this.#cursor ?? { row: 0, time: this.#last };
    const step = (this.#last - this.#first) / 60;
    /** @type {Record<string, {row: number, time: number}>} */
    const targets = {
      ArrowLeft: { row, time: time - step },
      ArrowRight: { row, time: time + step },
      ArrowUp: { row: row - 1, time },
      ArrowDown: { row: row + 1, time },
      Home: { row, time: this.#first },
      End: { row, time: this.#last },
    };
    if (event.key === 'Enter') this.#open();
    else if (targets[event.key]) {
      const target = targets[event.key];
      this.#point({
        row: Math.max(0, Math.min(this.#rows.length - 1, target.row)),
        time: Math.max(this.#first, Math.min(this.#last, target.time)),
      });
    } else return;
    event.preventDefault();
  }
}

customElements.define('attempt-timeline', AttemptTimeline);

/** What each replica did when: a row for each, or, where there are many, a row for each role. */

import { Drawing } from './canvas.js';
import { clockTime, duration } from './format.js';
import { MANY, USE_LANE, hasExitCode, hasFailed, lanesText, replicaText, roleText, rowsOf } from './lanes.js';
import { colours } from './theme.js';
import { TimeAxis, quietParts } from './time_axis.js';

/**
 * @typedef {import('./store.js').Lane} Lane
 * @typedef {import('./store.js').Segment} Segment
 * @typedef {import('./lanes.js').Row} Row
 * @typedef {CanvasRenderingContext2D} Canvas
 * @typedef {Record<string, string>} Theme
 */

/** @type {Map<string, import('./device_use.js').Use>} */
const NO_USE = new Map();
const AXIS = 24; // height in CSS pixels
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600,
  900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];

/** The text of a part that is cut out. */
const cutText = (/** @type {[number, number]} */ [start, end]) => `⋯ ${duration(end - start)} quiet ⋯`;

/** The same for those who do not see it. */
const quietText = (/** @type {[number, number]} */ [start, end]) =>
  `Nothing changes for ${duration(end - start)}, from ${clockTime(start)} to ${clockTime(end)}.`;

/** Events: `open` (detail: the replica). */
export class AttemptTimeline extends Drawing {
  /** @type {Row[]} */
  #rows = [];
  #now = 0;
  #most = MANY;
  /** @type {Map<string, import('./device_use.js').Use>} */
  #use = NO_USE;
  /** Seconds that are shown; 0 for all. */
  span = 0;
  #axis = new TimeAxis(0, 1, 0, 1);
  /** @type {number[]} when something changes, rising */
  #changes = [];
  #goesOn = false;
  /** @type {{row: number, time: number}|null} */
  #cursor = null;
  #texts = this.makeReadable('Timeline', 'timeline', {
    point: (event) => this.#point(event && this.#placeOf(event)),
    open: () => this.#open(),
    key: (event) => this.#key(event),
  });

  /**
   * @param {Lane[]} lanes @param {number} now Unix seconds until which what goes on is drawn
   * @param {number} [most] replicas that get a row each
   * @param {Map<string, import('./device_use.js').Use>} [use] of the GPUs, by replica
   */
  show(lanes, now, most = MANY, use = NO_USE) {
    if (lanes !== this.lanes || most !== this.#most || use !== this.#use) {
      [this.lanes, this.#most, this.#use] = [lanes, most, use];
      this.#rows = rowsOf(lanes, most, use);
      const times = lanes.flatMap((lane) => lane.segments.flatMap(({ start, end }) => [start, end ?? start]));
      this.#changes = [...new Set(times)].sort((a, b) => a - b);
      this.#goesOn = lanes.some((lane) => lane.segments.some(({ end }) => end === null));
    }
    this.#now = now;
    this.#texts.describe([lanesText(lanes), ...this.#period().quiet.map(quietText)].join(' '));
    this.#showReadout();
    this.draw();
  }

  /** @type {Lane[]|null} */
  lanes = null;

  heightFor() {
    return this.#rows.reduce((sum, row) => sum + row.height, 0) + AXIS;
  }

  /** The time that is shown, and the parts of it in which nothing changes. */
  #period() {
    const changes = this.#changes, begin = changes[0] ?? 0;
    const last = Math.max(this.#goesOn ? this.#now : 0, changes[changes.length - 1] ?? 0, begin + 1);
    const first = Math.max(begin, this.span ? last - this.span : 0);
    return { first, last, quiet: quietParts(changes, first, last) };
  }

  #x(/** @type {number} */ time) {
    return this.#axis.x(time);
  }

  /** @param {Canvas} context @param {number} width */
  paint(context, width) {
    if (!this.#rows.length) return;
    const theme = colours();
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const measureText = (/** @type {string} */ text) => context.measureText(text).width;
    const names = this.#rows.map((row) => measureText(row.name));
    const left = Math.min(Math.ceil(Math.max(...names)) + 12, width * 0.35), { first, last, quiet } = this.#period();
    const widest = Math.max(0, ...quiet.map((part) => measureText(cutText(part))));
    this.#axis = new TimeAxis(first, last, left, width - left - 1, quiet, widest + 16);
    this.#paintAxis(context, theme);
    for (const row of this.#rows) {
      context.fillStyle = theme.muted;
      context.fillText(row.name, 0, row.y + (row.height - (row.use ? USE_LANE : 0)) / 2, this.#axis.left - 8);
      if (row.isRole) this.#paintRole(context, theme, row);
      else
        for (const lane of row.lanes)
          for (const segment of lane.segments) this.#paintSegment(context, theme, row, segment);
      if (row.use) this.#paintUse(context, theme, row, row.use);
    }
    this.#paintCuts(context, theme);
    if (this.#cursor) {
      context.fillStyle = theme.text;
      const row = this.#rows[this.#cursor.row];
      context.fillRect(this.#x(this.#cursor.time), row.y, 1, row.height);
    }
  }

  /** @param {Canvas} context @param {Theme} theme */
  #paintAxis(context, theme) {
    const bottom = this.heightFor() - AXIS, { first, last, left, shown } = this.#axis;
    const room = Math.max(2, Math.floor((this.width - left) / 90));
    const step = STEPS.find((seconds) => shown / seconds <= room) ?? 1_000_000;
    const offset = new Date(first * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((first - offset) / step) * step + offset; time <= last; time += step) {
      if (this.#axis.isCut(time)) continue;
      const x = Math.round(this.#x(time));
      context.fillStyle = theme.line;
      context.fillRect(x, 0, 1, bottom + 4);
      const text = clockTime(time).slice(0, step < 60 ? 8 : 5), half = context.measureText(text).width / 2;
      context.fillStyle = theme.muted;
      const touches = this.#axis.cuts.some((cut) => x + half > cut.x && x - half < cut.x + this.#axis.cutWidth);
      if (x + half < this.width && !touches) context.fillText(text, Math.max(left, x - half), bottom + 14);
    }
  }

  /** The hours that are cut out: a gap in all rows, with its length below. @param {Canvas} context @param {Theme} theme */
  #paintCuts(context, theme) {
    const bottom = this.heightFor() - AXIS, width = this.#axis.cutWidth;
    for (const cut of this.#axis.cuts) {
      context.fillStyle = theme.sunken;
      context.fillRect(cut.x, 0, width, bottom + 4);
      context.fillStyle = theme.muted;
      for (const x of [cut.x, cut.x + width - 1])
        for (let y = 0; y < bottom + 4; y += 6) context.fillRect(x, y, 1, 3);
      const text = cutText([cut.start, cut.end]);
      context.fillText(text, cut.x + (width - context.measureText(text).width) / 2, bottom + 14);
    }
  }

  /** @param {Canvas} context @param {Theme} theme @param {Row} row @param {Segment} segment */
  #paintSegment(context, theme, row, segment) {
    const end = segment.end ?? this.#now;
    if (end < this.#axis.first || segment.start > this.#axis.last) return;
    const left = this.#x(segment.start),
      width = Math.max(1, this.#x(end) - left);
    const top = row.y + 4,
      height = row.height - 8 - (row.use ? USE_LANE : 0);
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

  /**
   * How busy the GPUs are: a sample holds until the next one, as long as its pod runs.
   * @param {Canvas} context @param {Theme} theme @param {Row} row @param {import('./device_use.js').Use} use
   */
  #paintUse(context, theme, row, use) {
    const base = row.y + row.height - 2, { first, last } = this.#axis;
    for (const { segments } of row.lanes) {
      for (const { phase, start, end } of segments) {
        if (phase !== 'running') continue;
        const until = Math.min(end ?? this.#now, last);
        context.fillStyle = theme.line;
        if (until > first) context.fillRect(this.#x(Math.max(start, first)), base, this.#x(until) - this.#x(Math.max(start, first)), 1);
        context.fillStyle = theme.accent;
        use.time.forEach((time, index) => {
          const value = use.value[index], from = Math.max(time, first), to = Math.min(use.time[index + 1] ?? until, until);
          if (!value || time < start || to <= from) return;
          const height = (value / 100) * (USE_LANE - 2);
          context.fillRect(this.#x(from), base - height, Math.max(1, this.#x(to) - this.#x(from)), height);
        });
      }
    }
  }

  /** The part of a role's pods that run, and that do not, over time. */
  #paintRole(/** @type {Canvas} */ context, /** @type {Record<string, string>} */ theme, /** @type {Row} */ row) {
    const bins = Math.max(1, Math.floor((this.width - this.#axis.left) / 2));
    const running = new Float64Array(bins + 1),
      present = new Float64Array(bins + 1);
    const bin = (/** @type {number} */ time) =>
      Math.floor(((this.#x(time) - this.#axis.left) / (this.width - this.#axis.left)) * bins);
    for (const lane of row.lanes) {
      for (const segment of lane.segments) {
        const end = segment.end ?? this.#now;
        if (end < this.#axis.first) continue;
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
      context.fillRect(this.#axis.left + index * 2, base - high, 2, high - low);
      context.fillStyle = theme.run;
      context.fillRect(this.#axis.left + index * 2, base - low, 2, low);
    }
    context.fillStyle = theme.bad;
    for (const lane of row.lanes) {
      for (const segment of lane.segments) {
        if (hasFailed(segment) && Number(segment.end) >= this.#axis.first)
          context.fillRect(this.#x(Number(segment.end)) - 1, row.y + 1, 2, 6);
      }
    }
  }

  /** @returns {{row: number, time: number}|null} */
  #placeOf(/** @type {MouseEvent} */ event) {
    const row = this.#rows.findIndex(({ y, height }) => event.offsetY >= y && event.offsetY < y + height);
    if (row < 0) return null;
    return { row, time: this.#axis.time(event.offsetX) };
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
    this.#texts.showReadout(
      !row
        ? 'Point at a bar, or use the arrow keys.'
        : row.isRole
          ? roleText(row, time)
          : replicaText(row, time, this.#now),
      !row,
    );
  }

  #open() {
    const row = this.#rows[this.#cursor?.row ?? -1];
    if (row && !row.isRole) this.dispatchEvent(new CustomEvent('open', { detail: row.name }));
  }

  #key(/** @type {KeyboardEvent} */ event) {
    if (!this.#rows.length) return;
    const { row, time } = this.#cursor ?? { row: 0, time: this.#axis.last };
    const { first, last, width } = this.#axis;
    const moved = (/** @type {1|-1} */ direction) => this.#axis.time(this.#x(time) + direction * width / 60);
    /** @type {Record<string, {row: number, time: number}>} */
    const targets = {
      ArrowLeft: { row, time: moved(-1) },
      ArrowRight: { row, time: moved(1) },
      ArrowUp: { row: row - 1, time },
      ArrowDown: { row: row + 1, time },
      Home: { row, time: first },
      End: { row, time: last },
    };
    if (event.key === 'Enter') this.#open();
    else if (targets[event.key]) {
      const target = targets[event.key];
      this.#point({
        row: Math.max(0, Math.min(this.#rows.length - 1, target.row)),
        time: Math.max(first, Math.min(last, target.time)),
      });
    } else return;
    event.preventDefault();
  }
}

customElements.define('attempt-timeline', AttemptTimeline);

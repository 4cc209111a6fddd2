/** An axis of times, of which hours without any change are cut out. */

const LONG = 600; // seconds: a shorter time stays
const SHARE = 0.2; // of the whole: a smaller part stays
const MARGIN = 0.05; // of what is left, on both sides of a cut

/** @typedef {{start: number, end: number, x: number}} Cut a part that is cut out: Unix seconds, CSS pixels */

/**
 * The parts between `first` and `last` that are cut out: long ones in which none of the times is.
 * @param {number[]} times rising @param {number} first @param {number} last @returns {[number, number][]}
 */
export function quietParts(times, first, last) {
  const shortest = Math.max(LONG, (last - first) * SHARE);
  const changes = [first, ...times.filter((time) => time > first && time < last), last];
  const quiet = /** @type {[number, number][]} */ (changes.slice(1).map((time, index) => [changes[index], time]))
    .filter(([start, end]) => end - start > shortest);
  const rest = quiet.reduce((sum, [start, end]) => sum - (end - start), last - first);
  const margin = Math.max(LONG / 20, rest * MARGIN);
  return quiet.map(([start, end]) => [start + margin, end - margin]);
}

/** From `first` to `last`, Unix seconds, at `left` to `left + width`, CSS pixels; each cut is `cutWidth` wide. */
export class TimeAxis {
  /** @type {Cut[]} */
  cuts = [];

  /**
   * @param {number} first @param {number} last @param {number} left @param {number} width
   * @param {[number, number][]} [quiet] @param {number} [cutWidth]
   */
  constructor(first, last, left, width, quiet = [], cutWidth = 0) {
    if (quiet.length * cutWidth > width / 2) quiet = [];
    [this.first, this.last, this.left, this.width, this.cutWidth] = [first, last, left, width, cutWidth];
    /** Seconds that are shown. */
    this.shown = quiet.reduce((sum, [start, end]) => sum - (end - start), last - first);
    this.scale = (width - quiet.length * cutWidth) / this.shown;
    for (const [start, end] of quiet) this.cuts.push({ start, end, x: this.x(start) });
  }

  /** Where a time is; in a cut, by its part of it. */
  x(/** @type {number} */ time) {
    const inside = Math.max(this.first, Math.min(this.last, time));
    let x = this.left + (inside - this.first) * this.scale;
    for (const { start, end } of this.cuts) {
      if (inside <= start) break;
      const passed = Math.min(inside, end) - start;
      x += passed / (end - start) * this.cutWidth - passed * this.scale;
    }
    return x;
  }

  /** The time that is at a place. */
  time(/** @type {number} */ x) {
    let place = Math.max(this.left, Math.min(this.left + this.width, x)), time = this.first;
    for (const cut of this.cuts) {
      if (place <= cut.x) break;
      const passed = Math.min(1, (place - cut.x) / this.cutWidth);
      time += passed * (cut.end - cut.start - this.cutWidth / this.scale);
    }
    return time + (place - this.left) / this.scale;
  }

  /** Whether a time is cut out. */
  isCut(/** @type {number} */ time) {
    return this.cuts.some(({ start, end }) => start < time && time < end);
  }
}

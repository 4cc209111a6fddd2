/** Numbers, times and states as they are shown. */

/** @typedef {'run'|'done'|'bad'|'wait'|'idle'} Tone */

const DONE = new Set(['Succeeded', 'Completed', 'Complete']);
const IDLE = new Set(['', 'Suspended', 'Terminating', 'Stopped', 'Deleted', 'Unknown']);
const BAD = /fail|err|oom|backoff|evict|invalid|never|deadline|lost|reject|unexpected/i;

/**
 * What a state of a job or a replica means. A state of an unknown name waits, unless its name tells of a failure.
 * @param {string} state
 * @returns {Tone}
 */
export function toneOf(state) {
  if (state === 'Running') return 'run';
  if (DONE.has(state)) return 'done';
  if (IDLE.has(state)) return 'idle';
  return BAD.test(state) ? 'bad' : 'wait';
}

/** 14,201 */
export const count = (/** @type {number} */ value) => value.toLocaleString('en-US');

/** A value in at most four significant digits, "" if it is not known: 14,201, 0.4123, nan */
export const short = (/** @type {number|string|null|undefined} */ value) => typeof value !== 'number' ? value ?? ''
  : Number.isSafeInteger(value) ? count(value) : String(Number(value.toPrecision(4)));

/** One word for one, another for several: `plural(2, 'rank')` is "2 ranks". */
export const plural = (/** @type {number} */ value, /** @type {string} */ noun) =>
  `${count(value)} ${noun}${value === 1 ? '' : 's'}`;

/** A duration in its largest unit, as kubectl's AGE: 21s, 4m, 2h, 3d. */
export function age(/** @type {number} */ seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 7200) return `${Math.floor(whole / 60)}m`;
  return whole < 172800 ? `${Math.floor(whole / 3600)}h` : `${Math.floor(whole / 86400)}d`;
}

/** A duration that can be seen to go on: 0:21, 4:05, 2:04:11, 3d 2:04:11. */
export function duration(/** @type {number} */ seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (/** @type {number} */ value) => String(value).padStart(2, '0');
  const [days, hours, minutes] = [
    Math.floor(whole / 86400),
    Math.floor(whole / 3600) % 24,
    Math.floor(whole / 60) % 60,
  ];
  const text = hours || days ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  return days ? `${days}d ${text}` : text;
}

/** 3.1 GiB */
export function bytes(/** @type {number} */ value) {
  let unit = 0;
  while (Math.round(value) >= 1024 && unit < 4) {
    value /= 1024;
    unit++;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
}

/** The time of day here, from Unix seconds: 12:04:05. */
export function clockTime(/** @type {number|null|undefined} */ time) {
  return time ? new Date(time * 1000).toLocaleTimeString('en-GB') : '-';
}

/** Day and time here, from Unix seconds. */
export function dateTime(/** @type {number|null|undefined} */ time) {
  return time ? `${new Date(time * 1000).toLocaleDateString('sv-SE')} ${clockTime(time)}` : '';
}

/** What a terminal acts on, after ECMA-48: sequences with parameters, strings up to their end, others, and characters. */
const CODES = new RegExp(
  [
    /(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]/,
    /\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)/,
    /\x1b[ -/]*[0-OQ-WYZ\\`-~]/,
    /[\x00-\x08\x0b-\x1f\x7f-\x9f]/,
  ]
    .map(({ source }) => source)
    .join('|'),
  'g',
);

/** A line of a program's output as text: without the codes of a terminal, and of overwritten lines the last one. */
export function plainLine(/** @type {string} */ line) {
  const overwritten = line.replace(/\r+$/, '');
  return overwritten.slice(overwritten.lastIndexOf('\r') + 1).replace(CODES, '');
}

/** Compares names such that worker-2 comes before worker-10. */
export const compareNames = new Intl.Collator('en', { numeric: true }).compare;

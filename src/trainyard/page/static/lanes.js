/** The lanes of a timeline: in rows, and as text. */

import { useAt } from './device_use.js';
import { clockTime, count, duration, plural } from './format.js';

/**
 * @typedef {import('./store.js').Lane} Lane
 * @typedef {import('./store.js').Segment} Segment
 * @typedef {{name: string, lanes: Lane[], height: number, y: number, isRole: boolean, use?: import('./device_use.js').Use}} Row
 *   `use`: of its GPUs, in a lane of its own below the bar
 */

/** Rows of a timeline among other panels. */
export const MANY = 40;
const ROW = 22; // height in CSS pixels
const ROLE_ROW = 46;
/** Height of the lane of GPUs. */
export const USE_LANE = 12;
const STOPPED = 143; // exit code of SIGTERM: the program was asked to end
/** @type {Record<string, string>} */
const PHASES = {
  pending: 'waits for a node',
  starting: 'starts',
  running: 'runs',
  waiting: 'waits for its restart',
  omitted: 'runs that were not kept',
};

/**
 * A row for each replica, or, where there are more than `most`, for each role.
 * @param {Lane[]} lanes @param {Map<string, import('./device_use.js').Use>} [use] by replica @returns {Row[]}
 */
export function rowsOf(lanes, most = MANY, use = new Map()) {
  const isRole = new Set(lanes.map((lane) => lane.replica)).size > most;
  /** @type {Map<string, Lane[]>} */
  const groups = new Map();
  for (const lane of lanes) {
    const name = isRole ? lane.role : lane.replica;
    const group = groups.get(name);
    if (group) group.push(lane);
    else groups.set(name, [lane]);
  }
  let y = 0;
  return [...groups].map(([name, own]) => {
    const ofDevices = isRole ? undefined : use.get(name);
    const row = { name, lanes: own, height: (isRole ? ROLE_ROW : ROW) + (ofDevices ? USE_LANE : 0), y, isRole, use: ofDevices };
    y += row.height;
    return row;
  });
}

/** Whether the segment is a run that has ended with an exit code but 0. */
export const hasExitCode = (/** @type {Segment} */ segment) =>
  segment.phase === 'running' && segment.end !== null && Boolean(segment.exitCode);

/** Whether the segment is a run that has failed. */
export const hasFailed = (/** @type {Segment} */ segment) => hasExitCode(segment) && segment.exitCode !== STOPPED;

/** An exit code with its reason, if that tells more. */
export function exitText(/** @type {number|null|undefined} */ code, /** @type {string} */ reason) {
  if (code === null || code === undefined) return '';
  return reason && reason !== 'Error' && reason !== 'Completed' ? `${code} (${reason})` : String(code);
}

/** What a replica did at a time. @param {Row} row @param {number} time @param {number} now all in Unix seconds */
export function replicaText(row, time, now) {
  for (const lane of [...row.lanes].reverse()) {
    const segment = lane.segments.findLast(({ start, end }) => start <= time && time <= (end ?? now));
    if (!segment) continue;
    const until = segment.end === null ? '' : ` until ${clockTime(segment.end)}`;
    const exit = exitText(segment.exitCode, segment.reason);
    const busy = segment.phase === 'running' ? useAt(row.use, time) : null;
    return [
      row.name,
      `attempt ${lane.attempt}`,
      `${PHASES[segment.phase] ?? segment.phase} since ${clockTime(segment.start)}${until}`,
      duration((segment.end ?? now) - segment.start),
      exit && `exit ${exit}`,
      busy !== null && `GPU ${Math.round(busy)} % busy`,
    ]
      .filter(Boolean)
      .join(' · ');
  }
  return `${row.name} · ${clockTime(time)} · no pod`;
}

/** How many replicas of a role ran at a time. @param {Row} row @param {number} time Unix seconds */
export function roleText(row, time) {
  const phases = row.lanes.flatMap(
    (lane) => lane.segments.find(({ start, end }) => start <= time && time < (end ?? Infinity))?.phase ?? [],
  );
  const running = phases.filter((phase) => phase === 'running').length;
  const others = phases.length - running;
  return `${row.name} · ${clockTime(time)} · ${count(running)} run${others ? `, ${count(others)} do not` : ''}`;
}

/** All lanes in two sentences, for those who do not see them. @param {Lane[]} lanes */
export function lanesText(lanes) {
  const failures = lanes.flatMap((lane) =>
    lane.segments
      .filter(hasFailed)
      .map((segment) => `${lane.replica} exit ${segment.exitCode} at ${clockTime(segment.end)}`),
  );
  const listed = failures.slice(0, 8).join(', ') + (failures.length > 8 ? ' and more' : '');
  const replicas = new Set(lanes.map((lane) => lane.replica)).size;
  const ends = failures.length ? `${plural(failures.length, 'failed run')}: ${listed}.` : 'No run has failed.';
  return `${plural(lanes.length, 'attempt')} of ${plural(replicas, 'replica')}. ${ends}`;
}

/** The ranks of a job: the columns of a frame as records, what they mean, and by what they can be coloured. */

import { bytes, compareNames, count, plural, short, toneOf } from './format.js';

/**
 * @typedef {{replica: string, role: string, index: string, state: string, tone: import('./format.js').Tone,
 *   restarts: number, attempt: number, node: string, reason: string, message: string, exitCode: number|null,
 *   pod: string, started: number|null, ended: number|null, cpu: number|null, memory: number|null, peak: number|null,
 *   gpu: number|null, gpuMemory: number|null, gpuPeak: number|null, step: number|null, stepsPerSecond: number|null, lag: number, metrics: Record<string, number|string>|null,
 *   behind: boolean}} Rank `lag`: steps behind the median of its role
 * @typedef {{ranks: Rank[], columns: Set<string>, median: number}} RankList `median`: of the steps
 */

/** Behind: by more than this part of the median step of its role. */
const BEHIND = 0.1;

/** @param {import('./store.js').Ranks|undefined} columns @returns {RankList} */
export function readRanks(columns) {
  const names = Object.keys(columns ?? {});
  const ranks = (columns?.replica ?? []).map((replica, index) => {
    const rank = /** @type {any} */ ({
      cpu: null,
      memory: null,
      peak: null,
      gpu: null,
      gpuMemory: null,
      gpuPeak: null,
      step: null,
      stepsPerSecond: null,
      lag: 0,
      metrics: null,
      reason: '',
      message: '',
      node: '',
      behind: false,
    });
    for (const name of names) rank[name] = columns?.[name][index];
    rank.tone = toneOf(rank.state);
    rank.behind = rank.tone === 'run' && rank.lag > BEHIND * ((rank.step ?? 0) + rank.lag);
    return /** @type {Rank} */ (rank);
  });
  const steps = ranks.flatMap((rank) => rank.step ?? []).sort((a, b) => a - b);
  const median = steps.length ? steps[Math.floor(steps.length / 2)] : 0;
  const known = names.filter((name) => (columns?.[name] ?? []).some((value) => value !== null));
  return { ranks, columns: new Set(known), median };
}

/** Whether a rank of the job has, or had, a GPU. */
export const hasGpu = (/** @type {RankList} */ list) => ['gpu', 'gpuMemory', 'gpuPeak'].some((name) => list.columns.has(name));

/** Whether somebody should look at the rank. */
export const isUnhealthy = (/** @type {Rank} */ rank) => rank.behind || rank.tone === 'bad' || rank.tone === 'wait';

/**
 * The next or previous rank that is not well, in the order of the ranks, around their end.
 * @param {Rank[]} ranks @param {string} replica where to start; "" for none @param {1|-1} direction
 */
export function nextUnhealthy(ranks, replica, direction) {
  const start = ranks.findIndex((rank) => rank.replica === replica);
  const from = start < 0 && direction < 0 ? 0 : start;
  for (let distance = 1; distance <= ranks.length; distance++) {
    const rank = ranks[(from + direction * distance + 2 * ranks.length) % ranks.length];
    if (isUnhealthy(rank)) return rank;
  }
  return undefined;
}

/** How a rank is drawn. `level`: 0 to 1, how full its cell is; null where the state's own shape is drawn. */
/** @typedef {{tone: string, level: number|null}} Look */

/**
 * The colourings by name. `needs`: the column without which it is not offered. `legend`: pairs of a tone and a text.
 * @type {Record<string, {title: string, needs: string, look: (rank: Rank, list: RankList) => Look,
 *   legend: (list: RankList) => [string, string][]}>}
 */
export const COLOURINGS = {
  lag: {
    title: 'lag',
    needs: 'step',
    look: (rank) =>
      rank.tone !== 'run' || (rank.step === null && !rank.lag)
        ? { tone: rank.tone, level: null }
        : { tone: rank.behind ? 'bad' : 'run', level: (rank.step ?? 0) / ((rank.step ?? 0) + rank.lag || 1) },
    legend: (list) => [
      ['run', `at step ${count(Math.round(list.median))}`],
      ['bad', `${count(list.ranks.filter((rank) => rank.behind).length)} more than 10 % behind`],
    ].filter(([, text]) => !text.startsWith('0 ')),
  },
  state: { title: 'state', needs: 'state', look: (rank) => ({ tone: rank.tone, level: null }), legend: stateLegend },
  restarts: {
    title: 'restarts',
    needs: 'restarts',
    look: (rank) =>
      rank.restarts
        ? { tone: rank.restarts > 4 ? 'bad' : 'wait', level: Math.min(1, 0.25 + 0.15 * rank.restarts) }
        : { tone: 'run', level: 0 },
    legend: () => [['none', 'none'], ['wait', '1 to 4: the fuller, the more'], ['bad', '5 or more']],
  },
  cpu: {
    title: 'CPU',
    needs: 'cpu',
    look: scaled('cpu'),
    legend: (list) => [['accent', `full cell: ${largest(list, 'cpu').toFixed(1)} cores`]],
  },
  memory: {
    title: 'memory',
    needs: 'memory',
    look: scaled('memory'),
    legend: (list) => [['accent', `full cell: ${bytes(largest(list, 'memory'))}`]],
  },
  gpu: {
    title: 'GPU',
    needs: 'gpu',
    look: (rank) => (rank.gpu === null ? { tone: 'idle', level: null } : { tone: 'accent', level: rank.gpu / 100 }),
    legend: () => [['accent', 'full cell: busy all the time']],
  },
};

const maxima = new WeakMap();

function largest(/** @type {RankList} */ list, /** @type {'cpu'|'memory'} */ column) {
  const known = maxima.get(list) ?? {};
  known[column] ??= list.ranks.reduce((most, rank) => Math.max(most, rank[column] ?? 0), 0);
  maxima.set(list, known);
  return known[column];
}

function scaled(/** @type {'cpu'|'memory'} */ column) {
  return (/** @type {Rank} */ rank, /** @type {RankList} */ list) =>
    rank[column] === null
      ? { tone: 'idle', level: null }
      : { tone: 'accent', level: (rank[column] ?? 0) / (largest(list, column) || 1) };
}

/** @returns {[string, string][]} */
function stateLegend(/** @type {RankList} */ list) {
  const numbers = new Map();
  for (const rank of list.ranks) {
    const key = `${rank.tone}\n${rank.state}`;
    numbers.set(key, (numbers.get(key) ?? 0) + 1);
  }
  return [...numbers]
    .sort(([a], [b]) => compareNames(a, b))
    .map(([key, number]) => {
      const [tone, state] = key.split('\n');
      return [tone, `${state} ${count(number)}`];
    });
}

/** The step that a rank is at, and how fast it goes on; "" if that is not known. */
export function stepText(/** @type {Rank} */ rank) {
  if (rank.step === null) return '';
  const speed = rank.stepsPerSecond ? ` (${rank.stepsPerSecond.toPrecision(3)}/s)` : '';
  return `step ${count(Math.round(rank.step))}${speed}`;
}

/** The last values that the program has reported: loss 0.412. */
export const metricTexts = (/** @type {Rank} */ rank) =>
  Object.entries(rank.metrics ?? {})
    .filter(([name]) => name !== 'step')
    .map(([name, value]) => `${name} ${short(value)}`);

/** How busy its GPUs are, and their memory; "" for a rank without one. */
export function gpuText(/** @type {Rank} */ rank) {
  const memory = rank.gpuMemory === null ? '' : ` ${bytes(rank.gpuMemory)}`;
  const busy = rank.gpu === null ? '' : ` ${Math.round(rank.gpu)} %`;
  const peak = rank.gpuPeak ? ` peak ${bytes(rank.gpuPeak)}` : '';
  const parts = [busy, memory, peak].filter(Boolean);
  return parts.length ? `GPU${parts.join(',')}` : '';
}

/** One rank in a line of text. */
export function rankText(/** @type {Rank} */ rank) {
  return [
    rank.replica,
    rank.state,
    rank.exitCode === null || rank.exitCode === undefined ? '' : `exit ${rank.exitCode}`,
    rank.reason && rank.reason !== rank.state && rank.reason !== 'Completed' ? rank.reason : '',
    stepText(rank),
    ...metricTexts(rank).slice(0, 2),
    rank.cpu === null ? '' : `CPU ${Math.round(rank.cpu * 100)} %`,
    rank.memory === null ? '' : `${bytes(rank.memory)}${rank.peak ? ` (peak ${bytes(rank.peak)})` : ''}`,
    gpuText(rank),
    rank.restarts ? plural(rank.restarts, 'restart') : '',
    rank.node ? `node ${rank.node}` : '',
  ]
    .filter(Boolean)
    .join(' · ');
}

/** All ranks in a sentence, for those who do not see the grid. */
export function summaryText(/** @type {RankList} */ list) {
  const states = stateLegend(list)
    .map(([, text]) => text.replace(/^(.*) (\S+)$/, '$2 $1'))
    .join(', ');
  const behind = list.ranks.filter((rank) => rank.behind).map((rank) => rank.replica);
  const names = behind.slice(0, 5).join(', ') + (behind.length > 5 ? ' and more' : '');
  const lag = behind.length ? ` ${plural(behind.length, 'rank')} behind: ${names}.` : '';
  return `${plural(list.ranks.length, 'rank')}: ${states}.${lag}`;
}

/** The ranks of a job: the grid, its legend, those that are not well, and a table of all. */

import { element, reconcile, setAttribute, setState, setText, stateLabel } from './dom.js';
import { age, bytes, count, plural } from './format.js';
import { choice, panel } from './job_parts.js';
import { COLOURINGS, isUnhealthy } from './ranks.js';
import './rank_grid.js';
import { jobAddress } from './router.js';

/** @typedef {import('./ranks.js').Rank} Rank */

const NAMED = 6; // ranks that are not well and are listed by name
const SMALL = 232,
  LARGE = 420; // the largest height of the grid in CSS pixels

/** @param {(replica: string) => void} open */
export function createRanksPanel(open) {
  let chosen = '';
  let drawn = '';
  /** @type {import('./ranks.js').RankList} */
  let shownList = { ranks: [], columns: new Set(), median: 0 };
  /** @type {any} */
  let shownColumns = null;
  /** @type {any} */
  let shownRow = null;
  let now = 0;
  let isWhole = false;
  const grid = /** @type {import('./rank_grid.js').RankGrid} */ (element('rank-grid'));
  grid.addEventListener('open', (event) => open(/** @type {CustomEvent} */ (event).detail));
  const colourings = choice('Colour', (name) => {
    chosen = name;
    draw();
  });
  const legend = element('ul', { class: 'legend' });
  const unhealthy = element('p', { class: 'unhealthy' });
  const table = /** @type {import('./virtual_table.js').VirtualTable} */ (
    element('virtual-table', { class: 'ranks', hidden: true })
  );
  table.addEventListener('open', (event) => open(/** @type {CustomEvent} */ (event).detail.replica));
  const root = panel('ranks', 'Ranks', [colourings.root], [grid, legend, unhealthy, table]);
  const title = root.querySelector('h2');

  /** @returns {import('./virtual_table.js').Column<Rank>[]} */
  function columnsOf(/** @type {Set<string>} */ known) {
    const columns = [
      {
        name: 'name',
        title: 'Replica',
        create: () => element('a'),
        update: (/** @type {any} */ cell, /** @type {Rank} */ rank) => {
          setText(cell.firstChild, rank.replica);
          setAttribute(cell.firstChild, 'href', jobAddress(shownRow, 'ranks', rank.replica));
        },
      },
      {
        name: 'job-state',
        title: 'State',
        create: stateLabel,
        update: (/** @type {any} */ cell, /** @type {Rank} */ rank) => setState(cell.firstChild, rank.state, rank.tone),
      },
      text('exit number', 'Exit', (rank) => rank.exitCode ?? '', 'exitCode'),
      text('step number', 'Step', (rank) => (rank.step === null ? '-' : count(Math.round(rank.step))), 'step'),
      text('cpu number', 'CPU', (rank) => (rank.cpu === null ? '-' : `${Math.round(rank.cpu * 100)} %`), 'cpu'),
      text('memory number', 'Memory', (rank) => (rank.memory === null ? '-' : bytes(rank.memory)), 'memory'),
      text('gpu number', 'GPU', (rank) => (rank.gpu === null ? '-' : `${Math.round(rank.gpu)} %`), 'gpu'),
      text('gpu-memory number', 'GPU memory', (rank) => (rank.gpuMemory === null ? '-' : bytes(rank.gpuMemory)), 'gpuMemory'),
      text('gpu-peak number', 'GPU peak', (rank) => (rank.gpuPeak ? bytes(rank.gpuPeak) : '-'), 'gpuPeak'),
      text('restarts number', 'Restarts', (rank) => rank.restarts, 'restarts'),
      text('attempt number', 'Attempt', (rank) => rank.attempt, 'attempt'),
      text('age number', 'Age', (rank) => (rank.started ? age((rank.ended ?? now) - rank.started) : '-'), 'started'),
      text('node', 'Node', (rank) => rank.node, 'node'),
      text('why', 'Why', (rank) => rank.message || (rank.reason === 'Completed' ? '' : rank.reason), 'reason'),
    ];
    return columns.filter((column) => !('needs' in column) || known.has(String(column.needs)));
  }

  function draw() {
    const offered = Object.entries(COLOURINGS).filter(([, { needs }]) => shownList.columns.has(needs));
    const colouring = offered.some(([name]) => name === chosen) ? chosen : (offered[0]?.[0] ?? 'state');
    colourings.show(offered.map(([name, { title: text }]) => [name, text]), colouring);
    setText(/** @type {Node} */ (title), `Ranks ${count(shownList.ranks.length)}`);
    grid.maxHeight = isWhole ? LARGE : SMALL;
    grid.show(shownList, colouring);
    reconcile(
      legend,
      COLOURINGS[colouring].legend(shownList),
      ([tone, label], index) => `${index}${tone}`,
      ([tone]) => {
        const mark = element('i', { class: 'mark', 'aria-hidden': 'true' });
        return element('li', { class: 'state', 'data-tone': tone }, mark, element('span'));
      },
      (item, [, label]) => setText(item.lastChild, label),
    );
    drawUnhealthy();
    table.hidden = !isWhole;
    const known = [...shownList.columns].join();
    if (known !== drawn) {
      table.define('Ranks', columnsOf(shownList.columns), (rank) => rank.replica);
      drawn = known;
    }
    if (isWhole) table.setRows(shownList.ranks);
  }

  function drawUnhealthy() {
    const ranks = shownList.ranks.filter(isUnhealthy);
    const further = ranks.length - NAMED;
    reconcile(
      unhealthy,
      [...ranks.slice(0, NAMED), ...(further > 0 ? [null] : [])],
      (rank) => rank?.replica ?? '+',
      (rank) => (rank ? element('a') : element('span', { class: 'muted' })),
      (node, rank) => {
        setText(
          node,
          rank
            ? `${rank.replica} ${rank.behind ? 'behind' : rank.state}`
            : `and ${plural(further, 'other')}: ] goes to the next`,
        );
        if (rank) {
          setAttribute(node, 'data-tone', rank.behind ? 'bad' : rank.tone);
          setAttribute(node, 'href', jobAddress(shownRow, 'ranks', rank.replica));
        }
      },
    );
  }

  return {
    root,
    /** Whether these columns have not been shown. */
    shows: (/** @type {any} */ columns) => columns !== shownColumns,
    /**
     * @param {import('./ranks.js').RankList} list @param {any} columns @param {boolean} whole @param {any} row
     * @param {number} time
     */
    show(list, columns, whole, row, time) {
      const isSame = columns === shownColumns && whole === isWhole && row.uid === shownRow?.uid;
      [shownList, shownColumns, isWhole, shownRow, now] = [list, columns, whole, row, time];
      if (!isSame) draw();
      else if (whole) table.draw();
    },
  };
}

/**
 * A column of text that is there when the server sends the column `needs`.
 * @param {string} name @param {string} title @param {(rank: Rank) => string|number} value @param {string} needs
 */
function text(name, title, value, needs) {
  const update = (/** @type {HTMLElement} */ cell, /** @type {Rank} */ rank) => setText(cell, value(rank));
  return { name, title, needs, update };
}

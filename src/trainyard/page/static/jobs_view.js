/** The list of jobs. */

import { choiceColumn, chosen } from './chosen.js';
import { element, oncePerFrame, reconcile, setAttribute, setState, setText, stateLabel } from './dom.js';
import { age, count, dateTime, plural, short, toneOf } from './format.js';
import { isInPart, jobFilter, toggleState } from './job_filter.js';
import { jobAddress, jobsAddress, list } from './router.js';
import { drawShape } from './sparkline.js';
import './virtual_table.js';

/** @typedef {import('./store.js').JobRow} JobRow */

const STATES = ['Running', 'Pending', 'Failed', 'Suspended', 'Succeeded'];
const PARTS = [['now', 'Now'], ['history', 'History'], ['all', 'All']];

/**
 * @param {import('./live.js').Live} live @param {import('./store.js').Store} store
 * @returns {import('./virtual_table.js').Column<JobRow>[]}
 */
function columnsOf(live, store) {
  return [
    {
      name: 'name',
      title: 'Name',
      sort: (row) => row.name,
      update: (cell, row) => {
        const link = /** @type {HTMLElement} */ (cell.firstChild);
        setAttribute(link, 'href', jobAddress(row));
        setAttribute(link, 'title', `${row.namespace}/${row.name}`);
        setText(/** @type {Node} */ (link.firstChild), row.namespace === 'default' ? '' : `${row.namespace}/`);
        setText(/** @type {Node} */ (link.lastChild), row.name);
      },
      create: () => element('a', {}, element('span', { class: 'muted' }), element('span')),
    },
    { name: 'kind', title: 'Kind', sort: (row) => row.kind, update: (cell, row) => setText(cell, row.kind) },
    {
      name: 'job-state',
      title: 'State',
      sort: (row) => row.state,
      create: stateLabel,
      update: (cell, row) => setState(/** @type {Element} */ (cell.firstChild), row.state, toneOf(row.state)),
    },
    {
      name: 'ready number',
      title: 'Ready',
      sort: (row) => row.running / (row.replicas || 1),
      descending: true,
      update: (cell, row) => setText(cell, row.ended ? '-' : `${row.running}/${row.replicas}`),
    },
    {
      name: 'step number',
      title: 'Step',
      sort: (row) => store.progress.get(row.uid)?.step ?? -1,
      descending: true,
      update: (cell, row) => setText(cell, short(store.progress.get(row.uid)?.step)),
    },
    {
      name: 'loss number',
      title: 'Loss',
      sort: (row) => [store.progress.get(row.uid)?.loss].find(Number.isFinite) ?? Infinity,
      create: () => element('span', {}, element('canvas', { 'aria-hidden': 'true' }), element('span')),
      update: (cell, row) => {
        const { loss, shape } = store.progress.get(row.uid) ?? {};
        const [canvas, text] = /** @type {any} */ (cell.firstChild).children;
        setText(text, short(loss));
        canvas.hidden = !shape;
        if (shape) drawShape(canvas, shape);
      },
    },
    {
      name: 'restarts number',
      title: 'Restarts',
      sort: (row) => row.restarts,
      descending: true,
      update: (cell, row) => setText(cell, row.restarts),
    },
    {
      name: 'age number',
      title: 'Age',
      sort: (row) => -(row.created ?? 0),
      update: (cell, row) => {
        setText(cell, row.created ? age(live.now() - row.created) : '-');
        setAttribute(cell, 'title', dateTime(row.created));
      },
    },
    {
      name: 'why',
      title: 'Why',
      update: (cell, row) => {
        const why = row.message || (row.state === 'Running' && store.progress.get(row.uid)?.why) || '';
        setText(cell, why);
        setAttribute(cell, 'title', why || null);
      },
    },
  ];
}

/**
 * @param {import('./app.js').Context} context
 * @param {import('./router.js').Route} route
 */
export function createJobsView({ store, live, navigate }, route) {
  const columns = [choiceColumn, ...columnsOf(live, store)];
  let filter = '',
    part = 'now',
    order = 'age number',
    descending = false,
    drawnArrangement = '',
    isRestored = false;
  const counts = element('div', { class: 'counts', role: 'group', 'aria-label': 'Jobs by state' });
  const parts = element('div', { class: 'parts', role: 'group', 'aria-label': 'Part of the list' });
  const input = element('input', {
    type: 'search',
    placeholder: 'kind:pytorch state:failed bert',
    'aria-label': 'Filter',
    spellcheck: 'false',
    autocomplete: 'off',
    oninput: () => change({ q: input.value }),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Enter' && event.key !== 'ArrowDown') return;
      event.preventDefault();
      table.selected = '';
      table.move(1);
    },
  });
  const total = element('p', { class: 'muted total', role: 'status' });
  const choice = element('p', { class: 'muted', role: 'status' }, chosen.text);
  const table = /** @type {import('./virtual_table.js').VirtualTable} */ (element('virtual-table', { class: 'jobs' }));
  const empty = element('div', { class: 'empty' });
  const gpus = element('div', { hidden: true });
  const root = element(
    'section',
    { class: 'view' },
    element('h1', { class: 'hidden', tabindex: '-1' }, 'Jobs'),
    element('div', { class: 'toolbar' }, counts, parts),
    element(
      'div',
      { class: 'toolbar' },
      element('label', { class: 'filter' }, element('kbd', { 'aria-hidden': 'true' }, '/'), input),
      choice,
      total,
    ),
    table,
    empty,
    gpus,
  );
  table.define('Jobs', columns, (row) => row.uid);
  table.addEventListener('open', (event) => navigate(jobAddress(/** @type {CustomEvent} */ (event).detail)));
  table.addEventListener('sort', (event) => {
    const { detail } = /** @type {CustomEvent} */ (event);
    const preferred = Boolean(columns.find((column) => column.name === detail)?.descending);
    descending = detail === order ? !descending : preferred;
    order = detail;
    draw();
  });

  /** Changes the filter or the part of the list, and with it the address. */
  function change(/** @type {Record<string, string>} */ changed) {
    const query = { q: filter, show: part === 'now' ? '' : part, ...changed };
    history.replaceState(null, '', jobsAddress(query));
    read(new URLSearchParams(query));
  }

  function read(/** @type {URLSearchParams} */ query) {
    filter = query.get('q') ?? '';
    part = query.get('show') || 'now';
    if (input.value !== filter) input.value = filter;
    isRestored ||= list.address !== jobsAddress(Object.fromEntries(query));
    list.address = jobsAddress(Object.fromEntries(query));
    draw();
  }

  const draw = oncePerFrame(() => {
    const onlyHistory = store.hello?.mode === 'history';
    const shown = [...store.jobs.values()].filter((row) => onlyHistory || isInPart(row, part));
    const sort = columns.find((column) => column.name === order)?.sort ?? ((row) => row.name);
    const rows = shown.filter(jobFilter(filter)).sort((a, b) => {
      const [left, right] = [sort(a), sort(b)];
      const difference = left < right ? -1 : left > right ? 1 : a.uid < b.uid ? -1 : 1;
      return descending ? -difference : difference;
    });
    drawCounts(shown);
    const sizes = new Map(
      PARTS.map(([name]) => [name, [...store.jobs.values()].filter((row) => isInPart(row, name)).length]),
    );
    parts.hidden = onlyHistory;
    reconcile(
      parts,
      PARTS,
      ([name]) => name,
      ([name, title]) =>
        element('button', { type: 'button', onclick: () => change({ show: name === 'now' ? '' : name }) }, title),
      (button, [name, title]) => {
        setAttribute(button, 'aria-pressed', name === part);
        setText(button, `${title} ${count(sizes.get(name) ?? 0)}`);
      },
    );
    setText(total, store.complete ? `${count(rows.length)} of ${count(shown.length)}` : '');
    table.showOrder(order, descending);
    const arrangement = [filter, part, order, descending].join('\n');
    table.setRows(rows, arrangement === drawnArrangement);
    drawnArrangement = arrangement;
    table.hidden = !rows.length;
    drawEmpty(rows.length, shown.length);
    if (!isRestored && store.complete) restore();
  });

  /** Shows the place at which the list was left. */
  function restore() {
    isRestored = true;
    table.selected = list.selected;
    requestAnimationFrame(() => scrollTo(0, list.scroll));
  }

  function drawCounts(/** @type {JobRow[]} */ rows) {
    const numbers = new Map(STATES.map((state) => [state, 0]));
    for (const row of rows) numbers.set(row.state, (numbers.get(row.state) ?? 0) + 1);
    reconcile(
      counts,
      [...numbers],
      ([state]) => state,
      ([state]) => {
        const label = stateLabel();
        setState(label, state, toneOf(state));
        const onclick = () => change({ q: toggleState(filter, state) });
        return element('button', { type: 'button', onclick }, label, ' ', element('b'));
      },
      (button, [state, number]) => {
        setText(button.lastChild, count(number));
        const isChosen = filter.toLowerCase().split(/\s+/).includes(`state:${state.toLowerCase()}`);
        setAttribute(button, 'aria-pressed', isChosen);
      },
    );
  }

  function clearFilter() {
    change({ q: '' });
    input.focus();
  }

  function drawEmpty(/** @type {number} */ rows, /** @type {number} */ all) {
    empty.hidden = rows > 0;
    if (rows) return;
    const text = !store.complete
      ? 'Waiting for the list of jobs ...'
      : all
        ? `No job matches the filter. There ${all === 1 ? 'is' : 'are'} ${plural(all, 'job')}.`
        : part === 'history'
          ? 'No job has ended yet.'
          : 'No jobs. Start one, and it appears here:';
    const further =
      store.complete && all
        ? element('button', { type: 'button', onclick: clearFilter }, 'Clear the filter')
        : store.complete && part !== 'history'
          ? element('code', {}, 'trainyard run JOB.yaml')
          : null;
    if (empty.firstChild?.textContent === text) return;
    empty.replaceChildren(element('p', {}, text), further ?? '');
  }

  const selected = (/** @type {string} */ panel) => () => {
    if (table.selectedRow) navigate(jobAddress(table.selectedRow, panel));
  };
  const listeners = new AbortController();
  const drawChoice = () => {
    setText(choice, chosen.text);
    table.draw();
  };
  chosen.addEventListener('change', drawChoice, { signal: listeners.signal });
  store.addEventListener('jobs', draw, { signal: listeners.signal });
  const showDevices = async (/** @type {any} */ { detail }) => (await import('./devices_panel.js')).showDevices(gpus, detail);
  store.addEventListener('devices', showDevices, { signal: listeners.signal });
  store.addEventListener('hello', draw, { signal: listeners.signal });
  const drawProgress = () => (order.startsWith('step') || order.startsWith('loss') ? draw() : table.draw());
  store.addEventListener('progress', drawProgress, { signal: listeners.signal });
  live.addEventListener('tick', table.draw, { signal: listeners.signal });
  read(route.query);

  return {
    root,
    title: 'Jobs',
    topics: () => ['progress', 'devices'],
    setRoute: (/** @type {import('./router.js').Route} */ next) => read(next.query),
    destroy: () => {
      Object.assign(list, { selected: table.selected, scroll: scrollY });
      listeners.abort();
    },
    keys: {
      '/': () => input.select(),
      j: () => table.move(1),
      k: () => table.move(-1),
      ArrowDown: () => table.move(1),
      ArrowUp: () => table.move(-1),
      Enter: selected(''),
      l: selected('logs'),
      w: selected(''),
      e: selected('events'),
      y: selected('yaml'),
      ' ': () => Boolean(table.selectedRow) && chosen.toggle(table.selectedRow.uid),
      c: () => navigate(chosen.address),
      Escape: () => {
        if (filter) change({ q: '' });
      },
    },
  };
}

/** One job: what is wrong, what it does, and its parts in panels. */

import { copyButton, element, oncePerFrame, reconcile, setAttribute, setState, setText, stateLabel } from './dom.js';
import { dateTime, duration, plural, toneOf } from './format.js';
import { choice, eventsTable, findingsBox, panel } from './job_parts.js';
import { createCurvesPanel } from './curves.js';
import { createLogPanel } from './log_panel.js';
import { createRanksPanel } from './ranks_panel.js';
import { createDeviceUse } from './device_use.js';
import { MANY } from './lanes.js';
import { hasGpu, nextUnhealthy, readRanks } from './ranks.js';
import { PANELS, jobAddress, list } from './router.js';
import { tensorBoardButton } from './tensorboard.js';
import './timeline.js';

/** @typedef {import('./store.js').JobRow} JobRow */

const EVENTS_IN_OVERVIEW = 6;
const UNKNOWN = [{ level: 'note', what: 'Nothing more is known about this job.', where: '', evidence: [], fix: '' }];
const ROWS = 200; // of the timeline in a panel of its own
const RECENT = 600; // seconds of the timeline's second zoom

/** Whether nothing of the job runs any more. */
export const hasEnded = (/** @type {JobRow} */ row) => row.ended !== null || !row.live;

/** The line under a job's name: what is known of it at a glance. */
export function jobFacts(/** @type {import('./live.js').Live} */ live) {
  const state = stateLabel();
  const [kind, ready, restarts, time, where] = ['kind', 'ready', 'restarts', 'time', 'where'].map((name) =>
    element('span', { class: name }),
  );
  return {
    root: element('p', { class: 'facts' }, state, kind, ready, restarts, time, where),
    /** `disruptions`: restarts that the program did not cause, by cause. */
    show(/** @type {JobRow} */ row, /** @type {Record<string, number>} */ disruptions = {}) {
      setState(state, row.state, toneOf(row.state));
      setText(kind, row.kind);
      setText(ready, hasEnded(row) ? plural(row.replicas, 'replica') : `${row.running} of ${row.replicas} running`);
      const others = Object.entries(disruptions).map(([cause, count]) => `${count} by ${cause}`);
      const known = row.restarts || others.length ? [plural(row.restarts, 'restart'), ...others] : [];
      setText(restarts, known.join(', '));
      const start = row.started ?? row.created;
      setText(time, start ? duration((row.ended ?? live.now()) - start) : '');
      const period = [start && `since ${dateTime(start)}`, row.ended && `until ${dateTime(row.ended)}`];
      setAttribute(time, 'title', period.filter(Boolean).join(', '));
      setText(where, row.live ? '' : 'of the history');
    },
  };
}

/** The row of the job that an address names, once it is known, and what is shown until then. */
export function jobOfAddress(/** @type {import('./store.js').Store} */ store, /** @type {any} */ route) {
  /** @type {JobRow|undefined} */
  let row;
  const message = element('p', { class: 'empty' }, 'Waiting for the list of jobs ...');
  return {
    message,
    find() {
      row = row ? (store.jobs.get(row.uid) ?? row) : store.find(route);
      const recorded = row && !row.live ? store.data.get(row.uid)?.job?.row : null;
      if (row && recorded) row = { ...row, ...recorded, live: false };
      if (!row && store.complete) {
        const run = route.run ? `, run ${route.run}` : '';
        message.replaceChildren(
          `There is no ${route.kind} ${route.namespace}/${route.name}${run} here. `,
          element('a', { href: '#/?show=all' }, 'All jobs'),
        );
      }
      return row;
    },
  };
}

/** @param {import('./app.js').Context} context @param {any} route */
export function createJobView(context, route) {
  const { session, store, live, navigate, topicsChanged } = context;
  const job = jobOfAddress(store, route);
  let shown = route.panel,
    ranks = readRanks(undefined),
    span = 0,
    yamlVersion = '';
  /** @type {ReturnType<typeof createLogPanel>|null} */
  let log = null;
  const open = (/** @type {string} */ replica) => {
    const row = job.find();
    if (row) navigate(jobAddress(row, 'ranks', replica));
  };
  const facts = jobFacts(live),
    tensorBoard = tensorBoardButton(session),
    findings = findingsBox(),
    events = eventsTable(),
    ranksPanel = createRanksPanel(open),
    curves = createCurvesPanel(context);
  const tabs = element('nav', { class: 'tabs', 'aria-label': 'Parts of the job' });
  const timeline = /** @type {import('./timeline.js').AttemptTimeline} */ (element('attempt-timeline'));
  timeline.addEventListener('open', (event) => open(/** @type {CustomEvent} */ (event).detail));
  const deviceUse = createDeviceUse(session, () => draw());
  const zoom = choice('Zoom', (name) => {
    span = Number(name);
    draw();
  });
  const yaml = element('pre', { class: 'yaml', tabindex: '0', 'aria-label': 'YAML' });
  const reload = element('button', { type: 'button', class: 'quiet', onclick: () => loadYaml(true) }, 'Reload');
  const forbidden = element('p', { class: 'muted', hidden: true });
  const actionsStage = element('div');
  /** @type {ReturnType<typeof import('./actions.js').createActions>|null} */
  let actions = null;
  const moreEvents = element('a', { class: 'more' });
  const logStage = element('div');
  const sections = {
    ranks: ranksPanel.root,
    metrics: curves.root,
    timeline: panel('timeline', 'Timeline', [zoom.root], [timeline]),
    logs: panel('logs', 'Log', [], [logStage]),
    events: panel('events', 'Events', [moreEvents], [events.root]),
    yaml: panel('yaml', 'YAML', [copyButton(() => yaml.textContent), reload], [yaml]),
  };
  const content = element(
    'div',
    { class: 'job', hidden: true },
    facts.root,
    actionsStage,
    forbidden,
    tabs,
    findings.root,
    element('div', { class: 'panels' }, ...Object.values(sections)),
  );
  facts.root.append(tensorBoard.root);
  const root = element(
    'section',
    { class: 'view' },
    element('nav', { class: 'crumbs', 'aria-label': 'Where' }, element('a', { href: list.address }, 'Jobs'), ' › '),
    element('h1', { tabindex: '-1' }, `${route.namespace}/${route.name}`),
    job.message,
    content,
  );

  const draw = oncePerFrame(() => {
    const row = job.find();
    job.message.hidden = Boolean(row);
    content.hidden = !row;
    if (!row) return;
    const data = store.data.get(row.uid) ?? {};
    facts.show(row, data.job?.disruptions);
    tensorBoard.show(row.uid, row.live ? data.tensorboard : null);
    findings.show(data.findings);
    void showActions(row, (row.live && store.jobs.has(row.uid) && data.actions) || null);
    forbidden.hidden = !data.forbidden?.length;
    setText(forbidden, `You may not ${data.forbidden?.join(', ')}: what depends on it is missing here.`);
    showPanels(row);
    curves.show(row.uid, hasEnded(row));
    if (!log) {
      createLog(row);
      topicsChanged();
    }
    if (ranksPanel.shows(data.ranks)) ranks = readRanks(data.ranks);
    ranksPanel.show(ranks, data.ranks, shown === 'ranks', row, live.now());
    zoom.show([['0', 'all'], [String(RECENT), 'last 10 min']], String(span));
    timeline.span = span;
    if (data.timeline) {
      const names = ranks.ranks.map((rank) => rank.replica);
      const use = deviceUse(row.uid, hasEnded(row), hasGpu(ranks) && names.length <= MANY ? names : []);
      timeline.show(data.timeline, row.ended ?? live.now(), shown === 'timeline' ? ROWS : undefined, use);
    }
    const known = data.events ?? [];
    events.show(known, shown === 'events' ? Infinity : EVENTS_IN_OVERVIEW);
    moreEvents.hidden = shown === 'events' || known.length <= EVENTS_IN_OVERVIEW;
    setText(moreEvents, `All ${known.length}`);
    setAttribute(moreEvents, 'href', jobAddress(row, 'events'));
    if (shown === 'yaml') void loadYaml(false);
  });

  function showPanels(/** @type {JobRow} */ row) {
    content.dataset.panel = shown || 'overview';
    reconcile(
      tabs,
      PANELS,
      ([name]) => name,
      ([, title]) => element('a', {}, title),
      (link, [name]) => {
        setAttribute(link, 'href', jobAddress(row, name));
        setAttribute(link, 'aria-current', name === shown ? 'page' : null);
      },
    );
    for (const [name, section] of Object.entries(sections)) section.hidden = shown ? name !== shown : name === 'yaml';
    findings.root.hidden = shown !== '' && shown !== 'ranks';
  }

  /** A session that only reads loads nothing of it. */
  async function showActions(
    /** @type {JobRow} */ row,
    /** @type {import('./store.js').Actions|null} */ offered,
  ) {
    if (!actions) {
      if (!offered || store.hello.readOnly) return;
      const { createActions } = await import('./actions.js');
      actions ??= createActions(context);
      actionsStage.replaceChildren(actions.root);
    }
    actions.show(row, offered);
  }

  function createLog(/** @type {JobRow} */ row) {
    const data = store.data.get(row.uid);
    const first = nextUnhealthy(readRanks(data?.ranks).ranks, '', 1)?.replica ?? data?.ranks?.replica[0] ?? '';
    const isEnded = hasEnded(row);
    if (isEnded && !data?.ranks) return; // which log is of interest is not known yet
    log = createLogPanel(context, row.uid, {
      replica: isEnded ? first : '',
      isEnded,
      hasReplicaChoice: true,
      replicas: () => ranks.ranks.map((rank) => rank.replica),
      topicsChanged: () => {
        if (log) topicsChanged();
      },
    });
    logStage.replaceChildren(log.root);
  }

  /** The object is read again only on demand: text that somebody reads does not change under their eyes. */
  async function loadYaml(/** @type {boolean} */ again) {
    const row = job.find();
    if (!row || (yamlVersion === row.uid && !again)) return;
    yamlVersion = row.uid;
    try {
      setText(yaml, await (await session.request(`jobs/${row.uid}/yaml`)).text());
    } catch (error) {
      setText(yaml, `It cannot be read: ${/** @type {Error} */ (error).message}`);
      yamlVersion = '';
    }
  }

  function toPanel(/** @type {string} */ name) {
    const row = job.find();
    if (row) navigate(jobAddress(row, name));
  }

  function toUnhealthy(/** @type {1|-1} */ direction) {
    const rank = nextUnhealthy(ranks.ranks, '', direction);
    if (rank) open(rank.replica);
  }

  const { signal, ...listeners } = startListening(context, draw);
  store.addEventListener(
    'gone',
    (event) => {
      const uid = job.find()?.uid ?? '';
      if (/** @type {CustomEvent} */ (event).detail === uid && !store.data.has(uid)) findings.show(UNKNOWN);
    },
    { signal },
  );
  draw();
  return {
    root,
    title: `${route.name} · ${route.kind}`,
    topics: () => {
      const row = job.find();
      return row ? [`job:${row.uid}`, ...(log?.topics() ?? [])] : [];
    },
    setRoute(/** @type {any} */ next) {
      shown = next.panel;
      draw();
    },
    destroy() {
      listeners.stop();
      curves.destroy();
      log?.destroy();
    },
    keys: {
      ...keysOf(toPanel, toUnhealthy, () => log),
      Escape: () => (shown ? toPanel('') : navigate(list.address)),
    },
  };
}

/**
 * The keys of a job and of its ranks.
 * @param {(name: string) => void} toPanel @param {(direction: 1|-1) => void} toUnhealthy
 * @param {() => ReturnType<typeof createLogPanel>|null} log
 */
export const keysOf = (toPanel, toUnhealthy, log) => ({
  ...Object.fromEntries(PANELS.map(([name], index) => [String(index + 1), () => toPanel(name)])),
  l: () => toPanel('logs'),
  w: () => toPanel(''),
  e: () => toPanel('events'),
  y: () => toPanel('yaml'),
  '/': () => log()?.find(),
  f: () => log()?.follow(),
  '[': () => toUnhealthy(-1),
  ']': () => toUnhealthy(1),
});

/**
 * Calls `draw` when what a job shows has changed, until `stop`.
 * @param {import('./app.js').Context} context @param {() => void} draw
 */
export function startListening({ store, live }, draw) {
  const controller = new AbortController();
  for (const name of ['jobs', 'job']) store.addEventListener(name, draw, { signal: controller.signal });
  for (const name of ['tick', 'status']) live.addEventListener(name, draw, { signal: controller.signal });
  return { signal: controller.signal, stop: () => controller.abort() };
}

/** One rank: its attempt, its log, its curves, the events of its pods, and what to type for more. */

import { element, oncePerFrame, reconcile, setState, setText, stateLabel } from './dom.js';
import { bytes, clockTime, count, duration, plural } from './format.js';
import { commandLines, eventsTable, panel } from './job_parts.js';
import { createCurvesPanel } from './curves.js';
import { hasEnded, jobOfAddress, keysOf, startListening } from './job_view.js';
import { exitText } from './lanes.js';
import { createLogPanel } from './log_panel.js';
import { gpuText, hasGpu, metricTexts, nextUnhealthy, readRanks, stepText } from './ranks.js';
import { jobAddress, list } from './router.js';
import { createDeviceUse } from './device_use.js';
import './timeline.js';

/** @typedef {import('./ranks.js').Rank} Rank */

/**
 * What is known of a rank, as pairs of a name and a text; names without a text are left out.
 * @param {Rank} rank @param {import('./store.js').Lane[]} lanes @param {number} now
 */
function rankFacts(rank, lanes, now) {
  const attempts = new Set(lanes.map((lane) => lane.attempt)).size;
  const ends = lanes.flatMap((lane) =>
    lane.segments.filter((segment) => segment.exitCode !== null && segment.exitCode !== undefined),
  );
  const last = rank.restarts ? ends.at(-1) : null;
  const lastRun = last ? `, the last run: exit ${exitText(last.exitCode, last.reason)} at ${clockTime(last.end)}` : '';
  /** @type {[string, string][]} */
  const facts = [
    ['attempt', attempts > 1 ? `${rank.attempt} (${attempts} pods)` : String(rank.attempt ?? '')],
    [rank.ended ? 'ran for' : 'runs for', rank.started ? duration((rank.ended ?? now) - rank.started) : ''],
    ['node', rank.node],
    ['pod', rank.pod],
    ['exit', exitText(rank.exitCode, rank.reason)],
    ['restarts', String(rank.restarts ?? '') + lastRun],
    [
      'progress',
      [stepText(rank), rank.behind ? `${count(Math.round(rank.lag))} behind the others` : '', ...metricTexts(rank)]
        .filter(Boolean)
        .join(' · '),
    ],
    ['CPU', rank.cpu === null ? '' : `${Math.round(rank.cpu * 100)} %`],
    ['memory', rank.memory === null ? '' : `${bytes(rank.memory)}${rank.peak ? `, peak ${bytes(rank.peak)}` : ''}`],
    ['GPU', gpuText(rank).replace(/^GPU /, '')],
    ['why', rank.message || ''],
  ];
  return facts.filter(([, text]) => text !== '');
}

/** @param {import('./app.js').Context} context @param {any} route */
export function createRankView(context, route) {
  const { store, live, navigate, topicsChanged } = context;
  const job = jobOfAddress(store, route);
  let replica = route.rank,
    ranks = readRanks(undefined);
  /** @type {ReturnType<typeof createLogPanel>|null} */
  let log = null;
  const state = stateLabel(),
    facts = element('dl', { class: 'rank-facts' }),
    title = element('h1', { tabindex: '-1' }, replica);
  const jobLink = element('a', {}, `${route.namespace}/${route.name}`);
  const events = eventsTable(),
    commands = commandLines(),
    curves = createCurvesPanel(context),
    logStage = element('div'),
    position = element('span', { class: 'muted' });
  const missing = element('p', { class: 'empty', hidden: true });
  const timeline = /** @type {import('./timeline.js').AttemptTimeline} */ (element('attempt-timeline'));
  const deviceUse = createDeviceUse(context.session, () => draw());
  const toOther = (/** @type {1|-1} */ direction, /** @type {string} */ title) =>
    element('button', { type: 'button', class: 'quiet', onclick: () => toUnhealthy(direction) }, title);
  const previous = toOther(-1, '[ Previous unhealthy'), next = toOther(1, 'Next unhealthy ]');
  const content = element(
    'div',
    { class: 'rank', hidden: true },
    element('div', { class: 'toolbar facts' }, state, position, element('span', {}, previous, next)),
    facts,
    element(
      'div',
      { class: 'panels' },
      panel('logs', 'Log', [], [logStage]),
      curves.root,
      panel('timeline', 'Attempts', [], [timeline]),
      panel('commands', 'In a terminal', [], [commands.root]),
      panel('events', 'Events of its pods', [], [events.root]),
    ),
  );
  const root = element(
    'section',
    { class: 'view' },
    element('nav', { class: 'crumbs', 'aria-label': 'Where' }, element('a', { href: list.address }, 'Jobs'),
      ' › ', jobLink, ' › '),
    title,
    job.message,
    missing,
    content,
  );

  const draw = oncePerFrame(() => {
    const row = job.find();
    job.message.hidden = Boolean(row);
    if (!row) return;
    const data = store.data.get(row.uid) ?? {};
    ranks = readRanks(data.ranks);
    const rank = ranks.ranks.find((other) => other.replica === replica);
    jobLink.setAttribute('href', jobAddress(row, 'ranks'));
    content.hidden = !rank;
    missing.hidden = Boolean(rank) || !data.ranks;
    setText(missing, `The job has no rank ${replica}.`);
    if (!log) topicsChanged();
    if (!rank) return;
    setText(title, replica);
    setState(state, rank.state, rank.tone);
    setText(position, `rank ${count(ranks.ranks.indexOf(rank) + 1)} of ${count(ranks.ranks.length)}`);
    previous.disabled = next.disabled = !nextUnhealthy(ranks.ranks, replica, 1);
    const lanes = (data.timeline ?? []).filter((lane) => lane.replica === replica);
    reconcile(
      facts,
      rankFacts(rank, lanes, live.now()),
      ([name]) => name,
      ([name]) => element('div', {}, element('dt', {}, name), element('dd')),
      (node, [, text]) => setText(node.lastChild, text),
    );
    curves.show(row.uid, hasEnded(row), replica);
    const use = deviceUse(row.uid, hasEnded(row), hasGpu(ranks) ? [replica] : []);
    timeline.show(sameLanes(lanes), row.ended ?? live.now(), undefined, use);
    const pods = new Set([rank.pod, ...lanes.map((lane) => lane.pod)].map((pod) => `Pod/${pod}`));
    events.show((data.events ?? []).filter((event) => pods.has(event.object)));
    const namespace = row.namespace === 'default' ? '' : ` -n ${row.namespace}`;
    const slot = rank.index ? ` --role ${rank.role} --index ${rank.index}` : '';
    const logs = `trainyard logs ${row.name}${namespace}${slot}`;
    commands.show(
      row.live
        ? [`${logs} -f`, `kubectl exec -it${namespace} ${rank.pod} -- sh`, `trainyard why ${row.name}${namespace}`]
        : [logs],
    );
    if (!log) {
      log = createLogPanel(context, row.uid, {
        replica,
        isEnded: hasEnded(row),
        hasReplicaChoice: false,
        replicas: () => [replica],
        topicsChanged: () => {
          if (log) topicsChanged();
        },
      });
      logStage.replaceChildren(log.root);
      topicsChanged();
    }
  });

  /** @type {import('./store.js').Lane[]} */
  let drawnLanes = [];
  /** The same array for the same lanes: the timeline works out its rows only for another one. */
  function sameLanes(/** @type {import('./store.js').Lane[]} */ lanes) {
    if (lanes.length !== drawnLanes.length || lanes.some((lane, index) => lane !== drawnLanes[index]))
      drawnLanes = lanes;
    return drawnLanes;
  }

  function toUnhealthy(/** @type {1|-1} */ direction) {
    const row = job.find(),
      rank = nextUnhealthy(ranks.ranks, replica, direction);
    if (row && rank) navigate(jobAddress(row, 'ranks', rank.replica));
  }

  function toPanel(/** @type {string} */ name) {
    const row = job.find();
    if (row) navigate(jobAddress(row, name));
  }

  const { stop } = startListening(context, draw);
  draw();
  return {
    root,
    get title() {
      return `${replica} · ${route.name}`;
    },
    topics: () => {
      const row = job.find();
      return row ? [`job:${row.uid}`, ...(log?.topics() ?? [])] : [];
    },
    setRoute(/** @type {any} */ other) {
      if (other.rank === replica) return;
      replica = other.rank;
      log?.destroy();
      log = null;
      draw();
    },
    destroy() {
      stop();
      curves.destroy();
      log?.destroy();
    },
    keys: {
      ...keysOf(toPanel, toUnhealthy, () => log),
      Escape: () => toPanel('ranks'),
    },
  };
}

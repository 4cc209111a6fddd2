/** Start, header, addresses and keys. */

import { chosen } from './chosen.js';
import { element, setAttribute, setText } from './dom.js';
import { clockTime } from './format.js';
import { createJobsView } from './jobs_view.js';
import { handleKey } from './keys.js';
import { Live } from './live.js';
import { parseRoute } from './router.js';
import { Session, SessionEnded } from './session.js';
import { Store } from './store.js';

/**
 * What a view gets. `navigate` goes to an address of the page; `topicsChanged` is called when `topics()` has changed.
 * @typedef {{session: Session, store: Store, live: Live, navigate: (hash: string) => void,
 *   topicsChanged: () => void}} Context
 * @typedef {import('./router.js').Route} Route
 * @typedef {{root: HTMLElement, title: string, topics: () => string[], setRoute: (route: Route) => void,
 *   destroy: () => void, keys: Record<string, () => any>}} View
 */

const main = /** @type {HTMLElement} */ (document.getElementById('main'));
const banner = /** @type {HTMLElement} */ (document.getElementById('banner'));
const session = new Session();
const store = new Store();
const live = new Live(session);
/** @type {View|null} */
let view = null;
let shownKey = '';
const context = {
  session,
  store,
  live,
  navigate: (/** @type {string} */ hash) => {
    location.hash = hash;
  },
  topicsChanged: () => live.subscribe(['jobs', ...(view?.topics() ?? [])]),
};

const header = {
  compare: element('a', { href: '#/compare' }, 'Compare'),
  cluster: element('span', { class: 'cluster' }),
  right: element('span', { class: 'tag', hidden: true }),
  live: element('span', { class: 'live', role: 'status' }, 'connecting'),
  forbidden: element('p', { class: 'forbidden', hidden: true }),
};

function createHeader() {
  document
    .getElementById('header')
    ?.append(
      element('a', { class: 'brand', href: '#/' }, 'Trainyard'),
      element('nav', { 'aria-label': 'Views' }, element('a', { href: '#/' }, 'Jobs'), header.compare),
      header.cluster,
      header.right,
      header.live,
      element(
        'button',
        { type: 'button', class: 'quiet', 'aria-label': 'Keys', title: 'Keys', onclick: () => handleKey('?', view) },
        '?',
      ),
    );
  banner.after(header.forbidden);
}

function showChosen() {
  setText(header.compare, chosen.uids.length ? `Compare (${chosen.uids.length})` : 'Compare');
  setAttribute(header.compare, 'href', chosen.address);
}

function showHello() {
  const { cluster, mode, readOnly, forbidden = [] } = store.hello;
  setText(header.cluster, mode === 'history' ? 'history' : `${cluster}${mode === 'local' ? ' · this machine' : ''}`);
  header.right.hidden = false;
  setText(header.right, readOnly ? 'read-only' : 'may change jobs');
  setAttribute(header.right, 'title', readOnly ? 'The page changes nothing' : 'A job has buttons that change it');
  header.forbidden.hidden = !forbidden.length;
  setText(
    header.forbidden,
    forbidden.length ? `You may not ${forbidden.join(', ')}: what depends on it is missing here.` : '',
  );
}

function showStatus() {
  setAttribute(document.documentElement, 'data-status', live.status);
  setText(header.live, live.status === 'stale' ? 'not connected' : live.status);
  banner.hidden = live.status !== 'stale';
  if (live.status === 'stale') {
    const reason = live.reason ? ` (${live.reason})` : '';
    setText(banner, `Not connected since ${clockTime(live.lastFrame)}${reason}. What you see is from then.`);
  }
}

/** Views but the first are loaded when they are shown. @param {Route} route @returns {Promise<View>} */
async function createView(route) {
  if (route.view === 'jobs') return createJobsView(context, route);
  if (route.view === 'job') return (await import('./job_view.js')).createJobView(context, route);
  if (route.view === 'compare') return (await import('./compare_view.js')).createCompareView(context, route);
  if (route.view === 'rank') return (await import('./rank_view.js')).createRankView(context, route);
  const root = element(
    'section',
    { class: 'view' },
    element('h1', { tabindex: '-1' }, 'No such page'),
    element('p', {}, 'The address names none. ', element('a', { href: '#/' }, 'All jobs')),
  );
  return { root, title: 'No such page', topics: () => [], setRoute: () => {}, destroy: () => {}, keys: {} };
}

/** Shows what the address names. A view whose object stays keeps its elements. */
async function showRoute() {
  const route = parseRoute(location.hash);
  const key = 'name' in route ? [route.view, route.namespace, route.kind, route.name, route.run].join('/') : route.view;
  if (view && key === shownKey) {
    view.setRoute(route);
  } else {
    const isFirst = !view;
    const leaving = view;
    const { hash } = location;
    const next = await createView(route).catch(() => null);
    if (!next) return showFailure();
    if (hash !== location.hash || view !== leaving) return next.destroy();
    leaving?.destroy();
    view = next;
    main.replaceChildren(view.root);
    if (!isFirst) {
      scrollTo(0, 0);
      /** @type {HTMLElement|null} */ (main.querySelector('h1'))?.focus();
    }
    shownKey = key;
  }
  document.title = `${view.title} · Trainyard`;
  context.topicsChanged();
}

function showFailure() {
  const text = 'The server of this page does not answer. Load the page again.';
  main.replaceChildren(element('p', { class: 'view' }, text));
}

function showSessionEnd() {
  document.body.replaceChildren(
    element(
      'main',
      { class: 'ended' },
      element('h1', {}, 'Trainyard'),
      element('p', {}, 'This link was used or is too old. ', element('code', {}, 'trainyard ui'), ' prints a new one.'),
    ),
  );
}

async function start() {
  session.onEnd = showSessionEnd;
  try {
    await session.start();
  } catch (error) {
    if (!(error instanceof SessionEnded)) showFailure();
    return;
  }
  createHeader();
  store.addEventListener('hello', showHello);
  chosen.addEventListener('change', showChosen);
  live.addEventListener('status', showStatus);
  live.addEventListener('frame', (event) => store.apply(/** @type {CustomEvent} */ (event).detail));
  addEventListener('hashchange', showRoute);
  addEventListener('keydown', (event) => handleKey(event, view));
  void showRoute();
  live.start();
}

await start();

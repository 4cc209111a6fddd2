/** Addresses of the page: everything that is shown can be linked to. */

/**
 * @typedef {{view: 'jobs'|'compare', query: URLSearchParams}
 *   | {view: 'job'|'rank', namespace: string, kind: string, name: string, run: string, panel: string, rank: string,
 *      query: URLSearchParams}
 *   | {view: 'unknown', query: URLSearchParams}} Route
 */

/** The panels of a job, in the order of the keys 1 to 7. */
export const PANELS = [
  ['', 'Overview'],
  ['ranks', 'Ranks'],
  ['logs', 'Logs'],
  ['metrics', 'Metrics'],
  ['timeline', 'Timeline'],
  ['events', 'Events'],
  ['yaml', 'YAML'],
];

const decode = (/** @type {string} */ part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

/** @returns {Route} */
export function parseRoute(/** @type {string} */ hash) {
  const [path, ...search] = hash.replace(/^#\/?/, '').split('?');
  const query = new URLSearchParams(search.join('?'));
  const parts = path.split('/').filter(Boolean).map(decode);
  if (!parts.length) return { view: 'jobs', query };
  if (parts.length === 1 && parts[0] === 'compare') return { view: 'compare', query };
  if (parts[0] !== 'jobs' || parts.length < 4) return { view: 'unknown', query };
  const [, namespace, kind, named, panel = '', rank = ''] = parts;
  const [name, run = ''] = named.split('@');
  const isRank = panel === 'ranks' && rank !== '';
  if (!isRank && !PANELS.some(([known]) => known === panel)) return { view: 'unknown', query };
  return { view: isRank ? 'rank' : 'job', namespace, kind, name, run, panel, rank, query };
}

/**
 * The address of a job's run, or of a panel or a rank of it.
 * @param {{namespace: string, kind: string, name: string, uid: string}} row
 */
export function jobAddress(row, panel = '', rank = '') {
  const parts = [row.namespace, row.kind].map(encodeURIComponent);
  parts.push(`${encodeURIComponent(row.name)}@${row.uid.slice(0, 8)}`);
  if (panel) parts.push(panel);
  if (rank) parts.push(encodeURIComponent(rank));
  return `#/jobs/${parts.join('/')}`;
}

/** The list as it was left: a way back leads there. */
export const list = { address: '#/', selected: '', scroll: 0 };

/** The address of the list with its filter. */
export function jobsAddress(/** @type {Record<string, string>} */ query) {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return search ? `#/?${search}` : '#/';
}

/** The address of a comparison. @param {string[]} uids @param {Record<string, string>} query */
export function compareAddress(uids, query) {
  const further = Object.entries(query).filter(([, value]) => value);
  const search = [`jobs=${uids.map(encodeURIComponent).join(',')}`, new URLSearchParams(further).toString()];
  return uids.length ? `#/compare?${search.filter(Boolean).join('&')}` : '#/compare';
}

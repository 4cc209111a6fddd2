/** The filter of the list of jobs: `kind:pytorch state:failed bert`. All words must match; case does not matter. */

/** @typedef {import('./store.js').JobRow} JobRow */

/** @type {Record<string, (row: JobRow) => string>} */
const FIELDS = {
  kind: (row) => row.kind,
  state: (row) => row.state,
  name: (row) => row.name,
  ns: (row) => row.namespace,
  namespace: (row) => row.namespace,
  uid: (row) => row.uid,
};

/**
 * @param {string} text
 * @returns {(row: JobRow) => boolean}
 */
export function jobFilter(text) {
  const tests = text
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const separator = word.indexOf(':');
      const name = word.slice(0, separator),
        value = word.slice(separator + 1);
      if (separator > 0 && Object.hasOwn(FIELDS, name))
        return (/** @type {JobRow} */ row) => FIELDS[name](row).toLowerCase().includes(value);
      return (/** @type {JobRow} */ row) => `${row.namespace}/${row.name} ${row.message}`.toLowerCase().includes(word);
    });
  return (row) => tests.every((test) => test(row));
}

/** The filter with `state:STATE` in the place of another state; without it if it has that one. */
export function toggleState(/** @type {string} */ text, /** @type {string} */ state) {
  const term = `state:${state.toLowerCase()}`;
  const words = text.split(/\s+/).filter(Boolean);
  const others = words.filter((word) => !word.toLowerCase().startsWith('state:'));
  return (words.some((word) => word.toLowerCase() === term) ? others : [term, ...others]).join(' ');
}

/** Whether a row belongs to that part of the list: now (what the cluster has), history (what it has not), all. */
export function isInPart(/** @type {JobRow} */ row, /** @type {string} */ part) {
  return part === 'all' || row.live === (part === 'now');
}

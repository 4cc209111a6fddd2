/** The jobs that are chosen for a comparison. They are kept while the page is open; the address of the comparison has them. */

import { element, setAttribute } from './dom.js';
import { compareAddress } from './router.js';

/** The most runs that are compared. */
export const MOST = 8;

/** Event: `change`. */
class Chosen extends EventTarget {
  /** @type {string[]} */
  uids = [];
  /** What else the address of the comparison had: its axis and its metric. @type {Record<string, string>} */
  query = {};
  /** What the list of jobs says of the choice. */
  text = '';

  get address() {
    return compareAddress(this.uids, this.query);
  }

  /** Chooses a job, or not any more. */
  toggle(/** @type {string} */ uid) {
    const others = this.uids.filter((known) => known !== uid);
    if (others.length < this.uids.length) this.#set(others);
    else if (others.length < MOST) this.#set([...others, uid]);
    else this.#set(others, `At most ${MOST} jobs are compared: take another one out first`);
  }

  replace(/** @type {string[]} */ uids, /** @type {Record<string, string>} */ query) {
    this.query = query;
    this.#set(uids.slice(0, MOST));
  }

  #set(/** @type {string[]} */ uids, text = uids.length ? `${uids.length} of at most ${MOST} chosen to compare` : '') {
    this.uids = uids;
    this.text = text;
    this.dispatchEvent(new Event('change'));
  }
}

export const chosen = new Chosen();

/** The column of the list of jobs that chooses. @type {import('./virtual_table.js').Column<import('./store.js').JobRow>} */
export const choiceColumn = {
  name: 'choice',
  title: 'Compare',
  create: () => {
    const box = element('input', { type: 'checkbox', onchange: () => chosen.toggle(box.closest('tr').row.uid) });
    return element('label', {}, box);
  },
  update: (cell, row) => {
    const box = /** @type {HTMLInputElement} */ (cell.querySelector('input'));
    box.checked = chosen.uids.includes(row.uid);
    setAttribute(box, 'aria-label', `Compare ${row.namespace}/${row.name}`);
  },
};

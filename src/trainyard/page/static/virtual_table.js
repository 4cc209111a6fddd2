/** A table that has elements only for the rows near the visible part of the page. It scrolls with the page. */

import { element, oncePerFrame, reconcile, setAttribute } from './dom.js';

const WHOLE = 200; // up to this number of rows all have elements, so that the browser's own search finds them
const MARGIN = 8; // rows above and below the visible part

/**
 * `update(cell, row)` writes a row into a cell that it, or another row, has been written into before. `sort`: the value
 * by which the rows are ordered when the title is pressed.
 * @template T
 * @typedef {{name: string, title: string, update: (cell: HTMLTableCellElement, row: T) => void,
 *   create?: () => Node, sort?: (row: T) => string|number, descending?: boolean}} Column
 */

/** Events: `open` (detail: the row), `sort` (detail: the name of a column). */
export class VirtualTable extends HTMLElement {
  /** @type {Column<any>[]} */
  #columns = [];
  /** @type {any[]} */
  #rows = [];
  #keyOf = (/** @type {any} */ row) => String(row);
  #rowHeight = 36;
  /** The key of the selected row; "" for none. */
  selected = '';
  #head = element('tr', { role: 'row' });
  #body = element('tbody', { role: 'rowgroup' });
  #table = element('table', { role: 'table' }, element('thead', { role: 'rowgroup' }, this.#head), this.#body);
  /** @type {HTMLElement[]} */
  #spare = [];
  #observed = new AbortController();

  draw = oncePerFrame(() => this.#draw());

  connectedCallback() {
    this.append(this.#table);
    this.#observed = new AbortController();
    const options = { signal: this.#observed.signal, passive: true };
    addEventListener('scroll', this.draw, options);
    addEventListener('resize', this.draw, options);
  }

  disconnectedCallback() {
    this.#observed.abort();
  }

  /**
   * @param {string} label
   * @param {Column<any>[]} columns
   * @param {(row: any) => string} keyOf
   */
  define(label, columns, keyOf) {
    this.#columns = columns;
    this.#keyOf = keyOf;
    this.#table.setAttribute('aria-label', label);
    reconcile(
      this.#body,
      [],
      String,
      () => this.#createRow()
    );
    this.#spare = [];
    this.#head.replaceChildren(
      ...columns.map((column) =>
        element(
          'th',
          { scope: 'col', role: 'columnheader', class: column.name },
          column.sort
            ? element('button', { type: 'button', onclick: () => this.#emit('sort', column.name) }, column.title)
            : column.title,
        ),
      ),
    );
  }

  /** Shows by which column the rows are ordered. */
  showOrder(/** @type {string} */ name, /** @type {boolean} */ descending) {
    this.#columns.forEach((column, index) =>
      setAttribute(
        this.#head.children[index],
        'aria-sort',
        column.name === name ? (descending ? 'descending' : 'ascending') : null,
      ),
    );
  }

  /** @param {any[]} rows @param {boolean} [keepsPlace] rows that are new above the visible ones do not move those */
  setRows(rows, keepsPlace = true) {
    const top = this.#firstVisible();
    const anchor = top > 0 && keepsPlace ? this.#rows[top] : undefined;
    this.#rows = rows;
    setAttribute(this.#table, 'aria-rowcount', rows.length + 1);
    if (anchor) {
      const key = this.#keyOf(anchor);
      const moved = rows.findIndex((row) => this.#keyOf(row) === key) - top;
      if (moved && moved > -top - 1) {
        this.#draw();
        scrollBy(0, moved * this.#rowHeight);
      }
    }
    this.draw();
  }

  /** The selected row, if it is among the rows. */
  get selectedRow() {
    return this.#rows.find((row) => this.#keyOf(row) === this.selected);
  }

  /** Selects the row that many rows further, and shows it. */
  move(/** @type {number} */ distance) {
    if (!this.#rows.length) return;
    const current = this.#rows.findIndex((row) => this.#keyOf(row) === this.selected);
    const from = current < 0 ? (distance > 0 ? Math.max(0, this.#firstVisible()) - 1 : this.#rows.length) : current;
    const index = Math.min(this.#rows.length - 1, Math.max(0, from + distance));
    this.selected = this.#keyOf(this.#rows[index]);
    const top = this.#bodyTop() + index * this.#rowHeight;
    const headHeight = this.#head.offsetHeight;
    if (top < headHeight) scrollBy(0, top - headHeight);
    else if (top + this.#rowHeight > innerHeight) scrollBy(0, top + this.#rowHeight - innerHeight + 4);
    this.#draw();
    const link = /** @type {HTMLElement|null} */ (this.querySelector('tr[aria-selected=true] a'));
    link?.focus({ preventScroll: true });
  }

  #emit(/** @type {string} */ name, /** @type {any} */ detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  /** Where the first row is or would be, from the top of the visible part. */
  #bodyTop() {
    return this.getBoundingClientRect().top + this.#head.offsetHeight;
  }

  #firstVisible() {
    return Math.floor((this.#head.offsetHeight - this.#bodyTop()) / this.#rowHeight);
  }

  #draw() {
    if (!this.isConnected) return;
    const length = this.#rows.length,
      height = this.#rowHeight;
    const visible = Math.ceil(innerHeight / height);
    const last = Math.min(length, length <= WHOLE ? length : Math.max(0, this.#firstVisible()) + visible + MARGIN);
    const first = length <= WHOLE ? 0 : Math.max(0, Math.min(this.#firstVisible() - MARGIN, last - visible));
    reconcile(
      this.#body,
      this.#rows.slice(first, last),
      (row) => this.#keyOf(row),
      () => this.#createRow(),
      (line, row, index) => this.#updateRow(line, row, first + index),
      this.#spare,
    );
    this.style.paddingTop = `${first * height}px`;
    this.style.paddingBottom = `${(length - last) * height}px`;
    const measured = this.#body.firstElementChild?.getBoundingClientRect().height;
    if (measured && Math.abs(measured - height) > 0.01) {
      this.#rowHeight = measured;
      this.draw();
    }
  }

  #createRow() {
    const line = element(
      'tr',
      { role: 'row' },
      ...this.#columns.map((column) =>
        element('td', { role: 'cell', class: column.name, 'data-title': column.title }, column.create?.()),
      ),
    );
    line.addEventListener('click', (/** @type {MouseEvent} */ event) => {
      const isLink = event.target instanceof Element && event.target.closest('a, button, label');
      if (!isLink && !event.ctrlKey && !event.metaKey && !String(getSelection())) this.#emit('open', line.row);
    });
    line.addEventListener('focusin', () => {
      this.selected = this.#keyOf(line.row);
      this.draw();
    });
    return line;
  }

  /** @param {any} line @param {any} row @param {number} index */
  #updateRow(line, row, index) {
    line.row = row;
    setAttribute(line, 'aria-rowindex', index + 2);
    setAttribute(line, 'aria-selected', this.#keyOf(row) === this.selected ? 'true' : null);
    this.#columns.forEach((column, position) => column.update(line.children[position], row));
  }
}

customElements.define('virtual-table', VirtualTable);

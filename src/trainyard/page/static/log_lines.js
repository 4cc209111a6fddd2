/** Lines of output: thousands are kept, those near the visible part have elements. */

import { element, oncePerFrame, reconcile, setText } from './dom.js';
import { plainLine } from './format.js';

/** @typedef {{replica: string, text: string, isNote?: boolean}} Line `isNote`: about the output, no part of it */

const KEPT = 20_000,
  TRIMMED = 2_000; // lines
const HEIGHT = 20; // of a line, in CSS pixels; style.css has it too
const MARGIN = 10;

/** Lower case in as many characters: of one letter alone the lower case has two. */
const lowerCase = (/** @type {string} */ text) => text.replaceAll('İ', 'i').toLowerCase();

/** Events: `follow` (detail: whether it follows), `find` (detail: {position, total}). */
export class LogLines extends HTMLElement {
  /** @type {Line[]} */
  #lines = [];
  #base = 0; // the number of the first kept line
  #follows = true;
  #lastTop = 0;
  #query = '';
  /** @type {number[]} numbers of the lines with the query */
  #matches = [];
  #match = -1;
  /** @type {HTMLElement[]} */
  #spare = [];
  #isNarrow = false; // without the names of replicas
  #nameLength = 0; // of the longest name of a replica: the texts begin in one column
  #inner = element('div', { class: 'lines' });
  #observer = new ResizeObserver(() => this.#draw());

  draw = oncePerFrame(() => this.#draw());

  connectedCallback() {
    this.append(this.#inner);
    this.setAttribute('tabindex', '0');
    this.setAttribute('role', 'region');
    this.setAttribute('aria-label', 'Lines of the log');
    this.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.#observer.observe(this);
  }

  disconnectedCallback() {
    this.#observer.disconnect();
  }

  get follows() {
    return this.#follows;
  }

  set follows(value) {
    if (value === this.#follows) return;
    this.#follows = value;
    this.dispatchEvent(new CustomEvent('follow', { detail: value }));
    this.draw();
  }

  get length() {
    return this.#lines.length;
  }

  clear(showsReplicas = true) {
    this.#lines = [];
    this.#base = 0;
    this.#isNarrow = !showsReplicas;
    this.#nameLength = 0;
    this.#lastTop = this.scrollTop = 0;
    this.#search();
    this.draw();
  }

  appendLines(/** @type {Line[]} */ lines) {
    for (const line of lines) {
      const shown = line.isNote ? line : { replica: line.replica, text: plainLine(line.text) };
      this.#lines.push(shown);
      this.#nameLength = Math.max(this.#nameLength, line.replica.length);
      if (this.#query && this.#has(shown)) this.#matches.push(this.#base + this.#lines.length - 1);
    }
    if (this.#lines.length > KEPT) this.#trim(this.#lines.length - KEPT + TRIMMED);
    if (this.#query) this.#tellFind();
    this.draw();
  }

  /** Lines before the first one; what is visible stays where it is. */
  prependLines(/** @type {Line[]} */ lines) {
    this.#lines = [...lines.map((line) => ({ ...line, text: plainLine(line.text) })), ...this.#lines];
    this.#base -= lines.length;
    this.#search();
    if (this.#query) this.#tellFind();
    this.#draw();
    this.#lastTop = this.scrollTop += lines.length * HEIGHT;
  }

  #trim(/** @type {number} */ number) {
    this.#lines.splice(0, number);
    this.#base += number;
    this.#setMatches(this.#matches.filter((match) => match >= this.#base));
    if (!this.#follows) {
      this.#draw();
      this.#lastTop = this.scrollTop = Math.max(0, this.#lastTop - number * HEIGHT);
    }
  }

  #has(/** @type {Line} */ line) {
    return !line.isNote && lowerCase(line.text).includes(this.#query);
  }

  /** Marks the text in all lines and shows the last line that has it. */
  find(/** @type {string} */ query) {
    this.#query = lowerCase(query);
    this.#search();
    if (this.#matches.length) this.#show(this.#matches.length - 1);
    else this.#tellFind();
    this.draw();
  }

  #search() {
    this.#setMatches(
      this.#query ? this.#lines.flatMap((line, index) => (this.#has(line) ? [this.#base + index] : [])) : [],
    );
  }

  /** The current line stays the current one, if it is among these. */
  #setMatches(/** @type {number[]} */ matches) {
    const current = this.#matches[this.#match];
    this.#matches = matches;
    this.#match = matches.indexOf(current);
  }

  /** Shows the line with the text that is that many further. */
  findNext(/** @type {number} */ distance) {
    const total = this.#matches.length;
    const from = this.#match < 0 && distance < 0 ? 0 : this.#match;
    if (total) this.#show((from + distance + total) % total);
  }

  #show(/** @type {number} */ match) {
    this.#match = match;
    this.follows = false;
    this.#lastTop = this.scrollTop = (this.#matches[match] - this.#base) * HEIGHT - this.clientHeight / 2;
    this.#lastTop = this.scrollTop;
    this.#tellFind();
    this.draw();
  }

  #tellFind() {
    this.dispatchEvent(new CustomEvent('find', { detail: { position: this.#match + 1, total: this.#matches.length } }));
  }

  /** Scrolling back ends the following, scrolling to the end begins it; scrolling by this element does neither. */
  #scrolled() {
    const isAtEnd = this.scrollTop + this.clientHeight >= this.scrollHeight - 4;
    if (this.scrollTop < this.#lastTop - 1 && !isAtEnd) this.follows = false;
    else if (this.scrollTop > this.#lastTop + 1 && isAtEnd) this.follows = true;
    this.#lastTop = this.scrollTop;
    this.draw();
  }

  #draw() {
    if (!this.isConnected || !this.clientHeight) return;
    const total = this.#lines.length * HEIGHT;
    const top = this.#follows ? Math.max(0, total - this.clientHeight) : this.scrollTop;
    const first = Math.max(0, Math.floor(top / HEIGHT) - MARGIN);
    const last = Math.min(this.#lines.length, Math.ceil((top + this.clientHeight) / HEIGHT) + MARGIN);
    this.#inner.style.paddingTop = `${first * HEIGHT}px`;
    this.#inner.style.paddingBottom = `${(this.#lines.length - last) * HEIGHT}px`;
    reconcile(
      this.#inner,
      this.#lines.slice(first, last),
      (_, index) => String(this.#base + first + index),
      () =>
        element('div', { class: 'line' }, element('span', { class: 'replica' }), element('span', { class: 'text' })),
      (node, line, index) => this.#updateLine(node, line, this.#base + first + index),
      this.#spare,
    );
    if (this.#follows && this.scrollTop < top - 1) this.#lastTop = this.scrollTop = top + HEIGHT;
    this.#lastTop = this.scrollTop;
  }

  /** @param {HTMLElement} node @param {Line} line @param {number} number */
  #updateLine(node, line, number) {
    const isCurrent = this.#query !== '' && this.#matches[this.#match] === number;
    node.className = line.isNote ? 'line note' : isCurrent ? 'line current' : 'line';
    const [replica, text] = /** @type {HTMLElement[]} */ ([...node.children]);
    setText(replica, line.isNote || this.#isNarrow ? '' : line.replica);
    replica.style.minWidth = `${this.#nameLength}ch`;
    if (node.dataset.query === this.#query && text.textContent === line.text) return;
    node.dataset.query = this.#query;
    text.replaceChildren(...(this.#query && !line.isNote ? this.#marked(line.text) : [line.text]));
  }

  *#marked(/** @type {string} */ text) {
    const lower = lowerCase(text);
    let position = 0;
    for (let hit = lower.indexOf(this.#query); hit >= 0; hit = lower.indexOf(this.#query, position)) {
      yield text.slice(position, hit);
      position = hit + this.#query.length;
      yield element('mark', {}, text.slice(hit, position));
    }
    yield text.slice(position);
  }
}

customElements.define('log-lines', LogLines);
